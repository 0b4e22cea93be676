"""Plan a contraction on a target with vectors: register tile, packed panels, loop order, workgroups.

A contraction is one sum of products of two operands, where some output ranges occur in one operand only (rows
of a matrix product) and some in the other only (columns). A block of rows x columns lives in registers while
the summed ranges run; operands whose elements would be read in the wrong order, or from too many places, are
first copied to packed panels (`plan.Stage`). The factors follow from the target's row; nothing is measured.

Not here: other kernels (`tiling`), the loops and copies themselves (`linearize`, `stages`).
Source: design of register tiles and panels as in K. Goto and R. van de Geijn, "Anatomy of high-performance
matrix multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from compiler.ir import index as symbolic
from compiler.kernel import conversions, nearby, operand_sums, windows
from compiler.kernel.accesses import FEWEST
from compiler.kernel.choice import ProductChoice
from compiler.kernel.nearby import LINE, lines_in_place, window_of
from compiler.kernel.plan import Axis, Plan, Reduction, Stage, Step
from compiler.kernel.register_tile import COPY_CYCLES, MOST_ROWS, WAYS, tile, tile_cycles
from compiler.kernel.roles import candidates, is_computed, loads_of
from compiler.kernel.shape import kind_along

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.ir.uop import UOp
    from compiler.kernel.choice import Copied
    from compiler.kernel.plan import Edge, Side
    from compiler.kernel.roles import Contraction
    from compiler.kernel.shape import Access, Kernel, Kind
    from compiler.targets.base import Target

    Kinds = dict[tuple[UOp, UOp, int], Kind]

MOST_CANDIDATES = 6
"""Choices of rows and columns that are planned."""
LEAST_ROWS = 6
"""Rows from which on copying a streamed operand that does not lie in rows pays."""
PANEL_SHARE = 2
"""Panels held at once take this many second-level caches: they stream from the third level."""
STAGE_BYTES = 6 << 20
"""Bytes of panels that a kernel keeps on its thread's stack at most."""
GROUPS_PER_CORE = 4
GROUP_NS = 20_000
"""A workgroup takes at least about this long."""
FEW_BLOCKS = 4
"""Blocks of rows up to which a streamed operand that exceeds the caches is read in place, in short pieces."""
PAGE = 4096
"""Bytes between rows of such an operand from which on pieces always pay: no prefetcher follows from page to
page."""
LEAST_ROWS_FAR = 4
"""Rows from which on copying a streamed operand that exceeds the caches pays."""
PIECE = 512
"""Products of one piece of a long sum: rows of the broadcast operand then stay in the first-level cache."""
TOTAL_BYTES = 2 << 20
"""Bytes of totals between the pieces of a sum at most."""
FIRST_BYTES = 48 << 10
"""Bytes of a streamed operand that a first-level cache holds, or nearly."""
LEAST_RUN = 32
"""Adjacent elements from which on an operand is read in place."""
SUMMED_AT_ONCE = 512
"""Products that are added up before they join the total; short runs keep rounding errors small."""
_APART_CYCLES = 2.0
"""Cycles of one value that is read in place, apart from the one before."""
_WINDOW_CYCLES = 3.0
"""Cycles of one vector of a window: a masked load, a store."""
_LINE_CYCLES = 2.0
"""Cycles of one line of an operand that is read in place, from the second-level cache."""
_LOAD_CYCLES = {"row": 1.5, "same": 1.0, "strided": 5.0, "scattered": 20.0}
"""Cycles of one vector of a panel's copy, by the kind of its load along the columns."""
_TURN_CYCLES = 4.0
"""Cycles of one vector of a panel that is transposed in registers."""
_ACROSS = ("scattered", "strided")
_STORE_CYCLES = {"row": 1.0, "same": 1.0, "strided": 40.0, "scattered": 40.0}
"""Cycles to store one vector of results."""
_ROW_CYCLES = 2.0
"""Cycles to store one row of a square that was transposed in registers."""


