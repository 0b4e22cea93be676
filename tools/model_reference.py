"""The reference page of `hcq` and `interop`: devices, memory, queues, order, kernels, graphs, counters.

It is made of signatures and docstrings, so it agrees with the code; `python -m tools.reference` writes it.
Members that only drivers and other parts of this project call are left out.

Not here: errors (docs/errors.md), commands as classes (`hcq.commands`). Next: `tools.reference`, the command.
"""

from __future__ import annotations

import ast
import enum
import inspect
import textwrap
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final

import hcq
import interop

_STARRED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
HEAD: Final = """# `hcq` and `interop`

The interface below the tensors. [Concepts](../concepts.md) introduces it,
[errors](../errors.md) lists what each error guarantees.
Written by `python -m tools.reference`.
"""
PARTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Devices": {
        "open": (),
        "devices": (),
        "Device": (
            "alloc", "signal", "stamp", "clock", "load", "spans", "sync", "flush_outputs", "recover", "close",
        ),
        "DeviceInfo": (),
    },
    "Memory": {
        "BufferSpec": (),
        "Place": (),
        "Buffer": ("view", "host", "map_to", "visible_to", "closed", "close"),
    },
    "Queues": {
        "QueueKind": (),
        "Queue": ("record", "submit", "sync"),
        "CommandBuffer": (
            "exec", "copy", "fill", "write", "wait", "signal", "timestamp", "barrier", "add", "span",
        ),
        "Scope": (),
    },
    "Order and time": {
        "Signal": ("value", "at", "wait"),
        "Point": ("done", "wait"),
        "Stamp": ("ticks",),
        "Clock": ("to_ns",),
        "Span": (),
    },
    "Kernels": {
        "ArgKind": (),
        "ArgSlot": (),
        "KernelImage": (),
        "Program": ("args", "residency", "close"),
    },
    "Graphs": {
        "Graph": ("param", "add", "compile"),
        "Param": ("range",),
        "Expr": ("evaluate",),
        "Executable": ("nbytes", "replay", "submit", "close"),
    },
    "Counters": {"counting": (), "Counters": ("json", "table"), "KernelCounters": ()},
    "Kernels of other compilers": {
        "interop.load": (),
        "interop.LoadedKernel": ("launch", "record"),
        "interop.array": (),
        "interop.empty": (),
        "interop.copy": (),
        "interop.DeviceArray": ("numpy",),
    },
}  # fmt: skip
"""Part of the page -> public name -> the members that programs use."""


def text_of(member: Any) -> str:
    """Return the docstring of a member without indentation."""
    return inspect.cleandoc(member.__doc__ or "")


def _default(value: object) -> str:
    """Return a default as short text that is equal in every process."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value == hcq.BufferSpec():
        return "BufferSpec()"
    return repr(value) if isinstance(value, (str, int, float, bool, tuple, type(None))) else "..."


def called(name: str, function: Any, *, bound: bool) -> str:
    """Return a function as a call: arguments with defaults, without types; `bound` leaves out the first."""
    shown: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())[bound:]
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not any(s.startswith("*") for s in shown):
            shown.append("*")
        star = "*" * (1 + (parameter.kind is parameter.VAR_KEYWORD)) if parameter.kind in _STARRED else ""
        given = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        shown.append(f"{star}{parameter.name}{given}")
    return f"{name}({', '.join(shown)})"


def _field_texts(cls: type) -> dict[str, str]:
    """Return the string below each field of a class, or below each member of an enumeration, by its name."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for one, below in zip(body.body, body.body[1:], strict=False):
        target: ast.expr | None = one.target if isinstance(one, ast.AnnAssign) else None
        if isinstance(one, ast.Assign):
            target = one.targets[0]
        if (
            isinstance(target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[target.id] = " ".join(str(below.value.value).split())
    return found


def _rows(cls: type) -> list[str]:
    """Return the table of the fields of a dataclass, or of the members of an enumeration; [] without any."""
    texts = _field_texts(cls)
    rows = []
    if issubclass(cls, enum.Enum):
        rows = [f"| `{member.name}` | | {texts.get(member.name, '')} |" for member in cls]
    elif is_dataclass(cls):
        for one in fields(cls):
            if one.init and not one.name.startswith("_"):
                plain = one.default is not MISSING
                default = f"`{_default(one.default)}`" if plain else ""
                rows.append(f"| `{one.name}` | {default} | {texts.get(one.name, '')} |")
    if not any(row.count("|") > 2 for row in rows):
        return []
    head = "value" if issubclass(cls, enum.Enum) else "field"
    return [f"| {head} | default | |", "|---|---|---|", *[row.replace("| |", "|  |") for row in rows], ""]


def _entry(name: str, members: tuple[str, ...]) -> list[str]:
    """Return the section of one public name."""
    package, _, short = name.rpartition(".")
    value = getattr({"": hcq, "interop": interop}[package], short)
    if not isinstance(value, type):
        prefix = package or "hcq"
        return [f"### `{called(f'{prefix}.{short}', value, bound=False)}`", "", text_of(value), ""]
    lines = [f"### `{name}`", "", text_of(value), "", *_rows(value)]
    for one in members:
        member = inspect.getattr_static(value, one)
        if isinstance(member, property):
            lines += [f"#### `{short}.{one}`", "", text_of(member.fget), ""]
        else:
            function = inspect.unwrap(getattr(value, one))
            lines += [f"#### `{called(f'{short}.{one}', function, bound=True)}`", "", text_of(function), ""]
    return lines


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for part, names in PARTS.items():
        lines += [f"## {part}", ""]
        for name, members in names.items():
            lines += _entry(name, members)
    return "\n".join(lines).rstrip() + "\n"
