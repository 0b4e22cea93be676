"""The test bench of a rung of the NVIDIA ladder: the driver's parts, each made when a rung first uses it.

Parts are built from nothing, so that a rung can run alone in a child process, and are closed with the bench.
`Bench.check` does not compare in a dry run, where nothing is computed.

Not here: measurements (`tools.bench`), what a rung tests (`rungs`, `rungs_compute`).
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivers.nv import push, topology
from drivers.nv.channel import Channel, ChannelKind, Context
from drivers.nv.doorbell import Doorbell
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.memory import Memories, Memory
from drivers.nv.ring import NvRing
from drivers.nv.rm import Rm
from drivers.nv.space import open_space
from drivers.nv.vaspace import VaSpace
from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from drivers.kernel import Kernel
    from drivers.nv.device import NvDevice
    from drivers.nv.quirks import Quirks
    from drivers.nv.rm import Card
    from drivers.nv.topology import Gpu, Handles

Facts = dict[str, object]
SIGNAL_S = 1.0
"""How long a semaphore may take."""
WORK_S = 5.0
"""How long a submission may take."""
REPEATS = 20
"""How often what a rung shows must work: a raw client on Hopper saw a quarter to a third of its copies fail
where addresses of CPU and GPU differed (`docs/sources.md`), so that one that works is no evidence."""
_GIVE_UP = 3
"""Failures after which the repeats end."""
LATE_S = 1.0
"""How long a store may take to become visible after its release, where nothing orders the two."""
EMULATED_PATIENCE = 20.0
"""What limits are multiplied by where the GPU is emulated: it is as slow as what else its host does."""


class RungError(HcqError):
    """A rung saw something else than it should have."""


class NoMapping:
    """Stands where UVM stands, and maps nothing."""

    def map(self, memory: int, va: int, size: int) -> None:
        """Do nothing."""

    def unmap(self, va: int, size: int) -> None:
        """Do nothing."""


@dataclass
class Bench:
    """What a rung runs on: everything up to a channel, made on first use, closed with the stack."""

    kernel: Kernel
    choices: Quirks
    index: int = 0
    dry: bool = False
    kernels: Path | None = None
    emulate: str | None = None
    """The emulated GPU that this is, if it is one: children must run on the same, and sizes are small."""
    signal_s: float = SIGNAL_S
    """How long a semaphore may take; see `patience`."""
    clock: Callable[[], float] = time.perf_counter
    """Seconds, for what is waited for here."""
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    rings: list[NvRing] = field(default_factory=list)
    """The rings, semaphores and devices that were made, for dumps of their contents."""
    slots: list[Memory] = field(default_factory=list)
    devices: list[NvDevice] = field(default_factory=list)
    _cache: dict[str, Any] = field(default_factory=dict)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    @property
    def patience(self) -> float:
        """What all time limits are multiplied by."""
        return 1.0 if self.emulate is None else EMULATED_PATIENCE

    @property
    def work_s(self) -> float:
        """How long a submission may take, in seconds."""
        return WORK_S * self.patience

    def check(self, fine: bool, text: str) -> None:  # noqa: FBT001 - an assertion's condition
        """Raise unless `fine`; in a dry run nothing was computed, and nothing is checked."""
        if not fine and not self.dry:
            raise RungError(text)

    @property
    def repeats(self) -> int:
        """How often what a rung shows is to be repeated; a dry run computes nothing."""
        return 2 if self.dry else REPEATS

    def repeat(self, what: str, once: Callable[[int], None]) -> int:
        """Run `once` with 1, 2, ...; raise when one of the runs fails; return how many there were."""
        failed: list[str] = []
        number = 0
        while number < self.repeats and len(failed) < _GIVE_UP:
            number += 1
            try:
                once(number)
            except RungError as error:
                failed.append(f"repeat {number}: {error}")
        if failed:
            texts = "\n".join(failed)
            raise RungError(f"{what}: {len(failed)} of {number} repeats failed\n{texts}")
        return number

    def arrival(self, read: Callable[[], object], want: object) -> float | None:
        """Return after how many seconds `read` gives `want`, 0 for at once; None for not at all in time."""
        start, limit_s = self.clock(), LATE_S * self.patience
        waited = 0.0
        while read() != want:
            waited = self.clock() - start
            if self.dry or waited > limit_s:
                return None
        return waited

    @property
    def rm(self) -> Rm:
        """A client."""

        def make() -> Rm:
            rm = Rm(self.kernel)
            self.stack.callback(rm.close)
            return rm

        return self._once("rm", make)  # type: ignore[no-any-return]  # what make returns

    @property
    def card(self) -> Card:
        """The GPU as the driver lists it."""

        def make() -> Card:
            cards = self.rm.cards()
            if self.index >= len(cards):
                raise RungError(f"the driver lists {len(cards)} GPUs, number {self.index} was requested")
            return cards[self.index]

        return self._once("card", make)  # type: ignore[no-any-return]  # what make returns

    @property
    def handles(self) -> Handles:
        """Device and subdevice."""

        def make() -> Handles:
            self.rm.open_gpu(self.card.minor)
            return topology.open_objects(self.rm, self.card)

        return self._once("handles", make)  # type: ignore[no-any-return]  # what make returns

    @property
    def gpu(self) -> Gpu:
        """What the GPU is."""
        return self._once("gpu", lambda: topology.ask(self.rm, self.handles, self.choices))  # type: ignore[no-any-return]  # a Gpu

    @property
    def doorbell(self) -> Doorbell:
        """The doorbell page."""

        def make() -> Doorbell:
            doorbell = Doorbell(self.rm, self.handles, self.gpu, self.choices)
            self.stack.callback(doorbell.close)
            return doorbell

        return self._once("doorbell", make)  # type: ignore[no-any-return]  # what make returns

    @property
    def unmapped(self) -> Memories:
        """Memories that only the CPU maps: what UVM does is not yet proven."""

        def make() -> Memories:
            handles = self.handles
            space = VaSpace(self.kernel)
            self.stack.callback(space.close)
            memories = Memories(self.rm, NoMapping(), handles, space, self.choices)
            self.stack.callback(memories.close)
            return memories

        return self._once("unmapped", make)  # type: ignore[no-any-return]  # what make returns

    @property
    def context(self) -> Context:
        """Address space, UVM and memories."""

        def make() -> Context:
            handles, rm, gpu = self.handles, self.rm, self.gpu
            doorbell = self.doorbell
            addresses = VaSpace(self.kernel)
            self.stack.callback(addresses.close)
            vaspace, space = open_space(rm, gpu, handles, self.choices, self.stack)
            memories = Memories(rm, space, handles, addresses, self.choices)
            self.stack.callback(memories.close)
            return Context(rm, space, gpu, handles, memories, vaspace, doorbell.registers, self.choices)

        return self._once("context", make)  # type: ignore[no-any-return]  # what make returns

    def ring(self, kind: ChannelKind, setup: push.Words = ()) -> NvRing:
        """Make a channel with a ring; `setup` are its first words."""
        context = self.context
        engine = EngineType.GR0 if kind is ChannelKind.COMPUTE else context.gpu.copy_engines[0]
        channel = Channel(context, kind, engine, label=f"ladder {kind.value}")
        ring = NvRing(channel, context.memories, setup=setup, refresh=lambda _: (), fault=lambda: None)
        self.stack.callback(ring.close)
        self.rings.append(ring)
        return ring

    def slot(self) -> tuple[Memory, memoryview]:
        """Return host memory for a semaphore, and its u64 words."""
        memory = self.context.memories.host(4096, label="semaphore")
        assert memory.view is not None, "host memory has a view"
        self.slots.append(memory)
        return memory, memory.view.cast("Q")

    def reach(
        self, ring: NvRing, words: memoryview, value: int, what: str, *, mask: int = (1 << 64) - 1
    ) -> float:
        """Wait until the first word is `value`; return the microseconds, or raise with all that is known."""
        start, limit_s = time.perf_counter(), self.signal_s * self.patience
        while words[0] & mask != value:
            if time.perf_counter() - start > limit_s:
                error = ring.channel.error()
                raise RungError(
                    f"{what}: the semaphore holds {words[0]:#x}, {value:#x} was expected after "
                    f"{limit_s} s; "
                    f"{ring.stuck() or 'the ring was fetched'}; token {ring.channel.token:#x}; "
                    f"notifier {error!r}"
                )
        return (time.perf_counter() - start) * 1e6
