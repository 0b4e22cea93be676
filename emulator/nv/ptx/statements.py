"""Statements of a PTX module (types, operands, instructions, variables, functions), and scopes of names.

Names that are declared within inner braces are replaced by names that are unique in the function.

Source: NVIDIA's PTX ISA, chapters 5 (state spaces, types) and 6 (operands).

Not here: parsing (`syntax`), meaning (`core`, `translate`). Next: `syntax`.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.errors import UsageError


class PtxError(UsageError):
    """PTX text that this front end does not support, or that PTX forbids; `line` is its number, from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line


_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64, "128": 128}
TYPES: dict[str, int] = {k + w: b for k in "bus" for w, b in _WIDTHS.items() if not (k != "b" and b == 128)} | {
    "f16": 16, "f32": 32, "f64": 64, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32x2": 64, "tf32": 32, "pred": 1,
    "e4m3x2": 16, "e5m2x2": 16, "u16x2": 32, "s16x2": 32,
}  # fmt: skip
"""PTX type -> width in bits."""


@dataclass(frozen=True, slots=True)
class PtxReg:
    """A register; its name is unique in its function."""

    name: str
    type: str

    @property
    def bits(self) -> int:
        """Its width; 1 for a predicate."""
        return TYPES[self.type]


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, such as %tid.x; also _, a destination that is not written."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxImm:
    """A constant."""

    value: int
    """An integer, which may be negative; the bits of a floating-point number."""
    kind: str = "int"
    """How it was written: "int", "f32" or "f64"."""


@dataclass(frozen=True, slots=True)
class Sym:
    """The address of a variable, function or label, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset], an address in memory; of a tensor [map, {coordinates}]."""

    base: PtxReg | Sym | None
    """None if the offset is the address."""
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}, the elements of a vector."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """a|b: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """!p, a negated predicate."""

    reg: PtxReg


@dataclass(frozen=True, slots=True)
class Args:
    """(a, b, ...), the arguments or results of a call."""

    items: tuple[Operand, ...]


Operand = PtxReg | Special | PtxImm | Sym | Mem | Vec | Pair | Not | Args


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction."""

    opcode: str
    modifiers: tuple[str, ...]
    """In order, without their dots."""
    operands: tuple[Operand, ...]
    guard: PtxReg | None
    """The predicate of lanes that execute it; None if all do."""
    negated: bool
    """Whether lanes execute it for which the guard is false."""
    line: int
    text: str
    """As written, on one line."""


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str
    line: int


@dataclass(slots=True)
class PtxVariable:
    """A declared variable or parameter."""

    name: str
    space: str
    """PTX's state space; "reg" for a parameter of a device function in a register."""
    type: str
    """The type of an element."""
    size: int
    """All of it in bytes; 0 for an array without a size."""
    align: int
    """Bytes."""
    init: bytes = b""
    """Its initial contents, with zeros for addresses; empty if it has none."""
    extern: bool = False
    references: list[tuple[int, str, int]] = field(default_factory=list)
    """(byte offset, symbol, addend) of each address in its initial contents."""
    line: int = 0
    element: int = 1
    """Size of an array element in bytes."""


@dataclass(slots=True)
class PtxFunction:
    """A kernel or a device function."""

    name: str
    entry: bool
    """Whether it is a kernel."""
    params: list[PtxVariable]
    returns: list[PtxVariable]
    body: list[PtxInstruction | Label] = field(default_factory=list)
    """Empty for a mere declaration."""
    registers: dict[str, str] = field(default_factory=dict)
    """Unique name -> type."""
    variables: dict[str, PtxVariable] = field(default_factory=dict)
    """Unique name -> the variable, of those that the body declares."""
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a list (.branchtargets) -> its labels."""
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Directive without its dot (maxntid, reqntid, maxnreg, ...) -> its numbers as written."""
    line: int = 0
    """The line of its declaration."""


@dataclass(slots=True)
class PtxSource:
    """A parsed module."""

    version: str
    """The PTX version, such as "8.7"; empty if the module does not state one."""
    target: tuple[str, ...]
    """The words of .target, such as "sm_90"."""
    functions: dict[str, PtxFunction]
    """Name -> kernel or device function."""
    variables: dict[str, PtxVariable]
    """Name -> variable of the module."""


@dataclass(slots=True)
class PtxScope:
    """The registers, variables and labels of one pair of braces."""

    parent: PtxScope | None
    """The scope around it; None for that of a function."""
    number: int
    """Unique in the module; it makes names unique."""
    registers: dict[str, PtxReg] = field(default_factory=dict)
    """Name as written -> register."""
    names: dict[str, str] = field(default_factory=dict)
    """Name of a variable or label as written -> its unique name."""


def renamed(instruction: PtxInstruction, names: dict[str, str]) -> PtxInstruction:
    """Return an instruction whose operands name variables and labels by their unique names (`names`)."""

    def rename(operand: Operand) -> Operand:
        match operand:
            case Sym(name, offset) if name in names:
                return Sym(names[name], offset)
            case Mem(Sym(name), offset, coordinates) if name in names:
                return Mem(Sym(names[name]), offset, tuple(map(rename, coordinates)))
            case Vec(items):
                return Vec(tuple(map(rename, items)))
            case Args(items):
                return Args(tuple(map(rename, items)))
            case _:
                return operand

    operands = tuple(map(rename, instruction.operands))
    if operands == instruction.operands:
        return instruction
    return PtxInstruction(
        instruction.opcode,
        instruction.modifiers,
        operands,
        instruction.guard,
        instruction.negated,
        instruction.line,
        instruction.text,
    )
