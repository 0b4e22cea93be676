"""PM4: the command processor of one XCC (`Pm4`), and the engine that feeds it from a ring (`Pm4Queue`).

Kernels, releases and DMA copies run in flight, while later packets are executed. CS_PARTIAL_FLUSH waits for
all earlier kernels. A release waits for all earlier kernels and releases. DMA_DATA with CP_SYNC waits for all
earlier copies and its own.

A packet that is refused raises `QueueFault`, which stops the queue.

Not here: rings (`ring`), decoding (`packets`), launches and registers (`dispatch`, `kernels`), the fields and
the effect of releases (`maintenance`). Source: docs/sources-amd.md, PM4. Next: `dispatch`.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.pm4 import (
    IB_ALIGN,
    AtomicCommand,
    AtomicMem,
    CopyData,
    CopySrc,
    DataSel,
    DispatchDirect,
    DmaData,
    DmaDst,
    DmaSrc,
    Event,
    EventIndex,
    EventWrite,
    IndirectBuffer,
    IntSel,
    MemSpace,
    Opcode,
    PredExec,
    SetShReg,
    WaitOperation,
    WaitRegMem,
    WriteData,
    WriteDst,
)
from drivers.amd.layouts.pm4_generations import AcquireMem, AcquireMemGfx9, GcrCntl, ReleaseMem
from emulator.amd.engines.bus import run_atomic
from emulator.amd.engines.dispatch import ShRegisters, from_registers
from emulator.amd.engines.maintenance import check_gcr, check_release, of_acquire_gfx9, of_gcr, release
from emulator.amd.engines.order import Sort, once
from emulator.amd.engines.packets import PacketWait, decode, ignored, length, opcode, stores, wide
from emulator.amd.reports import changed_fault, packet_fault, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.amd.engines.bus import Bus
    from emulator.amd.engines.kernels import Kernels
    from emulator.amd.engines.order import Flights
    from emulator.amd.engines.packets import StorePromise
    from emulator.amd.engines.ring import PacketRing

GRBM_GFX_INDEX: Final = 0x200
"""The one UCONFIG register that a compute queue may write. It selects shader engines; here it has no
effect."""
_DEPTH: Final = 2
"""Indirect buffers that may be nested."""


@dataclass(slots=True)
class Frame:
    """Dwords being executed: a packet of the ring, or an indirect buffer."""

    words: list[int]
    name: str
    """For reports."""
    va: int = 0
    """Device address of an indirect buffer; 0 for a packet of the ring."""
    at: int = 0
    """Index of the next dword."""
    alone: int = 0
    """Index of the dword up to which a PRED_EXEC selects a single XCC."""


class Pm4:
    """The command processor of one XCC."""

    def __init__(self, bus: Bus, flights: Flights, kernels: Kernels, *, xcc: int = 0, xccs: int = 1) -> None:
        """`xcc` is the XCC's number, `xccs` how many XCCs execute the same packets."""
        self._bus, self._flights, self._kernels = bus, flights, kernels
        self.target = bus.gpu.profile.target
        self.generation = int(self.target.generation)
        self._xcc, self._xccs = xcc, xccs
        self._xcc_of_all = xcc if xccs > 1 else None
        """The XCC whose caches packets maintain; None for all XCCs of the GPU."""
        self._registers = ShRegisters(bus, self.generation)
        self.frames: list[Frame] = []
        self.waiting: PacketWait | None = None
        """The wait of the current packet; None if it does not wait for memory."""
        self._unsynced = ""
        """The last DMA_DATA without CP_SYNC that no later one with it waits for; "" for none."""
        self._draining: frozenset[Sort] = frozenset()
        """The kinds of work in flight that the current packet waits for."""
        self._before: object = None
        """The last packet that is no NOP; None before the first."""
        self.at = ""
        """The current packet, for reports; "" before the first."""

    @property
    def active(self) -> bool:
        """Whether dwords are left, or the current packet waits."""
        return bool(self.frames or self.waiting or self._draining)

    def can_advance(self) -> bool:
        if self._draining:
            return not self._flights.any(self._draining)
        if self.waiting is not None:
            wait = self.waiting
            return wait.satisfied(self._bus.load(wait.va, wait.bits // 8, wait.name))
        return bool(self.frames)

    def advance(self) -> None:
        if self._draining:
            self._bus.on_wait_all(self._draining)
            self._draining = frozenset()
        elif self.waiting is not None:
            self._bus.on_wait_end(self.waiting)
            self.waiting = None
        else:
            self._packet()
        while self.frames and not self._draining and self.waiting is None and self._ended(self.frames[-1]):
            self.frames.pop()

    def run(self, words: list[int], name: str, va: int = 0) -> None:
        """Add dwords to execute before those that are left. `va`: see `Frame`."""
        self.frames.append(Frame(words, name, va))

    def run_buffer(self, va: int, count: int) -> None:
        """Add the `count` dwords of the indirect buffer at `va`, to execute before those that are left.

        Raises `QueueFault` if it is empty, not aligned or nested too deep, `MemoryFault` if it is not mapped.
        """
        if not count:
            raise packet_fault(f"the indirect buffer at {va:#x} is empty")
        self._bus.aligned(va, IB_ALIGN, "INDIRECT_BUFFER")
        if len([frame for frame in self.frames if frame.va]) >= _DEPTH:
            raise packet_fault(f"indirect buffers are nested more than {_DEPTH} deep")
        what = f"the fetch of an indirect buffer of {count} dwords"
        self.run(self._bus.words(va, count, what), f"the indirect buffer at {va:#x} of IB_SIZE {count}", va)

    def ahead(self) -> Iterator[StorePromise]:
        for frame in reversed(self.frames):
            yield from stores(self._bus, frame.words[frame.at :], self.generation)

    def _ended(self, frame: Frame) -> bool:
        """Return whether a frame is executed.

        Raises `QueueFault` if its indirect buffer changed meanwhile.
        """
        if frame.at < len(frame.words):
            return False
        if frame.va and self._bus.words(frame.va, len(frame.words), frame.name) != frame.words:
            raise changed_fault(f"{frame.name} changed while it was being executed")
        return True

    def _packet(self) -> None:
        """Decode and execute the next packet of the innermost frame."""
        frame = self.frames[-1]
        head, left = frame.words[frame.at], len(frame.words) - frame.at
        size = length(head)
        if size > left:
            raise packet_fault(
                f"the packet {head:#010x} at dword {frame.at} of {frame.name} has {size} dwords, "
                f"{left} are left"
            )
        words = frame.words[frame.at : frame.at + size]
        if size == 1:
            frame.at += size
            return
        code = opcode(head, self.generation)
        self.at = f"{code.name} at dword {frame.at} of {frame.name}"
        frame.at += size
        if code is Opcode.SET_UCONFIG_REG:
            self._uconfig(words)
        elif code is not Opcode.NOP:
            if note := ignored(words, self.generation):
                self._bus.lint(note)
            packet, before = decode(words, self.generation), self._before
            self._before = packet
            if not self._bus.machine.rejections.refuses("packet", packet, words, before):
                self._execute(packet, words)

    def _execute(self, packet: object, words: list[int]) -> None:
        """Execute a decoded packet. Raises `QueueFault` for a packet that is not emulated."""
        match packet:
            case SetShReg():
                self._registers.write(packet, words[SetShReg.WORDS :])
            case AcquireMem() | AcquireMemGfx9():
                self._acquire(packet)
            case ReleaseMem():
                self._release(packet)
            case WaitRegMem():
                self._wait(packet)
            case EventWrite():
                self._event(packet)
            case PredExec():
                self._predicate(packet)
            case IndirectBuffer():
                self._indirect(packet)
            case DispatchDirect():
                self._dispatch(packet)
            case WriteData():
                self._write(packet, words[WriteData.WORDS :])
            case CopyData():
                self._copy(packet)
            case DmaData():
                self._dma(packet)
            case AtomicMem():
                self._atomic(packet)
            case _:
                raise unsupported(f"{self.at} is not emulated")

    def _uconfig(self, words: list[int]) -> None:
        if len(words) != 3 or words[1] != GRBM_GFX_INDEX:
            raise packet_fault(f"SET_UCONFIG_REG of {words[1]:#x}: compute queues write GRBM_GFX_INDEX only")

    def _acquire(self, packet: AcquireMem | AcquireMemGfx9) -> None:
        """Record cache maintenance of all memory; a range of memory is not emulated."""
        if packet.BASE_LO or packet.BASE_HI or packet.SIZE_LO != 0xFFFF_FFFF or packet.SIZE_HI != 0xFF:
            raise unsupported(
                f"{self.at} of a range is not emulated: sources differ in its unit (docs/sources-amd.md, "
                "D2). Name all memory: base 0, size all ones"
            )
        if isinstance(packet, AcquireMemGfx9):
            if packet.ENGINE:
                self._bus.report_unverified(
                    f"{self.at} names an engine; a compute queue has one only: wanted 0"
                )
            instructions = packet.SH_ICACHE
            self._bus.maintain(of_acquire_gfx9(packet), self._xcc_of_all)
        else:
            caches = GcrCntl.from_int(packet.GCR_CNTL)
            check_gcr(caches, self.at)
            self._bus.maintain(of_gcr(caches, self.generation), self._xcc_of_all)
            instructions = bool(caches.GLI_INV)
            if self.generation == 12 and (caches.GLM_WB or caches.GLM_INV or caches.GL1_INV):
                self._bus.lint("ACQUIRE_MEM names GLM or GL1, which gfx12 ignores")
        if instructions:
            self._kernels.invalidate(self._bus.space)

    def _release(self, packet: ReleaseMem) -> None:
        check_release(self._bus, packet, self.at, self.generation, alone=self._xccs == 1)
        if self._registers.unused:
            self._bus.report_unverified(
                f"{self.at} after a write of registers that no launch used: {self._registers.unused}"
            )
        if packet.DATA_SEL is not DataSel.NONE or packet.INT_SEL is not IntSel.NONE:
            self._check_once()
            if self._unsynced:
                self._bus.report_unverified(
                    f"{self.at} does not wait for {self._unsynced}: its bytes may arrive after the signal"
                )
        act = once(lambda: release(self._bus, packet, self.generation, self._xcc_of_all))
        self._flights.begin(Sort.RELEASE, self.at, act, after_all=(Sort.KERNEL, Sort.RELEASE))

    def _wait(self, packet: WaitRegMem) -> None:
        """Begin a wait for memory, or flush the host data path."""
        if packet.ENGINE:
            raise packet_fault("WAIT_REG_MEM names an engine; a compute queue has one only: wanted 0")
        registers = packet.MEM_SPACE is MemSpace.REGISTER
        if registers != (packet.OPERATION is WaitOperation.WRITE_WAIT_WRITE):
            raise packet_fault(
                f"WAIT_REG_MEM with {packet.OPERATION.name} of {packet.MEM_SPACE.name}: queues wait for "
                "memory, and flush the host data path with WRITE_WAIT_WRITE of its registers"
            )
        va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
        wait = PacketWait("WAIT_REG_MEM", va, packet.REFERENCE, packet.FUNCTION, mask=packet.MASK)
        if registers:
            self._bus.flush_host_path(packet.ADDRESS_LO, packet.ADDRESS_HI, wait, "WAIT_REG_MEM")
            return
        self._bus.aligned(va, 4, "WAIT_REG_MEM")
        self.waiting = self._bus.begin_wait(wait)

    def _event(self, packet: EventWrite) -> None:
        if (packet.EVENT_TYPE, packet.EVENT_INDEX) != (Event.CS_PARTIAL_FLUSH, EventIndex.CS_PARTIAL_FLUSH):
            raise packet_fault(
                f"EVENT_WRITE of event {packet.EVENT_TYPE:#x} with index {packet.EVENT_INDEX}: compute "
                "queues take "
                "CS_PARTIAL_FLUSH with index 4"
            )
        self._draining = frozenset({Sort.KERNEL})

    def _predicate(self, packet: PredExec) -> None:
        """Skip the next dwords unless this XCC is selected."""
        frame = self.frames[-1]
        if not frame.va:
            raise packet_fault("PRED_EXEC in the ring: it has an effect in indirect buffers only")
        if len(frame.words) - frame.at < packet.EXEC_COUNT:
            raise packet_fault(
                f"PRED_EXEC of {packet.EXEC_COUNT} dwords, {len(frame.words) - frame.at} are left in "
                f"{frame.name}"
            )
        self._check_predicate(packet, frame)
        selected = packet.DEVICE_SELECT & (1 << self._xccs) - 1
        if selected.bit_count() == 1:
            frame.alone = frame.at + packet.EXEC_COUNT
        if not selected >> self._xcc & 1:
            frame.at += packet.EXEC_COUNT

    def _check_predicate(self, packet: PredExec, frame: Frame) -> None:
        """Report a PRED_EXEC that has no effect, selects no XCC, or ends inside a packet."""
        if not packet.EXEC_COUNT:
            self._bus.report_unverified(f"{self.at} of 0 dwords: every XCC executes what follows")
        if not packet.DEVICE_SELECT & (1 << self._xccs) - 1:
            self._bus.report_unverified(f"{self.at} selects none of {self._xccs} XCCs: its packets never run")
        at, end = frame.at, frame.at + packet.EXEC_COUNT
        while at < end:
            at += length(frame.words[at])
        if at != end:
            self._bus.report_unverified(f"{self.at} of {packet.EXEC_COUNT} dwords ends inside a packet")

    def _check_once(self) -> None:
        """Report a store that each of several XCCs does."""
        if self._xccs > 1 and all(frame.at > frame.alone for frame in self.frames):
            self._bus.report_unverified(
                f"{self.at} stores on each of {self._xccs} XCCs, the first of which signals before the "
                "others arrive: wanted under PRED_EXEC for one XCC"
            )

    def _indirect(self, packet: IndirectBuffer) -> None:
        if not packet.VALID or packet.VMID:
            raise packet_fault(
                f"INDIRECT_BUFFER with VALID {packet.VALID:d}, VMID {packet.VMID}: 1 and 0 are legal"
            )
        if packet.CHAIN:
            if not self.frames[-1].va:
                raise packet_fault("INDIRECT_BUFFER with CHAIN in the ring: a ring is not left")
            self.frames[-1].at = len(self.frames[-1].words)
            self._ended(self.frames.pop())
        self.run_buffer(wide(packet.ADDRESS_LO, packet.ADDRESS_HI), packet.IB_SIZE)

    def _dispatch(self, packet: DispatchDirect) -> None:
        if self._xccs > 1:
            raise unsupported(
                f"DISPATCH_DIRECT on a queue of {self._xccs} XCCs, each of which would run the grid: "
                "AQL queues "
                "take kernel-dispatch packets"
            )
        launch = from_registers(self._bus, self._registers.for_launch(), packet)
        if not self._bus.machine.rejections.refuses("launch", launch):
            self._flights.begin(Sort.KERNEL, self.at, self._kernels.begin(self._bus, launch))

    def _write(self, packet: WriteData, data: list[int]) -> None:
        if packet.DST_SEL not in (WriteDst.L2, WriteDst.MEMORY):
            raise packet_fault(f"WRITE_DATA to {packet.DST_SEL!r}: user queues write memory")
        self._check_once()
        va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
        if packet.ADDR_INCR_DISABLE:
            data = data[-1:]
        self._bus.store_words(va, data, "WRITE_DATA")

    def _copy(self, packet: CopyData) -> None:
        """Copy 4 or 8 bytes from memory, an immediate or a clock to memory."""
        self._check_once()
        size = 8 if packet.COUNT_SEL else 4
        source, target = wide(packet.SRC_LO, packet.SRC_HI), wide(packet.DST_LO, packet.DST_HI)
        if packet.SRC_SEL in (CopySrc.MEMORY, CopySrc.L2):
            value = self._bus.load(source, size, "COPY_DATA")
        elif packet.SRC_SEL in (CopySrc.GPU_CLOCK, CopySrc.SYSTEM_CLOCK):
            value = self._bus.clock()
        elif packet.SRC_SEL is CopySrc.IMMEDIATE:
            value = source
        else:
            raise packet_fault(
                f"COPY_DATA from {packet.SRC_SEL!r}: user queues copy memory, immediates and clocks"
            )
        if packet.DST_SEL not in (WriteDst.L2, WriteDst.MEMORY):
            raise packet_fault(f"COPY_DATA to {packet.DST_SEL!r}: user queues write memory")
        if packet.SRC_SEL not in (CopySrc.GPU_CLOCK, CopySrc.SYSTEM_CLOCK):
            self._bus.on_access(target, size, write=True, what="COPY_DATA")
        self._bus.store(target, value, size, "COPY_DATA")

    def _dma(self, packet: DmaData) -> None:
        """Put a copy or a fill in flight; with CP_SYNC later packets wait for it."""
        if packet.SAS or packet.DAS or packet.SAIC or packet.DAIC:
            raise packet_fault("DMA_DATA of registers, or with an address that stays: not for user queues")
        source, target = wide(packet.SRC_LO, packet.SRC_HI), wide(packet.DST_LO, packet.DST_HI)
        count = packet.BYTE_COUNT
        self._check_once()

        def move() -> None:
            if packet.SRC_SEL is not DmaSrc.DATA:
                self._bus.copy(source, target, count, "DMA_DATA")
                return
            if target % 4 or count % 4:
                raise packet_fault(f"DMA_DATA fills {count} bytes at {target:#x}: dwords are filled")
            self._bus.fill(target, packet.SRC_LO.to_bytes(4, "little"), count // 4, "DMA_DATA")

        after_all = (Sort.COPY,) if packet.RAW_WAIT or packet.CP_SYNC else ()
        through_l2 = packet.DST_SEL is DmaDst.L2 and packet.SRC_SEL in (DmaSrc.L2, DmaSrc.DATA)
        name = self.at if packet.CP_SYNC else f"{self.at} without CP_SYNC"
        self._unsynced = "" if packet.CP_SYNC else name
        self._flights.begin(Sort.COPY, name, once(move), after_all=after_all, through_l2=through_l2)
        if packet.CP_SYNC:
            self._draining = frozenset({Sort.COPY})

    def _atomic(self, packet: AtomicMem) -> None:
        va, operand = wide(packet.ADDRESS_LO, packet.ADDRESS_HI), wide(packet.SRC_LO, packet.SRC_HI)
        expected = wide(packet.CMP_LO, packet.CMP_HI)
        if packet.COMMAND is AtomicCommand.LOOP:
            raise unsupported("ATOMIC_MEM that loops until its compare holds is not emulated")
        run_atomic(self._bus, packet.ATOMIC, va, operand, expected, "ATOMIC_MEM")


class Pm4Queue:
    """The engine of one PM4 compute queue (`emulator.amd.engines.engines.PacketEngine`)."""

    def __init__(self, bus: Bus, flights: Flights, kernels: Kernels, ring: PacketRing) -> None:
        self._bus, self._ring = bus, ring
        self._core = Pm4(bus, flights, kernels, xcc=bus.queue.target_xcc)

    @property
    def at(self) -> str:
        return self._core.at

    @property
    def active(self) -> bool:
        return self._core.active or self._ring.left > 0

    unfinished = active

    def waits(self) -> list[PacketWait]:
        return [] if self._core.waiting is None else [self._core.waiting]

    def can_advance(self) -> bool:
        return self._core.can_advance() if self._core.active else self._ring.left > 0

    def advance(self) -> None:
        if not self._core.active:
            self._fetch()
        self._core.advance()

    def _fetch(self) -> None:
        place = self._ring.fetched % self._ring.words
        head = self._ring.head(1)[0]
        size = length(head)
        if size > self._ring.left:
            raise packet_fault(
                f"the packet {head:#010x} at dword {place} of the ring has {size} dwords, "
                f"{self._ring.left} are left"
            )
        if self._ring.straddles(size):
            self._bus.lint("a packet goes beyond the ring's end and on at its start: padding is safer")
        self._core.run(self._ring.take(size), f"the ring at {place}")

    def ahead(self) -> Iterator[StorePromise]:
        yield from self._core.ahead()
        yield from stores(self._bus, self._ring.ahead(), self._core.generation)
