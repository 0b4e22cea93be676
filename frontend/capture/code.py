"""The names that a code object reads and binds outside of its own variables.

A *path* is a variable followed by attributes and items with constant keys, without a call in between:
`self.layers[0].weight` is one path. A path is *loose* if its variable is computed by the code itself: this
module cannot say to which object it belongs.

The names are read from bytecode, by names of instructions that CPython 3.11 to 3.14 share. Not here: the
objects that the names refer to. Next: `found`, which finds them.
"""

from __future__ import annotations

import dis
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Final, NamedTuple

Step = tuple[str, Any]
"""("attr", name) or ("item", key)."""
ADDING: Final = frozenset({"append", "extend", "insert", "add", "update", "appendleft", "clear"})
"""Methods that change a container and return none of its elements."""
_SKIPPED: Final = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "NOP", "RESUME", "PUSH_NULL"})
_ROOTS: Final = (("LOAD_FAST", "local"), ("LOAD_DEREF", "cell"), ("LOAD_CLASSDEREF", "cell"),
                 ("LOAD_GLOBAL", "global"), ("LOAD_NAME", "global"))  # fmt: skip
_STORES: Final = {"STORE_GLOBAL": "global", "STORE_NAME": "global", "STORE_DEREF": "cell"}
_CONSTANTS: Final = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_OF_BASE: Final = "LOAD_SUPER_ATTR"
"""An attribute of `super()`: its path is loose, as the variables before it are not its object."""
_DYNAMIC: Final = frozenset({"getattr", "hasattr", "setattr", "vars", "__dict__", "attrgetter"})


class Path(NamedTuple):
    """A path: the kind of its variable, the variable's name, and the steps that are taken from it.

    `kind` is "local", "cell", "global" or "loose"; the name of a loose path is "".
    """

    kind: str
    name: str
    steps: tuple[Step, ...] = ()
    contents: bool = True
    """Whether a container at its end is read, not only added to or stored into."""


@dataclass(slots=True)
class Names:
    """The names of one code object and of the functions that it defines."""

    paths: set[Path] = field(default_factory=set)
    stores: set[tuple[str, str]] = field(default_factory=set)
    """("global" or "cell", name) of variables from outside that the code assigns to."""
    dynamic: bool = False
    """Whether the code takes attributes by names that it computes, as with `getattr`."""


def _root(i: dis.Instruction) -> tuple[str, str] | None:
    """Return (kind, name) of the variable that an instruction loads; None if it loads none."""
    if isinstance(i.argval, tuple):  # a constant, or two variables at once; the second one is on top
        return ("local", i.argval[-1]) if "LOAD_FAST" in i.opname else None
    return next(((kind, i.argval) for name, kind in _ROOTS if i.opname.startswith(name)), None)


def _takes_item(i: dis.Instruction) -> bool:
    return i.opname == "BINARY_SUBSCR" or (i.opname == "BINARY_OP" and i.argrepr == "[]")


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """Return the names of a code object, and of the functions defined inside."""
    found = Names(dynamic=not _DYNAMIC.isdisjoint(code.co_names))
    every = [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]
    at = 0
    while at < len(every):
        i = every[at]
        if i.opname in _STORES and (i.opname != "STORE_DEREF" or i.argval in code.co_freevars):
            found.stores.add((_STORES[i.opname], i.argval))
        at = _path(every, at, found)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names = names_of(inner)
            found.dynamic |= names.dynamic
            found.stores |= {(k, n) for k, n in names.stores if k == "global" or n in code.co_freevars}
            for path in names.paths:  # a variable of the inner function is one that is computed
                found.paths.add(path if path.kind != "local" else path._replace(kind="loose", name=""))
    found.paths = {_own(code, path) for path in found.paths}
    found.paths = {path for path in found.paths if path.kind != "loose" or path.steps}
    if found.dynamic:
        texts = [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
        found.paths |= {Path("loose", "", (("attr", c),)) for c in texts}
    return found


def _own(code: CodeType, path: Path) -> Path:
    """Return a path with its kind as seen from outside of the code: one of the code's own variables is loose.

    A path of the first argument stays "local", as `found` may know that argument: `self` of a method.
    """
    if path.kind == "global" or (path.kind == "cell" and path.name in code.co_freevars):
        return path
    first = code.co_varnames[0] if code.co_argcount else None
    if path.kind != "loose" and path.name == first:
        return path._replace(kind="local")
    return path._replace(kind="loose", name="")


def _path(every: list[dis.Instruction], at: int, found: Names) -> int:
    """Add the path that starts at an instruction, if any; return the index of the next one to look at."""
    i = every[at]
    root = _root(i)
    if root is None and i.opname not in _ATTRIBUTES and i.opname != _OF_BASE:
        return at + 1
    if root is not None and _augmented(every, at):
        return at + 1
    kind, name = root or ("loose", "")
    steps: list[Step] = []
    contents = True
    if i.opname == _OF_BASE:
        steps.append(("attr", i.argval))
    at += root is not None or i.opname == _OF_BASE
    while at < len(every):
        i = every[at]
        if i.opname in _ATTRIBUTES:
            if i.argval in ADDING:
                contents = False
                at += 1
                break
            steps.append(("attr", i.argval))
            at += 1
        elif i.opname in _CONSTANTS and at + 1 < len(every) and _takes_item(every[at + 1]):
            steps.append(("item", i.argval))
            at += 2
        else:
            break
    following = [e.opname for e in every[at : at + 4]]
    if following[:1] == ["COPY"] and following[1:2] == ["LOAD_ATTR"]:  # x.n += ...
        contents, at = False, at + 2
    elif following[1:4] == ["COPY", "COPY", "BINARY_SUBSCR"]:  # x[k] += ...
        contents, at = False, at + 4
    elif following[1:2] == ["STORE_SUBSCR"] and following[0].startswith("LOAD_"):  # x[k] = ...
        contents = False
    if kind != "loose" or steps:
        found.paths.add(Path(kind, name, tuple(steps), contents))
    return at


def _augmented(every: list[dis.Instruction], at: int) -> bool:
    """Return whether a variable is loaded only for an augmented assignment to it: `n += 1`."""
    row = every[at : at + 4]
    return (
        len(row) == 4
        and row[2].opname == "BINARY_OP"
        and row[2].argrepr.endswith("=")
        and row[3].opname.startswith("STORE_")
        and row[3].argval == row[0].argval
    )
