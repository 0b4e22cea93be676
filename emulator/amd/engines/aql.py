"""The engine of an AQL compute queue: kernel launches on all XCCs, barriers, and PM4 that every XCC executes.

A packet with a barrier bit waits for all earlier work of the queue. A packet without it begins while earlier
packets run. Each packet is set to INVALID after its fetch.

Not here: PM4 (`pm4`), launches (`dispatch`, `kernels`). Next: `dispatch`. Source: docs/sources-amd.md, AQL.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import (
    PACKET_WORDS,
    PACKETS,
    READ_DISPATCH_ID_FIELD_BASE,
    VENDOR_PACKETS,
    BarrierAnd,
    BarrierOr,
    BarrierValue,
    BarrierValueCondition,
    FenceScope,
    Header,
    Inactive,
    KernelDispatch,
    Pm4Ib,
    Queue,
    QueueProperties,
    ScratchDescriptor,
    Signal,
    Type,
)
from drivers.amd.layouts.code import DESCRIPTOR_ALIGN, USER_SGPRS, Descriptor, Preload, Properties
from drivers.amd.layouts.events import END_OF_PIPE_CONTEXT_BITS, QueueException
from drivers.amd.layouts.pm4 import Function, IndirectBuffer
from drivers.amd.layouts.registers import RSRC1, RSRC2, TMPRING
from emulator.amd.engines.dispatch import (
    Dim3,
    DispatchLaunch,
    check_arguments_place,
    check_block,
    check_grid,
    check_scratch,
    waves_of_scratch,
    whole_and_rest,
)
from emulator.amd.engines.maintenance import of_scopes
from emulator.amd.engines.order import Sort, once
from emulator.amd.engines.packets import PacketWait, decode, length, stores, wide
from emulator.amd.engines.pm4 import Pm4
from emulator.amd.reports import (
    QueueFault,
    check,
    code_fault,
    dispatch_fault,
    host_fault,
    packet_fault,
    register_fault,
    size_fault,
    unsupported,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emulator.amd.engines.bus import Bus
    from emulator.amd.engines.kernels import Kernels
    from emulator.amd.engines.order import Flight, Flights
    from emulator.amd.engines.packets import StorePromise
    from emulator.amd.engines.ring import PacketRing
    from hcq.layout import BitStruct

_HEADER: Final = 0xFFFF
"""The header's bits in the first dword of a packet."""
_CONDITIONS: Final = {
    BarrierValueCondition.EQ: Function.EQ,
    BarrierValueCondition.NE: Function.NE,
    BarrierValueCondition.LT: Function.LT,
    BarrierValueCondition.GTE: Function.GE,
}
"""Condition of BARRIER_VALUE -> compare of `packets.COMPARES`."""
INACTIVE: Final = {
    QueueException.PACKET_DISPATCH_DIM_INVALID: Inactive.DIMENSIONS,
    QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID: Inactive.GROUP_SEGMENT,
    QueueException.PACKET_DISPATCH_CODE_INVALID: Inactive.CODE,
    QueueException.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID: Inactive.WORKGROUP,
    QueueException.PACKET_DISPATCH_REGISTER_INVALID: Inactive.VGPRS,
    QueueException.PACKET_VENDOR_UNSUPPORTED: Inactive.VENDOR_PACKET,
    QueueException.PACKET_UNSUPPORTED: Inactive.FORMAT,
    QueueException.PACKET_RESERVED: Inactive.FORMAT,
    QueueException.WAVE_ILLEGAL_INSTRUCTION: Inactive.ILLEGAL_INSTRUCTION,
    QueueException.WAVE_TRAP: Inactive.TRAP,
}
"""Exception -> the value that the firmware stores to queue_inactive_signal; FORMAT for all others."""


