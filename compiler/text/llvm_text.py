"""Pieces of LLVM IR text: types, constants, and the text of one kernel while it is being rendered.

Some kernels have stores that bypass the caches. The address of such a store must be a multiple of its size.
The device allocates buffers so, but a part of a buffer (`hcq.Buffer.view`) may start anywhere. So the kernel
has two versions of its instructions: one bypasses the caches, the other does not. It takes the first one if
the buffers that it stores to are aligned.

Not here: which stores bypass the caches (`compiler.emit.accesses`). Next: `llvm_ir`, the text of each line.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from compiler.dtype import DType, dtypes
from compiler.emit.linear import POINTER, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from compiler.targets.nvptx.expansion import Expansion
    from compiler.targets.shared.dialect import Dialect
    from hcq.program import Dim3


_SCALARS = {"bool": "i1", "float32": "float", "float64": "double", "float16": "half", "pointer": "ptr"}


class _Types(dict[tuple[DType, int], str]):
    """LLVM's type for each dtype and number of lanes."""

    def __missing__(self, key: tuple[DType, int]) -> str:
        dtype, lanes = key
        scalar = _SCALARS.get(dtype.name) or f"i{dtype.bits}"
        found = self[key] = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
        return found


_TYPES = _Types()


def type_text(dtype: DType, lanes: int = 1) -> str:
    """Return LLVM's type of a register."""
    return _TYPES[dtype, lanes]


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


class _Names(dict[Line, str]):
    """The name of each register, by default from its line's number, and the text of each constant."""

    def __missing__(self, line: Line) -> str:
        found = self[line] = _constant(line) if line.op == "const" else f"%v{line.id}"
        return found


class _Spaces(dict[Line, int]):
    """The address space of each pointer."""

    def __init__(self, of: Mapping[str, int]) -> None:
        super().__init__()
        self.of = of

    def __missing__(self, pointer: Line) -> int:
        base = pointer.op != "offset"
        found = self[pointer] = self.of.get(pointer.op, 0) if base else self[pointer.src[0]]
        return found


class _Operands(dict[Line, str]):
    """The registers and constants as operands, with their types."""

    def __init__(self, names: dict[Line, str], spaces: dict[Line, int]) -> None:
        super().__init__()
        self.names = names
        self.spaces = spaces

    def __missing__(self, line: Line) -> str:
        dtype = line.dtype
        kind = pointer_type(self.spaces[line]) if dtype is POINTER else _TYPES[dtype, line.lanes]
        found = self[line] = f"{kind} {self.names[line]}"
        return found


def _constant(line: Line) -> str:
    scalar = type_text(line.dtype)
    if isinstance(line.arg, tuple):
        return "<" + ", ".join([f"{scalar} {constant_text(line.dtype, v)}" for v in line.arg]) + ">"
    text = constant_text(line.dtype, line.arg)
    return text if line.lanes == 1 else f"splat ({scalar} {text})"


