"""Buffers of 32-bit words on a device with a planted bug, and the comparison of their contents.

Not here: the programs (a vendor's folder: `tests.mutants.nv.planted.program`). Next: `outcome`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import hcq
from tests.mutants.planted.outcome import Advised, Wrong
from tools.bringup.checks import wait_while_threads_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device

ONE: Final = (1, 1, 1)
SHARED: Final = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)


class Words:
    """Buffers of one device, what was wrong in them, and what programs of all vendors do alike."""

    programs: dict[str, hcq.Program]
    """The kernels, by name; "count" stores 1 + the word that it reads."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.wrong: list[str] = []
        """Wrong results. A program continues after them, because a later report has more information."""

    def words(self, count: int, value: int = 0) -> hcq.Buffer:
        """Return a host-visible buffer filled with a u32."""
        buffer = self.device.alloc(4 * count, SHARED)
        buffer.host().cast("I")[:] = memoryview(value.to_bytes(4, "little") * count).cast("I")
        return buffer

    @staticmethod
    def wait(point: hcq.Point) -> None:
        """Wait for a point; see `wait_while_threads_work`."""
        wait_while_threads_work(point)

    def play(self, parts: Sequence[str]) -> None:
        """Run parts, by the names of their methods, and close the device.

        Raises `Wrong` if a result is wrong, and `Advised` if the kernel side has doubts.
        """
        for part in parts:
            getattr(self, part)()
        advice = self.advice()
        self.device.close()
        if self.wrong:
            raise Wrong("; ".join(self.wrong))
        if advice:
            raise Advised("\n".join(advice))

    def advice(self) -> tuple[str, ...]:
        """Return the doubts of the kernel side, if a right driver gives no reason for any."""
        return ()

    def between_queues(self) -> None:
        """Copy, count on two compute queues, and copy back, all behind a gate."""
        device, count = self.device, self.programs["count"]
        first, middle, last, back = (self.words(1024, n) for n in (7, 0, 0, 0))
        gate = device.signal(host_set=True)
        compute, other, copies = device.compute, device.computes[-1], device.copies[0]
        begun = copies.submit(copies.record().wait(gate, 1).copy(middle, first, 4096))
        commands = compute.record().exec(count, count.args(last, middle), groups=ONE, threads=ONE)
        counted = compute.submit(commands, after=[begun])
        again = other.record().exec(count, count.args(middle, last), groups=ONE, threads=ONE)
        counted = other.submit(again, after=[counted])
        done = copies.submit(copies.record().copy(back, middle, 4096), after=[counted])
        gate.value = 2
        self.wait(done)
        self.expect("work of three queues", back, [9, 7])

    def kernels(self, token: int, *sizes: int) -> None:
        """Launch one thread, which stores `token`, a grid, and kernels with shared and local memory.

        `sizes` are the further arguments of the kernel with shared memory.
        """
        queue, programs = self.device.compute, self.programs
        one, grid, shared, local = self.words(4), self.words(1024), self.words(256), self.words(256)
        commands = queue.record().exec(
            programs["store"], programs["store"].args(one), groups=ONE, threads=ONE
        )
        commands.exec(programs["grid"], programs["grid"].args(grid, 5), groups=(3, 1, 1), threads=(64, 1, 1))
        commands.exec(
            programs["shared"], programs["shared"].args(shared, *sizes), groups=ONE, threads=(256, 1, 1)
        )
        commands.exec(programs["local"], programs["local"].args(local, 5), groups=ONE, threads=(64, 1, 1))
        self.wait(queue.submit(commands))
        self.expect("store", one, [token, 0])
        self.expect("shared", shared, [255 - i for i in range(256)])

    def chain(self, length: int) -> list[hcq.Buffer]:
        """Launch `length` dependent kernels in one submission and as many in others; return their words."""
        queue, count = self.device.compute, self.programs["count"]
        cells = [self.words(4) for _ in range(2 * length + 1)]
        commands = queue.record()
        for source, target in pairwise(cells[: length + 1]):
            commands.exec(count, count.args(target, source), groups=ONE, threads=ONE).barrier()
        queue.submit(commands)
        for source, target in pairwise(cells[length:]):
            point = queue.submit(
                queue.record().exec(count, count.args(target, source), groups=ONE, threads=ONE)
            )
        self.wait(point)
        self.expect("a chain of kernels", cells[-1], [2 * length])
        return cells

    def replays(self, length: int, rounds: int) -> None:
        """Replay a chain of `length` kernels with three inputs in turn.

        An executable has two replay slots, so with three inputs each slot is patched at every use.
        """
        queue, count = self.device.compute, self.programs["count"]
        cells = [self.words(4) for _ in range(length + 1)]
        graph = hcq.Graph()
        start = graph.param("start")
        commands = queue.record()
        for i in range(length):
            args = count.args(cells[i + 1], start if i == 0 else cells[i])
            commands.exec(count, args, groups=ONE, threads=ONE).barrier()
        graph.add(queue, commands)
        executable = graph.compile()
        for source in [self.words(4, 10), self.words(4, 20), self.words(4, 30)] * rounds:
            self.wait(executable.submit({start: source}))
            self.expect("a replayed chain", cells[-1], [source.host().cast("I")[0] + length])
        executable.close()

    def expect(self, what: str, buffer: hcq.Buffer, wanted: list[int]) -> None:
        """Record a wrong result unless a buffer starts with the expected words."""
        seen = list(buffer.host().cast("I")[: len(wanted)])
        if seen != wanted:
            self.wrong.append(f"{what}: {seen[:8]} instead of {wanted[:8]}")