class Aql:
    """The engine of one AQL queue (`emulator.amd.engines.engines.PacketEngine`)."""

    def __init__(self, bus: Bus, flights: Flights, kernels: Kernels, ring: PacketRing) -> None:
        self._bus, self._flights, self._kernels, self._ring = bus, flights, kernels, ring
        xccs = bus.gpu.profile.xccs
        self._cores = [Pm4(bus, flights, kernels, xcc=n, xccs=xccs) for n in range(xccs)]
        self._running: tuple[BitStruct, str] | None = None
        """The packet whose PM4 the XCCs execute, and its name; None if they execute none."""
        self._waits: list[PacketWait] = []
        """The signals that the current barrier packet waits for."""
        self._any = False
        """Whether one of these signals ends the wait; else all must."""
        self._barrier: BitStruct | None = None
        """The barrier packet that the queue waits at; None for none."""
        self._unordered: dict[type[BitStruct], str] = {}
        """Class of a packet -> name of the last packet of the class since the last barrier bit."""
        self._at = ""

    @property
    def at(self) -> str:
        inner = next((core.at for core in self._cores if core.active), "")
        return f"{inner} of {self._at}" if inner else self._at

    @property
    def active(self) -> bool:
        return bool(self._ring.left or self._running or self._barrier)

    unfinished = active

    def waits(self) -> list[PacketWait]:
        return self._waits or [core.waiting for core in self._cores if core.waiting is not None]

    def can_advance(self) -> bool:
        if self._barrier is not None:
            return self._open()
        if self._running is not None:
            active = [core for core in self._cores if core.active]
            return not active or any(core.can_advance() for core in active)
        if not self._ring.left:
            return False
        head = self._ring.peek() & _HEADER
        if head & 0xFF == Type.INVALID:
            return False
        return not head >> 8 & 1 or not self._flights.all

    def advance(self) -> None:
        """Do one thing: execute a packet, or a step of one XCC.

        An error is first stored to queue_inactive_signal, then raised: `QueueFault` or `MemoryFault`.
        """
        try:
            self._advance()
        except QueueFault as fault:
            self._give_up(fault)
            raise

    def _advance(self) -> None:
        """End the wait of a barrier packet, step one XCC at random, or fetch a packet."""
        if self._barrier is not None:
            for wait in self._waits:
                if wait.satisfied(self._bus.load(wait.va, 8, wait.name)):
                    self._bus.on_wait_end(wait)
            packet, self._barrier, self._waits = self._barrier, None, []
            self._complete(packet)
        elif self._running is not None:
            ready = [core for core in self._cores if core.active and core.can_advance()]
            if ready:
                self._bus.machine.rng.choice(ready).advance()
            if not any(core.active for core in self._cores):
                packet, self._running = self._running[0], None
                self._complete(packet, after_all=tuple(Sort))
        else:
            self._fetch()

    def _give_up(self, fault: QueueFault) -> None:
        """Store the reason of a fault to queue_inactive_signal, if the queue has one, as firmware does."""
        signal = self._queue().queue_inactive_signal
        if signal:
            value = int(INACTIVE.get(fault.exception, Inactive.FORMAT))
            self._bus.store(signal + Signal.offset_of("value"), value, 8, "queue_inactive_signal")

    def _queue(self) -> Queue:
        """Return amd_queue_t as memory has it now."""
        va = self._queue_va()
        return Queue.from_bytes(self._bus.read(va, Queue.SIZE, "amd_queue_t"))

    def _queue_va(self) -> int:
        """Return the address of amd_queue_t: the read index's, less the offset in the field after it."""
        rptr, field = self._bus.queue.rptr_va, Queue.offset_of("read_dispatch_id_field_base_byte_offset")
        offset = self._bus.load(rptr + field - READ_DISPATCH_ID_FIELD_BASE, 4, "amd_queue_t")
        if offset != READ_DISPATCH_ID_FIELD_BASE:
            raise host_fault(
                f"read_dispatch_id_field_base_byte_offset, after the read index at {rptr:#x}, is {offset}, "
                f"wanted {READ_DISPATCH_ID_FIELD_BASE}: firmware finds amd_queue_t by it"
            )
        return rptr - offset

    def _fetch(self) -> None:
        """Fetch, check and execute a packet after its acquire fence; then set it to INVALID in memory."""
        place = self._ring.fetched % self._ring.words
        va = self._bus.queue.ring_va + 4 * place
        words = self._ring.take(PACKET_WORDS, checked=self._ring.head(1)[0] & 0xFF != Type.INVALID)
        kind = words[0] & 0xFF
        self._at = f"packet {place // PACKET_WORDS}"
        self._queue_va()
        layout = PACKETS.get(kind)
        if kind == Type.VENDOR_SPECIFIC:
            layout = VENDOR_PACKETS.get(words[0] >> 16)
            if layout is None:
                raise packet_fault(
                    f"vendor packet of format {words[0] >> 16}", QueueException.PACKET_VENDOR_UNSUPPORTED
                )
        if layout is None:
            named = Type(kind).name if kind in set(Type) else f"{kind:#x}"
            raise packet_fault(f"packet of type {named}", QueueException.PACKET_UNSUPPORTED)
        packet = layout.from_words(words)
        self._at = f"{layout.__name__} in packet {place // PACKET_WORDS}"
        check(packet, layout.__name__)
        for scope in ("ACQUIRE_SCOPE", "RELEASE_SCOPE"):
            if getattr(packet, scope) is FenceScope.NONE:
                self._bus.lint(f"{layout.__name__} with {scope} NONE: caches are left as they are")
        if Header.from_int(words[0] & _HEADER).BARRIER:
            self._bus.on_wait_all(tuple(Sort))
            self._unordered.clear()
        self._check_order(packet)
        self._bus.maintain(of_scopes(packet)[0])
        self._execute(packet, words, va)
        self._bus.store(va, words[0] & ~_HEADER | Type.INVALID, 4, "the header of a packet that was taken")

    def _check_order(self, packet: BitStruct) -> None:
        """Report a packet that no barrier bit orders after earlier PM4, or PM4 not ordered after a kernel."""
        if not isinstance(packet, KernelDispatch | Pm4Ib):
            return
        pm4, kernel = self._unordered.get(Pm4Ib), self._unordered.get(KernelDispatch)
        if pm4:
            self._bus.report_unverified(
                f"{self._at} without a barrier bit after {pm4}: it may begin before the waits and acquires "
                "there are complete"
            )
        if kernel and isinstance(packet, Pm4Ib):
            self._bus.report_unverified(
                f"{self._at} without a barrier bit after {kernel}: a release there does not wait for the "
                "other XCCs"
            )
        self._unordered[type(packet)] = self._at

    def _execute(self, packet: BitStruct, words: list[int], va: int) -> None:
        """Launch a kernel, start PM4, or begin the waits of a barrier; other packets are not emulated."""
        if isinstance(packet, KernelDispatch):
            self._dispatch(packet, va)
        elif isinstance(packet, Pm4Ib):
            self._buffer(packet, words)
        elif isinstance(packet, BarrierAnd):
            value = Signal.offset_of("value")
            self._waits = [
                PacketWait(type(packet).__name__, signal + value, 0, Function.EQ, 64)
                for signal in packet.DEP_SIGNAL
                if signal
            ]
            self._any, self._barrier = isinstance(packet, BarrierOr), packet
        elif isinstance(packet, BarrierValue):
            va = packet.SIGNAL + Signal.offset_of("value")
            function = _CONDITIONS[packet.CONDITION]
            self._waits = [PacketWait("BARRIER_VALUE", va, packet.VALUE, function, 64, packet.MASK)]
            if self._waits[0].vain:
                self._bus.waits_for_nothing(self._waits[0])
            self._any, self._barrier = False, packet
        else:
            raise unsupported(f"{self._at} is not emulated")

    def _open(self) -> bool:
        """Return whether the barrier packet's wait is over."""
        done = (one.satisfied(self._bus.load(one.va, 8, one.name)) for one in self._waits)
        return not self._waits or (any(done) if self._any else all(done))

    def _buffer(self, packet: Pm4Ib, words: list[int]) -> None:
        """Let every XCC execute the indirect buffer of a PM4_IB packet."""
        inner = words[1 : 1 + IndirectBuffer.WORDS]
        if length(inner[0]) != IndirectBuffer.WORDS:
            raise packet_fault(
                f"a PM4_IB packet whose dword 1 is {inner[0]:#010x}, no INDIRECT_BUFFER",
                QueueException.PACKET_VENDOR_UNSUPPORTED,
            )
        ib = decode(inner, self._cores[0].generation)
        if not isinstance(ib, IndirectBuffer) or not ib.VALID or ib.CHAIN or ib.VMID:
            raise packet_fault(
                f"a PM4_IB packet with {ib!r}: wanted INDIRECT_BUFFER with VALID only",
                QueueException.PACKET_VENDOR_UNSUPPORTED,
            )
        for core in self._cores:
            core.run_buffer(wide(ib.ADDRESS_LO, ib.ADDRESS_HI), ib.IB_SIZE)
        self._running = (packet, self._at)

    def _dispatch(self, packet: KernelDispatch, va: int) -> None:
        started = self._bus.clock()
        launch = self._launch(packet, va)
        flight = self._flights.begin(Sort.KERNEL, self._at, self._kernels.begin(self._bus, launch))
        self._complete(packet, (flight,), started=started)

    def _complete(
        self,
        packet: BitStruct,
        after: Iterable[Flight] = (),
        *,
        after_all: tuple[Sort, ...] = (),
        started: int = 0,
    ) -> None:
        """Put a packet's release fence and completion signal in flight; the order as for `Flights.begin`.

        `started` is the clock at the packet's start; 0 takes the clock at the completion.
        """
        signal = int(getattr(packet, "COMPLETION_SIGNAL", 0))
        fence = of_scopes(packet)[1]

        def act() -> None:
            self._bus.maintain(fence)
            if signal:
                self._completed(signal, started or self._bus.clock())

        if signal or (fence and self._bus.order is not None):
            self._flights.begin(Sort.RELEASE, self._at, once(act), after=after, after_all=after_all)

    def _completed(self, signal: int, started: int) -> None:
        """Decrement a completion signal; store timestamps if the queue profiles; raise its event, if any."""
        what = "a completion signal"
        if signal % Signal.SIZE:
            raise packet_fault(f"{what} at {signal:#x} is not aligned to {Signal.SIZE} bytes")
        known = Signal.from_bytes(self._bus.read(signal, Signal.SIZE, what))
        properties = QueueProperties.from_int(self._queue().queue_properties)
        if properties.ENABLE_PROFILING:
            self._bus.store(signal + Signal.offset_of("start_ts"), started, 8, what)
            self._bus.store(signal + Signal.offset_of("end_ts"), self._bus.clock(), 8, what)
        self._bus.store(signal + Signal.offset_of("value"), known.value - 1, 8, what)
        if known.event_mailbox_ptr:
            self._bus.store(known.event_mailbox_ptr, known.event_id, 8, what)
            self._bus.interrupt(known.event_id, END_OF_PIPE_CONTEXT_BITS)

    def _launch(self, packet: KernelDispatch, va: int) -> DispatchLaunch:
        """Return the launch that a kernel-dispatch packet and the kernel's descriptor describe.

        `va` is the packet's address. Raises `QueueFault` if they contradict each other or the queue's
        scratch.
        """
        bus, target = self._bus, self._bus.gpu.profile.target
        where, what = packet.KERNEL_OBJECT, "the fetch of a kernel descriptor"
        if where % DESCRIPTOR_ALIGN or not where:
            raise code_fault(f"kernel_object {where:#x} is not aligned to {DESCRIPTOR_ALIGN} bytes")
        descriptor = Descriptor.from_bytes(bus.read(where, Descriptor.SIZE, what))
        if descriptor.check():
            raise code_fault(f"the descriptor at {where:#x}: {'; '.join(map(str, descriptor.check()))}")
        groups, block, last = _dimensions(bus, packet)
        if descriptor.group_segment_fixed_size > packet.GROUP_SEGMENT_SIZE:
            raise dispatch_fault(
                f"group_segment_size {packet.GROUP_SEGMENT_SIZE}, the kernel has "
                f"{descriptor.group_segment_fixed_size}",
                QueueException.PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID,
            )
        if descriptor.private_segment_fixed_size > packet.PRIVATE_SEGMENT_SIZE:
            raise register_fault(
                f"private_segment_size {packet.PRIVATE_SEGMENT_SIZE}, the kernel has "
                f"{descriptor.private_segment_fixed_size}"
            )
        generation = int(target.generation)
        properties = Properties.from_int(descriptor.kernel_code_properties)
        rsrc2 = RSRC2[generation].from_int(descriptor.compute_pgm_rsrc2)
        granule = target.lds_granule
        return DispatchLaunch(
            code=where + descriptor.kernel_code_entry_byte_offset,
            rsrc1=RSRC1[generation].from_int(descriptor.compute_pgm_rsrc1),
            rsrc2=rsrc2,
            rsrc3=descriptor.compute_pgm_rsrc3,
            user_data=self._user_data(packet, va, descriptor, properties, rsrc2.USER_SGPR),
            groups=groups,
            block=block,
            last=last,
            lanes=32 if properties.WAVEFRONT_SIZE32 else 64,
            lds_bytes=-(-packet.GROUP_SEGMENT_SIZE // granule) * granule,
            scratch_bytes=self._scratch(packet) if rsrc2.SCRATCH_EN else 0,
        )

    def _scratch(self, packet: KernelDispatch) -> int:
        """Return the scratch bytes of a lane, after checks of the queue's scratch memory."""
        queue = self._queue()
        if queue.scratch_wave64_lane_byte_size < packet.PRIVATE_SEGMENT_SIZE:
            raise register_fault(
                f"private_segment_size {packet.PRIVATE_SEGMENT_SIZE}, the queue has "
                f"{queue.scratch_wave64_lane_byte_size} bytes of scratch a lane"
            )
        if self._bus.machine.rejections.refuses("AQL queue", queue):
            raise register_fault(
                "this machine takes no size of scratch in amd_queue_t, saw "
                f"{queue.scratch_backing_memory_byte_size} bytes (quirk aql_scratch)"
            )
        size = TMPRING[int(self._bus.gpu.profile.target.generation)].from_int(queue.compute_tmpring_size)
        waves, bytes_of_wave = waves_of_scratch(self._bus, size)
        said = ScratchDescriptor.from_words(queue.scratch_resource_descriptor).BYTES
        if said < waves * bytes_of_wave:
            raise register_fault(
                f"compute_tmpring_size reserves {waves} waves of {bytes_of_wave} bytes on an XCC, "
                f"scratch_resource_descriptor has {said} bytes of it"
            )
        xccs = len(self._cores)
        place, what = queue.scratch_backing_memory_location, f"scratch of {xccs} XCCs, {said} bytes each,"
        check_scratch(self._bus, place, said * xccs, what)
        return packet.PRIVATE_SEGMENT_SIZE

    def _user_data(
        self, packet: KernelDispatch, va: int, descriptor: Descriptor, properties: Properties, count: int
    ) -> tuple[int | None, ...]:
        """Return `count` user SGPRs, in the order of `USER_SGPRS`; None for those that nothing sets."""
        queue = self._queue()
        place = queue.scratch_backing_memory_location
        values = {
            "PRIVATE_SEGMENT_BUFFER": queue.scratch_resource_descriptor,
            "DISPATCH_PTR": _halves(va),
            "QUEUE_PTR": _halves(self._queue_va()),
            "KERNARG_SEGMENT_PTR": _halves(packet.KERNARG_ADDRESS),
            "DISPATCH_ID": _halves(self._ring.fetched // PACKET_WORDS - 1),
            "FLAT_SCRATCH_INIT": _halves(place),
            "PRIVATE_SEGMENT_SIZE": (packet.PRIVATE_SEGMENT_SIZE,),
        }
        if properties.KERNARG_SEGMENT_PTR:
            check_arguments_place(self._bus, packet.KERNARG_ADDRESS)
        preload = Preload.from_int(descriptor.kernarg_preload)
        out: list[int | None] = []
        for name, _ in USER_SGPRS:
            if name == "PRIVATE_SEGMENT_SIZE" and preload.LENGTH:
                at = packet.KERNARG_ADDRESS + 4 * preload.OFFSET
                out += self._bus.words(at, preload.LENGTH, "preloaded kernel arguments")
            if getattr(properties, name):
                out += values[name]
        return tuple((out + [None] * count)[:count])

    def ahead(self) -> Iterator[StorePromise]:
        for core in self._cores:
            yield from core.ahead()
        words = self._ring.ahead()
        for at in range(0, len(words), PACKET_WORDS):
            if words[at] == Type.VENDOR_SPECIFIC | 1 << 16 | words[at] & 0xFF00:
                yield from stores(self._bus, words[at + 1 : at + 1 + IndirectBuffer.WORDS], 9)


def _halves(value: int) -> tuple[int, int]:
    return value & 0xFFFF_FFFF, value >> 32


def _dimensions(bus: Bus, packet: KernelDispatch) -> tuple[Dim3, Dim3, Dim3]:
    """Return, for each axis, the number of workgroups, their work-items, and those of the last workgroup."""
    block = (packet.WORKGROUP_SIZE_X, packet.WORKGROUP_SIZE_Y, packet.WORKGROUP_SIZE_Z)
    grid = (packet.GRID_SIZE_X, packet.GRID_SIZE_Y, packet.GRID_SIZE_Z)
    if not 1 <= packet.DIMENSIONS <= 3 or any(
        value != 1 for value in (*block[packet.DIMENSIONS :], *grid[packet.DIMENSIONS :])
    ):
        raise size_fault(
            f"{packet.DIMENSIONS} dimensions, a grid of {grid} work-items in workgroups of {block}: sizes "
            "beyond the dimensions are 1"
        )
    check_block(block, grid)
    if any(size > items for size, items in zip(block, grid, strict=True)):
        bus.report_unverified(
            f"workgroups of {block} in a grid of {grid} work-items: a grid is not smaller than a workgroup "
            "(hsa.h, grid_size_x)"
        )
    groups, last = whole_and_rest(grid, block)
    check_grid(bus, groups)
    return groups, block, last
