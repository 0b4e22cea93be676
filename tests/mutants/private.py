"""The program under which mutants of drivers of devices with memory of their own run.

Each command writes memory that was never written, exactly to its end, and a later kernel reads all of it. So
a command that writes less, elsewhere or more than it should is a read of uninitialised memory, which the
emulated machine reports; what is filled are indices of such memory. One command of each kind works on memory
of the host, whose contents are not tracked.

Not here: the program in memory of the host (`scenario`), the kernels (`tests.mutants.amd.images`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hcq.commandbuffer import CommandBuffer
    from hcq.commands import Pointer
    from hcq.driver import Driver
    from hcq.memory import Buffer
    from hcq.program import KernelImage
    from hcq.signal import Point, Signal

SHARED: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
THREADS: Final = 64
"""Threads of a workgroup of `spread` and `gather`."""
_GRID_THREADS: Final = 96
"""Threads of a workgroup of `grid`."""
_MIRROR_THREADS: Final = 256
"""Threads of the workgroup of `shared`."""
_GROUPS: Final = 3
_USED: Final = 4 * THREADS * _GROUPS
"""Bytes of each buffer that commands use."""
_BYTES: Final = 4096
_ALL: Final = 2 * _BYTES
"""Room for all results."""
_ROW: Final = 8
"""The row of the table that is written."""
_STEPS: Final = 3


class PrivateScenario:
    """One run of the program. No wait lasts longer than `limit_s()` seconds.

    What waits for another queue is submitted before a gate opens, so that it is the same in each run: a wait
    for what is over is left out.
    `settle` returns when no queue of the device can execute anything.
    """

    def __init__(
        self,
        driver: Driver,
        kernels: Mapping[str, KernelImage],
        *,
        limit_s: Callable[[], float],
        settle: Callable[[], None],
    ) -> None:
        self.device = Device(driver.open(0, None))
        self._limit_s = limit_s
        self._settle = settle
        self._programs = {name: self.device.load(one) for name, one in kernels.items()}
        self._results: list[Buffer] = []
        self._held: list[Buffer] = []
        """All own memory: what is freed is given out again, and has been written."""
        self._next = 0

    def play(self) -> list[bytes]:
        """Run the program; return the device's description and the bytes of all results."""
        self.device.clock()
        self._all = self._own(_ALL)
        first = self._launch()
        self._copy(first)
        self._cross(first)
        self._graph(first)
        self._collect()
        self._host(first)
        self._settle()
        return [repr(self.device.info).encode(), *(bytes(buffer.host()) for buffer in self._results)]

    def _own(self, size: int = _BYTES) -> Buffer:
        """Return new memory of the device."""
        buffer = self.device.alloc(size)
        self._held.append(buffer)
        return buffer

    def _shared(self, byte: int, size: int = _BYTES) -> Buffer:
        """Return new memory of the host, which is compared in the end."""
        buffer = self.device.alloc(size, SHARED)
        buffer.host()[:] = bytes((byte,)) * size
        self._results.append(buffer)
        return buffer

    def _result(self, size: int = _USED) -> Buffer:
        """Return the place of the next result."""
        at, self._next = self._next, self._next + size
        return self._all.view(at, size)

    def _spread(
        self, commands: CommandBuffer, out: Pointer, seen: Pointer, size: int = _USED
    ) -> CommandBuffer:
        """Record a kernel that reads and writes `size` bytes."""
        spread, groups = self._programs["spread"], size // (4 * THREADS)
        return commands.exec(spread, spread.args(out, seen), groups=(groups, 1, 1), threads=(THREADS, 1, 1))

    def _launch(self) -> Buffer:
        """Run the kernels of the ladder, and read what they wrote; return memory of `_USED` bytes."""
        compute, grid, shared = self.device.compute, self._programs["grid"], self._programs["shared"]
        numbers, mirror, first = self._own(), self._own(), self._own()
        commands = compute.record()
        groups = _USED // (4 * _GRID_THREADS)
        commands.exec(grid, grid.args(numbers, 5), groups=(groups, 1, 1), threads=(_GRID_THREADS, 1, 1))
        commands.exec(shared, shared.args(mirror), groups=(1, 1, 1), threads=(_MIRROR_THREADS, 1, 1))
        commands.barrier()
        self._spread(commands, first, numbers)
        self._spread(commands, self._result(4 * _MIRROR_THREADS), mirror, 4 * _MIRROR_THREADS)
        compute.submit(commands).wait(timeout_s=self._limit_s())
        return first

    def _open(self, gate: Signal, written: Point) -> None:
        """Let the work behind a gate begin when `written` is reached.

        It was submitted before the work of `written`, so the gate alone orders them.
        """
        written.wait(timeout_s=self._limit_s())
        gate.value = 1

    def _copy(self, first: Buffer) -> None:
        """Copy and fill, and read copy, index and table; the table has one row."""
        compute, copies, gather = self.device.compute, self.device.copies[0], self._programs["gather"]
        source, target, table, index = (self._own() for _ in range(4))
        gate = self.device.signal(host_set=True)
        recorded = copies.record().wait(gate, 1).copy(target, source, _USED).fill(index, _ROW, _USED)
        copied = copies.submit(recorded)
        commands = self._spread(compute.record(), source, first)
        self._spread(commands, table.view(4 * THREADS * _ROW), first)
        written = compute.submit(commands)
        commands = compute.record()
        arguments = gather.args(self._result(), index, table)
        commands.exec(gather, arguments, groups=(_GROUPS, 1, 1), threads=(THREADS, 1, 1))
        self._spread(commands, self._result(), target)
        done = compute.submit(commands, after=[copied])
        self._open(gate, written)
        done.wait(timeout_s=self._limit_s())

    def _cross(self, first: Buffer) -> None:
        """Copy, compute on the other queue, and copy back; all is submitted before a gate opens.

        The host opens it when what the first copy reads is written.
        """
        compute, copies = self.device.compute, self.device.copies[0]
        source, middle, last, back = (self._own() for _ in range(4))
        gate = self.device.signal(host_set=True)
        begun = copies.submit(copies.record().wait(gate, 1).copy(middle, source, _USED))
        written = compute.submit(self._spread(compute.record(), source, first))
        computed = compute.submit(self._spread(compute.record(), last, middle), after=[begun])
        copied = copies.submit(copies.record().copy(back, last, _USED), after=[computed])
        done = compute.submit(self._spread(compute.record(), self._result(), back), after=[copied])
        self._settle()
        self._open(gate, written)
        done.wait(timeout_s=self._limit_s())

    def _graph(self, first: Buffer) -> None:
        """Compute from one buffer to the next, and replay with other buffers."""
        compute = self.device.compute
        graph = Graph()
        chain = [graph.param(f"buffer {number}") for number in range(_STEPS + 1)]
        commands = compute.record()
        for source, target in itertools.pairwise(chain):
            self._spread(commands, target, source).barrier()
        graph.add(compute, commands)
        executable = graph.compile()
        for _ in range(2):
            buffers = [first, *(self._own() for _ in range(_STEPS))]
            executable.submit(dict(zip(chain, buffers, strict=True))).wait(timeout_s=self._limit_s())
            recorded = self._spread(compute.record(), self._result(), buffers[-1])
            compute.submit(recorded).wait(timeout_s=self._limit_s())
        executable.close()

    def _collect(self) -> None:
        """Bring all results to the host by a kernel."""
        commands = self._spread(self.device.compute.record(), self._shared(1, _ALL), self._all, self._next)
        self.device.compute.submit(commands).wait(timeout_s=self._limit_s())

    def _host(self, first: Buffer) -> None:
        """Copy from the host over what is written, compute, and copy to it, each behind the other."""
        compute, copies = self.device.compute, self.device.copies[0]
        source, target = self._shared(3), self._shared(4)
        begin, end = self._own(), self._own()
        gate = self.device.signal(host_set=True)
        begun = copies.submit(copies.record().wait(gate, 1).copy(begin, source))
        written = compute.submit(self._spread(compute.record(), begin, first))
        computed = compute.submit(self._spread(compute.record(), end, begin, _BYTES), after=[begun])
        done = copies.submit(copies.record().copy(target, end), after=[computed])
        self._open(gate, written)
        done.wait(timeout_s=self._limit_s())

    def close(self) -> None:
        """Close the device."""
        self._results.clear()
        self._held.clear()
        self._programs.clear()
        self.device.close()
