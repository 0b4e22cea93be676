"""Propose plans of a contraction on a target with vectors: register tile, panels, loop order, workgroups.

A contraction is one sum of products of two operands, where some output ranges occur in one operand only (rows
of a matrix product) and some in the other only (columns). A block of rows x columns stays in registers while
the loops over the summed ranges run. An operand that lies in memory in another order, or too far apart, is
first copied to packed panels (`nest.loop_nest.Stage`). All sizes are estimated; nothing is measured.

Not here: other kernels (`tiling`). Next: `contraction_tile`, the register tile; `contraction_cost`, the
estimate; `emit.panels`, which writes the copies.
Source: design of register tiles and panels as in K. Goto and R. van de Geijn, "Anatomy of high-performance
matrix multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.nest import convolution_borders, windows
from compiler.nest.loop_nest import Ahead, LoopNest, Reduction, Stage, Step
from compiler.nest.operand_roles import is_computed, loads_of
from compiler.nest.register_tile import WAYS
from compiler.plan import in_place_reads
from compiler.plan.choice import ProductChoice
from compiler.plan.contraction_cost import (
    LEAST_RUN,
    Copies,
    copy_cycles,
    cycles,
    operand_sums,
    panel_cycles,
    window_cycles,
)
from compiler.plan.contraction_tile import ACROSS, RegisterTile, is_looped, looped_results, run
from compiler.plan.in_place_reads import LINE
from compiler.plan.proposal import GROUP_NS, GROUPS_PER_CORE, divided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compiler.ir.uop import UOp
    from compiler.nest.kernel_shape import KernelShape
    from compiler.nest.operand_roles import Contraction
    from compiler.plan.choice import Copied
    from compiler.plan.contraction_tile import Kinds
    from compiler.plan.proposal import KernelForm, Proposal
    from compiler.targets.shared.target import Target

MOST_CANDIDATES = 6
"""Choices of rows and columns that are planned."""
LEAST_ROWS = 6
"""Rows from which on copying a streamed operand that does not lie in rows pays."""
PANEL_SHARE = 2
"""Panels held at once take this many second-level caches: they stream from the third level."""
STAGE_BYTES = 6 << 20
"""Bytes of panels that a kernel keeps on its thread's stack at most."""
SHORT_NS = 5_000
"""A workgroup takes at least about this long: a thread that is awake begins one in a microsecond."""
AGAIN = 0.05
"""The part of the time that copies may take that each workgroup makes, for more than two groups a core."""
FEW_BLOCKS = 4
"""Blocks of rows up to which a streamed operand that exceeds the caches is read in place, in short pieces."""
HELD = 0.75
"""The part of a second-level cache up to which all rows of tiles find a streamed operand there."""
LEAST_ROWS_FAR = 4
"""Rows from which on copying a streamed operand that exceeds the caches pays."""
PIECE = 512
"""Products of one piece of a long sum: rows of the broadcast operand then stay in the first-level cache."""
TOTAL_BYTES = 2 << 20
"""Bytes of totals between the pieces of a sum at most."""
SUMMED_AT_ONCE = 512
"""Products that are added up before they join the total; short runs keep rounding errors small."""


def propose(kernel: KernelForm, target: Target, best: Proposal | None = None) -> Iterator[Proposal]:
    """Yield plans of a contraction, each faster than `best` and than the one before.

    None of any other kernel or one in place, on a target with threads, and where a register tile does not
    pay.
    """
    if target.threads > 1 or kernel.shape.in_place:
        return
    kinds: Kinds = {}
    most_ns = math.inf if best is None else best.nanoseconds
    for role, c in enumerate(kernel.roles[:MOST_CANDIDATES]):
        for inside in (False, True) if convolution_borders.is_padded(c) else (False,):
            choice = ProductChoice(form=kernel.form, role=role, rows=0, inside=inside)
            planner = _Planner(kernel.shape, c, target, kinds, choice)
            plan = planner.plan(most_ns)
            if plan is not None and plan.nanoseconds < most_ns:
                most_ns = plan.nanoseconds
                yield kernel.proposal(plan, planner.made)


