"""An open AMD GPU: implements `hcq.driver.DriverDevice` with the parts of this folder.

Opening brings the GPU up as far as the driver's own copy queue; compute and copy rings are made on first use.
A step that fails undoes the steps before it. One lock guards memory, programs and faults; each ring is
guarded by the lock of its queue.

Not here: choosing a GPU (`driver`), what is known before (`info`), memory of the host and of other GPUs
(`shared_memory`), faults (`faults`), scratch memory (`scratch`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from drivers.amd import code, cwsr_sizes, faults, render
from drivers.amd.aql_ring import AqlRing
from drivers.amd.context import Context, Event
from drivers.amd.encode import Pm4Encoder
from drivers.amd.encode_aql import AqlEncoder
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.events import Events
from drivers.amd.info import COMPUTE_QUEUES, COPY_QUEUES, device_info
from drivers.amd.layouts.drm import IDS_FLAGS_FUSION
from drivers.amd.layouts.events import kfd_hsa_hw_exception_data, kfd_hsa_memory_exception_data
from drivers.amd.memory import Memories, Memory
from drivers.amd.program import AmdProgram
from drivers.amd.queues import RING_BYTES, Doorbells, Facts, HwQueue, Packets
from drivers.amd.quirks import DEFAULT, Quirks
from drivers.amd.refusals import BringUpError
from drivers.amd.ring import AmdRing
from drivers.amd.scratch import ScratchMemory
from drivers.amd.shared_memory import SharedMemory
from drivers.amd.targets import Generation, by_version
from drivers.amd.uploader import Uploader
from drivers.kernel import PAGE, tracker_of, view_at
from hcq.driver import Allocation, Place, QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.profile import tie

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drivers.amd.process import Process
    from drivers.amd.topology import Gpu
    from hcq.counters import Counters
    from hcq.driver import BufferSpec, DeviceInfo, DriverDevice
    from hcq.errors import FaultReport
    from hcq.profile import Clock
    from hcq.program import DriverProgram, KernelImage

PROVE_S: Final = 2.0
"""How long a recovered GPU may take to run its first packet."""
_SPIN_S: Final = 50e-6
_MES_SINCE: Final = Generation.GFX11
"""The first generation whose queues the firmware MES schedules (kfd_device.c)."""
AnyEncoder: TypeAlias = Pm4Encoder | AqlEncoder | SdmaEncoder
AnyRing: TypeAlias = AmdRing | AqlRing


class AmdDevice:
    """See `hcq.driver.DriverDevice`. `recover` gives a faulted device new queues; its memory stays."""

    def __init__(
        self,
        process: Process,
        gpu: Gpu,
        *,
        driver: str,
        index: int,
        choices: Quirks = DEFAULT,
        ring_bytes: int = 0,
        others: Sequence[Gpu] = (),
        released: Callable[[], None] = lambda: None,
        prove_s: float | None = None,
    ) -> None:
        self.process, self.gpu, self.choices = process, gpu, choices
        self._prove_s = PROVE_S if prove_s is None else prove_s
        self._ring_bytes = ring_bytes
        self._lock = threading.RLock()
        self._fault: FaultReport | None = None
        self._lost = False
        """Whether the whole GPU was reset, so that the process must end."""
        self._closed = False
        self._rings: dict[tuple[QueueKind, int], AnyRing] = {}
        self._encoders: dict[tuple[QueueKind, int], AnyEncoder] = {}
        self._programs: list[AmdProgram] = []
        self._names: dict[int, str] = {}
        """Address of the code of each kernel ever loaded -> its name."""
        self._launched: deque[str] = deque(maxlen=8)
        self._undo = contextlib.ExitStack()
        self.name = f"{driver}:{index}"
        with contextlib.ExitStack() as stack:
            stack.callback(released)
            self.target = by_version(gpu.version).open_or_refuse()
            self.geometry = gpu.geometry()
            drm_fd = process.acquire(gpu)
            process.check_space(gpu)
            process.enable_runtime(others)
            facts = render.ask(process.kernel, drm_fd)
            self._hz = facts.gpu_counter_freq * 1000
            self.apu = bool(facts.ids_flags & IDS_FLAGS_FUSION)
            extra = process.kfd.available(gpu.gpu_id) if self.apu else 0
            self._info = device_info(driver, index, gpu, self.target, apu=self.apu, vram=extra)
            self.memories = Memories(
                process.kfd,
                process.space,
                gpu_id=gpu.gpu_id,
                drm_fd=drm_fd,
                name=self.name,
                visible_bytes=gpu.visible_bytes,
                apu=self.apu,
            )
            stack.callback(self.memories.close)
            self._events = Events(process, self.memories)
            stack.callback(self._events.close)
            self._doorbells = Doorbells(process.kfd)
            stack.callback(self._doorbells.close)
            self._queue_facts = self._facts()
            self._scratch = tuple(
                ScratchMemory(self.target, self.geometry, self.memories, label=f"{self.name} compute {i}")
                for i in range(COMPUTE_QUEUES)
            )
            self._uploader = self._new_uploader()
            stack.callback(self._uploader.close)
            stack.callback(self._close_rings)
            self._shared = SharedMemory(process, gpu, name=self.name)
            stack.callback(self._shared.close)
            self._undo = stack.pop_all()

    def _facts(self) -> Facts:
        return Facts(
            gpu_id=self.gpu.gpu_id,
            target=self.target,
            geometry=self.geometry,
            areas=cwsr_sizes.of(self.gpu, self.target, self.geometry, self.process.kfd),
            mes=self.target.generation >= _MES_SINCE,
            event=self._events.signal,
            choices=self.choices,
        )

    def _new_uploader(self) -> Uploader:
        ring = self._packet_ring(Packets.SDMA, f"{self.name} service", list)
        try:
            return Uploader(
                ring, self.memories, self.target, fence_mtype=self.choices.fence_mtype, fault=self.fault
            )
        except BaseException:
            ring.close()
            raise

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        return self._info

    @property
    def compute_packets(self) -> Packets:
        """What compute queues run: AQL packets where several XCCs share the work."""
        aql = self.geometry.xccs > 1 or (self.target.compute_aql and self.choices.single_xcc == "aql")
        return Packets.AQL if aql else Packets.PM4

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate zeroed pages; see `hcq.driver.DriverDevice`."""
        with self._lock:
            if spec.place is Place.HOST or spec.coherent:
                memory = self.memories.system(size, label=f"{size} bytes of host memory")
            else:
                label = f"{size} bytes of video memory"
                memory = self.memories.vram(size, label=label, host_visible=spec.host_visible)
        return Allocation(memory.va, memory.size, memory.view, memory, tracker_of(self.process.kernel))

    def free(self, allocation: Allocation) -> None:
        """Free what `alloc` returned. Raises `UsageError` for memory of another device, or freed before."""
        memory = allocation.handle
        with self._lock:
            if not isinstance(memory, Memory) or memory not in self.memories.map:
                raise UsageError(f"{allocation!r} was not allocated by {self.name}")
            self.memories.free(memory)

    def map_host(self, va: int, size: int) -> None:
        """Map whole pages of host memory at the same address. Raises `UsageError` for parts of pages."""
        if va % PAGE or size % PAGE:
            raise UsageError(f"host memory at {va:#x}, {size} bytes, is not whole pages of {PAGE}")
        with self._lock:
            self._shared.map_host(va, size)

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`. Raises `UsageError` for a range that is not mapped."""
        with self._lock:
            self._shared.unmap_host(va, size)

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Map another GPU's allocation here. Raises `UnsupportedError` where no link carries it."""
        memory = allocation.handle
        if not isinstance(owner, AmdDevice) or owner.process is not self.process:
            raise UnsupportedError(
                f"{self.name} cannot see memory of {owner.info.driver}:{owner.info.index}: only AMD GPUs of "
                "one process share memory\nhint: copy through host memory"
            )
        if not isinstance(memory, Memory):
            raise UsageError(f"{allocation!r} was not allocated by {owner.name}")
        with owner._lock:  # noqa: SLF001 - of this class
            self._shared.map_peer(memory, owner.memories, owner.gpu, owner.name)

    def ring(self, kind: QueueKind, index: int) -> AnyRing:
        """Return a ring, made on first use. Raises `UsageError` for a queue that the device does not have."""
        count = COMPUTE_QUEUES if kind is QueueKind.COMPUTE else COPY_QUEUES
        if not 0 <= index < count:
            raise UsageError(f"{self.name} has {count} {kind.value} queues, there is no number {index}")
        with self._lock:
            ring = self._rings.get((kind, index))
            if ring is None or ring.closed:
                label = f"{self.name} {kind.value} {index}"
                refresh = partial(self._new_code, kind, index)
                if kind is QueueKind.COPY:
                    ring = self._packet_ring(Packets.SDMA, label, refresh)
                elif self.compute_packets is Packets.PM4:
                    ring = self._packet_ring(Packets.PM4, label, refresh)
                else:
                    ring = self._aql_ring(index, label, refresh)
                self._rings[kind, index] = ring
            return ring

    def _packet_ring(self, packets: Packets, label: str, refresh: Callable[[], Sequence[int]]) -> AmdRing:
        queue = self._queue(packets, label)
        return AmdRing(queue, refresh=refresh, fault=self.fault, fence=self.process.kernel.fence)

    def _aql_ring(self, index: int, label: str, refresh: Callable[[], Sequence[int]]) -> AqlRing:
        queue = self._queue(Packets.AQL, label)
        fence = self.process.kernel.fence
        try:
            if self._scratch[index].backing.lane_bytes:
                queue.set_scratch(self._scratch[index].backing)
            return AqlRing(queue, self.memories, refresh=refresh, fault=self.fault, fence=fence)
        except BaseException:
            queue.close()
            raise

    def _queue(self, packets: Packets, label: str) -> HwQueue:
        return HwQueue(
            self.process.kfd,
            self.memories,
            self._doorbells,
            self._queue_facts,
            packets,
            label=label,
            ring_bytes=self._ring_bytes or RING_BYTES[packets],
        )

    def _new_code(self, kind: QueueKind, index: int) -> Sequence[int]:
        """Return the words that a ring must send before its next ones after code was loaded."""
        encoder = self.encoder(kind, index)
        return () if isinstance(encoder, SdmaEncoder) else encoder.new_code()

    def encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        """Return the encoder of one queue."""
        with self._lock:
            found = self._encoders.get((kind, index))
            if found is None:
                found = self._encoders[kind, index] = self._new_encoder(kind, index)
            return found

    def _new_encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        event = Event(slot_va=self._events.slot_va, number=self._events.signal)
        if kind is QueueKind.COPY:
            return SdmaEncoder(
                Context(target=self.target, geometry=self.geometry, choices=self.choices, event=event)
            )
        scratch = self._scratch[index]
        context = Context(
            target=self.target,
            geometry=self.geometry,
            choices=self.choices,
            event=event,
            scratch=lambda: scratch.backing,
            launched=self._launched.append,
        )
        return Pm4Encoder(context) if self.compute_packets is Packets.PM4 else AqlEncoder(context)

    def load(self, image: KernelImage) -> AmdProgram:
        """Upload a code object, relocated for where it lies; see `hcq.driver.DriverDevice`."""
        found, kernel = code.read(image.code, image.name, self.target)
        with self._lock, contextlib.ExitStack() as stack:
            memory = self.memories.vram(found.placement.size, label=f"code of {image.name}")
            stack.callback(self.memories.free, memory)
            program = AmdProgram(
                image,
                kernel,
                memory.va,
                memory.size,
                target=self.target,
                choices=self.choices,
                aql=self.compute_packets is Packets.AQL,
                geometry=self.geometry,
                handle=memory,
            )
            for index, scratch in enumerate(self._scratch):
                ring = self._rings.get((QueueKind.COMPUTE, index))
                if scratch.need(program.scratch_bytes) and ring is not None and not ring.closed:
                    ring.queue.set_scratch(scratch.backing)
            self._uploader.upload(memory.va, found.load(memory.va))
            for ring in self.rings():
                ring.stale = True
            self._programs.append(program)
            self._names[program.what.entry_va] = image.name
            stack.pop_all()
        return program

    def unload(self, program: DriverProgram) -> None:
        """Free a program's image. Raises `UsageError` for a program of another device."""
        with self._lock:
            if not isinstance(program, AmdProgram) or program not in self._programs:
                raise UsageError(f"{program!r} was not loaded by {self.name}")
            self._programs.remove(program)
            memory = program.handle
            assert isinstance(memory, Memory), "load put it there"
            self.memories.free(memory)

    def clock(self) -> Clock:
        """Return the relation of the GPU's counter to the host's clock."""
        return tie(lambda: self.process.kfd.clock_counters(self.gpu.gpu_id).gpu_clock_counter, self._hz)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Poll a signal slot for `_SPIN_S`, then sleep until an interrupt; see `hcq.driver.DriverDevice`."""
        slot = view_at(va, 8).cast("Q")
        now = time.perf_counter()
        end, eager = now + timeout_s, now + min(timeout_s, _SPIN_S)
        while slot[0] < value:
            now = time.perf_counter()
            if now >= end:
                return False
            if now >= eager:
                if self._closed or self._events.reported:
                    return slot[0] >= value
                # An interrupt follows the signal; a lost one costs the time limit of this wait alone.
                self._events.sleep(max(1, int(1000 * (end - now))))
        return True

    def signal_written(self, va: int) -> None:
        """Wake threads that sleep in `wait`: the host stored to a signal."""
        del va
        if not self._closed:
            self._events.wake()

    def fault(self) -> FaultReport | None:
        """Return the device's fault, which stays until `recover`; polls the kernel while there is none."""
        if self._fault is not None or self._closed:
            return self._fault
        with self._lock:
            if self._fault is None and not self._closed:
                self._fault = self._poll()
            return self._fault

    def _poll(self) -> FaultReport | None:
        reports = self._events.poll()
        if reports:
            self._lost = any(map(faults.final, reports))
            scene = self._scene("; ".join(filter(None, (ring.stuck() for ring in self.rings()))))
            for report in reports:
                if isinstance(report, kfd_hsa_memory_exception_data):
                    return faults.of_memory(scene, report)
            for report in reports:
                if isinstance(report, kfd_hsa_hw_exception_data):
                    return faults.of_reset(scene, report)
        for ring in self.rings():
            queue = ring.queue
            if mask := queue.exceptions[0]:
                return faults.of_queue(self._scene(ring.stuck()), queue.label, mask)
            if why := queue.inactive[0]:
                return faults.of_inactive(self._scene(ring.stuck()), queue.label, why)
            if queue.area is None and self.process.reports_on(queue.number):
                return faults.of_copy_queue(self._scene(ring.stuck()), queue.label)
        return None

    def _scene(self, stuck: str) -> faults.Scene:
        return faults.Scene(
            device=self.name,
            memory=self.memories.map,
            launched=tuple(self._launched),
            stuck=stuck,
            reports=self.process.take_reports(),
            programs=tuple(self._programs),
        )

    def count(self, into: Counters | None) -> Counters | None:
        """Count what kernels execute; see `hcq.driver.DriverDevice`."""
        if into is not None:
            into.names = self._names
        return self.process.kernel.count_kernels(into, self.gpu.gpu_id)

    def recover(self) -> None:
        """Give every ring a new queue and clear the fault; memory, programs and mappings stay.

        Raises `UnsupportedError` after a reset of the whole GPU, and `BringUpError` where new queues do not
        run: the kernel keeps a process off the GPU from a page fault until it ends
        (kfd_device_queue_manager.c, kfd_dqm_evict_pasid).
        """
        with self._lock:
            if self._lost:
                raise UnsupportedError(
                    f"{self.name} was reset as a whole: what this process had of it is lost\n"
                    "hint: start a new process"
                )
            before = self._fault
            rings = self.rings()
            for ring in rings:
                ring.queue.destroy()
            self._events.forget()
            for ring in rings:
                ring.queue.create()
                ring.attach()
            for index, scratch in enumerate(self._scratch):
                known = self._rings.get((QueueKind.COMPUTE, index))
                if scratch.backing.lane_bytes and known is not None and not known.closed:
                    known.queue.set_scratch(scratch.backing)
            self._fault = None
            try:
                self._uploader.prove(self._prove_s)
            except BringUpError as error:
                self._fault = before
                raise BringUpError(
                    f"{self.name} has new queues, and they do not run: {error}\n"
                    "hint: Linux keeps a process off the GPU after a page fault until it ends: start another"
                ) from None
            except BaseException:
                self._fault = before
                raise
            self._launched.clear()

    def rings(self) -> list[AnyRing]:
        """Return the rings that are open, the driver's own first."""
        uploader: Uploader | None = getattr(self, "_uploader", None)
        own = [uploader.ring] if uploader else []
        return [*own, *(ring for ring in tuple(self._rings.values()) if not ring.closed)]

    def close(self) -> None:
        """Destroy the queues and release everything; idempotent."""
        with self._lock:
            self._closed = True
            self._undo.close()

    def _close_rings(self) -> None:
        with contextlib.ExitStack() as stack:
            for ring in self._rings.values():
                stack.callback(ring.close)
