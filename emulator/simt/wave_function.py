"""The translation of a kernel to a function that runs one wave, whose lanes share a program counter.

The guest code, that of AMD GPUs, handles divergence itself: it branches on scalars, and a register has the mask of
executing lanes. So each basic block of the guest becomes a basic block of the function. Each guest register becomes a
variable, a scalar or a vector with one value for each lane, and LLVM assigns host registers to variables.

At a barrier the function saves live registers in the wave's state and returns; the next call continues after the
barrier. In a loop that may wait for other waves, the function returns the same way after `_FUEL` iterations.

Not here: warps whose lanes diverge freely (`warp_function`), thread ids and fields of records (`warp_code`). Next:
`emulator.amd.isa.translate`, the front end.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir.findings import emit_report, i32
from emulator.ir.ir_text import bits_of, lanes_of
from emulator.ir.report import ReportKind
from emulator.ir.state import (
    BARRIER_WAIT,
    DONE,
    LAUNCH,
    THREAD,
    WARP,
    YIELD,
    warp_registers_at,
)
from emulator.ir.vector import IrValue
from emulator.simt import access, schedule
from emulator.simt.blocks import Translation
from emulator.simt.warp_code import WarpCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emulator.ir.library import Library

_START = -(1 << 40)
"""The number of the block before all others, which runs `begin`."""
_FUEL = 64
"""Iterations of a loop that may wait for other waves, before the wave yields."""
_FENCED = 8
"""Registers that a wave loads between two fences when it resumes. Without fences LLVM compares every load with every other."""
_POISON = 0xCCCC_CCCC
"""The initial value of registers, so that reads of unwritten registers are noticeable and repeatable."""


@dataclass(slots=True)
class WaveBlock:
    """A basic block of the guest. `emit` writes its code and calls exactly one of the terminators."""

    number: int
    """Identifies the block. Blocks later in the code have higher numbers, so a smaller number is a backward branch."""
    emit: Callable[[WaveFunction], None]
    successors: tuple[int, ...]


@dataclass(slots=True)
class _Written:
    """The code of a block, except for the part that depends on the registers that are live after it."""

    block: WaveBlock
    lines: list[str] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    values: dict[str, IrValue] = field(default_factory=dict)
    """Register that it writes -> its value at the end of the block."""
    finish: Callable[[], None] | None = None


class WaveFunction(WarpCode):
    """The builder of the wave function of one kernel.

    The first of `blocks` is the entry. `registers` maps each register to its IR type. `begin` writes the registers that are set
    when a wave starts. `spins`: loops may wait for other waves. A front end calls `translate` once; the blocks' `emit`
    functions call the other methods.
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
        super().__init__(lib, name)
        self._blocks = list(blocks)
        self._registers = registers
        self._begin = begin
        self._spins = spins
        self._now: dict[str, IrValue] = {}
        self._written = _Written(self._blocks[0])
        self._first_site = 0
        """The number of the first instruction that the current block can name."""
        self._resumes: dict[int, int] = {}
        """Number of a block at which a wave may resume -> the number, from 1, that the wave's state has for it."""
        self._loops = False
        self._saved: dict[str, int] = {}
        self._variables: dict[str, IrValue] = {}
        self._live: dict[int, frozenset[str]] = {}

    def translate(self) -> Translation:
        """Write the function and return it with its data."""
        c = self.c
        self.thread = IrValue("ptr", "%thread")
        self.group = IrValue("ptr", "%group")
        start = self._write(WaveBlock(_START, self._start, (self._blocks[0].number,)))
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
            self._loops and not self._spins, self.counted,
        )  # fmt: skip

    def _start(self, _: WaveFunction) -> None:
        self._begin(self)
        self.jump(self._blocks[0].number)

    def _write(self, block: WaveBlock) -> _Written:
        self.c.lines = []
        self._now = {}
        self._written = _Written(block)
        self._first_site = len(self.sites)
        block.emit(self)
        self._written.lines = self.c.lines
        return self._written

    def _find_live(self, written: Sequence[_Written]) -> None:
        """Find the registers that are live at each block, and where those are saved that a resumed block needs."""
        index = {item.block.number: i for i, item in enumerate(written)}
        nodes = [
            schedule.FlowNode(
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
        self._variables = {r: IrValue("ptr", f"%R.{r}") for r in sorted(across)}
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
        """Emit the entry: load what a resumed block needs and jump to it, or begin with `start`."""
        c = self.c
        c.emit(f"%thread = load ptr, {WARP.address(c, self.warp, 'thread')}")
        c.emit(f"%group = load ptr, {WARP.address(c, self.warp, 'group')}")
        launch = THREAD.load(c, self.thread, "launch")
        c.emit(f"%stop = getelementptr i8, {launch}, i64 {LAUNCH.offsets['stop']}")
        c.emit("%fuel = alloca i32, align 4")
        c.store(i32(_FUEL), IrValue("ptr", "%fuel"))
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
            for place, register in enumerate(sorted(self._live[block])):
                if place % _FENCED == 0:
                    c.emit('fence syncscope("singlethread") seq_cst')
                type_ = self._registers[register]
                value = c.load(
                    type_, c.gep(self.warp, self._saved[register]), align=64 if lanes_of(type_) else 0
                )
                c.store(value, self._variables[register])
            c.jump(_label(block))
        c.label("halt")
        c.ret(i32(YIELD))

    def read(self, register: str) -> IrValue:
        """Return the value of a register."""
        if register not in self._now:
            type_ = self._registers[register]
            self._now[register] = self.c.let(type_, f"load {type_}, ptr %R.{register}")
            self._written.uses.add(register)
        return self._now[register]

    def write(self, register: str, value: IrValue) -> None:
        """Set a register in all lanes; `value` must have the register's type."""
        assert value.type == self._registers[register], (register, value)
        self._now[register] = value
        self._written.values[register] = value

    def _finish(self, finish: Callable[[], None]) -> None:
        assert self._written.finish is None, self._written.block.number
        self._written.finish = finish

    def _note_loop(self, site: int) -> None:
        """Append code that records the loop which the wave leaves to yield; `site` as `_last_site` returns it."""
        if site:
            WARP.store(self.c, self.warp, "loop_site", site)

    def _last_site(self) -> int:
        """Return 1 + the number of the last instruction of the block that reports can name; 0 if there is none."""
        return len(self.sites) if len(self.sites) > self._first_site else 0

    def _go(self, number: int, here: int, site: int) -> None:
        """Jump to a block. A backward jump leaves the function if the launch is stopped or the wave must yield."""
        c = self.c
        if number > here:
            c.jump(_label(number))
            return
        self._loops = True
        again, ended = c.fresh("again"), c.fresh("ended")
        stop = c.load("i32", IrValue("ptr", "%stop"), volatile=True)
        c.emit(f"br {c.icmp('eq', stop, 0)}, label %{again}, label %{ended}, !prof !0")
        c.label(ended)
        self._note_loop(site)
        c.jump("halt")
        c.label(again)
        if not self._spins:
            c.jump(_label(number))
            return
        c.emit('fence syncscope("singlethread") seq_cst')
        fuel = c.op("sub", c.load("i32", IrValue("ptr", "%fuel")), 1)
        c.store(fuel, IrValue("ptr", "%fuel"))
        exhausted = c.fresh("exhausted")
        c.branch(c.icmp("sgt", fuel, 0), _label(number), exhausted)
        c.label(exhausted)
        self._note_loop(site)
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
        """End the block: continue at block `number`."""
        here = self._written.block.number
        if self._spins and number <= here:
            self._resumable(number)
        site = self._last_site()
        self._finish(lambda: self._go(number, here, site))

    def branch(self, condition: IrValue, yes: int, no: int) -> None:
        """End the block: continue at `yes` if a scalar condition holds, else at `no`."""
        here = self._written.block.number
        if self._spins:
            for number in (yes, no):
                if number <= here:
                    self._resumable(number)

        site = self._last_site()

        def finish() -> None:
            taken, other = self.c.fresh("taken"), self.c.fresh("other")
            self.c.branch(condition, taken, other)
            for label, number in ((taken, yes), (other, no)):
                self.c.label(label)
                self._go(number, here, site)

        self._finish(finish)

    def switch(self, value: IrValue, numbers: Sequence[int], site: int) -> None:
        """End the block: continue at the one of `numbers` that equals a scalar; no match is a fault at `site`."""
        here = self._written.block.number
        for number in numbers if self._spins else ():
            if number <= here:
                self._resumable(number)
        last = self._last_site()

        def finish() -> None:
            for number in numbers:
                taken, other = self.c.fresh("taken"), self.c.fresh("other")
                self.c.branch(self.c.icmp("eq", value, number), taken, other)
                self.c.label(taken)
                self._go(number, here, last)
                self.c.label(other)
            self.report(ReportKind.BAD_BRANCH_INDEX, site, i32(0))
            WARP.store(self.c, self.warp, "live", 0)
            self.c.ret(i32(DONE))

        self._finish(finish)

    def sleep(self, barrier: int, after: int, site: int) -> None:
        """End the block: wait at a barrier for every wave of the workgroup, then continue at block `after`."""
        self._resumable(after)

        def finish() -> None:
            for name, value in (("barrier", barrier), ("barrier_count", 0), ("barrier_site", site)):
                WARP.store(self.c, self.warp, name, value)
            self._suspend(after, BARRIER_WAIT)

        self._finish(finish)

    def exit(self) -> None:
        """End the block and the wave."""

        def finish() -> None:
            WARP.store(self.c, self.warp, "live", 0)
            self.c.ret(i32(DONE))

        self._finish(finish)

    def load(self, space: str, bits: int, address: IrValue, mask: IrValue, site: int, *, how: int = 0) -> IrValue:
        """Load one integer of `bits` bits for each lane of a mask from device memory.

        `how` is flags of the access (`emulator.ir.addresses`), 0 for a plain one.
        """
        name = access.load(self.lib, space, bits, 1, how)
        return self.c.call(name, self.lib.v(f"i{bits}"), self.warp, address, mask, i32(site))

    def store(
        self, space: str, address: IrValue, value: IrValue, mask: IrValue, site: int, *, how: int = 0
    ) -> None:
        """Store one integer for each lane of a mask to device memory; `how` is as for `load`."""
        name = access.store(self.lib, space, bits_of(value.type), 1, how)
        self.c.call(name, "void", self.warp, address, value, mask, i32(site))

    def report(self, kind: ReportKind, site: int, lane: IrValue, *, other: IrValue | None = None) -> None:
        """Append a report of a finding at instruction `site` for a lane (i32)."""
        emit_report(self.lib, self.c, self.warp, kind, i32(site), lane, other=other)


def _label(number: int) -> str:
    return "start" if number == _START else f"b{number:x}"
