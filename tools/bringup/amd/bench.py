"""The test bench of a rung of the AMD ladder: the driver's parts, each made when a rung first uses it.

Each rung builds the parts it needs, so that it can run alone in a child process. The bench closes them.
Making a part raises the errors of the driver: `DriverError`, `BringUpError`, `UnsupportedError`.

Not here: the checks of results (`tools.bringup.checks`), measurements (`tools.bench`). Next: `rungs`,
`rungs_queues` and `rungs_compute`, the tests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from drivers.amd import context, topology
from drivers.amd.aql_ring import AqlRing
from drivers.amd.context import InterruptEvent, QueueContext
from drivers.amd.device import AmdDevice
from drivers.amd.events import Events
from drivers.amd.layouts.chips import AmdChip, Generation, by_version
from drivers.amd.layouts.drm import IDS_FLAGS_FUSION
from drivers.amd.memory import AmdMemories, AmdMemory
from drivers.amd.process import AmdProcess
from drivers.amd.queues import Doorbells, HwQueue, Packets, QueueFacts
from drivers.amd.ring import AmdRing, RingHooks
from tools.bringup.amd.kernels import TOKEN, image
from tools.bringup.checks import RungError
from tools.bringup.launches import Launches

if TYPE_CHECKING:
    from drivers.amd.context import Geometry
    from drivers.amd.layouts.drm import drm_amdgpu_info_device
    from drivers.amd.quirks import AmdQuirks
    from drivers.amd.rings import AnyRing
    from drivers.amd.topology import AmdGpu

_POLL_S = 50e-6
"""Seconds between two reads of a signal slot."""


@dataclass
class Bench(Launches):
    """The parts of the AMD driver up to a queue, each made on first use and closed with `stack`.

    A kernel interface that a test scripts executes stores, waits and copies, and no GPU kernels. Therefore
    rungs without GPU kernels use `demand`, which also checks in a dry run, and the others use `check`. Errors
    of the driver pass. Parts that a method returns belong to the bench.
    """

    vendor = "amd"
    token = TOKEN
    image = staticmethod(image)
    late_cause = "the release must write caches back"
    choices: AmdQuirks
    rings: list[AnyRing] = field(default_factory=list["AnyRing"])
    """The rings made so far, for dumps of their contents."""
    slots: list[AmdMemory] = field(default_factory=list[AmdMemory])
    """The signal slots made so far, for dumps."""
    devices: list[AmdDevice] = field(default_factory=list[AmdDevice])

    @staticmethod
    def demand(condition: bool, text: str) -> None:  # noqa: FBT001 - as in an assertion
        """Raise `RungError` unless `condition` holds, also in a dry run."""
        if not condition:
            raise RungError(text)

    @cached_property
    def process(self) -> AmdProcess:
        """This process as a client of KFD."""
        process = AmdProcess(self.kernel)
        self.stack.callback(process.close)
        return process

    @cached_property
    def gpus(self) -> list[AmdGpu]:
        """The GPUs of the topology."""
        return topology.read(self.kernel)

    @property
    def gpu(self) -> AmdGpu:
        """The GPU with index `index`. Raises `RungError` if the topology lists fewer GPUs."""
        if self.index >= self.present:
            raise RungError(f"the topology lists {self.present} GPUs, number {self.index} was requested")
        return self.gpus[self.index]

    @property
    def present(self) -> int:
        """How many GPUs the topology lists."""
        return len(self.gpus)

    @cached_property
    def target(self) -> AmdChip:
        """The GPU's target. Raises `UnsupportedError` if the driver does not support it."""
        return by_version(self.gpu.version).open_or_refuse()

    @cached_property
    def geometry(self) -> Geometry:
        """The counts of the GPU's units: shader engines, compute units, XCCs."""
        return self.gpu.geometry()

    @cached_property
    def drm_fd(self) -> int:
        """The descriptor of the GPU's render node, with which its address space was acquired."""
        fd = self.process.acquire(self.gpu)
        self.process.check_space(self.gpu)
        return fd

    @cached_property
    def no_exceptions(self) -> str:
        """Why queues report no exceptions, as text; "" if they report them."""
        self.process.acquire(self.gpu)
        self._enable_runtime()
        return self.process.no_exceptions or ""

    def _enable_runtime(self) -> None:
        self.process.enable_runtime(self.gpus, reports=self.choices.runtime == "enable")

    @cached_property
    def render(self) -> drm_amdgpu_info_device:
        """The device information of the render node."""
        return topology.ask(self.kernel, self.drm_fd)

    @property
    def apu(self) -> bool:
        """Whether the GPU is part of an APU, by the render node: a gfx942 may be one or not."""
        return bool(self.render.ids_flags & IDS_FLAGS_FUSION)

    @cached_property
    def memories(self) -> AmdMemories:
        """The allocator of the GPU's memory."""
        memories = AmdMemories(
            self.process.kfd,
            self.process.space,
            gpu_id=self.gpu.gpu_id,
            drm_fd=self.drm_fd,
            name=self.gpu.name,
            visible_bytes=self.gpu.visible_bytes,
            apu=self.apu,
            uncached=self.choices.system_uncached,
        )
        self.stack.callback(memories.close)
        return memories

    @cached_property
    def events(self) -> Events:
        """The events of one device."""
        events = Events(self.process, self.memories)
        self.stack.callback(events.close)
        return events

    @cached_property
    def doorbells(self) -> Doorbells:
        """The doorbells of the process."""
        doorbells = Doorbells(self.process.kfd)
        self.stack.callback(doorbells.close)
        return doorbells

    @cached_property
    def facts(self) -> QueueFacts:
        """The facts from which queues are made."""
        return QueueFacts(
            gpu_id=self.gpu.gpu_id,
            target=self.target,
            geometry=self.geometry,
            areas=context.of(self.gpu, self.target, self.geometry, self.process.kfd, self.choices),
            mes=self.target.generation >= Generation.GFX11,
            event=self.events.signal,
            choices=self.choices,
        )

    @property
    def compute_packets(self) -> Packets:
        """The packet format of this GPU's compute queues under these choices."""
        aql = self.geometry.xccs > 1 or (self.target.compute_aql and self.choices.single_xcc == "aql")
        return Packets.AQL if aql else Packets.PM4

    @property
    def context(self) -> QueueContext:
        """The context of the encoders."""
        event = InterruptEvent(slot_va=self.events.slot_va, number=self.events.signal)
        return QueueContext(target=self.target, geometry=self.geometry, choices=self.choices, event=event)

    def ring(self, packets: Packets) -> AnyRing:
        """Create a queue of a packet format, with its ring."""
        self.process.acquire(self.gpu)
        self._enable_runtime()  # before the first queue
        queue = HwQueue(
            self.process.kfd,
            self.memories,
            self.doorbells,
            self.facts,
            packets,
            label=f"ladder {packets.name}",
        )
        fence = self.kernel.fence
        hooks = RingHooks(refresh=tuple, fault=lambda: None, fence=fence, reports=lambda _queue: "")
        ring: AnyRing
        try:
            ring = AqlRing(queue, self.memories, hooks) if packets is Packets.AQL else AmdRing(queue, hooks)
        except BaseException:
            queue.close()
            raise
        self.stack.callback(ring.close)
        self.rings.append(ring)
        return ring

    def slot(self) -> tuple[AmdMemory, memoryview]:
        """Allocate a page of system memory for signals; return it with its u64 words."""
        memory = self.memories.system(4096, label="slot")
        assert memory.view is not None, "system memory is mapped"
        self.slots.append(memory)
        return memory, memory.view.cast("Q")

    def reach(self, ring: AnyRing, words: memoryview, value: int, what: str) -> float:
        """Wait until `words[0]` is `value`; return the microseconds.

        Raises `RungError` with the state of the queue after a timeout (`Checks.waiting`).
        """
        start, over = time.perf_counter(), self.waiting()
        while words[0] != value:
            if after := over():
                raise RungError(
                    f"{what}: the slot holds {words[0]:#x}, {value:#x} was expected {after}; "
                    f"{ring.stuck() or 'all entries were read'}; exceptions {ring.queue.exceptions[0]:#x}, "
                    f"inactive reason: {ring.queue.inactive[0]:#x}; reported: {self.events.poll()}"
                )
            time.sleep(_POLL_S)
        return (time.perf_counter() - start) * 1e6

    def opened(self, index: int, ring_bytes: int) -> AmdDevice:
        """Open the driver of a GPU."""
        return AmdDevice(
            self.process,
            self.gpu if index == self.index else self.gpus[index],
            driver="amd",
            index=index,
            choices=self.choices,
            ring_bytes=ring_bytes,
            others=self.gpus,
            emulated=self.emulate is not None,
        )
