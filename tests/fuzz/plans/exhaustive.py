"""The choices of an exhaustive search of one kernel: finitely many, of every kind that its planners have.

All of them must compute the same (`tests.fuzz.plans.__main__`).

Not here: the choices that a search of `BEAM` walks along (`frontend.tuning.space`).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, cast

from compiler.nest.operand_roles import candidates
from compiler.plan import contraction
from compiler.plan.choice import ProductChoice, SplitChoice, StagedChoice
from frontend.tuning.space import COPIED, PIECES, distinct, sums_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.nest.kernel_shape import KernelShape
    from compiler.plan.choice import Choice, Numbers
    from compiler.plan.proposal import KernelForm, Proposal
    from frontend.tuning.space import Space

COPIES = (2, 4, 8)
"""Unrolled copies of vectors along a range."""
ROWS = (2, 4)
"""Unrolled rows of another range."""
TILE_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14)
TILE_VECTORS = (1, 2, 3, 4, 6)
LEAST_SUMS = 8
"""Accumulators from which on a register tile is in `every`, if the ranges allow as many."""
COMMON_TILES = ((6, 4), (12, 2))
"""Tiles that `every` combines with all copies and pieces."""


def every(space: Space) -> list[Proposal]:
    """Return a finite set of candidates, the estimated one first, for an exhaustive search.

    Tiles in shared memory: every division with every number of words. Register tiles: every tile of
    `TILE_ROWS` by `TILE_VECTORS` with the estimated copies, and all copies and pieces with three tiles.
    Splits: every vector range, with the unrolled copies `COPIES` along it, `ROWS` along another range, or
    a square; every range of vectors of the sums with `ROUNDS`; both orders of two loops; of sums of
    products with many rows only the estimated one.
    """
    starts = space.starts()
    choices: list[Choice] = [*space.staged()]
    staged = choices or any(isinstance(c.choice, StagedChoice) for c in starts)
    for form, kernel in space.forms.items():
        products = [*_products(space, kernel)]
        choices += products
        if not products and not staged:
            choices += [replace(c, form=form) for c in _splits(space, kernel.shape)]
    return distinct([*starts, *space.made(choices)])


def _products(space: Space, kernel: KernelForm) -> Iterator[ProductChoice]:
    """Yield the register tiles of `every`."""
    proposed = [*contraction.propose(kernel, space.target)]
    if not proposed:
        return
    best = cast("ProductChoice", proposed[-1].choice)
    for role, c in enumerate(candidates(kernel.shape)[: contraction.MOST_CANDIDATES]):
        inside = space.of_role(kernel, role, inside=True)
        if inside is not None:
            yield inside
        made = space.of_role(kernel, role, inside=False)
        if made is None:
            continue
        yield made
        if role != best.role:
            continue
        m, _, _ = c.size
        for rows, vectors in product(TILE_ROWS, TILE_VECTORS):
            if rows * vectors >= min(LEAST_SUMS, m) and rows <= m:
                yield replace(made, rows=rows, vectors=vectors)
                yield replace(made, rows=rows, vectors=vectors, staged=not made.staged)
        for tile in dict.fromkeys([(made.rows, made.vectors), *COMMON_TILES]):
            for staged, copied, piece in product((False, True), COPIED, PIECES):
                yield replace(made, rows=tile[0], vectors=tile[1], staged=staged, copied=copied, piece=piece)


def _splits(space: Space, kernel: KernelShape) -> Iterator[SplitChoice]:
    """Yield the splits of `every`."""
    for vector in space.vectors(kernel):
        for upcast in _upcasts(space, kernel, vector):
            for sums in sums_of(kernel, vector, space.target):
                choice = SplitChoice(vector=vector, upcast=upcast, sums=sums)
                if not space.sized(kernel, choice):
                    continue
                yield from [replace(choice, threads=threads) for threads in space.threads(kernel)]
                yield from [replace(choice, order=order) for order in space.orders(kernel)]


def _upcasts(space: Space, kernel: KernelShape, vector: int) -> list[Numbers]:
    """Return the unrolled copies for a vector range: along it, another one, both, or a square."""
    out: list[Numbers] = [()]
    others = [int(r.arg[0]) for r in kernel.outputs if r.arg[0] != vector]
    if vector >= 0:
        out += [((vector, n),) for n in COPIES]
    out += [((a, m),) for a in others for m in ROWS]
    if vector >= 0:
        lanes = space.target.vector_bytes // max(4, kernel.widest)
        out += [((u, lanes),) for u in others if space.target.threads == 1 and lanes not in ROWS]
        out += [tuple(sorted(((a, m), (vector, n)))) for a in others for m in ROWS for n in (2, 4)]
    return [u for u in out if space.fits(kernel, SplitChoice(vector=vector, upcast=u))]
