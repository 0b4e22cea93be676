"""Accesses of one queue's engine to memory: by device address, checked, with what accesses it for reports.

Not here: the address space (`drivers.amd.emu.kfd.gpu`).
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

from drivers.amd.emu.engines.errors import packet_fault
from drivers.emu.vaspace import Access

if TYPE_CHECKING:
    from drivers.amd.emu.engines.machine import Machine
    from drivers.amd.emu.kfd.gpu import GpuSpace
    from drivers.amd.emu.kfd.queues import QueueObject

_CHUNK = 4 << 20


class Bus:
    """Memory, clock and interrupts as a queue's engine sees them."""

    def __init__(self, machine: Machine, queue: QueueObject) -> None:
        self.machine = machine
        self.queue = queue
        self.gpu = queue.gpu

    @property
    def space(self) -> GpuSpace:
        """The address space."""
        assert self.gpu.space is not None
        return self.gpu.space

    def read(self, va: int, size: int, what: str) -> bytes:
        """Read bytes."""
        return self.space.read(va, size, what)

    def write(self, va: int, data: bytes, what: str) -> None:
        """Write bytes; nothing is written when any of it cannot be."""
        self.space.write(va, data, what)

    def load(self, va: int, size: int, what: str) -> int:
        """Read an aligned number of `size` bytes."""
        self.aligned(va, size, what)
        return int.from_bytes(self.read(va, size, what), "little")

    def store(self, va: int, value: int, size: int, what: str) -> None:
        """Write an aligned number of `size` bytes, at once."""
        self.aligned(va, size, what)
        host = self.space.host(va, size, Access.WRITE, what)
        kind = ctypes.c_uint64 if size == 8 else ctypes.c_uint32
        kind.from_address(host).value = value & (1 << 8 * size) - 1
        self.space.map.mark_initialised(va, size)

    @staticmethod
    def aligned(va: int, size: int, what: str) -> None:
        """Raise unless an address is aligned."""
        if va % size:
            raise packet_fault(f"{what}: address {va:#x} is not aligned to {size} bytes")

    def words(self, va: int, count: int, what: str) -> list[int]:
        """Read dwords."""
        return list(struct.unpack(f"<{count}I", self.read(va, 4 * count, what)))

    def store_words(self, va: int, words: list[int], what: str) -> None:
        """Write dwords, the lowest first."""
        for at, word in enumerate(words):
            self.store(va + 4 * at, word, 4, what)

    def copy(self, source: int, target: int, size: int, what: str) -> None:
        """Copy bytes upwards in pieces, as a copy engine does."""
        self.space.reach(source, size, Access.READ, what)
        self.space.reach(target, size, Access.WRITE, what)
        if source < target + size and target < source + size:
            self.machine.lint(f"{what}: source and destination overlap, the result is undefined")
        for at in range(0, size, _CHUNK):
            part = min(_CHUNK, size - at)
            states = self.space.states(source + at, part)
            self.space.write(target + at, self.read(source + at, part, what), what, states)

    def fill(self, target: int, pattern: bytes, count: int, what: str) -> None:
        """Write a pattern `count` times."""
        step = max(_CHUNK // len(pattern), 1)
        self.space.reach(target, count * len(pattern), Access.WRITE, what)
        for at in range(0, count, step):
            self.write(target + at * len(pattern), pattern * min(step, count - at), what)

    def clock(self) -> int:
        """Return the GPU's counter."""
        return self.machine.clock(self.gpu)

    def interrupt(self, context: int, bits: int) -> None:
        """Raise an interrupt."""
        self.machine.interrupt(self.gpu, context, bits)

    def lint(self, message: str) -> None:
        """Report once what works, and is a sign of a mistake all the same."""
        self.machine.lint(f"{self.queue.name}: {message}")