def choose(kernel: Kernel, target: Target) -> Plan | None:
    """Return the plan of a contraction; None for any other kernel, and where a register tile does not pay."""
    if target.threads > 1 or kernel.in_place:
        return None
    choices = candidates(kernel)[:MOST_CANDIDATES]
    kinds: Kinds = {}
    plans = [plan for c in choices if (plan := _Planner(kernel, c, target, kinds).plan()) is not None]
    return min(plans, key=lambda plan: plan.nanoseconds, default=None)


def chosen(kernel: Kernel, target: Target, choice: ProductChoice) -> Plan | None:
    """Return the plan of a choice; None where its tile or panels do not fit."""
    roles = candidates(kernel)
    if target.threads > 1 or kernel.in_place or choice.role >= len(roles):
        return None
    return _Planner(kernel, roles[choice.role], target, {}, choice).plan()


def estimated(kernel: Kernel, target: Target) -> ProductChoice | None:
    """Return the choice of the plan of `choose`; None where that is None."""
    if target.threads > 1 or kernel.in_place:
        return None
    kinds: Kinds = {}
    best: tuple[float, ProductChoice] | None = None
    for role, c in enumerate(candidates(kernel)[:MOST_CANDIDATES]):
        planner = _Planner(kernel, c, target, kinds)
        plan = planner.plan()
        if plan is not None and (best is None or plan.nanoseconds < best[0]):
            best = plan.nanoseconds, replace(planner.made, role=role)
    return None if best is None else best[1]


def estimated_of(kernel: Kernel, target: Target, role: int) -> ProductChoice | None:
    """Return the estimated choice with one of the choices of rows and columns; None where it has no plan."""
    planner = _Planner(kernel, candidates(kernel)[role], target, {})
    return None if planner.plan() is None else replace(planner.made, role=role)


