"""Propose a plan of a convolution of 3 x 3 taps by Winograd's algorithm: fewer products, with transforms.

The parts run one after the other, as in a chain: once in each workgroup the transform of the filters; then
for each block of rows of tiles the copy of the picture with its border, the transform of the picture, 16
products of matrices over the channels, and the kernel itself, with the products in place of its sum.

The gradient of filters has a workgroup for each block of filters. For each piece, some rows of tiles of one
picture, the picture and the gradient of the results are transformed and multiplied, and the products added to
totals; after the last piece these become taps.

Not here: the kernels of the parts (`winograd_parts`), which sums have them (`winograd_roles`), the loops over
blocks (`phases`).
Next: `proposers`, which compares the estimate with that of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING

from compiler.dtype import dtypes
from compiler.nest.loop_nest import Axis, KeptMatrix, LoopNest, Phase
from compiler.nest.register_tile import LATENCY, ROUND_CYCLES
from compiler.plan import contraction, phases, tiling
from compiler.plan.choice import ProductChoice, SplitChoice, WinogradChoice
from compiler.plan.proposal import GROUP_NS, GROUPS_PER_CORE, KernelForm, Proposal
from compiler.plan.winograd_parts import COLUMN, PLANES, GradientParts, WinogradParts
from compiler.plan.winograd_roles import LEAST_CHANNELS, TAPS, TILE, convolution_of, gradient_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Edge
    from compiler.plan.winograd_roles import Roles
    from compiler.targets.shared.target import Target

_F32 = dtypes.float32
LEAST_COLUMNS = 8
"""Tiles of a block at least, the columns of the products."""
KEPT_BYTES = 6 << 20
"""Bytes of all matrices between the parts at most: they are on the stack of a thread."""
NEAR = 1.25
"""Bytes of the matrices of a block at most, in sizes of the second-level cache."""
SHARE_OF_FILTERS = 0.02
"""The part of the time that the transforms of the filters may take for more workgroups than cores."""
MOST_VECTORS = 8
"""Vectors of the register tile of the products at most."""
WINDOW_CYCLES = 5.0
"""Cycles of a vector of the copy with a border; this and those below are measured on a Zen 5."""
PICTURE_CYCLES, RESULT_CYCLES = (12.0, 2.2), (15.0, 3.2)
"""Cycles of the 16 places of a vector of tiles, and of their results: of the vector, and of each lane."""
LOAD_CYCLES = 8.0
"""Cycles of a vector of tiles for each other load of the kernel."""
GATHER_CYCLES = 0.9, 2.5
"""Cycles of a lane of a load of taps: of gathers, and without them."""
SUM_CYCLES = 3.0
"""Cycles of a vector of products that is added to its total."""
MOST_GROUPS = 4
"""Blocks of filters for each core at most: every one transforms all pictures."""
MOST_TILES = 512
"""Tiles whose products are summed before they are added to the total."""
FAR_BYTES = 4.5
"""Bytes per cycle of transformed filters that are not in the second-level cache."""


def propose(kernel: KernelForm, target: Target, _best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the plan of a convolution; none for any other kernel, and where `_sizes` finds no block.

    None also for a kernel in place, and for a target without `winograd`.
    """
    c = convolution_of(kernel.ast) if target.winograd else None
    if c is None or kernel.shape.in_place:
        return
    sizes = _sizes(c, target, len(kernel.shape.loads))
    if sizes is not None:
        yield _proposal(WinogradParts(kernel.ast, c, sizes.block), sizes, target)


