"""Index arithmetic on registers: where a kernel's loads and stores go, and their masks.

An index is a sum of atoms. Unrolled positions give an integer offset, a vector's lane gives a stride, what is
left is one register that moves out of every loop it does not depend on. Only when a division, a modulo or a
computed index depends on the lane does an index become a vector.

Not here: index arithmetic before registers exist (`compiler.ir.index`), the loads and stores (`accesses`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.kernel.linear import POINTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.kernel.builder import Builder
    from compiler.kernel.linear import Line

NARROW = 1 << 31
MOST_STRIDE = 4
"""Up to this distance between lanes, whole rows are read and thinned out instead of gathered."""
FIRST = 1 << 20
"""Numbers of the ranges that are made here; the AST's are smaller."""


@dataclass(slots=True)
class Parts:
    """An index taken apart."""

    outer: list[tuple[UOp, int]]
    units: list[tuple[UOp, int]]
    hard: list[tuple[UOp, int]]
    stride: int
    lanes: int
    constant: int


@dataclass(slots=True)
class Place:
    """Where an access goes: base + offset + stride * lane, or a vector of indices."""

    base: Line
    offset: int
    stride: int
    lanes: int
    vector: Line | None = None


def resized(b: Builder, line: Line, dtype: DType) -> Line:
    """An integer register in another integer dtype of any width, sign kept."""
    if line.dtype is dtype:
        return line
    if line.op == "const" and isinstance(line.arg, int):
        return b.const(dtype, line.arg, line.lanes)
    if line.dtype.bits == dtype.bits:
        return b.convert("bitcast", line, dtype)
    wider = "zext" if line.dtype.kind != "int" else "sext"
    return b.convert("trunc" if line.dtype.bits > dtype.bits else wider, line, dtype)