class _Planner:
    """The choice of every factor for one contraction."""

    def __init__(  # called here only
        self,
        kernel: Kernel,
        c: Contraction,
        target: Target,
        kinds: Kinds,
        choice: ProductChoice | None = None,
    ) -> None:
        """`choice` fixes the factors; without one they are estimated. After `plan`, `made` is the choice."""
        self.kernel = kernel
        self.choice = choice
        self.made = ProductChoice()
        self.kinds = kinds
        self.c = c
        self.target = target
        self.itemsize = conversions.register_type(c.node.dtype).itemsize
        m, n, self.k = c.size
        self.lanes = target.vector_bytes // self.itemsize
        while self.lanes > 2 and self.lanes // 2 >= n:
            self.lanes //= 2
        plain = len(c.family.ranges) == 1 and not is_computed(c.streamed)
        self.first = plain and n * self.k * self.itemsize <= FIRST_BYTES
        """Whether the streamed operand is a matrix that stays in the first-level cache."""
        if choice is None:
            near = lines_in_place(c, MOST_ROWS, self.itemsize) is not None
            windowed = window_of(c, MOST_ROWS, 1, self.lanes, target) is not None
            near = near or windowed
            self.rows, self.vectors = tile(m, n, self.lanes, target, near=near, first=self.first)
            if windowed and window_of(c, self.rows, self.vectors, self.lanes, target) is None:
                self.rows, self.vectors = tile(m, n, self.lanes, target)
        else:
            self.rows, self.vectors = choice.rows, choice.vectors
        self.lines = lines_in_place(c, self.rows, self.itemsize)
        """The lines of the broadcast operand that a tile reads in place, if they are few; else None."""
        self.window = window_of(c, self.rows, self.vectors, self.lanes, target)
        """The window of that operand; None without one that fits."""
        self.axes = {
            c.rows: _axis(c.rows, self.rows, 1),
            c.columns: _axis(c.columns, self.vectors, self.lanes),
            **{o: Axis(o) for o in c.others},
        }
        self.order = self._order_of_masks()
        self.pieces: dict[UOp, int] = {}
        self.piece = self.k

    def plan(self) -> Plan | None:
        """Return the plan; None where the streamed operand would be gathered for too few rows.

        With a choice, None also where its tile or panels do not fit.
        """
        c, choice = self.c, self.choice
        in_rows = self._columns_in_rows()
        if choice is None:
            if not in_rows and c.size[0] < LEAST_ROWS:
                return None
            staged, most = self._estimate(in_rows=in_rows)
        else:
            staged, most = choice.staged, choice.piece
            if not self._fits() or not (in_rows or staged):
                return None
        if staged:
            self.order = self._order_of_rows() or self.order
        copied = self._copied() if choice is None else choice.copied
        if copied == "window" and (self.window is None or most or not staged):
            return None
        if most:
            self.pieces = self._cut(most, self.lanes if staged else 1)
            self.piece = math.prod([self.pieces.get(r, r.arg[1]) for r in self.order])
        panel = self.piece * self.vectors * self.lanes * self.itemsize
        if staged and panel > STAGE_BYTES:
            if choice is not None:
                return None
            staged = False
        turn, flat = self._turn()
        columns = [Stage(c.streamed, c.columns, self.order, turn, flat)] if staged else []
        extent = {"all": c.rows.arg[1], "block": self.rows}.get(copied, 0)
        if extent * self.piece * self.itemsize > STAGE_BYTES:
            return None
        rows = [self._stage_of_rows()]
        if copied == "window" and self.window is not None:
            rows = [replace(rows[0], wide=False, window=self.window.sides)]
        outer, inner = rows * (copied in ("all", "window")), rows * (copied == "block")
        self.made = ProductChoice(
            rows=self.rows, vectors=self.vectors, staged=staged, copied=copied,
            piece=most if self.pieces else 0,
        )  # fmt: skip
        return self._nest(columns, outer, inner, panel)

    def _estimate(self, *, in_rows: bool) -> tuple[bool, int]:
        """Return whether the streamed operand is copied, and the most products of a piece; 0: one piece."""
        c, target = self.c, self.target
        m, n, k = c.size
        far = k * n * self.itemsize > target.l2_bytes // 2
        computed = is_computed(c.streamed) and m > self.rows
        few = in_rows and far and self.axes[c.rows].count <= FEW_BLOCKS and k >= 4 * WAYS
        if few:
            pieces = self._rows_apart() or m <= LEAST_ROWS_FAR
            return False, max(WAYS, k // SUMMED_AT_ONCE) if pieces else 0
        if self.window is not None:
            return True, 0
        staged = not in_rows or computed or (far and m >= LEAST_ROWS_FAR)
        if staged and self.lines is not None:
            return staged, self._piece_of_lines()
        cut = staged and k * self.rows * self.itemsize > target.l1_bytes
        return staged, PIECE if cut else 0

    def _fits(self) -> bool:
        """Return whether the chosen tile fits the registers, and is not beyond the ranges."""
        m, n, _ = self.c.size
        rows, vectors = self.rows, self.vectors
        if rows * vectors + vectors + 1 > self.target.registers:
            return False
        return rows <= m and vectors * self.lanes < n + self.lanes

    def _nest(self, columns: list[Stage], outer: list[Stage], inner: list[Stage], panel: int) -> Plan:
        """Return the plan with these stages; `panel` is the bytes of a panel of columns."""
        c, target, staged = self.c, self.target, bool(columns)
        held = max(1, min(self.axes[c.columns].count, PANEL_SHARE * target.l2_bytes // panel))
        nanoseconds = self._cycles(held, columns, outer, inner) / target.gigahertz
        copied = float(bool(outer or inner))
        if outer and outer[0].window:
            copied = nearby.share(outer[0].window, c, self.lanes)
        groups, parts = self._groups(nanoseconds, staged=staged, copied=copied)
        held = min(held, parts.get(c.columns, held))
        if outer and outer[0].window:
            nanoseconds += self._window_cycles(outer[0].window, columns, parts) / target.gigahertz
        tail: list[Step | Stage] = [Step("loop", c.rows), *inner, Step("loop", c.columns)]
        return Plan(
            tuple([self.axes[o] for o in self.kernel.outputs]),
            (
                *groups,
                *self._loops(parts, held, columns, outer),
                *(tail if staged or not self.pieces else tail[::-1]),
            ),
            {c.family.ranges: Reduction(self.order, block=SUMMED_AT_ONCE)}
            | operand_sums.reductions(self.kernel, c, self.lanes),
            nanoseconds=nanoseconds,
        )

    def _loops(
        self, parts: dict[UOp, int], held: int, columns: list[Stage], outer: list[Stage]
    ) -> list[Step | Stage]:
        """Return the steps outside the last loop over columns; `held` panels of columns are filled at once.

        Inside the copy of an operand are the ranges of which it is independent, so that it is copied once.
        Inside the loops over pieces of a long sum are those whose totals fit.
        """
        c, (shared, streamed, broadcast) = self.c, self._others()
        around = list(shared)
        count = {r: parts.get(r, axis.count) for r, axis in self.axes.items()}
        rows = count[c.rows]
        if self.pieces:
            block = self.rows * self.vectors * self.lanes * self.itemsize
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
        if outer and outer[0].window:
            covered = [o for o in broadcast if any(o in windows.ranges_of(x) for x in outer[0].window)]
            around = [o for o in broadcast if o not in covered]
            cut_at = None if self.window is None else self.window.cut
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

    def _others(self) -> tuple[list[UOp], list[UOp], list[UOp]]:
        """Return the other ranges: of both operands or none, of the streamed one, of the broadcast one."""
        c, free = self.c, self.kernel.free
        streamed = [o for o in c.others if o in free[c.streamed] and o not in free[c.broadcast]]
        broadcast = [o for o in c.others if o in free[c.broadcast] and o not in free[c.streamed]]
        return [o for o in c.others if o not in streamed and o not in broadcast], streamed, broadcast

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

    def _order_of_masks(self) -> tuple[UOp, ...]:
        """Return the summed ranges, those of masks outermost, so that masks leave the inner loops."""
        masked = self.kernel.masked_ranges
        return tuple(sorted(self.c.family.ranges, key=lambda r: (r not in masked, r.arg[1], r.arg[0])))

    def _order_of_rows(self) -> tuple[UOp, ...] | None:
        """Return the summed ranges as the broadcast operand lies in memory; None where it has no rows.

        Masks then cost more, but only in the copy of the streamed operand.
        """
        order = tuple(sorted(self.c.family.ranges, key=lambda r: int(r.arg[0])))
        loads = loads_of(self.c.broadcast)
        return order if all(self._kind(n, order[-1], 2) == "row" for n in loads) else None

    def _kind(self, load: UOp, r: UOp, lanes: int) -> Kind:
        """Return the kind of a load of `lanes` neighbours along a range."""
        return self._along(load.src[1], r, lanes)

    def _along(self, index: UOp, r: UOp, lanes: int) -> Kind:
        """Return the kind of an access to `lanes` neighbours along a range; cached."""
        key = index, r, lanes
        if key not in self.kinds:
            self.kinds[key] = kind_along(index, r, lanes, lanes, aligned=True, free=self.kernel.free)
        return self.kinds[key]

    def _run(self, load: UOp) -> int:
        """Return how many elements of a load are adjacent in memory as the summed ranges run."""
        terms, _ = symbolic.terms_of(load.src[1])
        run = 1
        for r in reversed(self.order):
            if terms.get(r, 0) != run:
                break
            run *= r.arg[1]
        return run

    def _columns_in_rows(self) -> bool:
        """Return whether the streamed operand is read in whole unmasked vectors along `columns`."""
        return all(
            len(n.src) == 2 and self._kind(n, self.c.columns, self.lanes) in ("row", "same")
            for n in loads_of(self.c.streamed)
        )

    def _rows_apart(self) -> bool:
        """Return whether the next round of the sum reads the streamed operand from another page."""
        last = self.order[-1]
        return any(
            abs(symbolic.terms_of(n.src[1])[0].get(last, 0)) * n.dtype.itemsize >= PAGE
            for n in loads_of(self.c.streamed)
        )

    def _piece_of_lines(self) -> int:
        """Return the products of a piece whose lines fill half of the first-level cache; 0 for one piece.

        Only for matrices: the elements that a picture's windows share are in its lines again.
        """
        if self.lines is None or len(self.order) > 1 or self.lines * LINE <= self.target.l1_bytes:
            return 0
        return max(1, self.k * self.target.l1_bytes // (2 * LINE * self.lines))

    def _turn(self) -> tuple[int, bool]:
        """Return the products that a panel's copy transposes in registers at once, along the last range.

        And whether all summed ranges are copied as one: the operand is contiguous along them, and the last
        one alone is too short.
        """
        last, lanes = self.order[-1], self.lanes
        for n in loads_of(self.c.streamed):
            if len(n.src) == 2 and lanes > 1 and self._kind(n, self.c.columns, lanes) in _ACROSS:
                if self._least_piece(last) >= lanes and self._kind(n, last, lanes) == "row":
                    return lanes, False
                whole = len(loads_of(self.c.streamed)) == 1 and not self.pieces
                if whole and self._run(n) == self.k >= lanes and len(self.order) > 1:
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
        if self.lines is not None or self.window is not None:
            return "no" if self.window is None else "window"
        c, rows = self.c, self.rows
        loads = loads_of(c.broadcast)
        contiguous = all(len(n.src) == 2 and self._run(n) >= min(self.k, LEAST_RUN) for n in loads)
        if rows <= WAYS and contiguous and not is_computed(c.broadcast):
            return "no"
        if c.rows.arg[1] * self.piece * self.itemsize <= self.target.l2_bytes // 2:
            return "all"
        block = rows * self.piece * self.itemsize <= STAGE_BYTES and self.axes[c.columns].count > 1
        return "block" if block else "no"

    def _stage_of_rows(self) -> Stage:
        """Return the copy of the broadcast operand."""
        c, rows = self.c, self.rows
        wide = rows > 1 and all(self._kind(n, c.rows, rows) in ("row", "same") for n in loads_of(c.broadcast))
        return Stage(c.broadcast, c.rows, self.order, wide=wide)

    def _cycles(self, held: int, columns: list[Stage], outer: list[Stage], inner: list[Stage]) -> float:
        """Return the estimated cycles of the kernel on one core: register tiles, results, loads or panels."""
        c, axes = self.c, self.axes
        blocks = math.prod([axis.count for axis in axes.values()])
        vectors = self.rows * self.vectors
        stored = sum([self._result_cycles(a) for a in (*self.kernel.stores, *self.kernel.loads)])
        rounds = self.k * tile_cycles(self.rows, self.vectors, self.target, first=self.first)
        totals = 1.0 * vectors * (self.k / self.piece) if self.pieces else 0.0
        cycles = blocks * (rounds + totals + (3.0 + stored) * vectors)
        cycles += operand_sums.cycles(self.kernel, c, self.lanes, axes)
        loads = loads_of(c.streamed)
        shared, streamed, broadcast = self._others()
        cost = sum(
            [_LOAD_CYCLES[self._kind(n, c.columns, self.lanes)] + 2.0 * (len(n.src) > 2) for n in loads]
        )
        if columns:
            each = _TURN_CYCLES if columns[0].turn > 1 else cost
            copies = math.prod([axes[r].count for r in (*shared, *streamed, c.columns)])
            cycles += each * copies * self.k * self.vectors
        else:
            cycles += max(0.0, cost - 1.5) * self.k * self.vectors * blocks / self.target.loads_per_cycle
        least = min(self.k, LEAST_RUN)
        windowed = self.window if outer and outer[0].window else None
        lines = self.lines if windowed is None else windowed.lines
        if lines is not None and not inner and (windowed is not None or not outer):
            far = lines * self.piece / self.k * LINE > self.target.l1_bytes
            cycles += far * _LINE_CYCLES * lines * blocks
        elif not outer and not inner and any(self._run(n) < least for n in loads_of(c.broadcast)):
            cycles += _APART_CYCLES * self.rows * self.k * blocks
        for stage in (*outer, *inner) if windowed is None else ():
            each = -(-self.rows // self.lanes) * 2.0 if stage.wide else COPY_CYCLES * self.rows
            each += 2.0 * self.rows * any(len(n.src) > 2 for n in loads_of(c.broadcast))
            copies = math.prod([axes[r].count for r in (*shared, *broadcast, c.rows)])
            if inner or broadcast:
                copies *= -(-axes[c.columns].count // held)
                copies *= math.prod([axes[r].count for r in streamed])
            cycles += each * copies * self.k
        return cycles

    def _result_cycles(self, access: Access) -> float:
        """Return the cycles to store a vector of results, or to load what is added to it.

        A square of vectors is transposed in registers if its rows are adjacent in memory.
        """
        c, lanes = self.c, self.lanes
        kind = self._along(access.index, c.columns, lanes)
        if kind not in _ACROSS or access.masked or not lanes <= FEWEST * self.rows <= FEWEST * lanes:
            return _STORE_CYCLES[kind]
        exact = "masked" not in (self.axes[c.rows].edge, self.axes[c.columns].edge)
        if not exact or self._along(access.index, c.rows, self.rows) != "row":
            return _STORE_CYCLES[kind]
        return lanes * (math.log2(lanes) + _ROW_CYCLES) / self.rows

    def _window_cycles(
        self, sides: tuple[Side, ...], columns: list[Stage], parts: Mapping[UOp, int]
    ) -> float:
        """Return the cycles in which all workgroups fill windows, and those but one the same panels.

        `parts` are the blocks of ranges of a workgroup.
        """
        c, axes = self.c, self.axes
        covered = frozenset([r for side in sides for r in windows.ranges_of(side)])
        vectors = windows.strides_of(sides, self.lanes)[0] / self.lanes
        times = math.prod([axes[r].count for r in self._others()[2] if r not in covered])
        for r in (*self._others()[1], c.columns):
            times *= -(-axes[r].count // parts.get(r, axes[r].count))
        again = -1.0 + math.prod(
            [-(-axes[r].count // parts.get(r, axes[r].count)) for r in (*self._others()[2], c.rows)]
        )
        panels = (_TURN_CYCLES if columns[0].turn > 1 else _LOAD_CYCLES["scattered"]) * self.vectors
        return _WINDOW_CYCLES * vectors * times + again * panels * self.k * axes[c.columns].count

    def _groups(
        self, nanoseconds: float, *, staged: bool, copied: float
    ) -> tuple[list[Step], dict[UOp, int]]:
        """Return the workgroups, and the blocks of an axis in each.

        Ranges of both operands are divided first, then those of the operand of which more is copied.
        """
        c, target, axes = self.c, self.target, self.axes
        wanted = int(min(nanoseconds / GROUP_NS, GROUPS_PER_CORE * target.cores))
        if self.choice is not None and self.choice.groups:
            wanted = self.choice.groups
        shared, streamed, broadcast = self._others()
        of_columns, of_rows = [*streamed, c.columns], [*broadcast, c.rows]
        blocks = [math.prod([axes[r].count for r in ranges]) for ranges in (of_columns, of_rows)]
        widths = [axes[r].block for r in (c.columns, c.rows)]
        copies = [n * width * on for n, width, on in zip(blocks, widths, (staged, copied), strict=True)]
        by_columns = copies[0] > copies[1] and blocks[0] >= 2 * target.cores
        order = [*shared, *of_columns, *of_rows] if by_columns else [*shared, *of_rows, *of_columns]
        groups: list[Step] = []
        pieces: dict[UOp, int] = {}
        for r in order:
            if wanted <= 1:
                break
            count = axes[r].count
            size = -(-count // min(count, wanted))
            parts = -(-count // size)
            if parts > 1:
                groups.append(Step("group", r, size))
                pieces[r] = size
                wanted = -(-wanted // parts)
        return groups, pieces


def _piece(size: int, most: int, turn: int) -> int:
    """Return the size of equal pieces, at most `most`; the last one has at least `turn` values if it can."""
    piece = -(-size // -(-size // most))
    for candidate in range(piece, piece // 2, -1):
        if size % candidate == 0 or size % candidate >= turn:
            return candidate
    return piece


def _axis(r: UOp, upcast: int, lanes: int) -> Axis:
    size, block = r.arg[1], upcast * lanes
    edge: Edge = "exact" if size % block == 0 else "masked" if size < block else "overlap"
    return Axis(r, upcast, lanes, edge)
