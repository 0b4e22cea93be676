"""The engine of an SDMA queue: copies, fills, writes, polls and fences.

Copies and fills complete in their order, and may complete after later packets. FENCE, TIMESTAMP, ATOMIC, TRAP
and GCR_REQ wait for all earlier copies and fills. WRITE, POLL_REGMEM and INDIRECT do not.

A packet that is refused raises `QueueFault`, which stops the queue.

Not here: rings (`ring`), the packets' fields (`drivers.amd.layouts.sdma`). Source: docs/sources-amd.md, SDMA.
Next: `aql`, or `maintenance` for GCR_REQ.
"""

# ruff: noqa: D102 - contracts of methods without a docstring are in the Protocols

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.events import TRAP_CONTEXT_BITS
from drivers.amd.layouts.pm4_generations import GcrCntl
from drivers.amd.layouts.sdma import (
    ALIGN_WORDS,
    FILL_SIZE_DWORD,
    INDIRECT_ALIGN,
    POLL_FOREVER,
    TIMESTAMP_ALIGN,
    Atomic,
    ConstFill,
    CopyLinear,
    Fence,
    GcrReq,
    Head,
    Indirect,
    Nop,
    Op,
    PollRegmem,
    Timestamp,
    Trap,
    WriteUntiled,
    packets,
)
from emulator.amd.engines.bus import run_atomic
from emulator.amd.engines.maintenance import check_gcr, of_gcr
from emulator.amd.engines.order import Sort, once
from emulator.amd.engines.packets import PacketWait, StorePromise, wide
from emulator.amd.engines.pm4 import Frame
from emulator.amd.reports import changed_fault, check, packet_fault, unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from emulator.amd.engines.bus import Bus
    from emulator.amd.engines.kernels import Kernels
    from emulator.amd.engines.order import Flights
    from emulator.amd.engines.ring import PacketRing
    from hcq.layout import BitStruct

_COPIES: Final = frozenset({Sort.COPY})
_AFTER_COPIES: Final = (Fence, Timestamp, Atomic, Trap, GcrReq)
"""Packets that wait for all earlier copies and fills."""
_DATA_BYTES: Final = 4
"""Bytes that a FENCE stores and that a fill repeats."""
_UNCACHED: Final = 3
"""The MTYPE of uncached memory."""
_HOST_FLUSH: Final = (Op.POLL_REGMEM, 0, 0x8000_0000, 0, 0, 0)
"""The packet that ROCr sends to flush the host data path."""


