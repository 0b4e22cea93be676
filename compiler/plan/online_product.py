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
from compiler.ir.walk import bound_ranges, ordered
from compiler.nest.kernel_shape import analyse
from compiler.nest.loop_nest import Axis, LoopNest, Online, Reduction, Step
from compiler.nest.nest_check import shared_estimate
from compiler.plan.block_splits import MATRIX_PRODUCTS, SHARED_BYTES, by_lanes, has_vectors, in_order
from compiler.plan.choice import OnlineChoice
from compiler.plan.matrix_product import Product
from compiler.plan.proposal import Proposal
from compiler.plan.shared_product import ring, tile
from compiler.rewrite.online_softmax import Merged, described, merged
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
ALONE, LONG, SHORT = 16, 512, 64
"""Rows below which more than so many keys are divided among workgroups, and the fewest keys of a part."""
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
    scores: tuple[Product, ...]
    """Rows @ keys: the columns are the keys."""
    values: tuple[Product, ...]
    """Weights @ values: the sum is over the keys."""
    op: MatrixOp

    @property
    def turned(self) -> bool:
        """Whether both products are transposed."""
        return not self.op.rows


def parts(chain: UOp, target: Target) -> int:
    """Return into how many parts the keys of a chain are divided, so that all processors have a workgroup.

    Return 1 for a chain that is one kernel, 0 for one without a plan.
    """
    a = _attention(chain, target) if chain.arg else None
    if a is None or next(_all(chain, target), None) is None:
        return 0
    groups, keys = prod([r.arg[1] for r in a.scores[0].others]), a.values[0].k.arg[1]
    if a.scores[0].rows.arg[1] >= ALONE or keys <= LONG or groups >= target.cores:
        return 1
    return int(min(-(-target.cores // groups), keys // SHORT))


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


def _attention(ast: UOp, target: Target) -> _Attention | None:
    """Return a chain or a merged kernel as products; None where the target has no operation for them.

    Their operands have one type of 16 bits. Rows are the innermost range on which neither keys nor values
    depend; the other ranges that are no columns count such products.
    """
    if not target.matrix or not target.shared_bytes:
        return None
    found = merged(ast) if ast.src[0].op is Ops.SINK else described(ast)
    if found is None:
        return None
    kernel = analyse(found.ast)
    free, outputs = kernel.free, kernel.outputs
    (key,) = bound_ranges(found.weighted[0], free)
    pairs = [_factors(n, lambda x: key not in free[x]) for n in found.scores]
    weighted = [_factors(n, lambda x: any(s in ordered(x) for s in found.scores)) for n in found.weighted]
    columns = [r for r in outputs if r not in free[found.scores[0]]]
    far = {r for pair in (*pairs, *weighted) for r in free[pair[1]]}
    rows = [r for r in outputs if r not in far and all(r in free[left] for left, _ in pairs)]
    narrow = [x for pair in pairs for x in pair] + [values for _, values in weighted]
    narrow += [weights for weights, _ in weighted] if found.largest is not None else []
    op = next((o for o in target.matrix if o.dtype is narrow[0].dtype), None)
    if op is None or any(x.dtype is not op.dtype for x in narrow) or kernel.in_place:
        return None
    if not rows or len(columns) != 1 or any(key not in free[keys] for _, keys in pairs):
        return None
    others = tuple([r for r in outputs if r is not rows[-1] and r is not columns[0]])
    scores = [
        Product(kernel, n, rows[-1], key, next(iter(bound_ranges(n, free))), *pair, others)
        for n, pair in zip(found.scores, pairs, strict=True)
    ]
    sums = [
        Product(kernel, n, rows[-1], columns[0], key, *pair, others)
        for n, pair in zip(found.weighted, weighted, strict=True)
    ]
    if max(p.arg[1] for p in (*[p.k for p in scores], columns[0])) > MOST_DEPTH:
        return None
    return _Attention(found, tuple(scores), tuple(sums), op)


def _factors(node: UOp, first: Callable[[UOp], bool]) -> tuple[UOp, UOp]:
    """Return the factors of a sum of products before they are converted, the `first` one first."""
    x, y = node.src[0].src
    if not first(x):
        x, y = y, x
    narrow = [f.src[0] if f.op is Ops.CAST and f.src[0].dtype in HALF else f for f in (x, y)]
    return narrow[0], narrow[1]


def _padded(size: int) -> int:
    """Return the length of a tile for rows of a size: a power of two, so that threads divide its vectors."""
    return max(LEAST_DEPTH, 1 << (size - 1).bit_length())


def _planned(a: _Attention, target: Target, choice: OnlineChoice) -> LoopNest | None:
    """Return the plan of a choice; None where it does not fit the target."""
    axes, threads = _axes(a, choice), choice.warps * a.op.lanes
    stages = _stages(a, target, choice, axes) if threads <= target.threads else None
    if stages is None:
        return None
    rows, keys, columns = axes
    depth = sum([_padded(p.k.arg[1]) for p in a.scores])
    width = len(a.values) * columns.block
    held, each = _fragments(a, choice, depth, columns.block)
    of = {rows.range: rows, columns.range: columns}
    every = tuple([of.get(r) or Axis(r) for r in a.scores[0].kernel.outputs])
    copied = 0 if choice.depth > 1 else keys.block * (depth + width) // (2 * threads)
    registers = OTHER_REGISTERS[a.turned] + max(held if held <= HELD_REGISTERS else 0, copied) + each
    if held > HELD_REGISTERS and (a.turned or choice.high > 1):
        registers += UNHELD_REGISTERS[a.turned]
    registers += rows.upcast * len(a.values) * (columns.upcast * columns.lanes + keys.upcast // 2)
    registers += rows.upcast * len(a.scores) * keys.upcast
    ahead = each <= AHEAD and (not a.turned or registers + each <= target.thread_registers)
    if registers > target.thread_registers:
        return None
    m = a.merged
    online = Online(
        keys, m.scores, m.weights, m.weighted, m.score, m.largest, m.total, a.turned,
        held <= HELD_REGISTERS, ahead,
    )  # fmt: skip
    groups = [Step("group", r.range) for r in every if r.range is not rows.range and r.count > 1]
    groups += [Step("group", rows.range)] if rows.count > 1 else []
    lengths = {p.k: _padded(p.k.arg[1]) for p in a.scores} | {keys.range: keys.block}
    sums = {frozenset((r,)): Reduction((r,), staged=n) for r, n in lengths.items()}
    time = _cycles(a, axes, depth + width, threads, target) / target.gigahertz
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


def _cycles(a: _Attention, axes: tuple[Axis, Axis, Axis], wide: int, threads: int, target: Target) -> float:
    """Return the estimated cycles of a plan: products, exponentials, and loads of fragments by every warp.

    `wide` is the sum of the lengths of all products.
    """
    rows, keys, _ = axes
    area = rows.block * keys.block
    each = area * wide / MATRIX_PRODUCTS + area * EXPONENTIAL / LANES_PER_CYCLE
    each += 2 * (threads // a.op.lanes) * keys.block * wide / SHARED_BYTES
    each *= max(1, 4 * target.warp / threads)
    groups = rows.count * prod([o.arg[1] for o in a.scores[0].others])
    return float(max(1.0, groups / target.cores) * keys.count * each)


def _stages(
    a: _Attention, target: Target, choice: OnlineChoice, axes: tuple[Axis, Axis, Axis]
) -> list[Stage] | None:
    """Return the tiles of rows, keys and values; None where one cannot be copied by the threads."""
    rows, keys, columns = axes
    threads = choice.warps * a.op.lanes
    found: list[Stage] = []
    work = [(p, p.left, rows, _padded(p.k.arg[1])) for p in a.scores]
    work += [(p, p.right, keys, _padded(p.k.arg[1])) for p in a.scores]
    work += [(p, p.right, columns, keys.block) for p in a.values]
    for p, value, axis, summed in work:
        if choice.depth == 1:
            stage = tile(p, value, axis, threads, target, summed // 2, pack=2)
        elif value.op is Ops.LOAD:
            depth = choice.depth if len(found) >= len(a.scores) else 1
            stage = ring(p, value, axis, threads, summed, depth=depth)
        else:
            stage = None
        if stage is None:
            return None
        found.append(stage)
    return found


def _axes(a: _Attention, choice: OnlineChoice) -> tuple[Axis, Axis, Axis]:
    """Return the axes of rows, keys and columns."""
    op, (m, n, _) = a.op, a.op.shape
    first = a.values[0]
    rows, key, columns = first.rows, first.k, first.columns
    width, warps = _padded(columns.arg[1]), choice.warps
    if not a.turned:
        lanes = 2 if has_vectors(first, 2) else 1
        return (
            in_order(rows, op.d.row, m, choice.high, warps=(warps, op.lanes)),
            in_order(key, op.d.column, n, choice.keys // n),
            in_order(columns, op.d.column, n, width // n, lanes=lanes),
        )
    _, mine, _ = places(op.d.row, width // m)
    lanes = next(k for k in (8, 4, 2, 1) if mine % k == 0 and (k == 1 or has_vectors(first, k)))
    return (
        by_lanes(rows, op.d.column, choice.high, warps=(warps, op.lanes)),
        by_lanes(key, op.d.row, choice.keys // m),
        by_lanes(columns, op.d.row, width // m, lanes=lanes),
    )
