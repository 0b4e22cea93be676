"""A kernel as a function that runs one wave whose lanes share a program counter.

Where `warp_function` lets lanes go different ways, here the guest's own code does: it branches on scalars and
keeps a register of which lanes execute. So control flow is the host's: a basic block is a basic block, and
registers are variables, vectors of one value a lane or scalars, that LLVM turns into its own.

At a barrier the function keeps what is live in the wave's state and returns; called again, it goes on behind
it. Where a loop may wait for other waves, a wave that has gone round often returns the same way.

Not here: warps whose lanes diverge freely (`warp_function`).
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.simt import access, schedule
from drivers.emu.simt.blocks import Site, Translation
from drivers.emu.simt.findings import emit_report, i32
from drivers.emu.simt.ir_types import bits_of, lanes_of
from drivers.emu.simt.state import (
    BARRIER_WAIT,
    DONE,
    GROUP,
    LAUNCH,
    THREAD,
    WARP,
    YIELD,
    warp_ids_at,
    warp_registers_at,
)
from drivers.emu.simt.vector import Code, Declarations, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drivers.emu.report import ReportKind
    from drivers.emu.simt.library import Library

_FUEL = 64
"""Turns of loops that may wait for others before the wave yields to them."""
_POISON = 0xCCCC_CCCC
"""What registers hold that nobody has written."""


@dataclass(slots=True)
class WaveBlock:
    """A basic block of the guest: `emit` writes its code and calls exactly one of the terminators."""

    number: int
    """Names it; blocks that follow in the code have higher numbers."""
    emit: Callable[[WaveFunction], None]
    successors: tuple[int, ...]


@dataclass(slots=True)
class _Written:
    """A block once its code is written, but for what depends on which registers live behind it."""

    block: WaveBlock
    lines: list[str] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    values: dict[str, Value] = field(default_factory=dict)
    """Registers that it writes, and what they hold at its end."""
    finish: Callable[[], None] | None = None


class WaveFunction:
    """Builds the wave function of one kernel.

    `registers` gives each register its IR type. `begin` writes the registers that are set when a wave starts; `spins` says that
    loops may wait for other waves. `c` is the code being written.
    """

    def __init__(
        self,
        lib: Library,
        name: str,
        blocks: Sequence[WaveBlock],
        registers: Mapping[str, str],
        begin: Callable[[WaveFunction], None],
        *,
        spins: bool,
    ) -> None:
        self.lib = lib
        self.lanes = lib.lanes
        self.name = name
        self.c = Code(Declarations())
        self.warp = Value("ptr", "%warp")
        self.sites: list[Site] = []
        self._blocks = list(blocks)
        self._registers = registers
        self._begin = begin
        self._spins = spins
        self._now: dict[str, Value] = {}
        self._written = _Written(self._blocks[0])
        self._resumes: dict[int, int] = {}
        """Block -> how the wave's state names it as the one to go on with."""
        self._loops = False
        self._saved: dict[str, int] = {}
        self._variables: dict[str, Value] = {}
        self._live: dict[int, frozenset[str]] = {}

    # ---- the whole function

    def translate(self) -> Translation:
        """Write the function and return it."""
        c = self.c
        self.thread = Value("ptr", "%thread")
        self.group = Value("ptr", "%group")
        start = self._write(WaveBlock(-1, self._start, (self._blocks[0].number,)))
        written = [start, *(self._write(block) for block in self._blocks)]
        self._find_live(written)
        c.lines, parts = [], []
        for item in written:
            c.lines = []
            c.label(_label(item.block.number))
            c.lines += item.lines
            self._flush(item)
            assert item.finish is not None, item.block.number
            item.finish()
            parts += c.lines
        c.lines = []
        self._enter(start)
        c.lines += parts
        name = f"warp.{self.name}"
        text = c.function(name, "i32", [self.warp])
        called = {n: d for n, d in c.declarations.declared.items() if n != name}
        begins = warp_registers_at(self.lanes)
        return Translation(
            self.name, text, called, self.sites, self._state_end() - begins, len(self._blocks), len(self.sites),
            self._loops and not self._spins,
        )  # fmt: skip

    def _start(self, _: WaveFunction) -> None:
        self._begin(self)
        self.jump(self._blocks[0].number)

    def _write(self, block: WaveBlock) -> _Written:
        self.c.lines = []
        self._now = {}
        self._written = _Written(block)
        block.emit(self)
        self._written.lines = self.c.lines
        return self._written

    def _find_live(self, written: Sequence[_Written]) -> None:
        index = {item.block.number: i for i, item in enumerate(written)}
        nodes = [
            schedule.Node(
                tuple(index[s] for s in item.block.successors), frozenset(item.uses), frozenset(item.values)
            )
            for item in written
        ]
        schedule.liveness(nodes, range(len(nodes)))
        self._live = {item.block.number: nodes[i].live_in for i, item in enumerate(written)}
        self._out = {item.block.number: nodes[i].live_out for i, item in enumerate(written)}
        poisoned = nodes[0].live_out - frozenset(nodes[0].defs)
        self._poisoned = sorted(poisoned)
        across: frozenset[str] = frozenset().union(*(n.live_in | n.live_out for n in nodes))
        self._variables = {r: Value("ptr", f"%R.{r}") for r in sorted(across)}
        for register, variable in self._variables.items():
            self.c.slot(self._registers[register], variable.ref[1:])
        at = self._state_at() + 64
        kept = sorted(across) if self._spins else sorted(
            frozenset().union(*(self._live[b] for b in self._resumes)) if self._resumes else ()
        )  # fmt: skip
        for register in kept:
            self._saved[register] = at
            type_ = self._registers[register]
            size = max(bits_of(type_), 8) * max(lanes_of(type_), 1) // 8
            at += size if lanes_of(type_) else 64
        self._end = at

    def _state_at(self) -> int:
        return -(-warp_registers_at(self.lanes) // 64) * 64

    def _state_end(self) -> int:
        return self._end

    def _flush(self, item: _Written) -> None:
        for register in sorted(item.values.keys() & self._out[item.block.number]):
            self.c.store(item.values[register], self._variables[register])

    def _enter(self, start: _Written) -> None:
        c = self.c
        c.emit(f"%thread = load ptr, {WARP.address(c, self.warp, 'thread')}")
        c.emit(f"%group = load ptr, {WARP.address(c, self.warp, 'group')}")
        launch = THREAD.load(c, self.thread, "launch")
        c.emit(f"%stop = getelementptr i8, {launch}, i64 {LAUNCH.offsets['stop']}")
        c.emit("%fuel = alloca i32, align 4")
        c.store(i32(_FUEL), Value("ptr", "%fuel"))
        WARP.store(c, self.warp, "release", 0)
        resume = c.load("i32", c.gep(self.warp, self._state_at()))
        for register in self._poisoned:
            type_ = self._registers[register]
            c.store(c.const(type_, _POISON), self._variables[register])
        first = _label(start.block.number)
        ways = " ".join(f"i32 {number}, label %resume{number}" for number in self._resumes.values())
        c.emit(f"switch {resume}, label %{first} [ {ways} ]")
        for block, number in self._resumes.items():
            c.label(f"resume{number}")
            for register in sorted(self._live[block]):
                type_ = self._registers[register]
                value = c.load(
                    type_, c.gep(self.warp, self._saved[register]), align=64 if lanes_of(type_) else 0
                )
                c.store(value, self._variables[register])
            c.jump(_label(block))
        c.label("halt")
        c.ret(i32(YIELD))

    # ---- registers

    def read(self, register: str) -> Value:
        """Return what a register holds."""
        if register not in self._now:
            type_ = self._registers[register]
            self._now[register] = self.c.let(type_, f"load {type_}, ptr %R.{register}")
            self._written.uses.add(register)
        return self._now[register]

    def write(self, register: str, value: Value) -> None:
        """Set a register, every lane of it."""
        assert value.type == self._registers[register], (register, value)
        self._now[register] = value
        self._written.values[register] = value

    # ---- terminators: exactly one ends a block

    def _finish(self, finish: Callable[[], None]) -> None:
        assert self._written.finish is None, self._written.block.number
        self._written.finish = finish

    def _go(self, number: int, here: int) -> None:
        """Jump to a block; backwards, unless the launch is being stopped or others deserve a turn."""
        c = self.c
        if number > here:
            c.jump(_label(number))
            return
        self._loops = True
        again = c.fresh("again")
        stop = c.load("i32", Value("ptr", "%stop"), volatile=True)
        c.emit(f"br {c.icmp('eq', stop, 0)}, label %{again}, label %halt, !prof !0")
        c.label(again)
        if not self._spins:
            c.jump(_label(number))
            return
        c.emit('fence syncscope("singlethread") seq_cst')
        fuel = c.op("sub", c.load("i32", Value("ptr", "%fuel")), 1)
        c.store(fuel, Value("ptr", "%fuel"))
        tired = c.fresh("tired")
        c.branch(c.icmp("sgt", fuel, 0), _label(number), tired)
        c.label(tired)
        self._suspend(number, YIELD)

    def _suspend(self, number: int, why: int) -> None:
        c = self.c
        for register in sorted(self._live[number]):
            value = c.load(self._registers[register], self._variables[register])
            c.store(value, c.gep(self.warp, self._saved[register]), align=64 if lanes_of(value.type) else 0)
        c.store(i32(self._resumes[number]), c.gep(self.warp, self._state_at()))
        c.ret(i32(why))

    def _resumable(self, number: int) -> None:
        self._resumes.setdefault(number, len(self._resumes) + 1)

    def jump(self, number: int) -> None:
        """Go on at a block."""
        here = self._written.block.number
        if self._spins and number <= here:
            self._resumable(number)
        self._finish(lambda: self._go(number, here))

    def branch(self, condition: Value, yes: int, no: int) -> None:
        """Go on at `yes` where a scalar condition holds, else at `no`."""
        here = self._written.block.number
        if self._spins:
            for number in (yes, no):
                if number <= here:
                    self._resumable(number)

        def finish() -> None:
            taken, other = self.c.fresh("taken"), self.c.fresh("other")
            self.c.branch(condition, taken, other)
            for label, number in ((taken, yes), (other, no)):
                self.c.label(label)
                self._go(number, here)

        self._finish(finish)

    def sleep(self, barrier: int, after: int, site: int) -> None:
        """Wait at a barrier for every wave of the workgroup, then go on at block `after`."""
        self._resumable(after)

        def finish() -> None:
            for name, value in (("barrier", barrier), ("barrier_count", 0), ("barrier_site", site)):
                WARP.store(self.c, self.warp, name, value)
            self._suspend(after, BARRIER_WAIT)

        self._finish(finish)

    def exit(self) -> None:
        """End the wave."""

        def finish() -> None:
            WARP.store(self.c, self.warp, "live", 0)
            self.c.ret(i32(DONE))

        self._finish(finish)

    # ---- values of the machine

    def uniform(self, scalar: Value) -> Value:
        """Give every lane the same value."""
        return self.c.splat(scalar, self.lanes)

    def thread_id(self, axis: int) -> Value:
        """Return the lanes' thread ids of an axis, as i32."""
        return self.c.load(self.lib.v("i32"), self.c.gep(self.warp, warp_ids_at(axis, self.lanes)), align=64)

    def of_thread(self, name: str) -> Value:
        """Return a field of `state.THREAD`, a scalar."""
        return THREAD.load(self.c, self.thread, name)

    def of_group(self, name: str) -> Value:
        """Return a field of `state.GROUP`, a scalar."""
        return GROUP.load(self.c, self.group, name)

    def of_warp(self, name: str) -> Value:
        """Return a field of `state.WARP`, a scalar."""
        return WARP.load(self.c, self.warp, name)

    # ---- memory and reports

    def site(self, line: int, text: str) -> int:
        """Number an instruction so that reports can name it."""
        self.sites.append(Site(line, text))
        return len(self.sites) - 1

    def load(self, space: str, bits: int, address: Value, mask: Value, site: int, *, how: int = 0) -> Value:
        """Load one integer of `bits` a lane of a mask from device memory; `how` is 0, STRONG or STRONG | NARROW."""
        name = access.load(self.lib, space, bits, 1, how)
        return self.c.call(name, self.lib.v(f"i{bits}"), self.warp, address, mask, i32(site))

    def store(
        self, space: str, address: Value, value: Value, mask: Value, site: int, *, how: int = 0
    ) -> None:
        """Store one integer a lane of a mask to device memory; `how` as for `load`."""
        name = access.store(self.lib, space, bits_of(value.type), 1, how)
        self.c.call(name, "void", self.warp, address, value, mask, i32(site))

    def report(self, kind: ReportKind, site: int, lane: Value, *, other: Value | None = None) -> None:
        """Report a lane."""
        emit_report(self.lib, self.c, self.warp, kind, i32(site), lane, other=other)


def _label(number: int) -> str:
    return "start" if number < 0 else f"b{number:x}"
