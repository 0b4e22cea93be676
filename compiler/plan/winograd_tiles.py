"""What both uses of Winograd's algorithm share: tiles, matrices in scratch memory, places that go with taps.

Not here: the kernels (`winograd_parts` for results, `winograd_taps` for the gradient of filters).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.ir.walk import ordered
from compiler.nest.kernel_shape import inner_nodes
from compiler.rewrite.range_merging import replace_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Square = list[list[UOp]]

_F32 = dtypes.float32
TAPS, TILE, PLACES = 3, 2, 4
"""Taps, results and places of a tile along each side."""
PLANES = PLACES * PLACES
APART = 16
"""Unused elements between planes: a line, so that those of one place are not all in one set of the cache."""
LEAST_CHANNELS, LEAST_TILES = 16, 4
"""Channels and filters, and tiles of a row, from which on the transforms may pay."""
HALF = const(0.5, _F32)


def is_plain(index: UOp) -> bool:
    """Return whether an index is a sum of ranges."""
    return all(atom.op is Ops.RANGE for atom in symbolic.terms_of(index)[0])


def indices_of(value: UOp) -> list[UOp]:
    """Return the indices of the loads in a value, and those that its masks compare."""
    found: list[UOp] = []
    for n in inner_nodes((value,)):
        if n.op is Ops.LOAD:
            found += [n.src[1], *[part.src[0] for mask in n.src[2:] for part in symbolic.parts_of(mask)]]
        elif n.op is Ops.IVALUE:
            parts = symbolic.parts_of(n.src[0]) if symbolic.is_mask(n.src[0]) else ()
            found += [part.src[0] for part in parts] or [n.src[0]]
    return found


def partner_of(picture: UOp, tap: UOp, places: Collection[UOp]) -> UOp | None:
    """Return the output range that occurs only in sums with a tap, as `place + tap`; None without one."""
    every = [symbolic.terms_of(index)[0] for index in indices_of(picture)]
    if any(atom.op is not Ops.RANGE for terms in every for atom in terms):
        return None
    for r in sorted(places, key=lambda r: int(r.arg[0])):
        if all(terms.get(r, 0) == terms.get(tap, 0) for terms in every) and any(
            r in terms for terms in every
        ):
            return r
    return None


def step_of(picture: UOp, r: UOp) -> int:
    """Return the largest distance between elements of neighbours along a range."""
    return max(abs(symbolic.terms_of(index)[0].get(r, 0)) for index in indices_of(picture))


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in scratch memory, by its strides."""

    slot: int
    sizes: tuple[int, ...]
    """Its sides, outermost first."""
    strides: tuple[int, ...]
    """Elements between neighbours along each side."""
    count: int

    def at(self, *places: UOp | int, offset: int = 0) -> UOp:
        """Return the index of an element."""
        known = [symbolic.const(p) if isinstance(p, int) else p for p in places]
        return symbolic.dot(known, self.strides, offset)

    def load(self, *places: UOp | int) -> UOp:
        """Return the LOAD of an element."""
        return uop(Ops.LOAD, _F32, (self._buffer(), self.at(*places)))

    def store(self, value: UOp, *places: UOp | int) -> UOp:
        """Return the STORE of an element."""
        return uop(Ops.STORE, dtypes.void, (self._buffer(), self.at(*places), value))

    def _buffer(self) -> UOp:
        return uop(Ops.BUFFER, _F32, (), self.slot)


def matrix(slot: int, *sizes: int, pad: int = 0) -> Matrix:
    """Return a row-major matrix whose outermost parts are `pad` elements apart."""
    strides = [prod(sizes[k:]) + pad * (k == 1) for k in range(1, len(sizes) + 1)]
    return Matrix(slot, sizes, tuple(strides), sizes[0] * strides[0])


def at(value: UOp, env: Mapping[UOp, UOp | int]) -> UOp:
    """Return a value at other places of its ranges."""
    known = {r: symbolic.const(x) if isinstance(x, int) else x for r, x in env.items()}
    return replace_ranges(value, known)


def planes_to(to: Matrix, planes: Square, *places: UOp) -> UOp:
    """Return the kernel that stores 4 x 4 values, each to its plane."""
    stores = [
        to.store(value, PLACES * i + j, *places)
        for i, row in enumerate(planes)
        for j, value in enumerate(row)
    ]
    return uop(Ops.SINK, dtypes.void, tuple(stores))


def window_to(to: Matrix, picture: UOp, sides: Sequence[UOp], env: Mapping[UOp, UOp | int]) -> UOp:
    """Return the kernel that copies a picture with its border: ranges channel, row, column.

    They take the place of the ranges `sides` of the picture; its other ranges have the values in `env`.
    """
    places = [symbolic.loop(number, size) for number, size in enumerate(to.sizes)]
    value = at(picture, {**env, **dict(zip(sides, places, strict=True))})
    return uop(Ops.SINK, dtypes.void, (to.store(value, *places),))


def both_ways(square: Square, line: Callable[..., list[UOp]]) -> Square:
    """Return the transform of the rows of a square, then of the columns."""
    rows = [line(*row) for row in square]
    columns = [line(*column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def add(x: UOp, y: UOp) -> UOp:
    """Return x + y."""
    return uop(Ops.ADD, _F32, (x, y))


def sub(x: UOp, y: UOp) -> UOp:
    """Return x - y."""
    return uop(Ops.SUB, _F32, (x, y))


def mul(x: UOp, y: UOp) -> UOp:
    """Return x * y."""
    return uop(Ops.MUL, _F32, (x, y))


def replaced(ast: UOp, old: UOp, new: UOp) -> UOp:
    """Return the kernel with one value instead of another."""
    done: dict[UOp, UOp] = {old: new}
    for n in ordered(ast):
        if n not in done:
            done[n] = uop(n.op, n.dtype, tuple([done[s] for s in n.src]), n.arg)
    return done[ast]


def line_of_places(a: UOp, b: UOp, d: UOp, e: UOp) -> list[UOp]:
    """Return the transform of four places of a picture."""
    return [sub(a, d), add(b, d), sub(d, b), sub(b, e)]
