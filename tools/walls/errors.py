"""Errors of public functions that no contract names.

A function that raises an error by a `raise` of its own names the class, or a base class in `BASES`, in its
docstring, in that of its class or in that of its module.

Not here: errors of the functions that a function calls. Next: `source`, the modules that are read.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.walls.source import Module

BASES: Final = {
    **dict.fromkeys([f"Usage{n}Error" for n in ("Type", "Index", "Name", "ZeroDivision")], "UsageError"),
    "OutOfMemoryError": "DriverError",
}
"""Class -> the base class that may stand for it."""
_NONE: Final = frozenset({"AssertionError", "AttributeError", "StopIteration", "SystemExit"})
"""Errors of what cannot happen, and of Python's own protocols."""


def unnamed_errors(modules: Mapping[str, Module]) -> list[str]:
    """Return "file: function raises Error" for each error that no docstring names."""
    return [
        f"{module.path}: {name} raises {error}"
        for module in modules.values()
        for name, text, node in _functions(module.tree, "", "")
        for error in dict.fromkeys(_raised(node))
        if error not in _NONE and error not in text and BASES.get(error, error) not in text
    ]


def _functions(node: ast.AST, name: str, text: str) -> Iterator[tuple[str, str, ast.AST]]:
    """Yield (name, docstrings that apply, node) of each public function and of the constructors."""
    body: list[ast.stmt] = getattr(node, "body", [])
    text += ast.get_docstring(node) or ""  # type: ignore[arg-type]  # a module, class or function
    docs: dict[str, str] = {}
    for one in body:
        if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
            yield from _functions(one, f"{name}{one.name}.", text)
        elif isinstance(one, ast.FunctionDef) and (one.name[:1] != "_" or one.name[:2] == "__"):
            docs[one.name] = docs.get(one.name, text) + (ast.get_docstring(one) or "")  # a setter has two
            yield f"{name}{one.name}", docs[one.name], one


def _raised(node: ast.AST) -> Iterator[str]:
    """Yield the classes of a function's own `raise` statements, without those that a `try` may handle."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.Raise) and one.exc is not None:
            raised = one.exc.func if isinstance(one.exc, ast.Call) else one.exc
            name = raised.attr if isinstance(raised, ast.Attribute) else getattr(raised, "id", "")
            if name[:1].isupper():
                yield name
        elif isinstance(one, ast.Try) and one.handlers:
            for part in (*one.handlers, *one.orelse, *one.finalbody):
                yield from _raised(part)
        elif not isinstance(one, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _raised(one)