class Text:
    """The text of one kernel while it is being rendered."""

    __slots__ = (
        "declared", "dialect", "dynamic_bytes", "first", "globals", "groups", "intrinsics", "label", "lines",
        "name", "names", "open", "rows", "space", "through", "top", "typed",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, groups: Dim3, label: str = "entry", first: int = 0) -> None:
        self.dialect = dialect
        self.groups = groups
        self.first = first
        """The number of the first workgroup along axis 0, for a part of a kernel; else 0."""
        self.dynamic_bytes = 0
        """Bytes of the arrays in the shared memory of the launch so far."""
        self.lines: list[str] = []
        """The lines of the function's body so far."""
        self.top: list[str] = []
        """Lines at the start of the function: the arrays on its stack."""
        self.globals: list[str] = []
        """Definitions before the function: tables and arrays in shared memory."""
        self.declared: dict[str, None] = {}
        """Declarations after the function."""
        self.intrinsics: set[str] = set()
        """The names of the intrinsics that are declared."""
        spaces = _Spaces(dialect.spaces)
        self.names: dict[Line, str] = _Names()
        """The names of registers, and the texts of constants."""
        self.name = self.names.__getitem__
        """Return the name of a register, or the text of a constant."""
        self.space = spaces.__getitem__
        """Return the address space of a pointer."""
        self.typed = _Operands(self.names, spaces).__getitem__
        """Return a register or constant as an operand, `type name`; only after its name is known."""
        self.rows: dict[Line, list[str]] = {}
        """The names of the registers of each bundle."""
        self.label = label
        """The name of the basic block of the next line."""
        self.through: dict[int, str] = {}
        """Index in `lines` of a store that bypasses the caches -> the same store through the caches."""
        self.open: dict[Line, tuple[int, str, list[tuple[int, Line]]]] = {}
        """Loop or if that is open -> index of its counter in `lines`, the block before it, its phis with
        theirs."""

    def pointer(self, line: Line) -> str:
        """Return LLVM's type of a pointer."""
        return pointer_type(self.space(line))

    def put(self, line: Line, text: str) -> None:
        """Add the assignment of `text` to the line's register."""
        name = self.names[line] = f"%v{line.id}"
        self.lines.append(f"  {name} = {text}")

    def bundle(self, line: Line, count: int) -> list[str]:
        """Return the names of the registers of a bundle: `%v1.0`, `%v1.1`, ... for line 1."""
        names = self.rows[line] = [f"%v{line.id}.{k}" for k in range(count)]
        return names

    def intrinsic(self, result: str, name: str, arguments: Sequence[str]) -> str:
        """Return the call of an intrinsic, and declare it; `arguments` are operands with types."""
        if name not in self.intrinsics:
            self.intrinsics.add(name)  # a name has the types in it
            kinds = ", ".join([a[: _type_end(a)] for a in arguments])
            self.declared[f"declare {result} @{name}({kinds})"] = None
        return f"call {result} @{name}({', '.join(arguments)})"

    def call(self, line: Line, name: str, arguments: Sequence[str]) -> None:
        """Add the call of an intrinsic whose result is the line's register."""
        register = self.names[line] = f"%v{line.id}"
        self.lines.append(f"  {register} = {self.intrinsic(_TYPES[line.dtype, line.lanes], name, arguments)}")

    def add(self, text: Iterable[str], declared: str) -> None:
        """Add lines, and the declaration of the intrinsic that they call."""
        self.lines += text
        self.declared[declared] = None

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
        for lane in range(line.lanes):  # expansions compute scalars
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
    """Return whether LLVM needs no division: for a constant integer, or a float that is a power of two."""
    divisor = line.src[-1]
    if divisor.op != "const" or len(line.src) != 2:
        return False
    value = divisor.arg
    if isinstance(value, float):
        return math.frexp(value)[0] in (0.5, -0.5) and 2.0**-100 < abs(value) < 2.0**100
    return True


def _type_end(operand: str) -> int:
    """Return the index at which the type of an operand ends."""
    if operand.startswith("ptr addrspace("):
        return operand.index(")") + 1
    return operand.index(">") + 1 if operand.startswith("<") else operand.index(" ")


STREAMED = "streamed"
"""The first basic block of the version that bypasses the caches."""


def streamed_places(lines: Sequence[Line]) -> dict[int, int]:
    """Return {argument number: alignment in bytes} of the buffers with stores that bypass the caches."""
    found: dict[int, int] = {}
    for line in lines:
        if line.op == "store" and line.arg == "stream":
            pointer, value = line.src
            while pointer.op == "offset":
                pointer = pointer.src[0]
            assert isinstance(pointer.arg, int)
            size = value.dtype.itemsize * value.lanes
            found[pointer.arg] = max(size, found.get(pointer.arg, 0))
    return found


def streamed_versions(
    text: Text, name: str, head: str, aligned: dict[int, int]
) -> tuple[list[str], list[str]]:
    """Return (the function with stores through the caches, the lines of the kernel that selects a version).

    `text` has the rendered lines, from the block `STREAMED` on; `head` is the text before them. `aligned` is
    the result of `streamed_places`.
    """
    inner = f"{name}_through"
    plain = [text.through.get(number, line) for number, line in enumerate(text.lines)]
    function = [
        head.replace("define", "define internal", 1).replace(f"@{name}(", f"@{inner}(", 1),
        *text.top,
        f"  br label %{STREAMED}",
        f"{STREAMED}:",
        *plain,
        "  ret void",
        "}",
    ]
    lines = []
    for number in aligned:
        lines += text.dialect.pointer(number, f"%at{number}")
        lines.append(f"  %low{number} = ptrtoint ptr %at{number} to i64")
    every, *others = aligned
    merged = f"%low{every}"
    for number in others:
        lines.append(f"  %any{number} = or i64 {merged}, %low{number}")
        merged = f"%any{number}"
    parameters = head[head.index("(") : head.index(")") + 1]
    lines += [
        f"  %rest = and i64 {merged}, {max(aligned.values()) - 1}",
        "  %whole = icmp eq i64 %rest, 0",
        f"  br i1 %whole, label %{STREAMED}, label %through",
        "through:",
        f"  musttail call void @{inner}{parameters}",
        "  ret void",
        f"{STREAMED}:",
        *text.lines,
    ]
    fence, declaration = text.dialect.ordered
    if fence:
        lines.append(f"  {fence}")
        text.declared[declaration] = None
    return function, lines