def propose_taps(kernel: KernelForm, target: Target, _best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the plan of a gradient of filters; none for any other kernel, and where no block is near.

    None also as for `propose`. A block has LEAST_COLUMNS to MOST_TILES tiles, in whole rows.
    """
    c = gradient_of(kernel.ast) if target.winograd else None
    if c is None or kernel.shape.in_place:
        return
    filters, high, wide = c.filters.arg[1], c.rows.arg[1] // TILE, c.columns.arg[1] // TILE
    cores = max(1, target.cores)
    divisors = [d for d in range(1, filters // LEAST_CHANNELS + 1) if filters % d == 0]
    least = max([d for d in divisors if d <= cores])
    blocks = [b for b in range(high, 0, -1) if high % b == 0 and LEAST_COLUMNS <= b * wide <= MOST_TILES]
    splits = [d for d in divisors if d % least == 0 and d <= MOST_GROUPS * least]
    for groups, block in product(splits, blocks):
        parts = GradientParts(kernel.ast, c, block, filters // groups)
        if sum([m.count for m in parts.kept]) * _F32.itemsize <= target.l2_bytes * NEAR:
            yield _gradient(parts, groups, target)
            return


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The rows of tiles of a block, the register tile of the products, and their estimated cycles."""

    block: int
    rows: int
    vectors: int
    once: float
    """Of the transform of the filters."""
    cycles: float
    """Of everything else, of all blocks."""


def _proposal(p: WinogradParts, sizes: _Sizes, target: Target) -> Proposal:
    """Return the plan of the parts, which are planned when it is used."""
    edge: Edge = "exact" if p.high % p.block == 0 else "overlap"
    axes = (*[Axis(r) for r in p.c.others], Axis(p.tiles, p.block, 1, edge))
    wanted = min(sizes.cycles / target.gigahertz / GROUP_NS, target.cores)
    if GROUPS_PER_CORE * target.cores * sizes.once < SHARE_OF_FILTERS * sizes.cycles:
        wanted *= GROUPS_PER_CORE
    plan = LoopNest(axes, phases.steps_of(axes, int(wanted)))
    nanoseconds = (sizes.cycles + prod(plan.launch()[0]) * sizes.once) / target.gigahertz

    def whole() -> LoopNest:
        alone = replace(target, cores=0)  # the workgroups are those of the whole kernel
        parts = [
            *[_split(p.window(), alone, 2)] * p.bordered,
            _split(p.pictures(), alone, 2),
            _product(p.products(), sizes, alone),
            _split(p.results(), alone, 3, (2, 4)),
        ]
        return replace(
            plan,
            nanoseconds=nanoseconds,
            phases=(Phase(*_split(p.filters(), alone, 1), "once"), *[Phase(*part) for part in parts]),
            kept=tuple([KeptMatrix(m.slot, _F32, m.count) for m in p.kept]),
        )

    return Proposal(p.ast, nanoseconds, whole, WinogradChoice())


def _split(ast: UOp, target: Target, vector: int, unrolled: tuple[int, ...] = ()) -> tuple[UOp, LoopNest]:
    """Return a part with the plan that has vectors along one range; both values of others are unrolled."""
    choice = SplitChoice(vector=vector, upcast=tuple([(number, TILE) for number in unrolled]))
    return ast, tiling.by_choice(KernelForm(ast), target, choice).plan


def _product(ast: UOp, sizes: _Sizes, target: Target) -> tuple[UOp, LoopNest]:
    """Return the products with the plan that has vectors along the tiles, which are read in place."""
    kernel = KernelForm(ast)
    role = next(k for k, c in enumerate(kernel.roles) if c.columns.arg[0] == COLUMN)
    choice = ProductChoice(role=role, rows=sizes.rows, vectors=sizes.vectors)
    made = contraction.by_choice(kernel, target, choice)
    assert made is not None, "the register tile fits"
    return ast, made.plan


def _sizes(c: Roles, target: Target, loads: int) -> _Sizes | None:
    """Return the sizes with the least estimated cycles; None where no block fits.

    A block fits that has LEAST_COLUMNS tiles or more, in whole rows, and matrices within NEAR and KEPT_BYTES.
    `loads` are those of the kernel besides the sum.
    """
    high, wide = c.rows.arg[1] // TILE, c.columns.arg[1] // TILE
    filters, channels = c.filters.arg[1], c.channels.arg[1]
    width, cores = target.vector_bytes // _F32.itemsize, max(1, target.cores)
    lanes = min(width, 1 << (wide - 1).bit_length())
    picture, result = [fixed + each * lanes for fixed, each in (PICTURE_CYCLES, RESULT_CYCLES)]
    result += LOAD_CYCLES * loads
    pictures = prod([r.arg[1] for r in c.others])
    u = PLANES * filters * channels * _F32.itemsize
    gather = GATHER_CYCLES[not target.gathers] * width
    once = filters * channels / width * (TAPS * TAPS * gather + 2 * PLANES)
    best: _Sizes | None = None
    for block in range(1, high + 1):
        near = PLANES * (filters + channels) * block * wide + 4 * channels * (block + 1) * wide
        if near * _F32.itemsize > target.l2_bytes * NEAR or near * _F32.itemsize + u > KEPT_BYTES:
            break
        if block * wide < LEAST_COLUMNS:
            continue
        rows, vectors, products = _tile(filters, block * wide, target)
        window = channels * (TILE * block + 2) * -(-(TILE * wide + 2) // width) * WINDOW_CYCLES
        moved = -(-wide // lanes) * block * (channels * picture + filters * result)
        sums = PLANES * (channels * products + 4.0 * filters * -(-block * wide // width))
        if u > target.l2_bytes // 2:
            sums = max(sums, u / FAR_BYTES)
        count = pictures * -(-high // block)
        cycles = -(-count // cores) * cores * (window + moved + sums)
        if best is None or cycles < best.cycles:
            best = _Sizes(block, rows, vectors, once, cycles)
    return best


def _tile(m: int, n: int, target: Target) -> tuple[int, int, float]:
    """Return the rows and vectors of the register tile for m x n outputs, and their cycles for a value of k.

    These are the cycles of one product for each output. Both operands are in the first-level cache.
    """
    lanes = target.vector_bytes // _F32.itemsize
    best = (inf, 1, 1)
    for vectors in range(1, min(MOST_VECTORS, -(-n // lanes)) + 1):
        for rows in range(1, min(m, (target.registers - 1) // vectors - 1) + 1):
            blocks = -(-m // rows) * -(-n // (vectors * lanes))
            loads = (rows + vectors) / target.loads_per_cycle
            cycles = blocks * (ROUND_CYCLES + max(rows * vectors / target.fma_per_cycle, loads, LATENCY))
            best = min(best, (cycles, rows, vectors))
    return best[1], best[2], best[0]


def _gradient(p: GradientParts, groups: int, target: Target) -> Proposal:
    """Return the plan of the parts, with a workgroup for each block of filters; as `_proposal`."""
    alone = replace(target, cores=0)
    products = p.products()
    *_, tiles = contraction.propose(KernelForm(products), alone)
    width = target.vector_bytes // _F32.itemsize
    lanes = min(width, 1 << (p.t.wide - 1).bit_length())
    channels, picture = p.c.channels.arg[1], PICTURE_CYCLES[0] + PICTURE_CYCLES[1] * lanes
    window = channels * (TILE * p.block + 2) * -(-(TILE * p.t.wide + 2) // width) * WINDOW_CYCLES
    moved = -(-p.t.wide // lanes) * p.block * (channels + p.held) * picture
    sums = p.total.count / width * SUM_CYCLES
    cycles = groups * p.count * (window + moved + sums + tiles.nanoseconds * target.gigahertz)

    def whole() -> LoopNest:
        axis = Axis(p.c.filters, p.held)
        each = [
            _split(p.window(), alone, 2),
            _split(p.pictures(), alone, 2),
            _split(p.results(), alone, 2),
            (products, tiles.plan),
            _split(p.sums(), alone, 0),
        ]
        return LoopNest(
            (axis,),
            phases.steps_of((axis,), groups),
            nanoseconds=cycles / target.gigahertz,
            pieces=(p.piece, 1, p.count),
            phases=(
                Phase(*_split(p.zeros(), alone, 0), "before"),
                *[Phase(*part, "each") for part in each],
                Phase(*_split(p.taps(), alone, 1), "after"),
            ),
            kept=tuple([KeptMatrix(m.slot, _F32, m.count) for m in p.kept]),
        )

    return Proposal(p.ast, cycles / target.gigahertz, whole, WinogradChoice())
