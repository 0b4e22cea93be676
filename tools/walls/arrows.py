"""Imports between folders at run time, and those that run in a circle.

A folder is a room; a module at the root of a package is a room of its own. Two folders that reach each other
by imports form a knot: neither can be understood, moved or replaced alone. Imports at the top of a module and
inside functions count; imports under TYPE_CHECKING do not.

Not here: which package may import which (import-linter, in pyproject.toml), knots between modules
(tests/house/test_imports.py). Next: `source`, the modules.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from tools.walls.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tools.walls.source import Module


def arrows(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return, for each room, the other rooms that its modules import from."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for name in _imported(module.tree, modules):
            if modules[name].folder != module.folder:
                found[module.folder].add(modules[name].folder)
    return dict(found)


def _imported(tree: ast.AST, modules: Mapping[str, Module]) -> Iterator[str]:
    """Yield the modules that a syntax tree imports at run time."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from _imported(other, modules)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (name for name in (whole, node.module)[whole not in modules :] if name in modules)
        yield from _imported(node, modules)


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return every room that `start` reaches by one arrow or more: itself only if it is on a circle."""
    found: set[str] = set()
    todo = [*graph.get(start, ())]
    while todo:
        room = todo.pop()
        if room not in found:
            found.add(room)
            todo += graph.get(room, ())
    return found


def knots(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the arrows between folders that lie on a circle, as "a -> b", sorted.

    An arrow from or to a single module is left out: a circle through it is a knot of modules.
    """
    reach = {room: reachable(graph, room) for room in graph}
    return sorted(
        f"{room} -> {other}"
        for room, others in graph.items()
        for other in others
        if room in reach.get(other, ()) and _is_folder(room) and _is_folder(other)
    )


def _is_folder(room: str) -> bool:
    """Return whether a room is a folder below a package, not a module at the root of one."""
    return room.count("/") > 0 and (ROOT / room).is_dir()
