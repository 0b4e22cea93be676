"""The program under which mutants of the driver run: launch, fill, copy, waits, a graph of ten kernels.

`Scenario.play` returns the device's description and the bytes of every buffer, so that two runs can be
compared.

Not here: the mutants (`interpose`), the verdict (`judge`), the kernels (a vendor's folder), the program in
memory of the device (`private`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hcq.driver import Driver
    from hcq.memory import Buffer
    from hcq.program import KernelImage

SHARED: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
BYTES: Final = 4096
USED: Final = 1024
"""Bytes of each buffer that the commands use; changes of the rest show stray writes."""
_HELD_S: Final = 0.01
"""Seconds in which work that must wait could wrongly start."""


class Scenario:
    """One run of the program. No wait lasts longer than `limit_s()` seconds."""

    def __init__(
        self,
        driver: Driver,
        kernels: Mapping[str, KernelImage],
        *,
        limit_s: Callable[[], float],
    ) -> None:
        self.device = Device(driver.open(0, None))
        self._limit_s = limit_s
        self._shared_arguments = len(kernels["shared"].args)
        """A vendor's kernel also takes the top of its shared memory, or is built for it."""
        self._programs = {name: self.device.load(one) for name, one in kernels.items()}
        self._seen: list[Buffer] = []

    def _buffer(self, byte: int) -> Buffer:
        buffer = self.device.alloc(BYTES, SHARED)
        buffer.host()[:] = bytes((byte,)) * BYTES
        self._seen.append(buffer)
        return buffer

    def play(self) -> list[bytes]:
        """Run the program; return the device's description and the bytes of all buffers."""
        self.device.clock()
        self._launch()
        self._copy()
        self._cross()
        self._graph()
        return [repr(self.device.info).encode(), *(bytes(buffer.host()) for buffer in self._seen)]

    def _launch(self) -> None:
        queue, out, mirror = self.device.compute, self._buffer(1), self._buffer(2)
        grid, shared = self._programs["grid"], self._programs["shared"]
        commands = queue.record()
        commands.exec(grid, grid.args(out, 5), groups=(2, 1, 1), threads=(32, 1, 1))
        arguments = (mirror, 2048)[: self._shared_arguments]
        commands.exec(shared, shared.args(*arguments), groups=(1, 1, 1), threads=(256, 1, 1))
        queue.submit(commands).wait(timeout_s=self._limit_s())

    def _copy(self) -> None:
        queue, source, target, filled = (
            self.device.copies[0],
            self._buffer(3),
            self._buffer(4),
            self._buffer(5),
        )
        commands = queue.record().copy(target, source, USED).fill(filled, 0x11223344, USED)
        queue.submit(commands).wait(timeout_s=self._limit_s())

    def _cross(self) -> None:
        """Copy, count on the other queue, and copy back; all work is submitted before a gate opens."""
        device = self.device
        first, middle, last, back = (self._buffer(byte) for byte in (6, 7, 8, 9))
        gate = device.signal(host_set=True)
        compute, copies, count = device.compute, device.copies[0], self._programs["count"]
        begun = copies.submit(copies.record().wait(gate, 1).copy(middle, first, USED))
        counted = compute.submit(
            compute.record().exec(count, count.args(last, middle), groups=(1, 1, 1), threads=(1, 1, 1)),
            after=[begun],
        )
        done = copies.submit(copies.record().copy(back, last, USED), after=[counted])
        time.sleep(_HELD_S)
        gate.value = 1
        done.wait(timeout_s=self._limit_s())

    def _graph(self) -> None:
        """Count from one buffer to the next, ten times, and replay."""
        device, count = self.device, self._programs["count"]
        chain = [self._buffer(10 + i) for i in range(11)]
        graph = Graph()
        opened = graph.param("start")
        commands = device.compute.record()
        for i in range(10):
            source = opened if i == 0 else chain[i]
            args = count.args(chain[i + 1], source)
            commands.exec(count, args, groups=(1, 1, 1), threads=(1, 1, 1)).barrier()
        graph.add(device.compute, commands)
        executable = graph.compile()
        for _ in range(2):
            executable.submit({opened: chain[0]}).wait(timeout_s=self._limit_s())
        executable.close()

    def close(self) -> None:
        """Close the device."""
        self._seen.clear()
        self._programs.clear()
        self.device.close()
