"""The translation of a kernel to a function that runs one warp: registers are vectors, blocks run under lane masks.

Every block has a pending mask: the lanes that wait to execute the block. The function visits blocks in order
(`schedule.order`). It executes a block that has pending lanes for all of them together, and adds the lanes to the pending
masks of the block's successors. A backward branch jumps to the earlier block immediately. Any control flow works,
divergent or irreducible, and lanes reconverge where their paths join.

At a block that requires convergence of lanes (`Convergence`), lanes that arrive early stay pending while later
blocks run. Then the function starts again at its first block. If no lane advances in such a pass, a deadlock is
reported.

At a barrier lanes are suspended. When no other lane of the warp can run, the function saves live registers and
returns, and the dispatcher calls it again when the barrier opens. In a loop that may wait for other threads, the
function returns (yields) the same way after `_FUEL` iterations.

Not here: the order of the blocks and the saved state (`blocks`), thread ids and fields of records (`warp_code`), the
dispatcher (`dispatch`). Next: `emulator.nv.ptx.translate`, a front end.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from emulator.ir.findings import emit_report, i32
from emulator.ir.ir_text import bits_of, lanes_of
from emulator.ir.report import ReportKind
from emulator.ir.state import BARRIER_WAIT, DONE, LAUNCH, POLL, THREAD, WARP, YIELD
from emulator.ir.vector import IrValue
from emulator.sanitizers import sanitize
from emulator.simt import access, dispatch
from emulator.simt.blocks import BlockPlace, Convergence, Translation, WarpBlock, lay_out
from emulator.simt.warp_code import WarpCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emulator.ir.library import Library

_FUEL = 64
"""Iterations of a loop that may wait for other warps, before the warp yields."""
_MASKS_IN_REGISTERS = 24
"""Kernels with more blocks keep pending masks in memory, because many values that are live everywhere cost more."""


class WarpFunction(WarpCode):
    """The builder of the warp function of one kernel.

    A front end creates `WarpBlock`s and calls `translate` once; the blocks' `emit` functions call the other methods, and end
    with one of `jump`, `branch`, `spread`, `exit` and `sleep`. `registers` maps each register to its width in bits, 1 for
    a predicate. `spins`: some loop may wait for other threads. `reserve` bytes of each warp's state belong to the front end.
    """

    def __init__(
        self,
        lib: Library,
        name: str,
        blocks: Sequence[WarpBlock],
        registers: Mapping[str, int],
        *,
        spins: bool,
        reserve: int = 0,
    ) -> None:
        super().__init__(lib, name)
        self._registers = registers
        self._spins = spins
        self._layout = layout = lay_out(blocks, registers, self.lanes, spins=spins, reserve=reserve)
        self._places = layout.places
        self._now: dict[str, IrValue] = {}
        self._before: dict[str, IrValue] = {}
        """Register -> the value that the current block loaded from its variable."""
        self._dirty: set[str] = set()
        self._place = self._places[0]
        self._first_site = 0
        """The number of the first instruction that the current block can name."""
        self._mask = IrValue(lib.mask, "0")
        self._guard: IrValue | None = None
        self._suspends = bool(spins or layout.sleepers or layout.converging)
        """Whether the function may return before its lanes have left the kernel, to continue later."""

    def translate(self) -> Translation:
        """Write the function and return it with its data."""
        c = self.c
        mask = self.lib.mask
        self._live, self._blocked = c.slot(mask, "live"), c.slot(mask, "blocked")
        self._fuel, self._moved = c.slot("i32", "fuel"), c.slot("i1", "moved")
        self._acted = c.slot("i1", "acted")
        self._variables = {
            r: c.slot(self._storage(r), f"R{i}") for i, r in enumerate(sorted(self._layout.across))
        }
        in_memory = len(self._places) > _MASKS_IN_REGISTERS
        self._pending = [
            c.gep(self.warp, self._layout.pending_at + i * self.lanes // 8) if in_memory else c.slot(mask, f"P{i}")
            for i in range(len(self._places))
        ]  # fmt: skip
        self._enter(in_memory=in_memory)
        for place in self._places:
            self._write_block(place)
        self._leave(in_memory=in_memory)
        name = f"warp.{self.name}"
        text = c.function(name, "i32", [self.warp])
        called = {n: d for n, d in self.declarations.declared.items() if n != name}
        loops = not self._spins and any(place.node.in_loop for place in self._places)
        return Translation(
            self.name,
            text,
            called,
            self.sites,
            self._layout.state_bytes,
            len(self._places),
            len(self.sites),
            loops,
            self.counted,
        )

    def _storage(self, register: str) -> str:
        bits = self._registers[register]
        return self.lib.mask if bits == 1 else self.lib.v(f"i{bits}")

    def _enter(self, *, in_memory: bool) -> None:
        """Emit the entry: load the state of the warp, and continue where its lanes stopped."""
        c, mask = self.c, self.lib.mask
        thread = WARP.load(c, self.warp, "thread")
        launch = THREAD.load(c, thread, "launch")
        self._stop = LAUNCH.address(c, launch, "stop")
        self.thread, self.group = thread, WARP.load(c, self.warp, "group")
        start = c.resize(WARP.load(c, self.warp, "start"), self.lanes)
        WARP.store(c, self.warp, "start", 0)
        c.store(c.resize(WARP.load(c, self.warp, "live"), self.lanes), self._live)
        if self._suspends:
            self._continue(start, in_memory=in_memory)
        else:
            c.store(c.zero(mask), self._blocked)
            for i, pending in enumerate(self._pending):
                if not (in_memory and i):
                    c.store(start if i == 0 else c.zero(mask), pending)
        for register, variable in self._variables.items():
            type_ = self._storage(register)
            saved = self._layout.saved.get(register)
            c.store(c.load(type_, c.gep(self.warp, saved), align=64) if saved else c.zero(type_), variable)
        c.jump("C0")

    def _continue(self, start: IrValue, *, in_memory: bool) -> None:
        """Restore the masks of a function that may have returned before; lanes of `start` begin."""
        c, mask = self.c, self.lib.mask
        open_ = c.let(mask, f"sext i1 {c.icmp('ne', WARP.load(c, self.warp, 'release'), 0).ref} to {mask}")
        WARP.store(c, self.warp, "release", 0)
        blocked = c.resize(WARP.load(c, self.warp, "blocked"), self.lanes)
        c.store(c.op("and", blocked, c.not_(open_)), self._blocked)
        c.store(i32(_FUEL), self._fuel)
        if self._layout.converging:
            c.store(IrValue("i1", "false"), self._moved)
        if self._layout.polling:
            c.store(IrValue("i1", "false"), self._acted)
        for i, pending in enumerate(self._pending):
            waiting = c.load(mask, c.gep(self.warp, self._layout.pending_at + i * self.lanes // 8))
            if i == 0:
                waiting = c.op("or", waiting, start)
            if i in self._layout.sleepers:
                at = c.gep(self.warp, self._layout.sleeping_at + i * self.lanes // 8)
                asleep = c.load(mask, at)
                waiting = c.op("or", waiting, c.op("and", asleep, open_))
                c.store(c.op("and", asleep, c.not_(open_)), at)
            elif in_memory and i:
                continue
            c.store(waiting, pending)

    def _write_block(self, place: BlockPlace) -> None:
        """Emit a block, which is skipped if no lane waits for it."""
        c, i = self.c, place.index
        c.label(f"C{i}")
        waiting = c.load(self.lib.mask, self._pending[i])
        c.branch(c.icmp("eq", waiting, 0), self._next(place), f"B{i}")
        c.label(f"B{i}")
        c.store(c.zero(self.lib.mask), self._pending[i])
        self._mask, self._guard, self._place = waiting, None, place
        self._first_site = len(self.sites)
        self._now, self._before, self._dirty = {}, {}, set()
        if place.block.convergence is not None:
            self._converge(place, place.block.convergence)
        if self._layout.converging:
            c.store(IrValue("i1", "true"), self._moved)
        if self._layout.polling and place.index not in self._layout.polling:
            c.store(IrValue("i1", "true"), self._acted)
        place.block.emit(self)

    def _converge(self, place: BlockPlace, converging: Convergence) -> None:
        """Execute the block for the lanes that wait for no absent live lane; keep the other lanes pending."""
        c, waiting = self.c, self._mask
        apart, together = c.fresh("apart"), c.fresh("together")
        going = c.slot(self.lib.mask)
        c.store(waiting, going)
        absent = c.op("and", self.live, c.not_(waiting))
        c.emit(f"br {c.icmp('eq', absent, 0)}, label %{together}, label %{apart}, !prof !0")
        c.label(apart)
        missing = c.op("and", converging.masks(self), c.splat(absent, self.lanes))
        staying = c.op("and", c.mask_bits(c.icmp("ne", missing, 0)), waiting)
        c.store(staying, self._pending[place.index])
        c.store(c.op("xor", waiting, staying), going)
        c.branch(c.icmp("eq", staying, waiting), self._next(place), together)
        c.label(together)
        self._mask, self._now, self._before = c.load(self.lib.mask, going), {}, {}

    def _leave(self, *, in_memory: bool) -> None:
        """Emit the exits: save the state of the warp, and return whether it ended, yielded or waits."""
        c = self.c
        c.label(f"C{len(self._places)}")
        self._retry_convergence()
        live = c.load(self.lib.mask, self._live)
        WARP.store(c, self.warp, "live", live)
        if not self._suspends:  # so no lane is left
            c.ret(i32(DONE))
            c.label("halt")
            c.ret(i32(YIELD))
            return
        blocked = c.load(self.lib.mask, self._blocked)
        WARP.store(c, self.warp, "blocked", blocked)
        c.branch(c.icmp("eq", live, 0), "done", "suspend")
        c.label("suspend")
        if not in_memory:
            for i, pending in enumerate(self._pending):
                c.store(
                    c.load(self.lib.mask, pending),
                    c.gep(self.warp, self._layout.pending_at + i * self.lanes // 8),
                )
        for register, at in self._layout.saved.items():
            c.store(
                c.load(self._storage(register), self._variables[register]), c.gep(self.warp, at), align=64
            )
        running = i32(YIELD)
        if self._layout.polling:
            running = c.select(c.load("i1", self._acted), i32(YIELD), i32(POLL))
        c.ret(c.select(c.icmp("eq", live, blocked), i32(BARRIER_WAIT), running))
        c.label("done")
        c.ret(i32(DONE))
        c.label("halt")
        c.ret(i32(YIELD))

    def _retry_convergence(self) -> None:
        """If lanes wait for convergence, start again if a lane has advanced; report a deadlock if no lane can."""
        if not self._layout.converging:
            return
        c, mask = self.c, self.lib.mask
        waiting = c.zero(mask)
        for place in self._layout.converging:
            waiting = c.op("or", waiting, c.load(mask, self._pending[place.index]))
        c.emit(f"br {c.icmp('eq', waiting, 0)}, label %leave, label %waiting, !prof !0")
        c.label("waiting")
        moved = c.load("i1", self._moved)
        c.store(IrValue("i1", "false"), self._moved)
        fuelled = c.icmp("sgt", c.load("i32", self._fuel), 0)
        c.branch(c.op("and", moved, fuelled), "C0", "no_progress")
        c.label("no_progress")
        others = c.zero(mask)
        for place in self._places:
            if place.block.convergence is None:
                others = c.op("or", others, c.load(mask, self._pending[place.index]))
        c.branch(c.icmp("ne", others, 0), "leave", "stuck")
        c.label("stuck")
        for place in self._layout.converging:
            converging, lanes = place.block.convergence, c.load(mask, self._pending[place.index])
            assert converging is not None
            with c.when(c.icmp("ne", lanes, 0)):
                self.report(ReportKind.ABSENT_LANE, self.site(converging.line, converging.text), lanes)
        c.jump("halt")
        c.label("leave")

    def acted(self, condition: IrValue) -> None:
        """Record, if a scalar condition holds, that a test of a barrier in memory succeeded: the warp advances.

        Only for a kernel with polling loops (`WarpLayout.polling`).
        """
        self.c.store(self.c.op("or", self.c.load("i1", self._acted), condition), self._acted)

    @property
    def active(self) -> IrValue:
        """The mask of lanes that execute here, as an integer."""
        return (
            self._mask if self._guard is None else self.c.op("and", self._mask, self.c.mask_bits(self._guard))
        )

    @property
    def active_lanes(self) -> IrValue:
        """The lanes that execute here, as a vector of i1."""
        return self.c.mask_lanes(self.active)

    @property
    def live(self) -> IrValue:
        """The mask of lanes of this warp that have not left the kernel, as an integer."""
        return self.c.load(self.lib.mask, self._live)

    @contextmanager
    def guarded(self, condition: IrValue) -> Iterator[None]:
        """Restrict the code of the `with` body to lanes for which `condition` (a vector of i1) holds."""
        self._guard = condition
        yield
        self._guard = None

    def read(self, register: str) -> IrValue:
        """Return the value of a register: a vector of integers of its width, or of i1."""
        if register not in self._now:
            variable = self._variables.get(register)
            if variable is None:
                value = self.c.zero(self.lib.v(f"i{self._registers[register]}"))
            else:
                value = self._before[register] = self.c.load(self._storage(register), variable)
                if self._registers[register] == 1:
                    value = self.c.mask_lanes(value)
            self._now[register] = value
        return self._now[register]

    def write(self, register: str, value: IrValue) -> None:
        """Set a register in the active lanes; `value` has its width, and i1 lanes for a predicate."""
        bits = self._registers[register]
        assert bits_of(value.type) == bits and lanes_of(value.type) == self.lanes, (register, bits, value)  # noqa: PT018
        if self._guard is not None:
            value = self.c.select(self._guard, value, self.read(register))
        self._now[register] = value
        self._dirty.add(register)

    def _flush(self) -> None:
        """Store the registers that the block has changed and later blocks read; inactive lanes keep the old value."""
        lanes: IrValue | None = None
        for register in sorted(self._dirty & self._place.node.live_out):
            value, variable = self._now[register], self._variables[register]
            if self._registers[register] == 1:
                value = self.c.mask_bits(value)
            if self._place.index and (self._place.index, register) not in self._layout.unmasked:
                old = self._before.get(register) or self.c.load(self._storage(register), variable)
                if self._registers[register] == 1:
                    kept = self.c.op("and", old, self.c.not_(self._mask))
                    value = self.c.op("or", kept, self.c.op("and", value, self._mask))
                else:
                    lanes = lanes or self.c.mask_lanes(self._mask)
                    value = self.c.select(lanes, value, old)
            self.c.store(value, variable)

    def _next(self, place: BlockPlace) -> str:
        return f"C{place.index + 1}"

    def _send(self, number: int, lanes: IrValue) -> None:
        pending = self._pending[self._layout.index[number]]
        self.c.store(self.c.op("or", self.c.load(self.lib.mask, pending), lanes), pending)

    def _go_back(self, target: int) -> None:
        """Jump to an earlier block, unless the launch is stopped or the warp must yield."""
        c, number = self.c, self._place.index
        named = len(self.sites) > self._first_site
        label = c.fresh("back") if self._spins else f"C{target}"
        ended, tired = c.fresh("ended") if named else "halt", c.fresh("tired")
        stop = c.load("i32", self._stop, volatile=True)
        c.emit(f"br {c.icmp('eq', stop, 0)}, label %{label}, label %{ended}, !prof !0")
        if named:
            c.label(ended)
            self._note_loop()
            c.jump("halt")
        if not self._spins:
            return
        c.label(label)
        c.emit('fence syncscope("singlethread") seq_cst')
        fuel = c.op("sub", c.load("i32", self._fuel), 1)
        c.store(fuel, self._fuel)
        c.branch(c.icmp("sgt", fuel, 0), f"C{target}", tired)
        c.label(tired)
        self._note_loop()
        c.jump(f"C{number + 1}")

    def _note_loop(self) -> None:
        """Append code that records the loop which the warp leaves to yield, for the report of a kernel that does not end."""
        if len(self.sites) > self._first_site:
            c = self.c
            lane = c.intrinsic("cttz", self._mask, extra=(IrValue("i1", "true"),))
            WARP.store(c, self.warp, "loop_site", len(self.sites))
            WARP.store(c, self.warp, "loop_lane", c.resize(lane, 32))

    def jump(self, number: int) -> None:
        """End the block: all lanes continue at block `number`."""
        self._flush()
        self._send(number, self._mask)
        target = self._layout.index[number]
        if target <= self._place.index:
            self._go_back(target)
        else:
            self.c.jump(self._next(self._place))

    def branch(self, condition: IrValue, yes: int, no: int) -> None:
        """End the block: lanes where `condition` (a vector of i1) holds continue at `yes`, the others at `no`."""
        taken = self.c.op("and", self.c.mask_bits(condition), self._mask)
        self.spread([(yes, taken), (no, self.c.op("xor", taken, self._mask))])

    def spread(self, ways: Sequence[tuple[int, IrValue]]) -> None:
        """End the block: each of the disjoint masks of lanes continues at the block with its number."""
        self._flush()
        backward: dict[int, IrValue] = {}
        for number, lanes in ways:
            self._send(number, lanes)
            target = self._layout.index[number]
            if target <= self._place.index:
                backward[target] = self.c.op("or", backward[target], lanes) if target in backward else lanes
        for target in sorted(backward):
            again, on = self.c.fresh("again"), self.c.fresh("on")
            self.c.branch(self.c.icmp("ne", backward[target], 0), again, on)
            self.c.label(again)
            self._go_back(target)
            self.c.label(on)
        self.c.jump(self._next(self._place))

    def exit(self, condition: IrValue | None = None, otherwise: int | None = None) -> None:
        """End the block: lanes where `condition` holds (all if None) leave the kernel, the others continue at `otherwise`."""
        leaving = self._mask
        if condition is not None:
            leaving = self.c.op("and", leaving, self.c.mask_bits(condition))
        sanitize.exits_partly(self, self.c.load(self.lib.mask, self._blocked), leaving)
        self.c.store(self.c.op("and", self.live, self.c.not_(leaving)), self._live)
        if otherwise is None:
            self.c.jump(self._next(self._place))
        else:
            self.spread([(otherwise, self.c.op("xor", self._mask, leaving))])

    def sleep(
        self, number: IrValue, count: IrValue, after: int, site: int, *, aligned: bool = False
    ) -> None:
        """End the block: lanes wait at barrier `number` for `count` threads (0: all), then continue at block `after`.

        `aligned`: all lanes of the warp must reach the barrier together; sanitizers check it.
        """
        c = self.c
        self._flush()
        blocked = c.load(self.lib.mask, self._blocked)
        elsewhere = c.icmp("ne", WARP.load(c, self.warp, "barrier"), number)
        with c.when(c.op("and", c.icmp("ne", blocked, 0), elsewhere), likely=False):
            self.report(ReportKind.DIVERGENT_BARRIERS, site, self._mask, other=c.resize(number, 64))
        sanitize.waits_partly(self, site, blocked, aligned=aligned)
        for name, value in (("barrier", number), ("barrier_count", count), ("barrier_site", i32(site))):
            WARP.store(c, self.warp, name, value)
        at = c.gep(self.warp, self._layout.sleeping_at + self._layout.index[after] * self.lanes // 8)
        c.store(c.op("or", c.load(self.lib.mask, at), self._mask), at)
        c.store(c.op("or", blocked, self._mask), self._blocked)
        c.jump(self._next(self._place))

    def arrive(self, number: IrValue, count: IrValue, site: int) -> None:
        """Count this warp as arrived at a barrier, without waiting, if any lane is active."""
        with self.c.when(self.c.icmp("ne", self.active, 0)):
            self.c.call(dispatch.arrive(self.lib), "void", self.warp, number, count, i32(site))

    def reserved(self, warp: IrValue | None = None) -> IrValue:
        """Return the address of the front end's reserved memory in the state of this warp, or of the warp at `warp`.

        The memory is zero at first and keeps its contents across barriers.
        """
        return self.c.gep(warp or self.warp, self._layout.reserved_at)

    def load(
        self, space: str, bits: int, count: int, address: IrValue, site: int, *, how: int = 0
    ) -> list[IrValue]:
        """Load `count` integers of `bits` bits for each active lane from device memory.

        `how` is flags of the access (`emulator.ir.addresses`), 0 for a plain one.
        """
        name = access.load(self.lib, space, bits, count, how)
        one = self.lib.v(f"i{bits}")
        result = one if count == 1 else "{ " + ", ".join([one] * count) + " }"
        whole = self.c.call(name, result, self.warp, address, self.active, i32(site))
        return (
            [whole] if count == 1 else [self.c.let(one, f"extractvalue {whole}, {i}") for i in range(count)]
        )

    def store(self, space: str, address: IrValue, values: Sequence[IrValue], site: int, *, how: int = 0) -> None:
        """Store one or more integers for each active lane to device memory; `how` is as for `load`."""
        name = access.store(self.lib, space, bits_of(values[0].type), len(values), how)
        self.c.call(name, "void", self.warp, address, *values, self.active, i32(site))

    def report(
        self,
        kind: ReportKind,
        site: int,
        lanes: IrValue,
        *,
        address: IrValue | None = None,
        other: IrValue | None = None,
    ) -> None:
        """Append a report of a finding at instruction `site` for the lowest lane of a nonempty mask.

        `address` and `other` are vectors, of which that lane's number is reported; None: 0.
        """
        lane = self.c.call(f"llvm.cttz.{self.lib.mask}", self.lib.mask, lanes, IrValue("i1", "false"))
        emit_report(
            self.lib,
            self.c,
            self.warp,
            kind,
            i32(site),
            self.c.resize(lane, 32),
            address=address,
            other=other,
        )
