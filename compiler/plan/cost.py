"""The cost model: cycles of a kernel with a candidate split, from the accesses and the target's parameters.

A block of outputs costs the iterations of its reductions plus its loads, arithmetic and stores. An iteration
costs the larger of its arithmetic, its loads and the latency of its accumulator chains. Caches are not
modelled. No kernel is run.

Not here: the candidates, the choice and the bound by memory bandwidth (`tiling`); the properties of the
kernel (`nest.kernel_shape`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.walk import by_number
from compiler.nest.kernel_shape import kind_along

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import Family, KernelAccess, KernelShape, Kind
    from compiler.targets.shared.target import Target

LATENCY = 4.0
"""Cycles until an accumulator can be used again."""
OVERLAP = 0.15
"""The part of the smaller of arithmetic and loads that does not overlap with the larger."""
STREAMS = 4
"""Rows along which the vectors of a sum can run side by side; each more costs as three streams."""
WAYS = 8
"""Rows of an operand that a first-level cache can hold at any pitch."""
ANOTHER_ROW, NEAR_ROW = 1.5, 0.25
"""Cycles of a load or store outside reductions for each row of a block after the first, and of one whose
operand the first-level cache holds."""
PAGE, PAGES = 4096, 96
"""Bytes of a page, and pages that the TLB holds."""
SHORT = 256
"""Vectors of a row up to which its sum overlaps with that of the next row."""
AHEAD = 256.0
"""Size of the reorder window in instructions: rows of fewer instructions overlap."""
CHAIN, HIDDEN = 0.15, 8
"""Cycles of an operation of a block that no other block hides, and operations that are hidden."""
GATHERED = 16.0
"""Cycles in which a block without sums waits for loads at computed indices, beside the loads themselves."""
LINE = 64
"""Bytes of a line of the caches."""
WHOLE = 0.7
"""The part of a row that a block must cover to read consecutive lines."""
TEXT = 4000
"""Operations that double the cost: of two plans of similar speed the shorter code wins."""
LINES = 400
"""The most operations in an unrolled body; more only costs compile time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The numbers that are measured; `DEBUG=1 BEAM=4` prints how far their plans are from the best."""

    chains: int
    """Independent accumulators that hide the latency of an addition."""
    short_row_chains: int
    """The same for the sum of a short row, as the next row is independent. Twice as many if the kernel reads
    each row several times, or if each addition takes longer."""
    nan_max_steps: float
    """Dependent instructions of a maximum of two floats that keeps NaN."""
    most_rounds: int
    """The most unrolled rounds."""
    stream_start_cycles: float
    """Cycles to start reading another row of memory."""
    extra_stream_cycles: float
    """Cycles of each row beyond `STREAMS` that is read at the same time."""
    page_miss_factor: float
    """Factor of `stream_start_cycles` for a matrix of more pages than the TLB holds."""
    lane_sum_latency: float
    """Cycles to sum the lanes of a vector; independent sums overlap."""
    lane_sum_per_result: float
    """Cycles of a lane sum that do not overlap, for each result."""
    l2_bytes_per_cycle: float
    """Bytes per cycle from the second-level cache for consecutive lines; 0: not modelled."""
    l2_bytes_per_cycle_strided: float
    """Bytes per cycle from the second-level cache for lines of different rows."""
    loop_cycles: float
    """Cycles of the control of a loop, an iteration."""
    block_cycles: float
    """Fixed cycles of a block, beside loads, arithmetic, stores and sums."""
    block_cycles_without_sums: float
    """The same in a kernel without sums, whose blocks overlap."""
    masked_tail_cycles: float
    """Cycles of each vector after the unrolled rounds of a sum, if the last vector needs a mask."""


HOST = Costs(
    chains=16, short_row_chains=2, nan_max_steps=3.0, most_rounds=8, stream_start_cycles=0.3,
    extra_stream_cycles=0.9, page_miss_factor=10.0, lane_sum_latency=8.0, lane_sum_per_result=8.0,
    l2_bytes_per_cycle=48.0, l2_bytes_per_cycle_strided=32.0, loop_cycles=1.0, block_cycles=4.0,
    block_cycles_without_sums=0.15, masked_tail_cycles=2.5,
)  # fmt: skip
DEVICE = Costs(
    chains=8, short_row_chains=8, nan_max_steps=1.0, most_rounds=1 << 30, stream_start_cycles=3.0,
    extra_stream_cycles=0.0, page_miss_factor=1.0, lane_sum_latency=24.0, lane_sum_per_result=4.0,
    l2_bytes_per_cycle=0.0, l2_bytes_per_cycle_strided=0.0, loop_cycles=4.0, block_cycles=2.0,
    block_cycles_without_sums=2.0, masked_tail_cycles=0.0,
)  # fmt: skip
"""Estimates; not measured on a GPU."""


@dataclass(slots=True)
class RangeSplit:
    """A candidate: the size of blocks along each output range, and the range along which vectors are."""

    vector: UOp | None
    lanes: int
    upcast: dict[UOp, int] = field(default_factory=dict)
    """The unrolled copies along each output range; along the vector range, copies of vectors."""
    sums: dict[frozenset[UOp], tuple[UOp | None, int]] = field(default_factory=dict)
    """For each family of reductions the range of its own vectors and its unrolled rounds; without an entry,
    the fastest by the estimate."""

    def block(self, r: UOp) -> int:
        """Return the size of a block along a range."""
        return self.upcast.get(r, 1) * (self.lanes if r is self.vector else 1)

    def aligned(self, r: UOp) -> bool:
        """Return whether blocks start at multiples of their size."""
        size: int = r.arg[1]
        return size % self.block(r) == 0 or size < self.block(r)


@dataclass(slots=True)
class Inner:
    """How the reductions of one family run with a split."""

    vector: UOp | None
    lanes: int
    unroll: int
    cycles: float
    """For one block."""
    lines: int


class Model:
    """The costs of one kernel on one target."""

    def __init__(self, kernel: KernelShape, target: Target, *, most_threads: int = 1 << 30) -> None:
        self.kernel = kernel
        self.target = target
        self.threaded = target.threads > 1
        self.costs = DEVICE if self.threaded else HOST
        self.exact = kernel.in_place or self.threaded
        """Whether no value may be computed and stored twice."""
        self.width = max(1, target.vector_bytes // max(4, kernel.widest))
        if self.threaded:
            self.width = _workgroup(kernel, min(target.threads, most_threads), target.warp)
        self.vector_bytes = 4 * self.width if self.threaded else target.vector_bytes
        self.kinds: dict[tuple[object, ...], Kind] = {}
        self.pitches: dict[tuple[UOp, UOp], int] = {}
        self.inners: dict[tuple[object, ...], Inner] = {}
        """The fastest way to run a family whose vectors are not along an output range, for its blocks."""

    def lanes(self, r: UOp) -> int:
        """Return the lanes of vectors (or the threads) along a range."""
        return self.width if self.threaded else _narrow(self.width, r.arg[1])

    def kind(
        self, access: KernelAccess, r: UOp | None, split: RangeSplit, lanes: int, *, aligned: bool
    ) -> Kind:
        """Return how the lanes of an access along a range, or none, are in memory; cached."""
        if r is None or r not in access.free:
            return "same"
        block = split.block(r) if r is split.vector else lanes
        key = (access.index, r, lanes, aligned, block if aligned else 0)
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = kind_along(
                access.index, r, lanes, block, aligned=aligned, free=self.kernel.free
            )
        return found

    def transposed(self, access: KernelAccess, split: RangeSplit) -> UOp | None:
        """Return the unrolled range along which a scattered load has rows, to transpose them; else None.

        None also for a load with a mask, without vectors, and on a target with threads.
        """
        if access.node.op is not Ops.LOAD or access.masked or split.vector is None or self.threaded:
            return None
        for r, n in split.upcast.items():
            if n == split.lanes and r is not split.vector and r in access.free:
                block_aligned = r.arg[1] % n == 0
                if self.kind(access, r, RangeSplit(r, n), n, aligned=block_aligned) == "row":
                    return r
        return None

    def access_cycles(
        self, access: KernelAccess, kind: Kind, lanes: int, split: RangeSplit | None = None
    ) -> float:
        """Return the cycles of one load or store of `lanes` values. Without `split` no row is transposed."""
        if kind == "scattered" and split is not None and self.transposed(access, split) is not None:
            return 5.0
        whole = max(1.0, lanes * max(4, access.itemsize) / self.vector_bytes)
        if kind == "row":
            return whole * (1.5 if access.masked else 1.0) / self.target.loads_per_cycle
        if kind == "strided" and access.node.op is Ops.LOAD:
            return 4.0 * whole / self.target.loads_per_cycle
        if kind == "same":
            return 0.5 / self.target.loads_per_cycle
        return lanes * (1.3 if self.target.gathers else 2.5)

    def repeats(self, free: frozenset[UOp], split: RangeSplit) -> int:
        """Return how often a block repeats a value that depends on these ranges."""
        total = 1
        for r, n in split.upcast.items():
            total *= n if r in free else 1
        return total

    def inner(self, family: Family, split: RangeSplit) -> Inner:
        """Return the fastest way to run a family of reductions with a split."""
        along = split.vector is not None and split.vector in family.free
        if family.ranges in split.sums:
            r, unroll = split.sums[family.ranges]
            if along:
                return self._inner_along(family, split, None, split.lanes, unroll)
            return self._inner_along(family, split, r, 1 if r is None else self.lanes(r), unroll)
        if along:
            return self._inner_along(family, split, None, split.lanes)
        v, copies = split.vector, [(r, n) for r, n in split.upcast.items() if r in family.free]
        whole = v.arg[1] if v is not None and split.block(v) == v.arg[1] else 0
        key = family.ranges, family.free, tuple(copies), whole
        found = self.inners.get(key)
        if found is None:
            found = self.inners[key] = self._apart(family, split)
        return found

    def _apart(self, family: Family, split: RangeSplit) -> Inner:
        """Return the fastest way to run a family that does not depend on the range of the vectors.

        Only the copies along its own ranges count, and whether a block has a whole row.
        """
        best = self._inner_along(family, split, None, 1)
        for r in by_number(family.ranges):
            if r.arg[1] >= (32 if self.threaded else 4) and self.width > 1:
                candidate = self._inner_along(family, split, r, self.lanes(r))
                if candidate.cycles < best.cycles:
                    best = candidate
        return best

    def _inner_along(  # called with positions only, here
        self, family: Family, split: RangeSplit, r: UOp | None, lanes: int, unroll: int = 0
    ) -> Inner:
        """Return the costs if lanes are along the reduced range r.

        With None they are along the split's vector range, or there are none. `unroll` 0 is estimated.
        """
        along = None if lanes == 1 else r if r is not None else split.vector
        aligned = r is not None or along is None or split.aligned(along)
        copies = self.repeats(family.free, split)
        accumulators = copies * len(family.nodes)
        loads = streams = beside = far = 0.0
        registers = accumulators + 1
        for load in family.loads:
            kind = self.kind(load, along, split, lanes, aligned=aligned)
            times = self.repeats(load.free, split)
            loads += times * self.access_cycles(load, kind, lanes, split if r is None else None)
            if kind == "same" and times > WAYS:
                loads += times - WAYS
            if kind == "row" and self._far(load, along, split):
                far += self._lines(load, along, split, times, lanes, family.trips)
            if kind == "row" and r is None:
                started = times / split.upcast.get(along, 1) if along is not None else 0
                streams += started * (self.costs.page_miss_factor if load.nbytes > PAGES * PAGE else 1.0)
            elif kind == "row":
                beside += max(0.0, times - STREAMS)
            registers += times if kind == "row" and times < copies else 0
        arithmetic = copies * (family.ops + family.fused) / self.target.fma_per_cycle
        if lanes == 1 and family.loads:
            arithmetic = max(arithmetic, loads)
        v = split.vector
        whole = v is not None and r is not None and v.arg[1] == r.arg[1] == split.block(v)
        loads += self.costs.stream_start_cycles * streams
        far += self.costs.stream_start_cycles * streams * bool(far)
        operations = copies * (family.ops + family.fused + len(family.loads))

        latency = self._latency(family) / self._overlap(family, r, lanes, operations)
        fixed = OVERLAP * min(arithmetic, loads) + 1.5 * max(0, registers - self.target.registers)
        busy, trips, runs = max(arithmetic, loads), float(family.trips), 0.0
        after = 2.0 * accumulators
        if r is not None:
            runs = trips / r.arg[1]
            trips = runs * -(-r.arg[1] // lanes)
            alone = len(self.kernel.families) == 1
            overlap = self._overlap(family, r, lanes, operations) if alone else 1.0
            after = self.costs.lane_sum_latency / overlap + self.costs.lane_sum_per_result * accumulators
        loop = self.costs.loop_cycles * (0.25 if copies > 8 else 0.5)
        beside *= self.costs.extra_stream_cycles
        most = unroll or self._unroll(accumulators, registers, family, r, lanes, whole=whole)
        found: list[tuple[float, int]] = []
        while most:
            cycles = max(busy, latency / most) + fixed
            rest = self._rest(r, lanes, most, latency - cycles, copies) * runs if r is not None else 0.0
            found.append((trips * (max(cycles + loop / most, far) + beside) + after + rest, -most))
            most = 0 if unroll or r is None or self.threaded else most // 2
        cycles, negative = min(found)
        return Inner(r, lanes, -negative, cycles, -int(operations * negative))

    def _rest(self, r: UOp, lanes: int, unroll: int, waited: float, copies: int) -> float:
        """Return the cycles that the vectors after the last full round add, for each run over a range.

        They are one chain for each result; if the last one has a mask, all of them do.
        """
        rest: int = -(-(r.arg[1] % (lanes * unroll)) // lanes)
        masked = self.costs.masked_tail_cycles * (3 + copies) / 4 if r.arg[1] % lanes else 0.0
        return rest * max(0.0, waited, masked)

    def _overlap(self, family: Family, r: UOp | None, lanes: int, operations: float) -> float:
        """Return how many rows are summed at once, because they are independent and short."""
        if r is None or not family.free or self.threaded:
            return 1.0
        vectors: int = -(-r.arg[1] // lanes)
        return max(1.0, AHEAD / (vectors * max(1.0, operations)))

    def _lines(  # noqa: PLR0917  # called with positions only, here
        self, load: KernelAccess, along: UOp | None, split: RangeSplit, times: int, lanes: int, rows: int
    ) -> float:
        """Return the cycles in which vectors come from the second-level cache, by lines.

        A block of a row that begins within a line has a part of one more, unless `rows` blocks, which the one
        beside it reads next, stay in the first-level cache.
        """
        nbytes: float = times * lanes * load.itemsize
        if along is None or along is not split.vector:
            return nbytes / self.costs.l2_bytes_per_cycle
        pitch = self._pitch(load, along)
        block = split.block(along) * load.itemsize
        again = rows * (block + LINE) <= self.target.l1_bytes * 5 / 4  # the next block finds the line
        if pitch % LINE and not again:
            nbytes += times / split.upcast.get(along, 1) * LINE
        return nbytes / (
            self.costs.l2_bytes_per_cycle if block >= WHOLE * pitch else self.costs.l2_bytes_per_cycle_strided
        )

    def _pitch(self, load: KernelAccess, along: UOp) -> int:
        """Return the bytes between rows along a range, 0 with one row; cached."""
        key = load.index, along
        if key not in self.pitches:
            terms, _ = symbolic.terms_of(load.index)
            others = [abs(c) * load.itemsize for r, c in terms.items() if r is not along]
            self.pitches[key] = min(others, default=0)
        return self.pitches[key]

    def _far(self, load: KernelAccess, along: UOp | None, split: RangeSplit) -> bool:
        """Return whether a load reads from the second-level cache, not all of it in order."""
        if not self.costs.l2_bytes_per_cycle or load.nbytes <= self.target.l1_bytes:
            return False
        return along is not split.vector or along is None or split.block(along) < along.arg[1]

    def _latency(self, family: Family) -> float:
        """Return the cycles until an accumulator of a family can be used again."""
        return LATENCY * (self.costs.nan_max_steps if picks(family) else 1.0)

    def _unroll(
        self, accumulators: int, registers: int, family: Family, r: UOp | None, lanes: int, *, whole: bool
    ) -> int:
        """Return how often to unroll, a power of two: enough chains, and no more registers than there are.

        `whole`: a block has the whole row, whose values the results share with a sum that is unrolled as far.
        """
        lines = LINES if whole and not self.threaded else LINES / 4
        last = r or max(family.ranges, key=lambda x: int(x.arg[1]))
        rounds = last.arg[1] // lanes
        chains = self.costs.chains
        if r is not None and family.free and accumulators == 1 and rounds <= SHORT:
            chains = self.costs.short_row_chains * (2 if picks(family) else 1)
            chains *= 1 if len(self.kernel.families) == 1 else 2
        unroll = 1
        while (
            unroll * 2 <= min(rounds, self.costs.most_rounds)
            and accumulators * unroll < chains
            and registers + accumulators * (2 * unroll - 1) <= self.target.registers
            and family.ops * unroll * 2 * accumulators <= lines
        ):
            unroll *= 2
        return unroll

    def total(self, split: RangeSplit) -> float:
        """Return the cycles of the whole kernel."""
        blocks = {r: -(-int(r.arg[1]) // split.block(r)) for r in self.kernel.outputs}
        cycles, lines = 0.0, 0.0
        along = [split.vector]
        for family in self.kernel.families:
            times = math.prod([blocks.get(r, 1) for r in family.free])
            inner = self.inner(family, split)
            along.append(inner.vector)
            cycles += times * inner.cycles
            lines = max(lines, inner.lines)
        overlaps = split.vector is not None and not self.kernel.families
        point = 0.0 if overlaps else self.costs.block_cycles
        rows = memory = waited = 0.0
        aligned = split.vector is None or split.aligned(split.vector)
        for a in (*self.kernel.loads, *self.kernel.stores):
            kind = self.kind(a, split.vector, split, split.lanes, aligned=aligned)
            times = self.repeats(a.free, split)
            point += times * self.access_cycles(a, kind, split.lanes if kind != "same" else 1, split)
            if kind == "row" and split.vector is not None and not self.threaded:
                near = a.nbytes <= self.target.l1_bytes
                rows += (NEAR_ROW if near else ANOTHER_ROW) * (times / split.upcast.get(split.vector, 1) - 1)
                if self.costs.l2_bytes_per_cycle and overlaps and not near:
                    memory += times * split.lanes * a.itemsize / self.costs.l2_bytes_per_cycle
            elif kind == "scattered" and not self.threaded and _is_computed(a):
                waited = GATHERED
        copies = math.prod(split.upcast.values())
        if self.threaded:
            point += copies * self.kernel.ops / self.target.fma_per_cycle
        else:
            cycles += self._operations(split, blocks) / self.target.fma_per_cycle
        if overlaps:
            chain = 0.0 if self.threaded else CHAIN * max(0.0, self.kernel.ops - HIDDEN)
            point = max(point, memory) + self.costs.block_cycles_without_sums + chain + waited
        point += rows
        times = math.prod(blocks.values())
        lines = max(lines, copies * (self.kernel.ops + len(self.kernel.loads)))
        total = (cycles + times * point) * (1.0 + lines / TEXT + (max(0.0, lines / LINES - 1.0)))
        if self.threaded:  # few workgroups leave processors idle, and narrow ones leave threads idle
            most = 2 * self.target.cores
            total *= most / min(times * min(1.0, self._busy(along) / self.target.warp), most)
        return total

    def _operations(self, split: RangeSplit, blocks: Mapping[UOp, int]) -> float:
        """Return the operations outside sums; what depends on some ranges is computed for these alone."""
        total = 0.0
        for free, ops in self.kernel.ops_of.items():
            total += ops * self.repeats(free, split) * math.prod([n for r, n in blocks.items() if r in free])
        return total

    def busy(self, split: RangeSplit) -> int:
        """Return the threads of a workgroup that do different work: lanes along an output or a reduction."""
        return self._busy([split.vector, *[self.inner(f, split).vector for f in self.kernel.families]])

    def _busy(self, along: list[UOp | None]) -> int:
        return max([min(self.width, r.arg[1]) for r in along if r is not None], default=1)


def _is_computed(access: KernelAccess) -> bool:
    """Return whether a part of an access's index is loaded or computed."""
    return any(atom.op is Ops.INDEXOF for atom in symbolic.atoms_of((access.index,)))


def picks(family: Family) -> bool:
    """Return whether a family keeps the largest or smallest of floats."""
    return any(n.arg[0] in (Ops.MAX, Ops.MIN) and n.dtype.is_float for n in family.nodes)


def _workgroup(kernel: KernelShape, most: int, least: int) -> int:
    """Return the threads of a workgroup: as many as the longest range can use, at least a warp."""
    sizes = [r.arg[1] for r in kernel.outputs] + [r.arg[1] for f in kernel.families for r in f.ranges]
    threads = least
    while threads < most and threads < max(sizes, default=1):
        threads *= 2
    return threads


def _narrow(width: int, size: int) -> int:
    """Return the lanes for a range of a size: `width`, or the power of two that covers a shorter range."""
    while width > 2 and width // 2 >= size:
        width //= 2
    return width