class Sdma:
    """The engine of one SDMA queue (`emulator.amd.engines.engines.PacketEngine`)."""

    def __init__(self, bus: Bus, flights: Flights, kernels: Kernels, ring: PacketRing) -> None:
        self._bus, self._flights, self._kernels, self._ring = bus, flights, kernels, ring
        self.version = bus.gpu.profile.target.sdma
        self._layouts = packets(self.version)
        self._frames: list[Frame] = []
        self._pending: BitStruct | None = None
        """The packet that waits for all earlier copies; None for none."""
        self.waiting: PacketWait | None = None
        """The poll of the current packet; None if it does not poll."""
        self._retries = 0
        """Polls until the current poll gives up; 0 for a poll without end."""
        self._late: list[Callable[[], None]] = []
        """Copies and fills that run at the next fence, the last first, if the machine refuses quirk
        `copy_order`."""
        self.at = ""

    @property
    def active(self) -> bool:
        return bool(self._frames or self._pending or self.waiting or self._ring.left)

    @property
    def unfinished(self) -> bool:
        """Whether packets with an effect are left; the host does not await NOPs, which end submissions."""
        if self._frames or self._pending or self.waiting:
            return True
        words, at = self._ring.ahead(), 0
        while at < len(words) and words[at] & 0xFF == Op.NOP:
            at += Nop.WORDS + Nop.FIELDS["COUNT"].extract(words[at])
        return at < len(words)

    def waits(self) -> list[PacketWait]:
        return [] if self.waiting is None else [self.waiting]

    def can_advance(self) -> bool:
        if self._pending is not None:
            return not self._flights.any(_COPIES)
        if self.waiting is not None:
            value = self._bus.load(self.waiting.va, 4, self.waiting.name)
            done = self.waiting.satisfied(value)
            if not done and self._retries:
                self._retries -= 1
                if not self._retries:
                    raise packet_fault(f"{self.waiting} gave up: RETRY polls did not see such a value")
            return done
        return bool(self._frames or self._ring.left)

    def advance(self) -> None:
        if self._pending is not None:
            packet, self._pending = self._pending, None
            self._bus.on_wait_all(_COPIES)
            self._ordered(packet)
        elif self.waiting is not None:
            self._bus.on_wait_end(self.waiting)
            self.waiting = None
        elif self._frames:
            frame = self._frames[-1]
            size = self._length(frame.words, frame.at, frame.name)
            words = frame.words[frame.at : frame.at + size]
            self.at = f"{_name(words[0])} at dword {frame.at} of {frame.name}"
            frame.at += size
            self._execute(words)
        else:
            self._fetch()
        while self._frames and self._frames[-1].at >= len(self._frames[-1].words):
            frame = self._frames.pop()
            if self._bus.words(frame.va, len(frame.words), frame.name) != frame.words:
                raise changed_fault(f"{frame.name} changed while it was being executed")

    def _fetch(self) -> None:
        """Execute the next packet of the ring, which must not cross the ring's end."""
        ahead = self._ring.head(WriteUntiled.WORDS)
        place = self._ring.fetched % self._ring.words
        size = self._length(ahead, 0, "the ring", self._ring.left)
        if self._ring.straddles(size):
            raise packet_fault(
                f"{_name(ahead[0])} of {size} dwords at dword {place} of the ring goes beyond its end: "
                "NOPs fill it"
            )
        if ahead[0] & 0xFF == Op.INDIRECT and (place + size) % ALIGN_WORDS:
            raise packet_fault(
                f"INDIRECT at dword {place} of the ring ends at {place + size}, no multiple of "
                f"{ALIGN_WORDS} dwords"
            )
        self.at = f"{_name(ahead[0])} at dword {place} of the ring"
        self._execute(self._ring.take(size))

    def _length(self, words: Sequence[int], at: int, where: str, left: int | None = None) -> int:
        """Return the length of the packet at index `at`. Raises `QueueFault` if more than `left` dwords.

        `left` of None counts all of `words`.
        """
        head, left = words[at], len(words) - at if left is None else left
        op = head & 0xFF
        layout = self._layouts.get(op)
        if layout is None:
            version = ".".join(map(str, self.version))
            raise packet_fault(
                f"{_name(head)} (header {head:#010x}) is no packet of SDMA {version} user queues"
            )
        size = layout.WORDS
        if op == Op.NOP:
            size += Nop.FIELDS["COUNT"].extract(head)
        elif op == Op.WRITE and left >= size:
            size += WriteUntiled.FIELDS["COUNT_MINUS_ONE"].extract(words[at + 3] << 96) + 1
        if left < size:
            raise packet_fault(f"{_name(head)} has {size} dwords, {left} are left in {where}")
        return size

    def _execute(self, words: list[int]) -> None:
        """Execute a packet, or keep it pending until all earlier copies are complete."""
        if tuple(words) == _HOST_FLUSH:
            return
        layout = self._layouts[words[0] & 0xFF]
        packet = layout.from_words(words[: layout.WORDS])
        check(packet, _name(words[0]))
        if self._bus.machine.rejections.refuses("copy packet", packet):
            return
        if isinstance(packet, _AFTER_COPIES):
            self._pending = packet
        elif isinstance(packet, CopyLinear):
            self._copy(packet)
        elif isinstance(packet, ConstFill):
            self._fill(packet)
        elif isinstance(packet, WriteUntiled):
            self._bus.store_words(wide(packet.DST_LO, packet.DST_HI), words[layout.WORDS :], "WRITE")
        elif isinstance(packet, PollRegmem):
            self._poll(packet)
        elif isinstance(packet, Indirect):
            self._indirect(packet)
        elif not isinstance(packet, Nop):
            raise unsupported(f"{self.at} is not emulated")

    def _copy(self, packet: CopyLinear) -> None:
        fields = type(packet).FIELDS
        for name in ("TMZ", "DCC", "BACKWARDS", "BROADCAST"):
            if name in fields and getattr(packet, name):
                raise packet_fault(f"COPY with {name}: linear copies of user queues leave it 0")
        if packet.PARAMETER:
            self._bus.report_unverified(f"COPY with swap and cache policy {packet.PARAMETER:#x}")
        size = packet.COUNT_MINUS_ONE + 1
        source, target = wide(packet.SRC_LO, packet.SRC_HI), wide(packet.DST_LO, packet.DST_HI)
        self._begin(lambda: self._bus.copy(source, target, size, "COPY"))

    def _fill(self, packet: ConstFill) -> None:
        target = wide(packet.DST_LO, packet.DST_HI)
        if packet.FILL_SIZE != FILL_SIZE_DWORD or packet.COUNT % _DATA_BYTES or target % _DATA_BYTES:
            raise packet_fault(
                f"CONST_FILL of size {packet.FILL_SIZE}, count {packet.COUNT:#x}, at {target:#x}: "
                "dwords are filled "
                "(size 2, count 4 * (n - 1), an aligned address)"
            )
        count, pattern = packet.COUNT // _DATA_BYTES + 1, packet.DATA.to_bytes(4, "little")
        self._begin(lambda: self._bus.fill(target, pattern, count, "CONST_FILL"))

    def _begin(self, act: Callable[[], None]) -> None:
        """Put a copy or fill in flight, to run after all earlier ones."""
        if self._bus.machine.rejections.refuses("late copy"):
            self._late.append(act)
            return
        self._flights.begin(Sort.COPY, self.at, once(act), after_all=(Sort.COPY,))

    def _poll(self, packet: PollRegmem) -> None:
        """Begin a poll of memory, or flush the host data path."""
        va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
        wait = PacketWait("POLL_REGMEM", va, packet.REFERENCE, packet.FUNCTION, mask=packet.MASK)
        if packet.HDP_FLUSH:
            done, request = packet.ADDRESS_LO // 4, packet.ADDRESS_HI // 4
            self._bus.flush_host_path(request, done, wait, "POLL_REGMEM with HDP_FLUSH")
            return
        if not packet.MEM_POLL:
            raise packet_fault(f"POLL_REGMEM of register {packet.ADDRESS_LO:#x}: user queues poll memory")
        self._bus.aligned(va, 4, "POLL_REGMEM")
        self.waiting = self._bus.begin_wait(wait)
        if packet.RETRY != POLL_FOREVER:
            self._bus.report_unverified(f"{wait} gives up after {packet.RETRY + 1} polls (RETRY)")
        self._retries = 0 if packet.RETRY == POLL_FOREVER else packet.RETRY + 1

    def _indirect(self, packet: Indirect) -> None:
        va, count = wide(packet.BASE_LO, packet.BASE_HI), packet.IB_SIZE
        if packet.VMID or not count:
            raise packet_fault(f"INDIRECT with VMID {packet.VMID} and {count} dwords")
        if self._frames:
            raise packet_fault("INDIRECT within indirect packets")
        if va % INDIRECT_ALIGN:
            raise packet_fault(f"INDIRECT to {va:#x}, which is not aligned to {INDIRECT_ALIGN} bytes")
        if count % ALIGN_WORDS:
            raise packet_fault(f"INDIRECT runs {count} dwords, no multiple of {ALIGN_WORDS}")
        words = self._bus.words(va, count, f"the fetch of {count} indirect dwords")
        self._frames.append(Frame(words, f"the indirect packets at {va:#x}", va))

    def _ordered(self, packet: BitStruct) -> None:
        """Execute a packet of `_AFTER_COPIES`; all earlier copies are complete."""
        if isinstance(packet, Fence):
            while self._late:
                self._late.pop()()
            for name in ("SYS", "SNOOP"):
                if name in type(packet).FIELDS and getattr(packet, name):
                    self._bus.report_unverified(f"FENCE with {name}: no source says what it does")
            if "MTYPE" in type(packet).FIELDS and packet.MTYPE != _UNCACHED:
                self._bus.report_unverified(
                    f"FENCE with MTYPE {packet.MTYPE}: {_UNCACHED} is uncached, others may be late"
                )
            self._bus.store(wide(packet.ADDRESS_LO, packet.ADDRESS_HI), packet.DATA, _DATA_BYTES, "FENCE")
        elif isinstance(packet, Timestamp):
            va = wide(packet.ADDRESS_LO, packet.ADDRESS_HI)
            if va % TIMESTAMP_ALIGN:
                self._bus.lint(f"TIMESTAMP is not aligned to {TIMESTAMP_ALIGN} bytes; its field allows 8")
            self._bus.store(va, self._bus.clock(), 8, "TIMESTAMP")
        elif isinstance(packet, Atomic):
            if packet.LOOP:
                raise unsupported("ATOMIC that loops until its compare holds is not emulated")
            va, operand = wide(packet.ADDRESS_LO, packet.ADDRESS_HI), wide(packet.SRC_LO, packet.SRC_HI)
            run_atomic(self._bus, packet.OPERATION, va, operand, wide(packet.CMP_LO, packet.CMP_HI), "ATOMIC")
        elif isinstance(packet, Trap):
            self._bus.interrupt(packet.INT_CONTEXT, TRAP_CONTEXT_BITS)
        elif isinstance(packet, GcrReq):
            control = GcrCntl.from_int(packet.GCR_CONTROL_HI << 16 | packet.GCR_CONTROL_LO)
            check_gcr(control, "GCR_REQ")
            self._bus.maintain(of_gcr(control, int(self._bus.gpu.profile.target.generation)))
            if control.GLI_INV:
                self._kernels.invalidate(self._bus.space)

    def ahead(self) -> Iterator[StorePromise]:
        for frame in self._frames:
            yield from self._stores(frame.words[frame.at :])
        yield from self._stores(self._ring.ahead())

    def _stores(self, words: Sequence[int]) -> Iterator[StorePromise]:
        """Yield the stores of FENCE and WRITE, also in mapped indirect packets."""
        at = 0
        while at < len(words):
            size = self._length(words, at, "a look ahead")
            layout = self._layouts[words[at] & 0xFF]
            packet = layout.from_words(words[at : at + layout.WORDS])
            if isinstance(packet, Fence):
                yield StorePromise(wide(packet.ADDRESS_LO, packet.ADDRESS_HI), packet.DATA)
            elif isinstance(packet, WriteUntiled):
                for index, word in enumerate(words[at + layout.WORDS : at + size]):
                    yield StorePromise(wide(packet.DST_LO, packet.DST_HI) + 4 * index, word)
            elif isinstance(packet, Indirect):
                va, count = wide(packet.BASE_LO, packet.BASE_HI), packet.IB_SIZE
                if self._bus.space.mapped(va, 4 * count) == 4 * count:
                    yield from self._stores(self._bus.words(va, count, "a look ahead"))
            at += size


def _name(head: int) -> str:
    op = Head.FIELDS["OP"].extract(head)
    return Op(op).name if op in set(Op) else f"operation {op:#x}"
