"""Names of LLVM types, and the parts of a line of IR text: operation, names, type of the value.

It reads only the syntax that `vector` writes. Not here: writing IR (`vector`). Next: `strips`, which rewrites IR.
"""

# ruff: noqa: E501 - summaries and tables read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_VECTOR = re.compile(r"<(\d+) x (.+)>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


def lanes_of(type_: str) -> int:
    """Return the number of lanes of an IR type; 0 for a scalar."""
    match = _VECTOR.fullmatch(type_)
    return int(match[1]) if match else 0


def element(type_: str) -> str:
    """Return the element type of a vector, or the type itself."""
    match = _VECTOR.fullmatch(type_)
    return match[2] if match else type_


def vector(count: int, type_: str) -> str:
    """Return the type of `count` elements; the scalar type if `count` is 0."""
    return f"<{count} x {type_}>" if count else type_


def bits_of(type_: str) -> int:
    """Return the number of bits of one element of an integer, floating-point or pointer type."""
    name = element(type_)
    return int(name[1:]) if name[0] == "i" else _BITS[name]


def like(type_: str, name: str) -> str:
    """Return the type with as many lanes as `type_` and element type `name`."""
    return vector(lanes_of(type_), name)


def mangle(type_: str) -> str:
    """Return LLVM's spelling of a type in the name of an overloaded intrinsic."""
    count, name = lanes_of(type_), element(type_)
    short = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}.get(name, name)
    return f"v{count}{short}" if count else short


CASTS: Final = frozenset((
    "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp", "bitcast", "inttoptr", "ptrtoint",
))  # fmt: skip
NAME: Final = re.compile(r"%([\w.$-]+)")
VECTOR: Final = re.compile(r"<(\d+) x (\w+)>")
_INSTRUCTION: Final = re.compile(r"  (?:%([\w.$-]+) = )?(\w+)(.*)")
_FIRST: Final = re.compile(r"(?: \w+)*? (<\d+ x \w+>)")
_SECOND: Final = re.compile(r", (<\d+ x \w+>)")


@dataclass(slots=True, eq=False)
class IrLine:
    """One line of a function: its text, and the parts of it if it is an instruction."""

    text: str
    operation: str = ""
    """The name of the operation; "label" for a label, "" for a line that is neither."""
    name: str = ""
    """The name of its value, without %; "" if it has none."""
    uses: list[str] = field(default_factory=list)
    """The names in its operands, in their order."""
    type: str = ""
    """The type of its value, as `type_of` returns it."""


def parsed(row: str) -> IrLine:
    """Return the parts of a line."""
    match = _INSTRUCTION.match(row)
    if match is None:
        return IrLine(row, "label" if row.endswith(":") else "")
    name, operation, rest = match.groups()
    type_ = type_of(operation, rest) if name and "<" in rest else ""
    return IrLine(row, operation, name or "", NAME.findall(rest), type_)


def type_of(operation: str, rest: str) -> str:
    """Return the type of an instruction's value if it is a vector, else "". `rest` is the text after the operation's name.

    It also returns "" for a getelementptr with a vector of offsets, whose value is a vector of pointers.
    """
    if operation in CASTS:
        found = rest.rpartition(" to ")[2]
        return found if found[0] == "<" else ""
    if operation in {"icmp", "fcmp"}:
        match = VECTOR.search(rest)
        return f"<{match[1]} x i1>" if match else ""
    if operation == "select":
        match = _SECOND.search(rest)
        return match[1] if match else ""
    if operation == "shufflevector":
        every = VECTOR.findall(rest)
        return f"<{every[-1][0]} x {every[0][1]}>"
    if operation == "extractvalue":
        parts = rest.partition("{")[2].partition("}")[0].split(",")
        found = parts[int(rest.rpartition(",")[2])].strip() if "," in rest else ""
        return found if found[:1] == "<" else ""
    match = _FIRST.match(rest) if operation != "extractelement" else None
    return match[1] if match else ""
