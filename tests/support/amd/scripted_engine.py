"""The engine of a scripted AMD queue: it executes stores, waits, copies and fills, and runs no kernels.

Packets are decoded with the driver's layouts. A packet without a layout, or with bits that its layout does
not declare, fails an assertion.

Not here: when engines run (`scripted_queues`). Next: `drivers.amd.layouts`, the packets.
"""

from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts import aql, pm4, pm4_generations, sdma
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.layouts.kfd import QueueType
from drivers.kernel import view_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.amd.scripted_memory import Buffer
    from tests.support.amd.scripted_queues import QueueTable

_SIZE_HI = 3
"""Where in an ACQUIRE_MEM COHER_SIZE_HI stands."""

_COMPARE: dict[int, Callable[[int, int], bool]] = {
    pm4.Function.LT: operator.lt,
    pm4.Function.LE: operator.le,
    pm4.Function.EQ: operator.eq,
    pm4.Function.NE: operator.ne,
    pm4.Function.GE: operator.ge,
    pm4.Function.GT: operator.gt,
}
"""The functions of WAIT_REG_MEM; POLL_REGMEM of SDMA numbers them alike."""


class Stalled(Exception):  # noqa: N818 - no error
    """A packet waits for a memory value, or accessed memory that is not mapped."""


