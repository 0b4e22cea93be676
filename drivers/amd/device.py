"""An open AMD GPU: the implementation of `hcq.driver.DriverDevice` from the parts of this folder.

Opening a device initialises it up to the driver's own copy queue; compute and copy rings are created on first
use. If a step fails, the steps before it are undone. One lock guards memory, programs and faults, and each
queue locks its ring.

Not here: choosing a GPU (`driver`), memory of the host and of other GPUs (`shared_memory`), rings, encoders
and scratch memory (`rings`), fault reports (`faults`). Next: `rings`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from drivers.amd import code, context, faults, topology
from drivers.amd.context import InterruptEvent
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.events import Events
from drivers.amd.layouts.chips import Generation, by_version
from drivers.amd.layouts.drm import IDS_FLAGS_FUSION
from drivers.amd.layouts.events import kfd_hsa_hw_exception_data, kfd_hsa_memory_exception_data
from drivers.amd.memory import AmdMemories, AmdMemory
from drivers.amd.process import AmdProcess
from drivers.amd.program import AmdProgram
from drivers.amd.queues import Doorbells, Packets, QueueFacts
from drivers.amd.quirks import DEFAULT, AmdQuirks
from drivers.amd.rings import AnyEncoder, AnyRing, Rings
from drivers.amd.shared_memory import AmdSharedMemory
from drivers.amd.topology import AmdGpu
from drivers.kernel import PAGE, tracker_of, view_at
from drivers.shared.driver import no_priority, not_shared
from drivers.shared.uploader import MEMORY_BYTES, Uploader
from hcq.counters import Counters
from hcq.driver import Allocation, BufferSpec, DriverDevice, Place, QueueKind
from hcq.errors import BringUpError, DriverError, FaultReport, UnsupportedError, UsageError
from hcq.idle import Standstill
from hcq.profile import Clock, tie
from hcq.program import DriverProgram, KernelImage

PROVE_S: Final = 2.0
"""Seconds that a recovered GPU may take to run its first packet."""
_SPIN_S: Final = 50e-6
_MES_SINCE: Final = Generation.GFX11
"""The first generation whose queues the firmware MES schedules (kfd_device.c)."""


class AmdDevice:
    """An open GPU; see `hcq.driver.DriverDevice` for the methods' contracts.

    `others` are all GPUs of the process (`AmdProcess.enable_runtime`). `ring_bytes` is the size of each ring;
    0 selects the size of `queues.RING_BYTES`. `released` is called when the device is closed or cannot be
    opened. `emulated`: the GPU's engines are threads of this process, so the driver's own waits time out when
    these threads stand still. Raises `UnsupportedError`, `DriverError` or `BringUpError` if the GPU cannot be
    opened.
    """

    def __init__(
        self,
        process: AmdProcess,
        gpu: AmdGpu,
        *,
        driver: str,
        index: int,
        choices: AmdQuirks = DEFAULT,
        ring_bytes: int = 0,
        others: Sequence[AmdGpu] = (),
        released: Callable[[], None] = lambda: None,
        emulated: bool = False,
    ) -> None:
        self.process, self.gpu, self.choices = process, gpu, choices
        self._prove_s = PROVE_S
        # Nothing else of a recovered GPU runs: that another thread works is no reason to wait on.
        self._prove_clock = partial(Standstill, busy=lambda: False) if emulated else None
        self._lock = threading.RLock()
        self._fault: FaultReport | None = None
        self._lost = False
        """Whether the whole GPU was reset: then only a new process can use it."""
        self._closed = False
        self._programs: list[AmdProgram] = []
        self._names: dict[int, str] = {}
        """Address of a kernel's code -> its name, of all kernels that were ever loaded."""
        self._undo = contextlib.ExitStack()
        self.name = f"{driver}:{index}"
        with contextlib.ExitStack() as stack:
            stack.callback(released)
            self.target = by_version(gpu.version).open_or_refuse()
            self.geometry = gpu.geometry()
            drm_fd = process.acquire(gpu)
            process.check_space(gpu)
            process.enable_runtime(others, reports=choices.runtime == "enable")
            facts = topology.ask(process.kernel, drm_fd)
            self._hz = facts.gpu_counter_freq * 1000
            self.apu = bool(facts.ids_flags & IDS_FLAGS_FUSION)
            extra = process.kfd.available(gpu.gpu_id) if self.apu else 0
            self.info = topology.info(driver, index, gpu, self.target, apu=self.apu, vram=extra)
            """Name, memory, limits and capabilities of the device."""
            self.memories = AmdMemories(
                process.kfd,
                process.space,
                gpu_id=gpu.gpu_id,
                drm_fd=drm_fd,
                name=self.name,
                visible_bytes=gpu.visible_bytes,
                apu=self.apu,
                uncached=choices.system_uncached,
            )
            stack.callback(self.memories.close)
            self._events = Events(process, self.memories)
            stack.callback(self._events.close)
            doorbells = Doorbells(process.kfd)
            stack.callback(doorbells.close)
            self._rings = Rings(
                process.kfd,
                self.memories,
                doorbells,
                self._facts(),
                InterruptEvent(slot_va=self._events.slot_va, number=self._events.signal),
                name=self.name,
                lock=self._lock,
                ring_bytes=ring_bytes,
                fault=self.fault,
                reports=process.unfinished,
            )
            self._uploader = self._new_uploader(emulated=emulated)
            stack.callback(self._uploader.close)
            stack.callback(self._rings.close)
            self._shared = AmdSharedMemory(process, gpu, name=self.name)
            stack.callback(self._shared.close)
            self._undo = stack.pop_all()

    def _facts(self) -> QueueFacts:
        return QueueFacts(
            gpu_id=self.gpu.gpu_id,
            target=self.target,
            geometry=self.geometry,
            areas=context.of(self.gpu, self.target, self.geometry, self.process.kfd, self.choices),
            mes=self.target.generation >= _MES_SINCE,
            event=self._events.signal,
            choices=self.choices,
        )

    def _new_uploader(self, *, emulated: bool) -> Uploader:
        ring = self._rings.service()
        try:
            return Uploader(
                ring,
                self.memories.system(MEMORY_BYTES, label="staging memory", zeroed=False),
                self.memories.free,
                self.fault,
                SdmaEncoder(self._rings.context()).uploads(),
                emulated=emulated,
            )
        except BaseException:
            ring.close()
            raise

    @property
    def compute_packets(self) -> Packets:
        """The packet format of compute queues (`Rings.compute_packets`)."""
        return self._rings.compute_packets

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate pages; see `hcq.driver.DriverDevice`. Host memory is zeroed, video memory is not."""
        with self._lock:
            if spec.place is Place.HOST or spec.coherent:
                memory = self.memories.system(size, label=f"{size} bytes of host memory")
            else:
                label = f"{size} bytes of video memory"
                memory = self.memories.vram(size, label=label, host_visible=spec.host_visible)
        return Allocation(memory.va, memory.size, memory.view, memory, tracker_of(self.process.kernel))

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Free an allocation. Raises `UsageError` if it is from another device or already freed."""
        memory = allocation.handle
        with self._lock:
            if not isinstance(memory, AmdMemory) or memory not in self.memories.map:
                raise UsageError(f"{allocation!r} was not allocated by {self.name}")
            self.memories.free(memory, keep_host=keep_host)

    def map_host(self, va: int, size: int) -> None:
        """Map whole pages of host memory for the device, at the same address.

        Raises `UsageError` if the range is not whole pages, or is mapped with another size; `DriverError` or
        `OutOfMemoryError` if the kernel driver refuses it.
        """
        if va % PAGE or size % PAGE:
            raise UsageError(f"host memory at {va:#x}, {size} bytes, is not whole pages of {PAGE}")
        with self._lock:
            self._shared.map_host(va, size)

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`. Raises `UsageError` if `map_host` did not map the range."""
        with self._lock:
            self._shared.unmap_host(va, size)

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Map another GPU's allocation at the same address.

        Raises `UnsupportedError` for a device that is no AMD GPU of this process, or if no link allows it,
        `UsageError` if `owner` did not allocate it.
        """
        memory = allocation.handle
        if not isinstance(owner, AmdDevice) or owner.process is not self.process:
            raise UnsupportedError(
                f"{self.name} cannot see memory of {owner.info.driver}:{owner.info.index}: only AMD GPUs of "
                "one process share memory\nhint: copy through host memory"
            )
        if not isinstance(memory, AmdMemory):
            raise UsageError(f"{allocation!r} was not allocated by {owner.name}")
        with owner._lock:  # noqa: SLF001 - of this class
            self._shared.map_peer(memory, owner.memories, owner.gpu, owner.name)

    def export(self, allocation: Allocation) -> int:
        """Raise `UnsupportedError`: dma-bufs are not implemented."""
        del allocation
        raise not_shared(self.name, "dma-bufs of KFD are not implemented")

    def adopt(self, fd: int) -> Allocation:
        """Raise `UnsupportedError`, as `export` does."""
        raise not_shared(self.name, f"a dma-buf, {fd}, cannot be imported")

    def ring(self, kind: QueueKind, index: int) -> AnyRing:
        """Return the ring of a queue, created on first use. Raises `UsageError` if there is no such queue."""
        return self._rings.ring(kind, index)

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Set the priority of a compute queue; see `hcq.driver.DriverDevice.set_priority`."""
        if kind is not QueueKind.COMPUTE:
            raise no_priority(f"{kind.value} queues of {self.name}", "the kernel orders compute queues alone")
        with self._lock:
            self.ring(kind, index).queue.set_priority(level)

    def encoder(self, kind: QueueKind, index: int) -> AnyEncoder:
        """Return the encoder of a queue, created on first use."""
        return self._rings.encoder(kind, index)

    def load(self, image: KernelImage) -> AmdProgram:
        """Upload a code object, relocated for its address; see `hcq.driver.DriverDevice`.

        Raises as `code.read` and `AmdProgram` do, `OutOfMemoryError` if there is no memory for code or
        scratch, `DeviceFault` or `BringUpError` if the upload does not finish.
        """
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
            self._rings.need_scratch(program.scratch_bytes)
            self._uploader.upload(memory.va, found.load(memory.va))
            self._rings.code_loaded()
            self._programs.append(program)
            self._names[program.what.entry_va] = image.name
            stack.pop_all()
        return program

    def unload(self, program: DriverProgram) -> None:
        """Free a program's image. Raises `UsageError` if it is from another device or already unloaded."""
        with self._lock:
            if not isinstance(program, AmdProgram) or program not in self._programs:
                raise UsageError(f"{program!r} was not loaded by {self.name}")
            self._programs.remove(program)
            memory = program.handle
            assert isinstance(memory, AmdMemory), "load sets it"
            self.memories.free(memory)

    def clock(self) -> Clock:
        """Return the relation of the GPU's clock counter to the host's clock.

        Raises as `Kfd.clock_counters`.
        """
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
                # An interrupt follows the signal. If it is lost, this wait takes its whole time limit.
                self._events.sleep(max(1, int(1000 * (end - now))))
        return True

    def signal_written(self, va: int) -> None:
        """Wake the threads that sleep in `wait`, after the host stored to a signal."""
        del va
        if not self._closed:
            self._events.wake()

    def fault(self) -> FaultReport | None:
        """Return the device's fault, or None. A fault is kept until `recover`.

        Without a fault, each call polls the kernel's events and the exceptions of every queue.
        """
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
            scene = self._scene("; ".join(filter(None, (ring.position() for ring in self.rings()))))
            for report in reports:
                if isinstance(report, kfd_hsa_memory_exception_data):
                    return faults.of_memory(scene, report)
            for report in reports:
                if isinstance(report, kfd_hsa_hw_exception_data):
                    return faults.of_reset(scene, report)
        for ring in self.rings():
            queue = ring.queue
            if mask := queue.exceptions[0]:
                return faults.of_queue(self._scene(ring.position()), queue.label, mask)
            if why := queue.inactive[0]:
                return faults.of_inactive(self._scene(ring.position()), queue.label, why)
            if queue.area is None and self.process.reports_on(queue.number):
                return faults.of_copy_queue(self._scene(ring.position()), queue.label)
        return None

    def _scene(self, stuck: str) -> faults.Scene:
        return faults.Scene(
            device=self.name,
            memory=self.memories.map,
            launched=tuple(self._rings.launched),
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
        """Give every ring a new queue and clear the fault; memory, programs and mappings are kept.

        Raises `UnsupportedError` after a reset of the whole GPU, and `BringUpError` if new queues do not run:
        after a page fault the kernel keeps the process off the GPU until the process ends
        (kfd_device_queue_manager.c, kfd_dqm_evict_pasid). Raises `DriverError` if a queue cannot be created,
        `DeviceFault` if the device faults again. Then the device keeps its fault.
        """
        with self._lock:
            if self._lost:
                raise UnsupportedError(
                    f"{self.name} was reset as a whole: this process has lost its memory and queues there\n"
                    "hint: start a new process"
                )
            before = self._fault
            self._rings.stop()
            self._events.forget()
            self._rings.start()
            self._fault = None
            try:
                self._uploader.run((), self._prove_s, self._prove_clock)
            except BringUpError as error:
                self._fault = before
                raise BringUpError(
                    f"{self.name} has new queues, and they do not run: {error}\n"
                    "hint: Linux keeps a process off the GPU after a page fault until it ends: start another"
                ) from None
            except BaseException:
                self._fault = before
                raise
            self._rings.launched.clear()

    def rings(self) -> list[AnyRing]:
        """Return the open rings, the driver's own first."""
        return self._rings.open()

    def close(self) -> None:
        """Destroy the queues and free all resources; idempotent. Raises the first error of a step."""
        with self._lock:
            self._closed = True
            try:
                self._undo.close()
            except DriverError as last:
                first = last  # the later steps failed because of the first one
                while isinstance(first.__context__, DriverError) and not first.__suppress_context__:
                    first = first.__context__
                raise first from None
