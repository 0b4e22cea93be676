"""Propose a plan of softmax(scores) @ values as one kernel, with both products on matrix units.

A workgroup has a block of rows (queries) and all columns. It goes over blocks of keys: the scores of a block
are in registers, and become weights relative to the largest score so far; sums and results of the blocks
before are scaled when a larger one is found (`LoopNest.online`). The tiles of keys and values are in shared
memory. The maps of the matrix operation say how the weights become an operand of the second product, so that
they need not pass through memory:

- m and n of a product are rows and columns where A has the lane map of D's rows (`mma.sync`). Otherwise both
  products are *turned*: keys @ queries, values @ weights (MFMA, WMMA), where B has that of D's columns.
- Within a block, keys are in the order in which a lane has them (`targets.shared.matrix.places`).

Not here: which chains are such kernels (`rewrite.online_softmax.merged`), chains on a host (`phases`). Next:
`emit.online_sum`, which writes the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from compiler.dtype import HALF
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.ir.walk import bound_ranges
from compiler.nest.kernel_shape import analyse
from compiler.nest.loop_nest import Axis, LoopNest, Online, Reduction, Step
from compiler.nest.nest_check import shared_estimate
from compiler.plan.block_splits import MATRIX_PRODUCTS, SHARED_BYTES, by_lanes, has_vectors, in_order
from compiler.plan.choice import OnlineChoice
from compiler.plan.matrix_product import Product
from compiler.plan.proposal import Proposal
from compiler.plan.shared_product import ring, tile
from compiler.rewrite.online_softmax import Merged, merged
from compiler.targets.shared.matrix import places
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.loop_nest import Stage
    from compiler.plan.proposal import KernelForm
    from compiler.targets.shared.matrix import MatrixOp
    from compiler.targets.shared.target import Target

LEAST_DEPTH, MOST_DEPTH = 16, 256
"""The shortest tile along a query or a value, and the longest query and value."""
ALONE, LONG = 16, 512
"""Rows below which a kernel of more than so many keys is not merged: few workgroups would read all keys."""
WARPS, HIGH, KEYS = (4, 8, 2, 1), (2, 1), (64, 128, 32)
"""Warps along the rows, operations of a warp along the rows, and keys of a block."""
OTHER_REGISTERS = (32, 56)
"""Registers of a thread for addresses, masks and exponentials; with transposed products LLVM schedules."""
HELD_REGISTERS, AHEAD = 32, 40
"""Registers up to which fragments of queries stay, and up to which those of the next step are read ahead."""
UNHELD_REGISTERS = (8, 24)
"""The same of fragments of queries that do not stay, where there are several or LLVM schedules."""
LANES_PER_CYCLE, EXPONENTIAL = 128, 8
"""Lanes of a processor that compute in a cycle, and the operations on one score; for the estimate of time."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """A merged kernel: its two products and their operation."""

    merged: Merged
    scores: Product
    """Queries @ keys: the columns are the keys."""
    values: Product
    """Weights @ values: the sum is over the keys."""
    op: MatrixOp

    @property
    def turned(self) -> bool:
        """Whether both products are transposed."""
        return not self.op.rows


def fits(chain: UOp, target: Target) -> bool:
    """Return whether a chain has a plan on a target."""
    return next(_all(chain, target), None) is not None


def propose(kernel: KernelForm, target: Target, _best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield the fastest plan of a chain whose middle part is a softmax; none for a kernel that is no chain.

    Raises `CompileError` for a chain that does not fit (`fits`): it has no other plan on a GPU.
    """
    if kernel.ast.arg:
        every = list(_all(kernel.ast, target))
        if not every:
            raise CompileError(
                f"wanted a chain that fits {target.arch}, saw one without a plan; try its parts one by one",
                ast=kernel_key(kernel.ast),
            )
        yield min(every, key=lambda p: p.nanoseconds)


def by_choice(kernel: KernelForm, target: Target, choice: OnlineChoice) -> Proposal | None:
    """Return the plan of a choice; None where it does not fit."""
    return next((p for p in _all(kernel.ast, target) if p.choice == choice), None)


def every_choice(chain: UOp, target: Target) -> list[OnlineChoice]:
    """Return the choices of a chain that have a plan."""
    return [p.choice for p in _all(chain, target) if isinstance(p.choice, OnlineChoice)]


