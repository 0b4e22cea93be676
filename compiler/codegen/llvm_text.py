"""Pieces of LLVM IR text: types, constants, and the text of one kernel while it is being rendered.

Not here: the text of each line (`llvm_ir`, which uses these).
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.kernel.linear import POINTER, Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.codegen.dialect import Dialect
    from compiler.targets.nvptx.expansion import Expansion
    from hcq.program import Dim3

_SCALARS = {"bool": "i1", "float32": "float", "float64": "double", "float16": "half", "pointer": "ptr"}
_TYPES: dict[tuple[DType, int], str] = {}


def type_text(dtype: DType, lanes: int = 1) -> str:
    """Return LLVM's type of a register."""
    found = _TYPES.get((dtype, lanes))
    if found is None:
        scalar = _SCALARS.get(dtype.name) or f"i{dtype.bits}"
        found = _TYPES[dtype, lanes] = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
    return found


def pointer_type(space: int) -> str:
    """Return LLVM's type of pointers to an address space."""
    return f"ptr addrspace({space})" if space else "ptr"


def suffix(dtype: DType, lanes: int) -> str:
    """Return the part for a type in the name of an overloaded intrinsic."""
    scalar = "p0" if dtype is POINTER else f"{'f' if dtype.is_float else 'i'}{dtype.bits}"
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


def constant_text(dtype: DType, value: object) -> str:
    """Return one constant as text."""
    if dtype.kind == "float":
        assert isinstance(value, int | float)
        if value != value:  # noqa: PLR0124  # the test for NaN
            return "0x7FF8000000000000"
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    if dtype is dtypes.bool:
        return "true" if value else "false"
    assert isinstance(value, int)
    return str(int(value))


class Text:
    """The text of one kernel while it is being rendered."""

    __slots__ = (
        "declared",
        "dialect",
        "dynamic_bytes",
        "globals",
        "groups",
        "label",
        "lines",
        "names",
        "open",
        "spaces",
        "through",
        "top",
    )

    def __init__(self, dialect: Dialect, groups: Dim3, label: str = "entry") -> None:
        self.dialect = dialect
        self.groups = groups
        self.dynamic_bytes = 0
        """Bytes of the arrays in the shared memory of the launch so far."""
        self.lines: list[str] = []
        self.top: list[str] = []
        self.globals: list[str] = []
        self.declared: dict[str, None] = {}
        self.names: dict[Line, str] = {}
        self.label = label
        """The basic block of the next line."""
        self.through: dict[int, str] = {}
        """Number of the line of a store that bypasses the caches -> the same store through the caches."""
        self.open: dict[Line, tuple[int, str, list[tuple[int, Line]]]] = {}
        self.spaces: dict[Line, int] = {}

    def name(self, line: Line) -> str:
        """Return the name of a register, or the text of a constant."""
        found = self.names.get(line)
        if found is None:
            found = self.names[line] = self._constant(line) if line.op == "const" else f"%v{line.id}"
        return found

    @staticmethod
    def _constant(line: Line) -> str:
        scalar = type_text(line.dtype)
        if isinstance(line.arg, tuple):
            return "<" + ", ".join([f"{scalar} {constant_text(line.dtype, v)}" for v in line.arg]) + ">"
        text = constant_text(line.dtype, line.arg)
        return text if line.lanes == 1 else f"splat ({scalar} {text})"

    def typed(self, line: Line) -> str:
        """Return a register or constant as an operand, `type name`."""
        kind = self.pointer(line) if line.dtype is POINTER else type_text(line.dtype, line.lanes)
        return f"{kind} {self.name(line)}"

    def space(self, pointer: Line) -> int:
        """Return the address space of a pointer."""
        found = self.spaces.get(pointer)
        if found is None:
            base = pointer.op != "offset"
            found = self.dialect.spaces.get(pointer.op, 0) if base else self.space(pointer.src[0])
            self.spaces[pointer] = found
        return found

    def pointer(self, line: Line) -> str:
        """Return LLVM's type of a pointer."""
        return pointer_type(self.space(line))

    def put(self, line: Line, text: str) -> None:
        """Add the assignment of `text` to the line's register."""
        self.lines.append(f"  {self.name(line)} = {text}")

    def intrinsic(self, result: str, name: str, arguments: Sequence[str]) -> str:
        """Return the call of an intrinsic, and declare it; `arguments` are operands with types."""
        kinds = ", ".join([a[: _type_end(a)] for a in arguments])
        self.declared[f"declare {result} @{name}({kinds})"] = None
        return f"call {result} @{name}({', '.join(arguments)})"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def expand(self, line: Line) -> bool:
        """Add the target's expansion of the line, and return whether it has one."""
        own = self.dialect.expansions.get((str(line.arg), line.dtype.name))
        if own is None or _folds(line):
            return False
        self.declared.update(dict.fromkeys(own().declared))
        if line.lanes == 1:
            operands = [self.name(s) for s in line.src]
            self._expanded(own(), f"v{line.id}.", operands, self.name(line))
            return True
        kind, vector = type_text(line.dtype, line.lanes), "poison"
        for lane in range(line.lanes):  # expansions are of scalars
            prefix = f"v{line.id}.l{lane}."
            operands = [f"%{prefix}in{n}" for n in range(len(line.src))]
            for operand, source in zip(operands, line.src, strict=True):
                self.lines.append(f"  {operand} = extractelement {self.typed(source)}, i32 {lane}")
            self._expanded(own(), prefix, operands, f"%{prefix}out")
            name = self.name(line) if lane == line.lanes - 1 else f"%{prefix}all"
            result = f"{type_text(line.dtype)} %{prefix}out"
            self.lines.append(f"  {name} = insertelement {kind} {vector}, {result}, i32 {lane}")
            vector = name
        return True

    def _expanded(self, own: Expansion, prefix: str, operands: list[str], result: str) -> None:
        """Add an expansion of one value."""
        named = dict(zip("xy", operands, strict=False))
        self.lines += own.written(prefix, {**named, "result": result}, self.label).splitlines()
        if own.ends:
            self.label = f"{prefix}{own.ends}"


def _folds(line: Line) -> bool:
    """Return whether LLVM needs no division: by a constant integer, or a float with an exact inverse."""
    divisor = line.src[-1]
    if divisor.op != "const" or len(line.src) != 2:
        return False
    value = divisor.arg
    if isinstance(value, float):
        return math.frexp(value)[0] in (0.5, -0.5) and 2.0**-100 < abs(value) < 2.0**100
    return True


def _type_end(operand: str) -> int:
    """Return where the type of an operand with a type ends."""
    if operand.startswith("ptr addrspace("):
        return operand.index(")") + 1
    return operand.index(">") + 1 if operand.startswith("<") else operand.index(" ")
