"""The plan of a kernel, a loop nest: how its ranges are split, and the order of its loops. Data only.

An output range has typed parts: `block * o + offset(u) + stride * thread + lane`.
- o is the number of a block, counted by loops and by workgroups of a grid with three dimensions.
- u is an unrolled position, for which `emit.linearize` writes lines of its own: the register tile.
- thread is a digit of the thread's number. On a target with threads several ranges may have thread parts.
- lane is the lane of a vector.

Each range of a reduction is a loop; the innermost range may be split into such parts.

Not here: the choice of a plan (`plan.tiling`), the check of a plan (`nest_check`). Next: `emit.linearize`,
which writes the kernel of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from compiler.ir.uop import uop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from compiler.targets.shared.matrix import MatrixOp
    from hcq.program import Dim3

Edge = Literal["exact", "overlap", "masked"]
"""The last block of a range. `exact`: the size is a multiple of the block. `overlap`: the last block ends at
the end of the range, and computes some values of the one before again. `masked`: lanes beyond the end are
masked."""


@dataclass(frozen=True, slots=True)
class Threads:
    """A part of a range along the threads of a workgroup: the digit `thread // step % size`."""

    size: int
    step: int = 1
    stride: int = 1
    """Values of the range between neighbours."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How one output range is split into blocks."""

    range: UOp
    upcast: int = 1
    """Unrolled vectors of a block."""
    lanes: int = 1
    """Values of a vector."""
    edge: Edge = "exact"
    threads: tuple[Threads, ...] = ()
    run: int = 0
    """Unrolled vectors that are adjacent, a run; 0: all of them."""
    spread: int = 0
    """Values from the start of a run to that of the next; not used where all vectors are one run."""

    @property
    def size(self) -> int:
        """The number of values of the range."""
        return int(self.range.arg[1])

    @property
    def block(self) -> int:
        """The number of values in a block."""
        values = self.upcast * self.lanes
        for part in self.threads:
            values *= part.size
        return values

    def offset(self, unit: int) -> int:
        """Return where the first lane of an unrolled vector is in a thread's part of the block, in values."""
        run = self.run or self.upcast
        return unit % run * self.lanes + unit // run * self.spread

    @property
    def count(self) -> int:
        """The number of blocks."""
        return -(-self.size // self.block)


@dataclass(frozen=True, slots=True)
class Step:
    """One level of the loop nest: pieces of `size` blocks, each a workgroup or one iteration of a loop.

    Workgroups may divide a range twice, in whole pieces. The workgroups of one piece of the outer step then
    have all pieces of the steps between the two before those of the next piece.

    A loop over a summed range cuts it into pieces of `size` values. The loops inside it run over blocks whose
    totals are in scratch memory between the pieces; after the last piece they run once more for the results.
    """

    kind: Literal["group", "loop"]
    range: UOp
    size: int = 1
    dim: int = 0
    """For workgroups the dimension of the grid, 0 to 2; several ranges may share one."""

    def text(self) -> str:
        """Return the step as readable text."""
        dim = f".{'xyz'[self.dim]}" if self.dim else ""
        return f"{self.kind}{dim}(r{self.range.arg[0]},{self.size})"


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A permutation of the places in a tile's rows: a warp's accesses then use all banks of shared memory.

    In row k the value of a place lies at `place XOR (k // run % count * width)`. With vector loads k is the
    number of a word along the sum, with asynchronous copies that of the row.
    """

    run: int
    count: int
    width: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of a tile's values in shared memory; by default rows of single values without gaps.

    With vector loads a tile has rows of *words*, one row for each word along the sum:
    `tile[k][place in the block]`. A word is one value, or two neighbours along the sum that a matrix
    operation takes together. With asynchronous copies a row of a tile is that of global memory.
    """

    pack: int = 1
    """Values of a word."""
    pad: int = 0
    """Unused words after each row."""
    swizzle: Swizzle | None = None
    panel: int = 0
    """Values of a row that lie together; the next ones are in another panel, of as many rows. 0: the row."""

    def text(self) -> str:
        """Return the layout as readable text."""
        return " ".join(["padded"] * bool(self.pad) + ["swizzled"] * bool(self.swizzle)) or "plain"


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a window: places from 0 on, each a sum of ranges, such as `2 * x + tap`."""

    place: UOp
    """The sum of ranges, with positive factors."""
    unit: UOp
    """A range of the sum whose factor is 1."""
    held: int = 0
    """The places that the copy has, where a range of the side is cut into pieces; 0: all of the side."""

    @property
    def size(self) -> int:
        """The number of places of the copy."""
        return self.held or self.place.vmax + 1


Mechanism = Literal["panels", "vector loads", "asynchronous copies"]
"""How a tile is copied. `panels`: by one worker, to its scratch memory. `vector loads`: by all threads of a
workgroup, through registers to shared memory. `asynchronous copies`: by them without registers, while other
tiles are in use; only where the target has such copies (`Target.async_bytes`)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The current tile of an operand, copied to nearer memory before the loops inside read it there.

    A tile of panels holds each block of `axis` in the current extent for every value of `ranges`, in the
    order in which the register tile reads it: `panel[values of the ranges][values of the block]`. A tile in
    shared memory holds one block of `axis` for some values of the sum, or of `across`.
    """

    value: UOp
    """The operand: a LOAD, or a value computed from LOADs of the same ranges."""
    axis: UOp
    """The output range whose blocks the tile holds."""
    ranges: tuple[UOp, ...] = ()
    """The summed ranges of the tile, outermost first."""
    mechanism: Mechanism = "panels"
    layout: Layout = Layout()
    depth: int = 1
    """Tiles in flight, a ring of as many places; above 1 with asynchronous copies alone."""
    lanes: int = 1
    """Values of a vector of the copy to shared memory."""
    along: Literal["sum", "axis"] = "axis"
    """The direction in which a thread loads these vectors."""
    across: UOp | None = None
    """The other output range of a tile that transposes, along which the results lie; else None."""
    turn: int = 1
    """Values of the last summed range that are copied to panels together, to transpose them in registers."""
    flat: bool = False
    """Whether the summed ranges are copied to panels as one, along which the operand is contiguous."""
    wide: bool = False
    """Whether a panel is copied as one vector, although the register tile reads its values one by one."""
    looped: bool = False
    """Whether the vectors of a panel are copied one after the other in a loop, instead of side by side."""
    window: tuple[Side, ...] = ()
    """With sides, outermost first, the operand is a LOAD with a mask, and no panel: every place of the sides
    is copied once, zeros outside the mask, and all ranges of the sides read it there."""

    def text(self) -> str:
        """Return the stage as readable text."""
        axis = f"r{self.axis.arg[0]}"
        copies = f"{self.mechanism} of {self.lanes}"
        if self.across is not None:
            return f"shared({axis} across r{self.across.arg[0]}: {self.layout.text()}, {copies})"
        if self.mechanism != "panels":
            words = f"{self.layout.pack} a word, " if self.layout.pack > 1 else ""
            layout = f"{words}{self.layout.text()}, depth {self.depth}"
            return f"shared({axis}: {layout}, {copies} along the {self.along})"
        turned = ",flat" * self.flat + f",turned {self.turn}" if self.turn > 1 else ",wide" * self.wide
        window = ",window" * bool(self.window) + "".join([f",{side.size}" for side in self.window])
        return f"stage({axis}{turned}{',looped' * self.looped}{window})"


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the REDUCEs over one set of ranges are computed."""

    ranges: tuple[UOp, ...]
    """Outermost first; the last one is split into lanes and unrolled iterations."""
    lanes: int = 1
    """Lanes of the vector along the last range; 1 when lanes run along an output range or not at all."""
    unroll: int = 1
    """Iterations of the last range in one round of its loop, each with accumulators of its own."""
    block: int = 0
    """Rounds of a block, whose sum is added to the total: fewer roundings of floats. 0: about the square root
    of the number of rounds, and one block for few rounds or many accumulators."""
    threads: int = 1
    """Threads along the last range; neighbours have adjacent vectors."""
    staged: int = 0
    """Values of the last range whose tiles are in shared memory at once; 0 without such stages."""
    inside: UOp | None = None
    """A factor, a LOAD with a mask: products where the mask is false are left out, and unrolled iterations
    share their accumulators. None: all products."""
    bounded: tuple[UOp, ...] = ()
    """The ranges whose loops run only over values for which the mask of `inside` may be true."""


@dataclass(frozen=True, slots=True)
class ScratchRow:
    """A row in scratch memory: the loop of a reduction stores values, that of an output loads them."""

    source: UOp
    """The value inside the reduction."""
    twin: UOp
    """The same value over the output range."""
    inner: UOp
    """The range of the reduction."""
    outer: UOp
    """The output range, of the same size."""
    filler: UOp
    """The REDUCE that fills the row."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """A LOAD together with which a later vector of its buffer is prefetched to the second-level cache."""

    load: UOp
    distance: int
    """Elements from the loaded vector to the prefetched one."""
    near: bool = False
    """Whether to the first-level cache."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a chain, for one block of the rows that all parts share; or a kernel beside others."""

    ast: UOp
    """The part's kernel: the shared ranges are variables, matrices between parts are in scratch memory."""
    plan: LoopNest
    when: Literal["once", "before", "each", "after", "beside"] = "before"
    """`once`: once in a workgroup. Else for each block: before the loop over pieces, in each of its rounds,
    or after it. `beside`: as all parts then, in workgroups of its own, those of its plan."""


@dataclass(frozen=True, slots=True)
class KeptMatrix:
    """A matrix between parts of a chain: the rows of a block in scratch memory, or a result of the chain."""

    slot: int
    """The number of its buffer in the parts."""
    dtype: DType
    count: int
    """Elements in scratch memory; 0 for a result, which is in its buffer."""


@dataclass(frozen=True, slots=True)
class Online:
    """How sums of weighted values are computed in one loop over blocks of keys.

    Weights are functions of *scores*, sums of products that are in registers for a block. With a softmax,
    exponentials are relative to the largest score so far, and the sums of the blocks before are scaled when
    a larger one is found. The shared stages are those of the rows of each score, which stay; of the keys of
    each score; and of the values of each sum.
    """

    axis: Axis
    """The range of the keys, as the columns of a block's scores."""
    scores: tuple[UOp, ...]
    """The REDUCEs of the products of which weights are functions."""
    weights: tuple[UOp, ...]
    """The weight of each sum, before it is rounded."""
    weighted: tuple[UOp, ...]
    """The REDUCEs of the weighted values."""
    score: UOp | None
    """The value of which the exponential of a softmax is taken: a score with scale and masks."""
    largest: UOp | None
    """The REDUCE of the largest score, and below that of the sum of exponentials; without a softmax None."""
    total: UOp | None
    turned: bool
    """Whether all products are transposed: keys @ queries, values @ weights."""
    held: bool
    """Whether the fragments of rows stay in registers."""
    ahead: bool
    """Whether the operands of the next step of a product are read before the operations of a step."""


@dataclass(frozen=True, slots=True)
class LoopNest:
    """How a kernel is computed. The AST and this plan are all that `emit.linearize` needs."""

    axes: tuple[Axis, ...]
    steps: tuple[Step | Stage, ...]
    """Outermost first; groups before loops and stages. An axis of a single block needs no step."""
    reductions: dict[frozenset[UOp], Reduction] = field(default_factory=dict)
    """For the set of ranges of a REDUCE how it is computed."""
    rows: tuple[ScratchRow, ...] = ()
    threads: int = 1
    """Threads of a workgroup."""
    warp: int = 1
    """Threads that can exchange registers with each other; 1 without threads."""
    streamed: bool = False
    """Whether stores of full vectors bypass the caches, into buffers that are aligned to a vector."""
    ahead: tuple[Ahead, ...] = ()
    """Loads of rows together with which later rows are prefetched."""
    nanoseconds: float = 0.0
    """The estimated time of the whole kernel on one core."""
    matrix: MatrixOp | None = None
    """The matrix operation of the sum of products; None for multiply-adds."""
    phases: tuple[Phase, ...] = ()
    """The parts of a chain, in order; the axes are those that they share, and `upcast` is a block's rows."""
    kept: tuple[KeptMatrix, ...] = ()
    """The matrices between the parts."""
    pieces: tuple[UOp, int, int] | None = None
    """The variable of a piece's first value, its size, and the number of pieces; None without pieces."""
    online: Online | None = None
    """The softmax between two products; None for any other kernel."""
    looped: UOp | None = None
    """The output range whose unrolled positions share the operations after the sums, in a loop. None: each
    position has lines of its own."""

    @property
    def beside(self) -> bool:
        """Whether the parts are kernels in workgroups of their own, those of the first part first."""
        return bool(self.phases) and self.phases[0].when == "beside"

    def every_axis(self) -> tuple[Axis, ...]:
        """Return the axes of the outputs, and that of the keys of a softmax between products."""
        return self.axes if self.online is None else (*self.axes, self.online.axis)

    def widest(self) -> int:
        """Return the number of lanes of the widest vector of axes and reductions; 1 without any."""
        return max([a.lanes for a in self.axes] + [r.lanes for r in self.reductions.values()], default=1)

    def launch(self) -> tuple[Dim3, Dim3]:
        """Return the grid in workgroups, and the workgroup in threads."""
        if self.phases and self.beside:
            return (sum([phase.plan.launch()[0][0] for phase in self.phases]), 1, 1), (1, 1, 1)
        counts = {a.range: a.count for a in self.axes}
        grid = [1, 1, 1]
        for step in self.steps:
            if isinstance(step, Step) and step.kind == "group":
                grid[step.dim] *= -(-counts[step.range] // step.size)
                counts[step.range] = step.size
        return (grid[0], grid[1], grid[2]), (self.threads, 1, 1)

    def shared_stages(self) -> tuple[Stage, ...]:
        """Return the stages in shared memory; those of a sum are that of rows, then that of columns."""
        return tuple([s for s in self.steps if isinstance(s, Stage) and s.mechanism != "panels"])

    def text(self) -> str:
        """Return the plan as readable text, one line for each part."""
        lines = []
        for axis in self.every_axis():
            number, size = axis.range.arg
            parts = "".join([f" threads {t.size} by {t.stride}" for t in axis.threads])
            lines.append(f"r{number}[{size}]:{parts} upcast {axis.upcast} lanes {axis.lanes} {axis.edge}")
        lines.append("nest: " + (" ".join([s.text() for s in self.steps]) or "none"))
        for reduction in self.reductions.values():
            order = " ".join([f"r{r.arg[0]}[{r.arg[1]}]" for r in reduction.ranges])
            threads = f" threads {reduction.threads}" if reduction.threads > 1 else ""
            staged = f" staged {reduction.staged}" if reduction.staged else ""
            staged += " without border" * (reduction.inside is not None)
            lines.append(
                f"reduce {order}:{threads} lanes {reduction.lanes} unroll {reduction.unroll}{staged}"
            )
        if self.online is not None:
            turned = ", turned" * self.online.turned
            what = "online softmax" if self.online.largest is not None else "weighted sums"
            lines.append(f"{what} along r{self.online.axis.range.arg[0]}{turned}")
        if self.looped is not None:
            lines.append(f"results: loop over r{self.looped.arg[0]}")
        if self.matrix is not None:
            lines.append(f"matrix {self.matrix.name}")
        for number, phase in enumerate(self.phases):
            when = f", {phase.when}" if phase.when in ("once", "beside") else ""
            when = when if self.pieces is None else f", {phase.when} of {self.pieces[2]} pieces"
            lines += [f"part {number}{when}:", *[f"  {line}" for line in phase.plan.text().split("\n")]]
        lines += [f"keep r{row.inner.arg[0]} as r{row.outer.arg[0]}" for row in self.rows]
        lines += [f"fetch {a.distance} elements ahead of buffer {a.load.src[0].arg}" for a in self.ahead]
        lines += ["stores bypass the caches"] * self.streamed
        return "\n".join(lines)


def _variable(r: UOp, most: int) -> UOp:
    """Return the variable for the first value of a shared range in a block."""
    return uop(Ops.VAR, dtypes.index, (), (f"#{r.arg[0]}", 0, most))


def starts_of(ranges: Sequence[UOp], block: int) -> dict[UOp, UOp]:
    """Return the variable of each shared range; the last one is in blocks."""
    last = ranges[-1]
    starts = {r: _variable(r, r.arg[1] - 1) for r in ranges[:-1]}
    return starts | {last: _variable(last, last.arg[1] - block)}