def _all(chain: UOp, target: Target) -> Iterator[Proposal]:
    """Yield the plans of a chain that fit the target."""
    a = _attention(chain, target) if chain.arg else None
    if a is not None:
        for keys, warps, high in product(KEYS, WARPS, HIGH):
            choice = OnlineChoice(warps=warps, high=high, keys=keys, depth=2 if a.op.rows else 1)
            plan = _planned(a, target, choice)
            if plan is not None:
                yield Proposal(a.merged.ast, plan.nanoseconds, plan, choice)


def _attention(chain: UOp, target: Target) -> _Attention | None:
    """Return a chain as two products; None where the target has no operation for them.

    The operands of both have one type of 16 bits. Rows are the innermost range on which neither keys nor
    values depend; the other ranges that are no columns count such products.
    """
    found = merged(chain) if target.matrix and target.shared_bytes else None
    if found is None:
        return None
    kernel = analyse(found.ast)
    free = kernel.free
    (key,), (depth,) = (bound_ranges(n, free) for n in (found.weighted, found.scores))
    weights, values = _factors(found.weighted, lambda x: _plain(x) is found.total.src[0])
    queries, keys = _factors(found.scores, lambda x: key not in free[x])
    outputs = kernel.outputs
    columns = [r for r in outputs if r not in free[found.largest]]
    rows = [r for r in outputs if r in free[queries] and r not in free[keys] and r not in free[values]]
    op = next((o for o in target.matrix if o.dtype is queries.dtype), None)
    same = all(x.dtype is queries.dtype for x in (weights, keys, values))
    if op is None or not same or not rows or len(columns) != 1 or kernel.in_place or key not in free[keys]:
        return None
    if max(depth.arg[1], columns[0].arg[1]) > MOST_DEPTH or (rows[-1].arg[1] < ALONE and key.arg[1] > LONG):
        return None
    others = tuple([r for r in outputs if r is not rows[-1] and r is not columns[0]])
    scores = Product(kernel, found.scores, rows[-1], key, depth, queries, keys, others)
    weighted = Product(kernel, found.weighted, rows[-1], columns[0], key, weights, values, others)
    return _Attention(found, scores, weighted, op)


def _factors(node: UOp, first: Callable[[UOp], bool]) -> tuple[UOp, UOp]:
    """Return the factors of a sum of products before they are converted, the `first` one first."""
    x, y = node.src[0].src
    if not first(x):
        x, y = y, x
    narrow = [f.src[0] if f.op is Ops.CAST and f.src[0].dtype in HALF else f for f in (x, y)]
    return narrow[0], narrow[1]


def _plain(x: UOp) -> UOp:
    """Return a value before its conversions."""
    while x.op is Ops.CAST:
        x = x.src[0]
    return x


def _padded(size: int) -> int:
    """Return the length of a tile for rows of a size: a power of two, so that threads divide its vectors."""
    return max(LEAST_DEPTH, 1 << (size - 1).bit_length())


