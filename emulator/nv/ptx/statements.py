"""Statements of a PTX module (types, operands, instructions, variables, functions), and scopes of names.

Names within braces are replaced by names that are unique in the function.

Source: NVIDIA's PTX ISA, chapters 5 (state spaces, types) and 6 (operands). Not here: parsing (`syntax`),
meaning (`core`, `translate`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.errors import UsageError


class PtxError(UsageError):
    """PTX text that this front end does not support, or that PTX forbids."""

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
    """A special register, such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class PtxImm:
    """A constant: its bits, and whether it was written as a floating-point number."""

    value: int
    kind: str = "int"


@dataclass(frozen=True, slots=True)
class Sym:
    """A variable, function or label, plus an offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Mem:
    """[base + offset]; `base` None is an absolute address. A copy of a tensor has [map, {coordinates}]."""

    base: PtxReg | Sym | None
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """{a, b, ...}."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """a|b: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """!p."""

    reg: PtxReg


@dataclass(frozen=True, slots=True)
class Args:
    """(a, b, ...) of a call."""

    items: tuple[Operand, ...]


Operand = PtxReg | Special | PtxImm | Sym | Mem | Vec | Pair | Not | Args


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One instruction: opcode, its modifiers in order, guard, operands."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: PtxReg | None
    negated: bool
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str
    line: int


@dataclass(slots=True)
class PtxVariable:
    """A variable in memory: a parameter, or a variable of a state space."""

    name: str
    space: str
    type: str
    size: int
    align: int
    init: bytes = b""
    extern: bool = False
    references: list[tuple[int, str, int]] = field(default_factory=list)
    """(byte offset, symbol, addend) for initialisers that are addresses."""
    line: int = 0
    element: int = 1
    """Size of an array element in bytes."""


@dataclass(slots=True)
class PtxFunction:
    """A kernel or a device function."""

    name: str
    entry: bool
    params: list[PtxVariable]
    returns: list[PtxVariable]
    body: list[PtxInstruction | Label] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, PtxVariable] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Lists of labels (.branchtargets)."""
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """.maxntid, .reqntid, .maxnreg, ... as written."""
    line: int = 0


@dataclass(slots=True)
class PtxSource:
    """A parsed module."""

    version: str
    target: tuple[str, ...]
    functions: dict[str, PtxFunction]
    variables: dict[str, PtxVariable]


@dataclass(slots=True)
class PtxScope:
    """The registers, variables and labels of one pair of braces."""

    parent: PtxScope | None
    number: int
    registers: dict[str, PtxReg] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def renamed(instruction: PtxInstruction, names: dict[str, str]) -> PtxInstruction:
    """Replace the labels and variables of a scope by their unique names."""

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