class Indexer:
    """Index nodes to registers, under the current binding of ranges."""

    def __init__(self, b: Builder, value: Callable[[UOp], Line], buffers: int) -> None:
        self.b = b
        self.value = value
        self.buffers = buffers
        self.variables: dict[str, int] = {}
        self.exprs: dict[UOp, UOp] = {}
        """RANGE of the AST -> what it is made of."""
        self.starts: dict[UOp, UOp] = {}
        """RANGE of the AST -> its block counter's part of that."""
        self.bound: dict[UOp, Line] = {}
        self.env: dict[UOp, int] = {}
        self.unit_ranges: set[UOp] = set()
        self.lane_ranges: dict[UOp, int] = {}
        """Ranges that are lanes of a vector. (Lanes that are threads are bound to a register instead.)"""
        self.guards: dict[UOp, UOp] = {}
        """RANGE of the AST -> mask of its lanes that are inside."""
        self.memo: dict[UOp, UOp] = {}
        self.taken: dict[UOp, Parts] = {}
        self.serial = FIRST

    def fresh(self, size: int) -> UOp:
        """A new range; of size one it is the number 0."""
        self.serial += 1
        return symbolic.loop(self.serial, size)

    def buffer(self, slot: int) -> Line:
        """The address of a buffer."""
        return self.b.line("argument", POINTER, 1, (), slot)

    def parts(self, x: UOp) -> Parts:
        """Take an index of split ranges apart."""
        found = self.taken.get(x)
        if found is None:
            terms, constant = symbolic.terms_of(x)
            found = self.taken[x] = Parts([], [], [], 0, 1, constant)
            for atom, c in terms.items():
                if atom in self.unit_ranges:
                    found.units.append((atom, c))
                elif atom in self.lane_ranges:
                    found.stride += c
                    found.lanes = self.lane_ranges[atom]
                elif atom.op is Ops.RANGE or atom.op is Ops.VAR:
                    found.outer.append((atom, c))
                else:
                    found.hard.append((atom, c))
        return found

    def split(self, x: UOp) -> UOp:
        """An index or mask of the AST over the split ranges."""
        return symbolic.substitute(x, self.exprs, self.memo)

    def place(self, index: UOp, *, strided: bool = False) -> Place:
        """Where an access with this index of the AST goes.

        With `strided`, strides up to MOST_STRIDE are accepted.
        """
        x = self.split(index)
        p = self.parts(x)
        terms = [(self.leaf(a), c) for a, c in p.outer]
        offset = p.constant
        for u, c in p.units:
            offset += c * self.env[u]
        for atom, c in p.hard:
            line = self.hard(atom)
            if line.lanes > 1:
                return Place(line, 0, 0, line.lanes, self.materialised(x))
            if line.op == "const" and isinstance(line.arg, int):
                offset += line.arg * c
            else:
                terms.append((line, c))
        if p.stride not in (-1, 0, 1) and not (strided and 1 < p.stride <= MOST_STRIDE):
            return Place(self.b.index(0), 0, 0, p.lanes, self.materialised(x))
        return Place(self.sum(terms), offset, p.stride, p.lanes)

    def sum(self, terms: list[tuple[Line, int]]) -> Line:
        """The sum of scalar terms, outermost first, so that its beginning leaves the inner loops."""
        terms.sort(key=lambda t: t[0].block.depth)
        total = self.b.index(0)
        for line, c in terms:
            total = self.b.add(total, self.b.mul(resized(self.b, line, dtypes.int64), c))
        return total

    def address(self, pointer: Line, place: Place, dtype: DType) -> Line:
        """The address of a place; of a reversed one, that of its lowest element."""
        offset = place.offset - (place.lanes - 1 if place.stride == -1 else 0)
        base = self.b.offset(pointer, place.base, dtype)
        return self.b.offset(base, self.b.index(offset), dtype)

    def leaf(self, atom: UOp) -> Line:
        """A loop variable or a launch variable."""
        if atom.op is Ops.VAR:
            number = self.variables[atom.arg[0]]
            return self.b.line("variable", dtypes.int64, 1, (), (number, self.buffers))
        return self.bound[atom]

    def line(self, index: UOp) -> Line:
        """An index of the AST as one register: int64, or a vector of int32 or int64."""
        return self.materialised(self.split(index))

    def materialised(self, x: UOp) -> Line:
        """An index of split ranges as one register."""
        b, p = self.b, self.parts(x)
        hard = [(self.hard(a), c) for a, c in p.hard]
        offset = p.constant
        for u, c in p.units:
            offset += c * self.env[u]
        scalars = [(self.leaf(a), c) for a, c in p.outer] + [(line, c) for line, c in hard if line.lanes == 1]
        base = b.add(self.sum(scalars), b.index(offset))
        vectors = [(line, c) for line, c in hard if line.lanes > 1]
        if p.stride == 0 and not vectors:
            return base
        kind = dtypes.int32 if x.vmin >= -NARROW and x.vmax < NARROW else dtypes.int64
        lanes = vectors[0][0].lanes if vectors else p.lanes
        total = b.splat(resized(b, base, kind), lanes)
        if p.stride:
            total = b.alu("add", total, b.const(kind, tuple([p.stride * k for k in range(lanes)]), lanes))
        for line, c in vectors:
            total = b.alu("add", total, b.mul(resized(b, line, kind), c))
        return total

    def hard(self, atom: UOp) -> Line:
        """A division, a modulo or a computed index."""
        if atom.op is Ops.INDEXOF:
            line = self.value(atom.src[0])
            return resized(self.b, line, dtypes.int64) if line.lanes == 1 or line.dtype.bits < 32 else line
        inner = self.materialised(atom.src[0])
        signed = atom.src[0].vmin < 0
        return (self.divide if atom.op is Ops.IDIV else self.modulo)(inner, atom.arg, signed=signed)

    def divide(self, x: Line, c: int, *, signed: bool) -> Line:
        """Return x // c, rounded down."""
        b = self.b
        if x.op == "const" and isinstance(x.arg, int):
            return b.const(x.dtype, x.arg // c, x.lanes)
        if not c & (c - 1):
            return b.alu("ashr" if signed else "lshr", x, b.const(x.dtype, c.bit_length() - 1))
        if not signed:
            return b.alu("udiv", x, b.const(x.dtype, c))
        quotient = b.alu("sdiv", x, b.const(x.dtype, c))
        rest = b.alu("sub", x, b.alu("mul", quotient, b.const(x.dtype, c)))
        below = b.cmp("slt", rest, b.const(x.dtype, 0))
        return b.select(below, b.alu("sub", quotient, b.const(x.dtype, 1)), quotient)

    def modulo(self, x: Line, c: int, *, signed: bool) -> Line:
        """X % c, never negative."""
        b = self.b
        if x.op == "const" and isinstance(x.arg, int):
            return b.const(x.dtype, x.arg % c, x.lanes)
        if not c & (c - 1):
            return b.alu("and", x, b.const(x.dtype, c - 1))
        if not signed:
            return b.alu("urem", x, b.const(x.dtype, c))
        return b.alu("sub", x, b.alu("mul", self.divide(x, c, signed=True), b.const(x.dtype, c)))

    def mask(self, node: UOp) -> Line | None:
        """A mask of the AST, or of split ranges, as a register; None when it always holds here."""
        x = self.split(node)
        line: Line | None = None
        for part in symbolic.parts_of(x) if x is not symbolic.FALSE else ():
            line = self.b.both(line, self._below(part.src[0], part.arg))
        return self.b.const(dtypes.bool, False) if x is symbolic.FALSE else line

    def _below(self, x: UOp, c: int) -> Line | None:
        b, p = self.b, self.parts(x)
        if len(x.src) == 1 and p.hard == [(x.src[0], -1)]:  # -a < c is a > -c, even for the least integer
            line, predicate, c = self.hard(x.src[0]), "sgt", -c
        else:
            line, predicate = self.materialised(x), "slt"
        if line.op == "const" and isinstance(line.arg, int):
            holds = line.arg > c if predicate == "sgt" else line.arg < c
            return None if holds else b.const(dtypes.bool, value=False)
        return b.cmp(predicate, line, b.const(line.dtype, c))
