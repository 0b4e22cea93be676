"""A small machine around the engines: memory of one GPU, queues in it, and what they told the host.

Packets are written by hand, from the fact sheet's numbers, not with the layouts that the engines read.
"""

from __future__ import annotations

import contextlib
import copy
import random
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from drivers.amd.layouts.kfd import MemFlags, QueueType
from drivers.kernel import LinuxKernel
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.kfd.gpu import GpuSpace, KfdBuffer, KfdGpu
from emulator.amd.kfd.queues import QueueObject
from emulator.amd.profiles import find_gpu
from emulator.ir.library import Sanitizers
from emulator.shared.backing import Backing
from emulator.shared.scheduler import StepOutcome
from emulator.shared.surprises import Rejections
from emulator.simt.engine import Settings
from hcq.config import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emulator.amd.engines.engines import EngineRun
    from hcq.counters import Counters

RING, POINTERS, EOP, DATA, BUFFERS = 0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000, 0x50_0000
READ_ONLY: Final = 0x60_0000
RING_BYTES: Final = 4096
_STEPS: Final = 20_000
_LIMIT_S = 60.0


class Bench:
    """The machine (`emulator.amd.engines.bus.EngineMachine`) and one queue on it."""

    def __init__(
        self,
        kind: QueueType,
        name: str = "gfx1100",
        seed: int = 0,
        *,
        eop: int = EOP,
        checked: bool = False,
        remaps: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.lock = contextlib.nullcontext()
        self.launches: Counter[str] = Counter()
        self.counters: dict[int, Counters] = {}
        self.lints: list[str] = []
        self.hdp_flushes = 0
        self.rejections = Rejections()
        self.interrupts: list[tuple[int, int]] = []
        self.slots = range(0)
        """Addresses of the slots of events."""
        self.ticks = 1000
        self._linux = LinuxKernel()
        self.gpu = KfdGpu(find_gpu(name), 0, minor=128)
        self.gpu.space = self.space = GpuSpace()
        self._backings: list[Backing] = []
        for va, size, writable in (
            (RING, RING_BYTES, True), (POINTERS, 4096, True), (EOP, 4096, True), (DATA, 1 << 16, True),
            (BUFFERS, 1 << 16, True), (READ_ONLY, 4096, False),
        ):  # fmt: skip
            self.map(va, size, writable=writable)
        self.queue = QueueObject(
            number=1, gpu=self.gpu, kind=kind, ring_va=RING, ring_bytes=RING_BYTES, wptr_va=POINTERS + 56,
            rptr_va=POINTERS + 128, percentage=100, priority=7, eop_va=eop,
        )  # fmt: skip
        checks = Sanitizers.all() if checked else Sanitizers()
        # No slice is left to run on: else the order of steps depends on the load of the machine.
        settings = Settings(cache=config().cache, checks=checks)
        self.engines = AmdEngines(settings, patience_s=_LIMIT_S, remaps=remaps)
        self.run: EngineRun = self.engines.make(self, self.queue)
        self.unit = {QueueType.SDMA: 1, QueueType.COMPUTE_AQL: 64}.get(kind, 4)
        self.written = 0
        """Bytes written to the ring so far."""
        self._ring = RING
        self._others: list[EngineRun] = []

    def second(self, kind: QueueType) -> Bench:
        """Return another queue of the same machine, driven alike; closed with this one."""
        other = copy.copy(self)
        ring, pointers = RING + 0x8_0000, POINTERS + 0x8_0000
        self.map(ring, RING_BYTES)
        self.map(pointers, 4096)
        other.queue = QueueObject(
            number=2, gpu=self.gpu, kind=kind, ring_va=ring, ring_bytes=RING_BYTES, wptr_va=pointers + 56,
            rptr_va=pointers + 128, percentage=100, priority=7, eop_va=EOP,
        )  # fmt: skip
        other.run = self.engines.make(other, other.queue)
        other.unit, other.written, other._ring = 1 if kind is QueueType.SDMA else 4, 0, ring
        self._others.append(other.run)
        return other

    def map(self, va: int, size: int, *, writable: bool = True) -> None:
        """Map memory, executable."""
        flags = MemFlags.GTT | MemFlags.EXECUTABLE | (MemFlags.WRITABLE if writable else MemFlags(0))
        backing = Backing.new(self._linux, size, "memory")
        self._backings.append(backing)
        self.space.attach(KfdBuffer(len(self._backings), self.gpu, va, size, flags, MemFlags.GTT, backing))

    def lint(self, message: str) -> None:
        self.lints.append(message)

    def event_of(self, gpu: KfdGpu, va: int) -> int | None:
        """Return the event whose slot is at an address."""
        del gpu
        return (va - self.slots.start) // 8 if va in self.slots else None

    def interrupt(self, gpu: KfdGpu, context: int, bits: int, *, written: bool = False) -> None:
        del written
        assert gpu is self.gpu
        self.interrupts.append((context, bits))

    def clock(self, gpu: KfdGpu) -> int:
        assert gpu is self.gpu
        self.ticks += 1
        return self.ticks

    def put(self, va: int, *words: int) -> None:
        self.space.map.write(va, struct.pack(f"<{len(words)}I", *words))

    def get(self, va: int, count: int = 1) -> list[int]:
        return list(struct.unpack(f"<{count}I", self.space.map.read(va, 4 * count)))

    def get64(self, va: int) -> int:
        return int(struct.unpack("<Q", self.space.map.read(va, 8))[0])

    def put64(self, va: int, value: int) -> None:
        self.space.map.write(va, struct.pack("<Q", value))

    def write(self, *words: int) -> None:
        """Write dwords to the ring, without telling the GPU."""
        for word in words:
            self.put(self._ring + self.written % RING_BYTES, word)
            self.written += 4

    def ring(self) -> None:
        """Store the write pointer and ring the doorbell."""
        value = self.written // self.unit
        self.put64(self.queue.wptr_va, value)
        self.run.rung(value - (self.unit == 64))

    def step(self) -> StepOutcome:
        return self.run.step()

    def repeat(self, steps: int) -> None:
        """Do so many steps, whatever they come to."""
        for _ in range(steps):
            self.step()

    def finish(self) -> None:
        """Run until the queue can do no more."""
        for _ in range(_STEPS):
            if self.step() in (StepOutcome.IDLE, StepOutcome.BLOCKED) and not self.run.computing:
                return
        raise AssertionError(f"the queue is still at {self.run.at}")

    def do(self, *words: int) -> None:
        """Submit words and run them."""
        self.write(*words)
        self.ring()
        self.finish()

    def close(self) -> None:
        for run in (self.run, *self._others):
            run.close()
        self.space.clear("the test is over")
        for backing in self._backings:
            backing.drop()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Return a maker of benches."""
    with contextlib.ExitStack() as opened:

        def make(kind: QueueType = QueueType.COMPUTE, name: str = "gfx1100", **kw: Any) -> Bench:
            made = Bench(kind, name, **kw)
            opened.callback(made.close)
            return made

        yield make