def by_choice(kernel: KernelForm, target: Target, choice: ProductChoice) -> Proposal | None:
    """Return the plan of a choice; None where its tile or panels do not fit.

    None also where the kernel lacks its `role`, for a kernel in place, and on a target with threads. With 0
    rows all factors but `role` and `inside` are estimated.
    """
    if target.threads > 1 or kernel.shape.in_place or choice.role >= len(kernel.roles):
        return None
    c = kernel.roles[choice.role]
    if choice.inside and choice.rows not in (0, c.size[0]):
        return None  # as `RegisterTile.fits` says of a tile without the border
    planner = _Planner(kernel.shape, c, target, {}, choice)
    plan = planner.plan()
    return None if plan is None else kernel.proposal(plan, choice if choice.rows else planner.made)


class _Planner:
    """The choice of every factor for one contraction."""

    def __init__(  # called here only
        self, kernel: KernelShape, c: Contraction, target: Target, kinds: Kinds, choice: ProductChoice
    ) -> None:
        """`choice` fixes the factors; with 0 rows they are estimated. After `plan`, `made` is the choice."""
        self.kernel = kernel
        self.choice = choice if choice.rows else None
        self.made = choice
        self.c = c
        self.target = target
        self.k = c.size[2]
        size = (choice.rows, choice.vectors) if choice.rows else None
        self.inside = choice.inside
        self.tile = RegisterTile(kernel, c, target, kinds, size, inside=self.inside)
        self.axes = self.tile.axes
        self.order = self.tile.order_of_masks()
        self.pieces: dict[UOp, int] = {}
        self.piece = self.k

    def plan(self, most_ns: float = math.inf) -> LoopNest | None:
        """Return the plan; None where the streamed operand would be gathered for too few rows.

        Also None where it takes `most_ns` or more before all is counted. With a choice, None also where its
        tile or panels do not fit.
        """
        c, choice, tile = self.c, self.choice, self.tile
        if self.inside and (tile.border is None or (choice is not None and choice.copied != "no")):
            return None
        in_rows = tile.columns_in_rows()
        if choice is None:
            if not in_rows and c.size[0] < LEAST_ROWS:
                return None
            staged, most = self._estimate(in_rows=in_rows)
        else:
            staged, most = choice.staged, choice.piece
            if not tile.fits() or not (in_rows or staged):
                return None
        if staged:
            self.order = tile.order_of_rows() or self.order
        if tile.border is not None:
            self.order = tile.border.order
        copied = self._copied() if choice is None else choice.copied
        if copied == "window" and (tile.window is None or most or not staged):
            return None
        if tile.border is not None and (most or not staged):
            return None
        if copied == "window" and tile.taps is not None:
            self.order, self.pieces = tile.taps.order, tile.taps.pieces
            self.piece = math.prod([self.pieces.get(r, r.arg[1]) for r in self.order])
        if most:
            self.pieces = self._cut(most, tile.lanes if staged else 1)
            self.piece = math.prod([self.pieces.get(r, r.arg[1]) for r in self.order])
        panel = self.piece * tile.vectors * tile.lanes * tile.itemsize
        if staged and panel > STAGE_BYTES:
            if choice is not None:
                return None
            staged = False
        turn, flat = self._turn()
        looped = is_looped(c.streamed, tile.vectors, tile.lanes, turn)
        stage = Stage(c.streamed, c.columns, self.order, turn=turn, flat=flat, looped=looped)
        columns = [stage] if staged else []
        extent = {"all": c.rows.arg[1], "block": tile.rows}.get(copied, 0)
        if extent * self.piece * tile.itemsize > STAGE_BYTES:
            return None
        rows = [self._stage_of_rows()]
        if copied == "window" and tile.window is not None:
            rows = [replace(rows[0], wide=False, looped=False, window=tile.window.sides)]
        copies = Copies(columns, rows * (copied in ("all", "window")), rows * (copied == "block"))
        self.made = replace(
            self.made, rows=tile.rows, vectors=tile.vectors, staged=staged, copied=copied,
            piece=most if self.pieces else 0,
        )  # fmt: skip
        return self._nest(copies, panel, most_ns)

    def _estimate(self, *, in_rows: bool) -> tuple[bool, int]:
        """Return whether the streamed operand is copied, and the most products of a piece; 0: one piece."""
        c, target, tile = self.c, self.target, self.tile
        m, n, k = c.size
        far = k * n * tile.itemsize > target.l2_bytes // 2
        computed = is_computed(c.streamed) and m > tile.rows
        few = in_rows and far and self.axes[c.rows].count <= FEW_BLOCKS and k >= 4 * WAYS
        if few:
            pieces = tile.rows_apart(self.order[-1]) or m <= LEAST_ROWS_FAR
            return False, max(WAYS, k // SUMMED_AT_ONCE) if pieces else 0
        if tile.window is not None or tile.border is not None:
            return True, 0
        fits = k * n * tile.itemsize <= target.l2_bytes * HELD
        staged = not in_rows or computed or not (fits or m < LEAST_ROWS_FAR)
        if staged and tile.lines is not None:
            return staged, self._piece_of_lines(tile.lines)
        cut = staged and k * tile.rows * tile.itemsize > target.l1_bytes
        return staged, PIECE if cut else 0

    def _nest(self, copies: Copies, panel: int, most_ns: float) -> LoopNest | None:
        """Return the plan with these copies; `panel` is the bytes of a panel of columns. None as `plan`."""
        c, target, tile = self.c, self.target, self.tile
        columns, outer, inner = copies
        held = max(1, min(self.axes[c.columns].count, PANEL_SHARE * target.l2_bytes // panel))
        nanoseconds = cycles(tile, copies, self.order, self.piece, held) / target.gigahertz
        if nanoseconds >= most_ns:
            return None
        copied = float(bool(outer or inner))
        if outer and outer[0].window:
            copied = in_place_reads.share(outer[0].window, c, tile.lanes)
        costs = copy_cycles(tile, copies)
        groups, parts = self._groups(nanoseconds, costs, staged=bool(columns), copied=copied)
        held = min(held, parts.get(c.columns, held))
        if outer and outer[0].window:
            nanoseconds += window_cycles(tile, outer[0].window, columns, parts) / target.gigahertz
        elif tile.border is not None:
            nanoseconds += panel_cycles(tile, columns, parts) / target.gigahertz
        tail: list[Step | Stage] = [Step("loop", c.rows), *inner, Step("loop", c.columns)]
        return LoopNest(
            tuple([self.axes[o] for o in self.kernel.outputs]),
            (
                *groups,
                *self._loops(parts, held, columns, outer),
                *(tail if columns or not self.pieces else tail[::-1]),
            ),
            {c.family.ranges: self._reduction()} | operand_sums(tile),
            ahead=self._ahead(),
            nanoseconds=nanoseconds,
            looped=looped_results(tile),
        )

    def _ahead(self) -> tuple[Ahead, ...]:
        """Return the fetch of the next picture, where a picture is read in place without its border."""
        border = self.tile.border
        return () if border is None or not border.ahead else (Ahead(self.c.broadcast, border.ahead),)

    def _reduction(self) -> Reduction:
        """Return the loops of the sum."""
        border = self.tile.border
        if border is None:
            return Reduction(self.order, block=SUMMED_AT_ONCE)
        taps = int(self.order[-1].arg[1])
        return Reduction(
            self.order, unroll=taps, block=SUMMED_AT_ONCE, inside=self.c.broadcast, bounded=border.bounded
        )

    def _loops(
        self, parts: dict[UOp, int], held: int, columns: list[Stage], outer: list[Stage]
    ) -> list[Step | Stage]:
        """Return the steps outside the last loop over columns; `held` panels of columns are filled at once.

        Inside the copy of an operand are the ranges of which it is independent, so that it is copied once.
        Inside the loops over pieces of a long sum are those whose totals fit.
        """
        c, tile, (shared, streamed, broadcast) = self.c, self.tile, self.tile.others()
        around = list(shared)
        count = {r: parts.get(r, axis.count) for r, axis in self.axes.items()}
        rows = count[c.rows]
        if self.pieces:
            block = tile.rows * tile.vectors * tile.lanes * tile.itemsize
            rows = min(rows, max(1, TOTAL_BYTES // block))
            held = min(held, max(1, TOTAL_BYTES // (block * rows)))
            while math.prod([count[o] for o in streamed + broadcast]) * rows * held * block > TOTAL_BYTES:
                around.append((streamed or broadcast).pop(0))
        steps: list[Step | Stage] = [Step("loop", o) for o in around]
        if rows < count[c.rows]:
            steps.append(Step("loop", c.rows, rows))
        chunk = Step("loop", c.columns, held)
        cut = [Step("loop", r, size) for r, size in self.pieces.items()]
        within = [Step("loop", o) for o in streamed]
        early, late = ([], outer) if broadcast else (outer, [])
        if tile.taps is not None and outer and outer[0].window:
            return [*steps, chunk, *cut, *outer, *columns, *[Step("loop", o) for o in broadcast]]
        if outer and outer[0].window:
            covered = [o for o in broadcast if any(o in windows.ranges_of(x) for x in outer[0].window)]
            around = [o for o in broadcast if o not in covered]
            cut_at = None if tile.window is None else tile.window.cut
            filled: list[Step | Stage] = [*([] if cut_at is None else [Step("loop", *cut_at)]), *outer]
            steps += [] if around else filled
            steps += [*within, chunk, *columns, *[Step("loop", o) for o in around]]
            steps += filled if around else []
            return [*steps, *[Step("loop", o) for o in covered]]
        if cut:
            steps += [chunk, *cut, *early, *within, *columns]
        else:
            steps += [*early, *within, chunk, *columns]
        return [*steps, *[Step("loop", o) for o in broadcast], *late]

    def _cut(self, most: int, turn: int) -> dict[UOp, int]:
        """Return the sizes of pieces of about `most` products of the sum; none where it cannot be cut.

        The last piece of a range has at least `turn` values if possible.
        """
        if not all(o in self.kernel.free[self.c.node] for o in self.kernel.outputs):
            return {}
        sizes: dict[UOp, int] = {}
        inner = 1
        for r in reversed(self.order):
            if inner * r.arg[1] > most:
                sizes[r] = _piece(r.arg[1], max(1, most // inner), turn)
            inner *= r.arg[1]
        return {r: sizes[r] for r in self.order if sizes.get(r, r.arg[1]) < r.arg[1]}

    def _piece_of_lines(self, lines: int) -> int:
        """Return the products of a piece whose lines fill half of the first-level cache; 0 for one piece.

        Only for matrices: the elements that a picture's windows share are in its lines again.
        """
        if len(self.order) > 1 or lines * LINE <= self.target.l1_bytes:
            return 0
        return max(1, self.k * self.target.l1_bytes // (2 * LINE * lines))

    def _turn(self) -> tuple[int, bool]:
        """Return the products that a panel's copy transposes in registers at once, along the last range.

        And whether all summed ranges are copied as one: the operand is contiguous along them, and the last
        one alone is too short.
        """
        tile, last, lanes = self.tile, self.order[-1], self.tile.lanes
        for n in loads_of(self.c.streamed):
            if len(n.src) == 2 and lanes > 1 and tile.kind(n, self.c.columns, lanes) in ACROSS:
                if self._least_piece(last) >= lanes and tile.kind(n, last, lanes) == "row":
                    return lanes, False
                whole = len(loads_of(self.c.streamed)) == 1 and len(self.order) > 1
                whole = whole and all(r.arg[1] % size == 0 for r, size in self.pieces.items())
                if whole and run(n, self.order, self.pieces) == self.piece >= lanes:
                    return lanes, True
        return 1, False

    def _least_piece(self, r: UOp) -> int:
        """Return the fewest values of a summed range in a piece."""
        size = self.pieces.get(r, r.arg[1])
        return int(r.arg[1] % size or size)

    def _copied(self) -> Copied:
        """Return how the broadcast operand is copied.

        It is where it is not contiguous along the sum, is computed, or has too many rows at once; not where
        a tile reads few lines of it.
        """
        c, tile, rows = self.c, self.tile, self.tile.rows
        if tile.border is not None:
            return "no"
        if tile.lines is not None or tile.window is not None:
            return "no" if tile.window is None else "window"
        loads = loads_of(c.broadcast)
        contiguous = all(len(n.src) == 2 and run(n, self.order) >= min(self.k, LEAST_RUN) for n in loads)
        if rows <= in_place_reads.most_in_place(c) and contiguous and not is_computed(c.broadcast):
            return "no"
        if c.rows.arg[1] * self.piece * tile.itemsize <= self.target.l2_bytes // 2:
            return "all"
        block = rows * self.piece * tile.itemsize <= STAGE_BYTES and self.axes[c.columns].count > 1
        return "block" if block else "no"

    def _stage_of_rows(self) -> Stage:
        """Return the copy of the broadcast operand."""
        c, tile, rows = self.c, self.tile, self.tile.rows
        wide = rows > 1 and all(tile.kind(n, c.rows, rows) in ("row", "same") for n in loads_of(c.broadcast))
        looped = not wide and is_looped(c.broadcast, rows, 1, 1)
        return Stage(c.broadcast, c.rows, self.order, wide=wide, looped=looped)

    def _groups(
        self, nanoseconds: float, costs: tuple[float, float], *, staged: bool, copied: float
    ) -> tuple[list[Step], dict[UOp, int]]:
        """Return the workgroups, and the blocks of an axis in each.

        Ranges of both operands are divided first, then those of the operand of which more is copied. `costs`
        are the cycles to copy each operand once; of two that are copied, each workgroup copies one again.
        """
        c, target, axes = self.c, self.target, self.axes
        few = min(nanoseconds / SHORT_NS, target.cores)
        wanted = int(max(few, min(nanoseconds / GROUP_NS, GROUPS_PER_CORE * target.cores)))
        if min(costs) > 0:
            share = AGAIN * nanoseconds * target.gigahertz / min(costs)
            wanted = min(wanted, max(2 * target.cores, int(share)))
        if self.choice is not None and self.choice.groups:
            wanted = self.choice.groups
        shared, streamed, broadcast = self.tile.others()
        of_columns, of_rows = [*streamed, c.columns], [*broadcast, c.rows]
        blocks = [math.prod([axes[r].count for r in ranges]) for ranges in (of_columns, of_rows)]
        widths = [axes[r].block for r in (c.columns, c.rows)]
        copies = [n * width * on for n, width, on in zip(blocks, widths, (staged, copied), strict=True)]
        if min(costs) > 0:
            copies = list(costs)
        by_columns = copies[0] > copies[1] and blocks[0] >= 2 * target.cores
        order = [*shared, *of_columns, *of_rows] if by_columns else [*shared, *of_rows, *of_columns]
        if self.tile.border is not None and by_columns:
            order = [*shared, *of_columns]
        if self.pieces and self.tile.taps is not None:  # each workgroup copies all pieces
            wanted = max(1, min(wanted, target.cores))
            order.sort(key=lambda r: -(-axes[r].count // wanted) * wanted / axes[r].count)
        groups = divided([axes[r] for r in order], wanted)
        return groups, {step.range: step.size for step in groups}


def _piece(size: int, most: int, turn: int) -> int:
    """Return the size of equal pieces, at most `most`; the last one has at least `turn` values if it can."""
    piece = -(-size // -(-size // most))
    for candidate in range(piece, piece // 2, -1):
        if size % candidate == 0 or size % candidate >= turn:
            return candidate
    return piece
