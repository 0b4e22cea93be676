"""The test bench of a rung of the NVIDIA ladder: the driver's parts, each made when a rung first uses it.

Each rung builds the parts it needs, so that it can run alone in a child process. The bench closes them.
Making a part raises the errors of the driver: `DriverError`, `BringUpError`, `UnsupportedError`.

Not here: the checks of results (`tools.bringup.checks`), measurements (`tools.bench`). Next: `rungs` and
`rungs_compute`, the tests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from drivers.nv import push, topology
from drivers.nv.channel import Channel, ChannelContext, ChannelKind
from drivers.nv.device import NvDevice
from drivers.nv.doorbell import Doorbell
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.memory import NvMemories, NvMemory
from drivers.nv.ring import NvRing
from drivers.nv.rm import Rm
from drivers.nv.space import open_space
from drivers.nv.vaspace import NvVaSpace
from tools.bringup.checks import RungError
from tools.bringup.launches import Launches
from tools.bringup.nv.kernels import TOKEN, image

if TYPE_CHECKING:
    from drivers.nv.quirks import NvQuirks
    from drivers.nv.rm import Card
    from drivers.nv.topology import Handles, NvGpu

_POLL_S = 50e-6
"""Seconds between two reads of a semaphore of an emulated GPU."""


class NoMapping:
    """Replaces UVM where only the CPU maps memory; every method does nothing."""

    def map(self, memory: int, va: int, size: int) -> None:
        """Do nothing."""

    def map_peer(self, memory: int, va: int, size: int, *, owner: Rm, uuid: bytes) -> None:
        """Do nothing."""

    def unmap(self, va: int, size: int) -> None:
        """Do nothing."""

    def register_channel(self, channel: int, base: int, length: int) -> None:
        """Do nothing."""

    def unregister_channel(self, channel: int) -> None:
        """Do nothing."""


@dataclass
class Bench(Launches):
    """The parts of the NVIDIA driver up to a channel, each made on first use and closed with `stack`.

    Errors of the driver pass. Parts that a method returns belong to the bench.
    """

    vendor = "nv"
    token = TOKEN
    image = staticmethod(image)
    choices: NvQuirks
    rings: list[NvRing] = field(default_factory=list)
    """The rings made so far, for dumps of their contents."""
    slots: list[NvMemory] = field(default_factory=list)
    """The pages of semaphores made so far, for dumps."""
    devices: list[NvDevice] = field(default_factory=list)

    @cached_property
    def rm(self) -> Rm:
        """An RM client."""
        rm = Rm(self.kernel)
        self.stack.callback(rm.close)
        return rm

    @cached_property
    def card(self) -> Card:
        """The card with index `index`. Raises `RungError` if the driver lists fewer cards."""
        if self.index >= self.present:
            raise RungError(f"the driver lists {self.present} GPUs, number {self.index} was requested")
        return self.rm.cards()[self.index]

    @property
    def present(self) -> int:
        """How many cards the driver lists."""
        return len(self.rm.cards())

    @cached_property
    def handles(self) -> Handles:
        """The device and subdevice objects."""
        self.rm.open_gpu(self.card.minor)
        return topology.open_objects(self.rm, self.card)

    @cached_property
    def gpu(self) -> NvGpu:
        """The properties of the GPU."""
        return topology.query_gpu(self.rm, self.handles, self.choices)

    @cached_property
    def doorbell(self) -> Doorbell:
        """The doorbell page."""
        doorbell = Doorbell(self.rm, self.handles, self.gpu, self.choices)
        self.stack.callback(doorbell.close)
        return doorbell

    @cached_property
    def unmapped(self) -> NvMemories:
        """An allocator of memory that only the CPU maps, for the rungs before UVM is tested."""
        handles = self.handles
        space = NvVaSpace(self.kernel)
        self.stack.callback(space.close)
        memories = NvMemories(self.rm, NoMapping(), handles, space, self.choices)
        self.stack.callback(memories.close)
        return memories

    @cached_property
    def context(self) -> ChannelContext:
        """Address space, UVM, memory allocator and doorbell registers, from which channels are made."""
        handles, rm, gpu = self.handles, self.rm, self.gpu
        doorbell = self.doorbell
        addresses = NvVaSpace(self.kernel)
        self.stack.callback(addresses.close)
        vaspace, space = open_space(rm, gpu, handles, self.choices, self.stack)
        memories = NvMemories(
            rm, space, handles, addresses, self.choices, small_bar1=gpu.small_bar1
        )
        self.stack.callback(memories.close)
        return ChannelContext(rm, space, gpu, handles, memories, vaspace, doorbell.registers, self.choices)

    def ring(self, kind: ChannelKind, setup: push.Words = ()) -> NvRing:
        """Create a channel with a ring on the graphics engine or the first copy engine.

        `setup` are the methods of its first push buffer.
        """
        context = self.context
        engine = EngineType.GR0 if kind is ChannelKind.COMPUTE else context.gpu.copy_engines[0]
        channel = Channel(context, kind, engine, label=f"ladder {kind.value}")
        ring = NvRing(channel, context.memories, setup=setup, refresh=lambda _: (), fault=lambda: None)
        self.stack.callback(ring.close)
        self.rings.append(ring)
        return ring

    def slot(self) -> tuple[NvMemory, memoryview]:
        """Allocate a page of host memory for a semaphore; return it with its u64 words."""
        memory = self.context.memories.host(4096, label="semaphore")
        assert memory.view is not None, "host memory has a view"
        self.slots.append(memory)
        return memory, memory.view.cast("Q")

    def reach(
        self, ring: NvRing, words: memoryview, value: int, what: str, *, mask: int = (1 << 64) - 1
    ) -> float:
        """Wait until `words[0] & mask` is `value`; return the microseconds.

        Raises `RungError` with the state of the channel after a timeout (`Checks.waiting`).
        """
        start, over = time.perf_counter(), self.waiting()
        while words[0] & mask != value:
            if after := over():
                error = ring.channel.error()
                raise RungError(
                    f"{what}: the semaphore holds {words[0]:#x}, {value:#x} was expected {after}; "
                    f"{ring.stuck() or 'all entries were fetched'}; token {ring.channel.token:#x}; "
                    f"notifier {error!r}"
                )
            if self.emulate is not None:  # its threads want the processor
                time.sleep(_POLL_S)
        return (time.perf_counter() - start) * 1e6

    def opened(self, index: int, ring_bytes: int) -> NvDevice:
        """Open the driver of a card."""
        return NvDevice(
            self.kernel,
            self.card if index == self.index else self.rm.cards()[index],
            driver="nv",
            index=index,
            choices=self.choices,
            ring_bytes=ring_bytes,
            emulated=self.emulate is not None,
        )

    @property
    def late_cause(self) -> str:
        """Why a late store is an error: a descriptor that is not full has no memory barrier."""
        return "its membar has no effect" if self.choices.full_descriptor else ""