def _planned(a: _Attention, target: Target, choice: OnlineChoice) -> LoopNest | None:
    """Return the plan of a choice; None where it does not fit the target."""
    axes, threads = _axes(a, choice), choice.warps * a.op.lanes
    depth = _padded(a.scores.k.arg[1])
    stages = _stages(a, target, choice, axes) if threads <= target.threads else None
    if stages is None:
        return None
    rows, keys, columns = axes
    held, each = _fragments(a, choice, depth, columns.block)
    of = {rows.range: rows, columns.range: columns}
    every = tuple([of.get(r) or Axis(r) for r in a.scores.kernel.outputs])
    copied = 0 if choice.depth > 1 else keys.block * (depth + columns.block) // (2 * threads)
    registers = OTHER_REGISTERS[a.turned] + max(held if held <= HELD_REGISTERS else 0, copied) + each
    if held > HELD_REGISTERS and (a.turned or choice.high > 1):
        registers += UNHELD_REGISTERS[a.turned]
    registers += rows.upcast * (columns.upcast * columns.lanes + keys.upcast + keys.upcast // 2)
    ahead = each <= AHEAD and (not a.turned or registers + each <= target.thread_registers)
    if registers > target.thread_registers:
        return None
    m = a.merged
    online = Online(
        keys, m.scores, m.score, m.largest, m.total, m.weighted, a.turned, held <= HELD_REGISTERS, ahead
    )
    groups = [Step("group", r.range) for r in every if r.range is not rows.range and r.count > 1]
    groups += [Step("group", rows.range)] if rows.count > 1 else []
    sums = {
        frozenset((r,)): Reduction((r,), staged=n) for r, n in ((a.scores.k, depth), (a.values.k, keys.block))
    }
    time = _cycles(a, axes, depth, threads, target) / target.gigahertz
    plan = LoopNest(
        every, (*groups, *stages), sums, threads=threads, warp=target.warp, nanoseconds=time, matrix=a.op,
        online=online,
    )  # fmt: skip
    most = target.dynamic_shared_bytes if choice.depth > 1 else target.shared_bytes
    return plan if shared_estimate(plan) <= most else None


def _fragments(a: _Attention, choice: OnlineChoice, depth: int, width: int) -> tuple[int, int]:
    """Return the registers of all fragments of queries, and of the operands of one step of a product."""
    (m, n, k), query, other = a.op.shape, a.op.a.registers, a.op.b.registers
    if a.turned:
        query, other, n = other, query, m
    each = choice.high * query + max(choice.keys, width) // n * other
    return choice.high * depth // k * query, each


def _cycles(a: _Attention, axes: tuple[Axis, Axis, Axis], depth: int, threads: int, target: Target) -> float:
    """Return the estimated cycles of a plan: products, exponentials, and loads of fragments by every warp."""
    rows, keys, columns = axes
    area, wide = rows.block * keys.block, depth + columns.block
    each = area * wide / MATRIX_PRODUCTS + area * EXPONENTIAL / LANES_PER_CYCLE
    each += 2 * (threads // a.op.lanes) * keys.block * wide / SHARED_BYTES
    each *= max(1, 4 * target.warp / threads)
    groups = rows.count * prod([o.arg[1] for o in a.scores.others])
    return float(max(1.0, groups / target.cores) * keys.count * each)


def _stages(
    a: _Attention, target: Target, choice: OnlineChoice, axes: tuple[Axis, Axis, Axis]
) -> tuple[Stage, Stage, Stage] | None:
    """Return the tiles of queries, keys and values; None where one cannot be copied by the threads."""
    rows, keys, columns = axes
    depth, threads = _padded(a.scores.k.arg[1]), choice.warps * a.op.lanes
    found: list[Stage] = []
    for p, value, axis, summed in (
        (a.scores, a.scores.left, rows, depth), (a.scores, a.scores.right, keys, depth),
        (a.values, a.values.right, columns, keys.block),
    ):  # fmt: skip
        if choice.depth == 1:
            stage = tile(p, value, axis, threads, target, summed // 2, pack=2)
        elif value.op is Ops.LOAD:
            stage = ring(p, value, axis, threads, summed, depth=choice.depth if found else 1)
        else:
            stage = None
        if stage is None:
            return None
        found.append(stage)
    return found[0], found[1], found[2]


def _axes(a: _Attention, choice: OnlineChoice) -> tuple[Axis, Axis, Axis]:
    """Return the axes of rows, keys and columns."""
    op, (m, n, _) = a.op, a.op.shape
    rows, key, columns = a.values.rows, a.scores.columns, a.values.columns
    width, warps = _padded(columns.arg[1]), choice.warps
    if not a.turned:
        lanes = 2 if has_vectors(a.values, 2) else 1
        return (
            in_order(rows, op.d.row, m, choice.high, warps=(warps, op.lanes)),
            in_order(key, op.d.column, n, choice.keys // n),
            in_order(columns, op.d.column, n, width // n, lanes=lanes),
        )
    _, mine, _ = places(op.d.row, width // m)
    lanes = next(k for k in (8, 4, 2, 1) if mine % k == 0 and (k == 1 or has_vectors(a.values, k)))
    return (
        by_lanes(rows, op.d.column, choice.high, warps=(warps, op.lanes)),
        by_lanes(key, op.d.row, choice.keys // m),
        by_lanes(columns, op.d.row, width // m, lanes=lanes),
    )
