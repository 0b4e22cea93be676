"""Index arithmetic on registers: the addresses of a kernel's loads and stores, and their masks.

An index is a sum of atoms. Unrolled positions give a constant offset, the lane of a vector gives a stride,
and the rest is one scalar register, outside every loop on which it does not depend. An index becomes a vector
only if a division, a modulo or a computed index in it depends on the lane.

Not here: index arithmetic on nodes (`compiler.ir.index`), the loads and stores (`accesses`). Next: `emitter`,
which makes the indexer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.emit.linear import POINTER
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.nest.kernel_shape import MOST_STRIDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.emit.builder import Builder
    from compiler.emit.linear import Line
    from compiler.ir.uop import UOp

NARROW = 1 << 31
"""Vectors of indices whose values are below this are int32; all other indices are int64."""
FIRST = 1 << 20
"""The number before the first range that is made here; those of the AST are smaller."""


@dataclass(slots=True)
class IndexParts:
    """The terms of an index (atom, coefficient), by what the atoms are."""

    outer: list[tuple[UOp, int]]
    """Loop variables and launch variables."""
    units: list[tuple[UOp, int]]
    """Unrolled positions."""
    computed: list[tuple[UOp, int]]
    """Divisions, modulos and computed indices, which take lines of their own."""
    stride: int
    """The coefficient of the lane."""
    lanes: int
    constant: int


@dataclass(slots=True)
class AccessPlace:
    """The elements of an access: base + offset + stride * lane, or a vector of indices."""

    base: Line
    offset: int
    stride: int
    lanes: int
    vector: Line | None = None
    align: int = 1
    """A divisor of the index of the first lane: the access is aligned to as many elements. 1: unknown."""


def resized(b: Builder, line: Line, dtype: DType) -> Line:
    """Convert an integer register to another integer dtype, with its sign if its own dtype is signed."""
    if line.dtype is dtype:
        return line
    if line.op == "const" and isinstance(line.arg, int):
        return b.const(dtype, line.arg, line.lanes)
    if line.dtype.bits == dtype.bits:
        return b.convert("bitcast", line, dtype)
    wider = "zext" if line.dtype.kind != "int" else "sext"
    return b.convert("trunc" if line.dtype.bits > dtype.bits else wider, line, dtype)


class Indexer:
    """Writes index nodes as registers, with the current values of ranges."""

    def __init__(self, b: Builder, value: Callable[[UOp], Line], buffers: int) -> None:
        self.b = b
        self.value = value
        self.buffers = buffers
        self.variables: dict[str, int] = {}
        """For each launch variable the number of its argument."""
        self.exprs: dict[UOp, UOp] = {}
        """For each RANGE of the AST, the index over block, unit and lane that replaces it."""
        self.starts: dict[UOp, UOp] = {}
        """For each RANGE of the AST, the part of that index for the first value of a block."""
        self.bound: dict[UOp, Line] = {}
        """The registers of ranges of loops and threads, and of variables that are not arguments."""
        self.kept: dict[int, tuple[Line, Line]] = {}
        """For each buffer in scratch memory its address, and the source that keeps loads after its stores."""
        self.env: dict[UOp, int] = {}
        """The current unrolled position of each unit."""
        self.unit_ranges: set[UOp] = set()
        self.lane_ranges: dict[UOp, int] = {}
        """Ranges that are lanes of a vector, and their number. Lanes that are threads are in `bound`."""
        self.guards: dict[UOp, UOp] = {}
        """For a RANGE of the AST whose blocks extend beyond its end, the mask of the values inside."""
        self.known: set[UOp] = set()
        """Parts of masks of the AST that are true at the cursor."""
        self.memo: dict[UOp, UOp] = {}
        """For an index of the AST the one over split ranges; valid for the current `exprs`."""
        self.taken: dict[UOp, IndexParts] = {}
        """For an index over split ranges its terms."""
        self.lines: dict[tuple[UOp | Line | int | None, ...], Line] = {}
        """For an index, the current units and the registers of its ranges, its register."""
        self.needs: dict[UOp, tuple[list[UOp], list[UOp]] | None] = {}
        """For a division or modulo the units and the ranges in it; None if it has a computed index."""
        self.bases: dict[tuple[UOp | Line | None, ...], Line] = {}
        """For an index and the registers of its ranges, their sum without units."""
        self.serial = FIRST

    def fresh(self, size: int) -> UOp:
        """Return a new range; of size 1 it is the constant 0."""
        self.serial += 1
        return symbolic.loop(self.serial, size)

    def buffer(self, slot: int) -> Line:
        """Return the address of a buffer: of an argument, or of scratch memory."""
        if slot in self.kept:
            return self.kept[slot][0]
        return self.b.line("argument", POINTER, 1, (), slot)

    def parts(self, x: UOp) -> IndexParts:
        """Return the terms of an index over split ranges."""
        found = self.taken.get(x)
        if found is None:
            terms, constant = symbolic.terms_of(x)
            found = self.taken[x] = IndexParts([], [], [], 0, 1, constant)
            for atom, c in terms.items():
                if atom in self.unit_ranges:
                    found.units.append((atom, c))
                elif atom in self.lane_ranges:
                    found.stride += c
                    found.lanes = self.lane_ranges[atom]
                elif atom.op is Ops.RANGE or atom.op is Ops.VAR:
                    found.outer.append((atom, c))
                else:
                    found.computed.append((atom, c))
        return found

    def split(self, x: UOp) -> UOp:
        """Return an index or mask of the AST as one over split ranges."""
        return symbolic.substitute(x, self.exprs, self.memo)

    def place(self, index: UOp, *, strided: bool = False) -> AccessPlace:
        """Return the elements of an access with this index of the AST.

        The stride is -1, 0 or 1, with `strided` up to MOST_STRIDE; any other needs a vector.
        """
        shift = index.arg[1] if index.op is Ops.SUM else 0
        if shift:  # indices that differ by a number have one base
            index = symbolic.add(index, symbolic.const(-shift))
        x = self.split(index)
        p = self.parts(x)
        if not p.computed and (p.stride in (-1, 0, 1) or (strided and 1 < p.stride <= MOST_STRIDE)):
            return self._affine(x, p, shift)
        terms = [(self.leaf(a), c) for a, c in p.outer]
        offset = p.constant + shift
        for u, c in p.units:
            offset += c * self.env[u]
        for atom, c in p.computed:
            line = self.computed(atom)
            if line.lanes > 1:
                return AccessPlace(line, 0, 0, line.lanes, self._moved(x, shift))
            if line.op == "const" and isinstance(line.arg, int):
                offset += line.arg * c
            else:
                terms.append((line, c))
        if p.stride not in (-1, 0, 1) and not (strided and 1 < p.stride <= MOST_STRIDE):
            return AccessPlace(self.b.index(0), 0, 0, p.lanes, self._moved(x, shift))
        return AccessPlace(
            self.sum(terms), offset, p.stride, p.lanes, align=gcd(offset, *[c for _, c in terms])
        )

    def _moved(self, x: UOp, shift: int) -> Line:
        """Return an index over split ranges plus a number as one register."""
        return self.materialised(symbolic.add(x, symbolic.const(shift)))

    def _affine(self, x: UOp, p: IndexParts, shift: int) -> AccessPlace:
        """Return the elements of an access without computed terms; the base is the same for all units."""
        offset = p.constant + shift
        for u, c in p.units:
            offset += c * self.env[u]
        key = (x, *[self.bound.get(a) for a, _ in p.outer])
        base = self.bases.get(key)
        if base is None or not base.block.open:
            base = self.bases[key] = self.sum([(self.leaf(a), c) for a, c in p.outer])
        return AccessPlace(base, offset, p.stride, p.lanes, align=gcd(offset, *[c for _, c in p.outer]))

    def sum(self, terms: list[tuple[Line, int]]) -> Line:
        """Add scalar terms, outermost first, so that the first sums are outside the inner loops."""
        terms.sort(key=lambda t: t[0].block.depth)
        total = self.b.index(0)
        for line, c in terms:
            total = self.b.add(total, self.b.mul(resized(self.b, line, dtypes.int64), c))
        return total

    def address(self, pointer: Line, place: AccessPlace, dtype: DType) -> Line:
        """Return the lowest address of a place."""
        offset = place.offset - (place.lanes - 1 if place.stride == -1 else 0)
        base = self.b.offset(pointer, place.base, dtype)
        return self.b.offset(base, self.b.index(offset), dtype)

    def leaf(self, atom: UOp) -> Line:
        """Return the register of a loop variable or a launch variable."""
        found = self.bound.get(atom)
        if found is not None:
            return found
        if atom.op is Ops.VAR:
            number = self.variables[atom.arg[0]]
            return self.b.line("variable", dtypes.int64, 1, (), (number, self.buffers))
        return self.bound[atom]

    def bind(self, r: UOp, number: Line) -> None:
        """Set the register of the counter of a range's blocks; a range of one block has no counter."""
        atoms = [a for a in symbolic.atoms_of((self.starts[r],)) if a.op is Ops.RANGE]
        if atoms:
            self.bound[atoms[0]] = number

    def line(self, index: UOp) -> Line:
        """Return an index of the AST as one register: int64, or a vector of int32 or int64."""
        return self.materialised(self.split(index))

    def materialised(self, x: UOp) -> Line:
        """Return an index over split ranges as one register, which is reused while its block is open."""
        p = self.parts(x)
        if p.computed:
            return self._materialised(x, p)
        key = (x, *[self.env[u] for u, _ in p.units], *[self.bound.get(a) for a, _ in p.outer])
        found = self.lines.get(key)
        if found is None or not found.block.open:
            found = self.lines[key] = self._materialised(x, p)
        return found

    def _materialised(self, x: UOp, p: IndexParts) -> Line:
        b = self.b
        computed = [(self.computed(a), c) for a, c in p.computed]
        offset = p.constant
        for u, c in p.units:
            offset += c * self.env[u]
        scalars = [(self.leaf(a), c) for a, c in p.outer] + [
            (line, c) for line, c in computed if line.lanes == 1
        ]
        base = b.add(self.sum(scalars), b.index(offset))
        vectors = [(line, c) for line, c in computed if line.lanes > 1]
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

    def computed(self, atom: UOp) -> Line:
        """Return the register of a division, a modulo or a computed index."""
        if atom.op is Ops.INDEXOF:
            line = self.value(atom.src[0])
            return resized(self.b, line, dtypes.int64) if line.lanes == 1 or line.dtype.bits < 32 else line
        needs = self._needs(atom)
        if needs is None:
            return self._divided(atom)
        units, outer = needs
        key = (atom, *[self.env[u] for u in units], *[self.bound.get(a) for a in outer])
        found = self.lines.get(key)
        if found is None or not found.block.open:
            found = self.lines[key] = self._divided(atom)
        return found

    def _divided(self, atom: UOp) -> Line:
        inner = self.materialised(atom.src[0])
        signed = atom.src[0].vmin < 0
        return (self.divide if atom.op is Ops.IDIV else self.modulo)(inner, atom.arg, signed=signed)

    def _needs(self, atom: UOp) -> tuple[list[UOp], list[UOp]] | None:
        """Return the units and the ranges in a division or modulo; None if it has a computed index."""
        if atom in self.needs:
            return self.needs[atom]
        p = self.parts(atom.src[0])
        units, outer = [u for u, _ in p.units], [a for a, _ in p.outer]
        found: tuple[list[UOp], list[UOp]] | None = (units, outer)
        for inner, _ in p.computed:
            more = None if inner.op is Ops.INDEXOF else self._needs(inner)
            if more is None:
                found = None
                break
            units += more[0]
            outer += more[1]
        self.needs[atom] = found
        return found

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
        """Return x % c, never negative."""
        b = self.b
        if x.op == "const" and isinstance(x.arg, int):
            return b.const(x.dtype, x.arg % c, x.lanes)
        if not c & (c - 1):
            return b.alu("and", x, b.const(x.dtype, c - 1))
        if not signed:
            return b.alu("urem", x, b.const(x.dtype, c))
        return b.alu("sub", x, b.alu("mul", self.divide(x, c, signed=True), b.const(x.dtype, c)))

    def mask(self, node: UOp) -> Line | None:
        """Return a mask of the AST, or over split ranges, as a register; None if it is always true here."""
        if self.known:
            node = symbolic.both(*[part for part in symbolic.parts_of(node) if part not in self.known])
        x = self.split(node)
        line: Line | None = None
        for part in symbolic.parts_of(x) if x is not symbolic.FALSE else ():
            line = self.b.both(line, self._below(part.src[0], part.arg))
        return self.b.const(dtypes.bool, False) if x is symbolic.FALSE else line

    def _below(self, x: UOp, c: int) -> Line | None:
        b, p = self.b, self.parts(x)
        if p.stride and not p.computed and not p.outer:  # known in every lane
            first = p.constant + sum([factor * self.env[u] for u, factor in p.units])
            inside = tuple([first + p.stride * k < c for k in range(p.lanes)])
            return None if all(inside) else b.const(dtypes.bool, inside, p.lanes)
        if len(x.src) == 1 and p.computed == [(x.src[0], -1)]:  # -a < c is a > -c, even for the least integer
            line, predicate, c = self.computed(x.src[0]), "sgt", -c
        else:
            line, predicate = self.materialised(x), "slt"
        if line.op == "const" and isinstance(line.arg, int):
            holds = line.arg > c if predicate == "sgt" else line.arg < c
            return None if holds else b.const(dtypes.bool, value=False)
        return b.cmp(predicate, line, b.const(line.dtype, c))