class Engine:
    """One hardware queue: PM4, AQL or SDMA.

    `ring` is address and bytes, `doorbell` the byte offset in the GPU's doorbell page, `used` the buffers
    that the queue holds, `evicted` whether a fault took it off the hardware.
    """

    def __init__(
        self,
        table: QueueTable,
        *,
        number: int,
        gpu_id: int,
        kind: QueueType,
        ring: tuple[int, int],
        write_va: int,
        read_va: int,
        doorbell: int,
        target: str,
        used: list[Buffer],
        evicted: bool,
    ) -> None:
        self._table, self.number, self.gpu_id, self.kind = table, number, gpu_id, kind
        self.ring, self.doorbell, self.used, self.evicted = ring, doorbell, used, evicted
        self.active = True
        row = CHIPS[target.partition("-")[0]]
        self._pm4 = pm4_generations.packets(row.generation)
        self._sdma = sdma.packets(row.sdma)
        self._words = view_at(*ring).cast("I")
        self._write = view_at(write_va, 8).cast("Q")
        self._read = view_at(read_va, 8).cast("Q")
        self._written = 0
        self.done = 0
        """Number of executed words, or packets of an AQL queue."""
        self.launches: list[Any] = []
        """The dispatch packets, in order."""
        self.packets: list[Any] = []
        """All executed packets, decoded, in order."""

    def announce(self, value: int) -> None:
        """Check a doorbell value by the rules of the queue's kind.

        `run` then executes up to the write pointer.
        """
        written = self._write[0]
        behind = 1 if self.kind is QueueType.COMPUTE_AQL else 0
        assert value == written - behind, f"doorbell {value:#x}, write pointer {written:#x}"
        units = written >> 2 if self.kind is QueueType.SDMA else written
        assert units >= self._written, "the write pointer decreased"
        size = len(self._words) // (aql.PACKET_WORDS if behind else 1)
        assert units - self.done <= size - (0 if behind else 1), "the ring overflows"
        self._written = units

    def run(self) -> None:
        """Execute packets up to the last doorbell value. Raises `Stalled` at one that must wait."""
        while self.active and not self.evicted and self.done < self._written:
            if self.kind is QueueType.COMPUTE_AQL:
                self._aql_packet()
            else:
                at = self.done % len(self._words)
                step = self._pm4_packet if self.kind is QueueType.COMPUTE else self._sdma_packet
                limit = min(len(self._words) - at, self._written - self.done)
                self.done += step(self._words[at : at + limit])
            self._publish()

    def _publish(self) -> None:
        if self.kind is QueueType.COMPUTE:
            self._read[0] = self.done % len(self._words) | 0xDEAD << 32  # the upper half is undefined
        elif self.kind is QueueType.SDMA:
            self._read[0] = self.done << 2
        else:
            self._read[0] = self.done

    def _memory(self, va: int, size: int, *, write: bool = False) -> memoryview:
        if not self._table.memory.holds(self.gpu_id, va, size):
            self._table.page_fault(self.gpu_id, va, write=write)
            raise Stalled
        return view_at(va, size)

    def _store(self, va: int, value: int, size: int) -> None:
        assert not va % size, f"{size} bytes at {va:#x}"
        self._memory(va, size, write=True)[:] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _wait(self, function: int, va: int, reference: int, mask: int) -> None:
        assert not va % 4, f"a wait at {va:#x}"
        seen = int.from_bytes(self._memory(va, 4), "little")
        if function != pm4.Function.ALWAYS and not _COMPARE[function](seen & mask, reference):
            raise Stalled

    def _move(self, dst: int, src: int, size: int) -> None:
        self._memory(src, size)
        self._memory(dst, size, write=True)
        ctypes.memmove(dst, src, size)

    def _fill(self, dst: int, word: int, size: int) -> None:
        view = self._memory(dst, size, write=True)
        view[:] = word.to_bytes(4, "little") * (size // 4)

    def _stream(self, words: memoryview) -> None:
        """Execute an indirect buffer; after a wait it starts again from its first packet."""
        at = 0
        while at < len(words):
            at += self._pm4_packet(words[at:])

    def _pm4_packet(self, words: memoryview) -> int:
        """Execute one packet; return its length in words."""
        if words[0] == pm4.NOP_ONE_DWORD:
            return 1
        head = pm4.Header.from_int(words[0])
        assert head.TYPE == pm4.TYPE_3, f"header {words[0]:#010x}"
        count = head.COUNT + 2
        assert count <= len(words), f"{head.OPCODE!r} has {count} words, {len(words)} are left"
        if head.OPCODE == pm4.Opcode.NOP:
            return count
        layout = self._pm4[head.OPCODE]
        taken = list(words[: layout.WORDS])
        if head.OPCODE == pm4.Opcode.ACQUIRE_MEM:
            taken[_SIZE_HI] &= 0xFF  # drivers send up to 32 bits of ones (choice coher_size)
        packet: Any = layout.from_words(taken)
        assert not packet.check(), packet.check()
        longer = head.OPCODE in pm4_generations.WITH_DATA
        assert count == layout.WORDS or longer, f"{packet!r} has {count} words"
        opcode = head.OPCODE
        if opcode == pm4.Opcode.RELEASE_MEM:
            self._release(packet)
        elif opcode == pm4.Opcode.WAIT_REG_MEM:
            self._wait(packet.FUNCTION, _address(packet), packet.REFERENCE, packet.MASK)
        elif opcode == pm4.Opcode.INDIRECT_BUFFER:
            assert packet.VALID, "an indirect buffer that is not valid"
            self._stream(self._memory(_address(packet), 4 * packet.IB_SIZE).cast("I"))
        elif opcode == pm4.Opcode.DISPATCH_DIRECT:
            self.launches.append(packet)
        elif opcode == pm4.Opcode.WRITE_DATA:
            for index in range(layout.WORDS, count):
                self._store(_address(packet) + 4 * (index - layout.WORDS), words[index], 4)
        elif opcode == pm4.Opcode.COPY_DATA:
            self._copy_data(packet)
        elif opcode == pm4.Opcode.DMA_DATA:
            self._dma(packet)
        self.packets.append(packet)
        return count

    def _release(self, packet: Any) -> None:
        va, sel = _address(packet), packet.DATA_SEL
        if sel == pm4.DataSel.LOW_32:
            self._store(va, packet.DATA_LO, 4)
        elif sel == pm4.DataSel.FULL_64:
            self._store(va, packet.DATA_HI << 32 | packet.DATA_LO, 8)
        elif sel == pm4.DataSel.GPU_CLOCK:
            self._store(va, next(self._table.ticks), 8)
        if packet.INT_SEL in (pm4.IntSel.INTERRUPT, pm4.IntSel.INTERRUPT_AFTER_WRITE):
            self._table.events.interrupt(packet.INT_CTXID)

    def _copy_data(self, packet: Any) -> None:
        size = 8 if packet.COUNT_SEL else 4
        src, dst = packet.SRC_HI << 32 | packet.SRC_LO, packet.DST_HI << 32 | packet.DST_LO
        if packet.SRC_SEL == pm4.CopySrc.GPU_CLOCK:
            self._store(dst, next(self._table.ticks), size)
        elif packet.SRC_SEL == pm4.CopySrc.IMMEDIATE:
            self._store(dst, src, size)
        else:
            self._move(dst, src, size)

    def _dma(self, packet: Any) -> None:
        dst = packet.DST_HI << 32 | packet.DST_LO
        if packet.SRC_SEL == pm4.DmaSrc.DATA:
            self._fill(dst, packet.SRC_LO, packet.BYTE_COUNT)
        else:
            self._move(dst, packet.SRC_HI << 32 | packet.SRC_LO, packet.BYTE_COUNT)

    def _sdma_packet(self, words: memoryview) -> int:
        """Execute one packet; return its length in words."""
        if words[0] == sdma.NOP_WORD:
            return 1
        op = sdma.Head.from_int(words[0] & 0xFFFF).OP
        layout = self._sdma[op]
        assert len(words) >= layout.WORDS, f"{op!r} lies across the end of the ring"
        packet: Any = layout.from_words(list(words[: layout.WORDS]))
        assert not packet.check(), packet.check()
        count = layout.WORDS
        if op == sdma.Op.NOP:
            count += packet.COUNT
        elif op == sdma.Op.FENCE:
            self._store(_address(packet), packet.DATA, 4)
        elif op == sdma.Op.POLL_REGMEM:
            assert packet.MEM_POLL, "only memory is polled"
            assert packet.RETRY == sdma.POLL_FOREVER, "a poll with a retry limit"
            self._wait(packet.FUNCTION, _address(packet), packet.REFERENCE, packet.MASK)
        elif op == sdma.Op.TRAP:
            self._table.events.interrupt(packet.INT_CONTEXT)
        elif op == sdma.Op.COPY:
            size = packet.COUNT_MINUS_ONE + 1
            self._move(packet.DST_HI << 32 | packet.DST_LO, packet.SRC_HI << 32 | packet.SRC_LO, size)
        elif op == sdma.Op.CONST_FILL:
            assert packet.FILL_SIZE == sdma.FILL_SIZE_DWORD, "a fill by other units than dwords"
            self._fill(packet.DST_HI << 32 | packet.DST_LO, packet.DATA, packet.COUNT + 4)
        elif op == sdma.Op.TIMESTAMP:
            self._store(_address(packet), next(self._table.ticks), 8)
        elif op == sdma.Op.INDIRECT:
            inner = self._memory(packet.BASE_HI << 32 | packet.BASE_LO, 4 * packet.IB_SIZE).cast("I")
            at = 0
            while at < len(inner):
                at += self._sdma_packet(inner[at:])
        elif op == sdma.Op.WRITE:
            count += packet.COUNT_MINUS_ONE + 1
            for index in range(layout.WORDS, count):
                self._store(packet.DST_HI << 32 | packet.DST_LO + 4 * (index - layout.WORDS), words[index], 4)
        self.packets.append(packet)
        return count

    def _aql_packet(self) -> None:
        size = len(self._words) // aql.PACKET_WORDS
        at = self.done % size * aql.PACKET_WORDS
        words = list(self._words[at : at + aql.PACKET_WORDS])
        kind = words[0] & 0xFF
        if kind == aql.Type.INVALID:
            raise Stalled
        layout = aql.VENDOR_PACKETS[words[0] >> 16] if kind == aql.Type.VENDOR_SPECIFIC else aql.PACKETS[kind]
        packet: Any = layout.from_words(words)
        assert not packet.check(), packet.check()
        if layout is aql.Pm4Ib:
            va = packet.IB_ADDRESS_HI << 32 | packet.IB_ADDRESS_LO
            self._stream(self._memory(va, 4 * packet.IB_SIZE).cast("I"))
        elif layout is aql.KernelDispatch:
            assert not packet.KERNEL_OBJECT % 64, "a descriptor is aligned to 64 bytes"
            self._memory(packet.KERNEL_OBJECT, 64)
            self.launches.append(packet)
        self.packets.append(packet)
        self._words[at] = aql.Type.INVALID
        self.done += 1


def _address(packet: Any) -> int:
    found: int = packet.ADDRESS_HI << 32 | packet.ADDRESS_LO
    return found
