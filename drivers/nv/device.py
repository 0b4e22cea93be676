"""An open NVIDIA GPU: the implementation of `hcq.driver.DriverDevice` from the parts of this folder.

Opening a device initialises it up to the driver's own copy channel; compute and copy rings are created on
first use. If a step fails, the steps before it are undone. One lock guards memory, programs and faults,
a second lock guards reading error notifiers, and each queue locks its ring.

Not here: the steps themselves (`rm`, `topology`, `channel`, `program`), choosing a GPU (`driver`), memory of
the host and of other GPUs (`shared_memory`). Next: `ring`, a queue's ring.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import Final

from drivers.kernel import PAGE, Kernel, tracker_of, view_at
from drivers.nv import cubin, push
from drivers.nv import faults as faults_
from drivers.nv.channel import Channel, ChannelContext, ChannelKind
from drivers.nv.doorbell import Doorbell
from drivers.nv.encode import NvEncoder
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.memory import NvMemories, NvMemory
from drivers.nv.program import NvProgram
from drivers.nv.quirks import DEFAULT, NvQuirks
from drivers.nv.ring import PUSH_BYTES, PUSH_BYTES_PER_ENTRY, NvRing
from drivers.nv.rm import Card, Rm
from drivers.nv.shared_memory import NvSharedMemory
from drivers.nv.slm import LocalMemory
from drivers.nv.space import open_space
from drivers.nv.topology import Handles, NvGpu, open_objects, query_gpu
from drivers.nv.vaspace import NvVaSpace
from drivers.shared.driver import check_queue, no_priority, not_shared
from drivers.shared.uploader import MEMORY_BYTES, Uploader
from hcq.counters import Counters
from hcq.driver import Allocation, BufferSpec, DriverDevice, Place, QueueKind
from hcq.errors import FaultKind, FaultReport, UnsupportedError, UsageError
from hcq.profile import Clock, tie
from hcq.program import DriverProgram, KernelImage

_SPIN_S: Final = 50e-6
_NAPS_S: Final = (0.0, 20e-6, 50e-6, 100e-6, 200e-6)


class NvDevice:
    """An open GPU; see `hcq.driver.DriverDevice` for the methods' contracts.

    `kernel` stays the caller's. `ring_bytes` is the size of the push-buffer memory of each ring; 0 selects
    `ring.PUSH_BYTES`. `emulated`: the GPU's engines are threads of this process, so the driver's own waits
    time out when these threads stand still. Raises `UnsupportedError`, `DriverError` or `BringUpError` if the
    GPU cannot be opened.
    """

    def __init__(
        self,
        kernel: Kernel,
        card: Card,
        *,
        driver: str,
        index: int,
        choices: NvQuirks = DEFAULT,
        ring_bytes: int = 0,
        emulated: bool = False,
    ) -> None:
        self.choices = choices
        self._push_bytes = ring_bytes or PUSH_BYTES
        self._lock = threading.RLock()
        self._notifiers = threading.Lock()
        """Held while error notifiers are read without `_lock`, and while they are freed; always taken
        last."""
        self._fault: FaultReport | None = None
        self._rings: dict[tuple[QueueKind, int], NvRing] = {}
        self._programs: list[NvProgram] = []
        self._launched: deque[str] = deque(maxlen=8)
        self._code_epoch = 1
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.rm = Rm(kernel)
            stack.callback(self.rm.close)
            self.rm.open_gpu(card.minor)
            self.handles: Handles = open_objects(self.rm, card)
            self.gpu: NvGpu = query_gpu(self.rm, self.handles, choices)
            self.info = self.gpu.info(driver, index)
            """Name, memory, limits and capabilities of the device."""
            self.name = f"{driver}:{index}"
            doorbell = Doorbell(self.rm, self.handles, self.gpu, choices)
            stack.callback(doorbell.close)
            self._doorbell = doorbell
            addresses = NvVaSpace(kernel)
            stack.callback(addresses.close)
            vaspace, space = open_space(self.rm, self.gpu, self.handles, choices, stack)
            self.memories = NvMemories(
                self.rm, space, self.handles, addresses, choices, small_bar1=self.gpu.small_bar1
            )
            stack.callback(self.memories.close)
            self.shared = NvSharedMemory(self.rm, self.gpu, self.memories, lock=self._lock, name=self.name)
            self._context = ChannelContext(
                self.rm, space, self.gpu, self.handles, self.memories, vaspace, doorbell.registers, choices
            )
            self._local = LocalMemory(self.gpu, self.memories)
            ring = self._new_ring(ChannelKind.COPY, 0, f"{self.name} service")
            stack.callback(ring.close)
            self._uploader = Uploader(
                ring,
                self.memories.host(MEMORY_BYTES, label="staging memory"),
                self.memories.free,
                self.fault,
                push.UPLOADS,
                emulated=emulated,
            )
            stack.callback(self._uploader.close)
            stack.callback(self._close_rings)
            self._undo = stack.pop_all()

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate zeroed pages; see `hcq.driver.DriverDevice`."""
        with self._lock:
            in_vram = spec.place is Place.VRAM or (
                spec.upload and self.choices.arguments_in_vram and self.memories.spares_bar1(size)
            )
            if not in_vram:
                memory = self.memories.host(size, label=f"{size} bytes of host memory")
            else:
                visible = spec.host_visible or spec.coherent
                memory = self.memories.vram(size, label=f"{size} bytes of video memory", host_visible=visible)
                try:
                    self._uploader.run(push.fill(memory.va, 0, memory.size))
                except BaseException:
                    self.memories.free(memory)
                    raise
        return Allocation(memory.va, memory.size, memory.view, memory, tracker_of(self.rm.kernel))

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Free an allocation. Raises `UsageError` if it is from another driver."""
        memory = allocation.handle
        if not isinstance(memory, NvMemory):
            raise UsageError(f"{allocation!r} was not allocated by {self.name}")
        self.shared.end_lending(memory.va)
        with self._lock:
            self.memories.free(memory, keep_host=keep_host)

    def map_host(self, va: int, size: int) -> None:
        """Map whole pages of host memory for the device, at the same address.

        Raises `UsageError` if the range is not whole pages, `DriverError` if the kernel driver refuses it.
        """
        if va % PAGE or size % PAGE:
            raise UsageError(f"host memory at {va:#x}, {size} bytes, is not whole pages of {PAGE}")
        self.shared.map_host(va, size)

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`. Raises `UsageError` if `map_host` did not map the range."""
        self.shared.unmap_host(va, size)

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Map another GPU's allocation at the same address.

        Raises `UnsupportedError` for a device that is no NVIDIA GPU, or if no link allows it, `UsageError` if
        `owner` did not allocate it.
        """
        memory = allocation.handle
        if not isinstance(owner, NvDevice):
            raise UnsupportedError(
                f"{self.name} cannot map memory of {owner.info.driver}:{owner.info.index}: only NVIDIA GPUs "
                "share memory\nhint: copy through host memory (BufferSpec(place=Place.HOST))"
            )
        if not isinstance(memory, NvMemory):
            raise UsageError(f"{allocation!r} was not allocated by {owner.name}")
        self.shared.map_peer(memory, owner.shared)

    def export(self, allocation: Allocation) -> int:
        """Raise `UnsupportedError`: the arguments of the ioctl are not known here."""
        del allocation
        raise not_shared(self.name, "the arguments of NV_ESC_EXPORT_TO_DMABUF_FD are not known here")

    def adopt(self, fd: int) -> Allocation:
        """Raise `UnsupportedError`, as `export` does."""
        raise not_shared(self.name, f"a descriptor, {fd}, cannot be mapped into an NVIDIA GPU here")

    def ring(self, kind: QueueKind, index: int) -> NvRing:
        """Return the ring of a queue, created on first use. Raises `UsageError` if there is no such queue."""
        check_queue(self.name, kind, index)
        with self._lock:
            ring = self._rings.get((kind, index))
            if ring is None or ring.closed:
                channel = ChannelKind.COMPUTE if kind is QueueKind.COMPUTE else ChannelKind.COPY
                ring = self._new_ring(channel, index, f"{self.name} {kind.value} {index}")
                self._rings[kind, index] = ring
            return ring

    def _new_ring(self, kind: ChannelKind, index: int, label: str) -> NvRing:
        engines = self.gpu.copy_engines
        engine = EngineType.GR0 if kind is ChannelKind.COMPUTE else engines[index % len(engines)]
        channel = self._channel(kind, engine, label)
        try:
            return NvRing(
                channel,
                self.memories,
                setup=self._setup(channel),
                refresh=self._refresh,
                fault=self.fault,
                push_bytes=self._push_bytes,
            )
        except BaseException:
            channel.close()
            raise

    def _channel(self, kind: ChannelKind, engine: int, label: str) -> Channel:
        entries = self._push_bytes // PUSH_BYTES_PER_ENTRY
        return Channel(self._context, kind, engine, label=label, entries=entries)

    def _setup(self, channel: Channel) -> push.Words:
        if channel.kind is ChannelKind.COPY:
            return push.copy_setup(self.gpu)
        copies = not channel.copy_refusal
        return push.compute_setup(self.gpu, self.choices, copies=copies)

    def _refresh(self, ring: NvRing) -> push.Words:
        """Return the words that new code or new local memory requires before a ring's next submission."""
        if ring.code_epoch == self._code_epoch and ring.local_epoch == self._local.epoch:
            return ()
        words: push.Words = ()
        if ring.channel.kind is ChannelKind.COMPUTE:
            if ring.code_epoch != self._code_epoch:
                words += push.new_code()
            if ring.local_epoch != self._local.epoch:
                words += self._local.words(all_sms=self.choices.all_sms)
        ring.code_epoch, ring.local_epoch = self._code_epoch, self._local.epoch
        return words

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Raise `UnsupportedError`: no control for it is known here."""
        del index, level
        raise no_priority(
            f"{kind.value} queues of {self.name}", "no control call that sets one is known here"
        )

    def encoder(self, kind: QueueKind, index: int) -> NvEncoder:
        """Return an encoder for a queue. Raises as `ring` does, which it calls for a compute queue."""
        refusal = ""
        if kind is QueueKind.COMPUTE:
            refusal = self.ring(kind, index).channel.copy_refusal
        return NvEncoder(
            kind,
            self.choices,
            semaphore_va=self.shared.semaphore_va,
            launched=self._launched,
            graphics_copy_refusal=refusal,
        )

    def load(self, image: KernelImage) -> NvProgram:
        """Upload a cubin, relocated for its address; see `hcq.driver.DriverDevice`.

        Raises as `cubin.read`, `cubin.load` and `program.check` do, `OutOfMemoryError` if there is no memory
        for code or local memory, `DeviceFault` or `BringUpError` if the upload does not finish.
        """
        elf, placement, kernel = cubin.read(image.code, image.name)
        with self._lock, contextlib.ExitStack() as stack:
            memory = self.memories.vram(placement.size, label=f"code of {image.name}")
            stack.callback(self.memories.free, memory)
            program = NvProgram(image, kernel, memory, self.gpu, self.choices, self.info)
            self._uploader.upload(memory.va, cubin.load(elf, placement, memory.va))
            self._local.ensure(program.local_bytes)
            self._code_epoch += 1
            for ring in self.rings():
                ring.stale = True
            self._programs.append(program)
            stack.pop_all()
        return program

    def unload(self, program: DriverProgram) -> None:
        """Free a program's image. Raises `UsageError` if it is from another driver."""
        if not isinstance(program, NvProgram):
            raise UsageError(f"{program!r} was not loaded by {self.name}")
        with self._lock:
            self._programs.remove(program)
            self.memories.free(program.memory)

    def clock(self) -> Clock:
        """Return the relation of the GPU's clock, whose nanoseconds releases write, to the host's clock."""
        return tie(self._doorbell.time_ns, 1_000_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Poll a signal slot, for 50 us without sleeping; see `hcq.driver.DriverDevice`."""
        slot = view_at(va, 8).cast("Q")
        end = time.perf_counter() + timeout_s
        eager = min(end, time.perf_counter() + _SPIN_S)
        while time.perf_counter() < eager:
            if slot[0] >= value:
                return True
        nap = 0
        while slot[0] < value:
            if time.perf_counter() >= end:
                return False
            time.sleep(_NAPS_S[nap])
            nap = min(nap + 1, len(_NAPS_S) - 1)
        return True

    def signal_written(self, va: int) -> None:
        """Do nothing: channels and host threads poll memory."""

    def fault(self) -> FaultReport | None:
        """Return the device's fault, or None. A fault is kept until `recover`.

        Without a fault, each call reads every notifier and progress slot, and the GPU's clock register.
        """
        if self._fault is not None:
            return self._fault
        with self._notifiers:
            rings = [ring for ring in self.rings() if not ring.retired]
            if not any(ring.channel.error() or ring.overshot() for ring in rings):
                if rings and self._doorbell.lost():
                    self._fault = faults_.off_the_bus(self.name)
                return self._fault
        with self._lock:
            for ring in self.rings():
                if self._fault is None and not ring.retired:
                    self._fault = self._fault_of(ring)
            return self._fault

    def _fault_of(self, ring: NvRing) -> FaultReport | None:
        notification = ring.channel.error()
        if notification is not None:
            return faults_.report(
                device=self.name,
                rm=self.rm,
                handles=self.handles,
                gpu=self.gpu,
                channel=ring.channel,
                notification=notification,
                memory=self.memories.map,
                programs=tuple(self._programs),
                launched=tuple(self._launched),
                stuck=ring.position(),
            )
        text = ring.overshot()
        if not text:
            return None
        label = ring.channel.label
        return FaultReport(
            device=self.name,
            kind=FaultKind.QUEUE_ERROR,
            message=text,
            queue=label,
            reports=self.rm.kernel.diagnostics(),
        )

    def count(self, into: Counters | None) -> Counters | None:
        """Count what kernels execute; see `hcq.driver.DriverDevice`."""
        return self.rm.kernel.count_kernels(into, self.info.index)

    def recover(self) -> None:
        """Give every ring a new channel and clear the fault; memory, programs and mappings are kept.

        Channels with unfinished work are stopped first. Raises `DriverError` or `OutOfMemoryError` if a new
        channel cannot be created, `BringUpError` if a progress slot holds a wrong number.
        """
        with self._lock:
            with self._notifiers:
                for ring in self.rings():
                    ring.retire()
            for ring in self.rings():
                old = ring.channel
                ring.attach(self._channel(old.kind, old.engine, old.label))
            self._launched.clear()
            self._fault = None

    def rings(self) -> list[NvRing]:
        """Return the open rings, the driver's own first."""
        uploader = getattr(self, "_uploader", None)
        return [*([uploader.ring] if uploader else []), *(r for r in self._rings.values() if not r.closed)]

    def close(self) -> None:
        """Stop the queues and free all resources; idempotent."""
        self.shared.close()  # before the lock is taken: this takes the locks of other GPUs
        with self._lock:
            self._undo.close()

    def _close_rings(self) -> None:
        with contextlib.ExitStack() as stack:
            for ring in self._rings.values():
                stack.callback(ring.close)
