"""The program that runs on a driver with a planted bug: `python program.py DEVICE`.

It uses each part of the driver: memory, code, arguments, launches with shared and scratch memory, dependent
kernels, copies and fills of video memory, waits between queues, a graph of kernels and one of copies, rings
that wrap, teardown.

Not here: starting it with a planted bug (`tools.mutants.planted.run`). Next: `tools.mutants.planted.outcome`,
which prints the outcome.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Final

os.environ["HCQ_RING_BYTES"] = "16384"  # before anything reads the configuration

import hcq
from tools.bringup.amd.kernels import TOKEN, image
from tools.mutants.planted.outcome import Wrong, report
from tools.mutants.planted.words import Words

VRAM: Final = hcq.BufferSpec(place=hcq.Place.VRAM)
WAIT_S: Final = 20.0
ONE: Final = (1, 1, 1)
_LAPS: Final = 150
"""Submissions: more than a small ring has room for."""
_LDS: Final = 4096


class Program(Words):
    """One run on one device."""

    def __init__(self, name: str) -> None:
        super().__init__(hcq.open(name, validate=True))
        arch = self.device.info.arch
        self.programs = {n: self.device.load(image(n, arch)) for n in ("store", "grid", "count", "local")}
        self.programs["shared"] = self.device.load(image("shared", arch, shared_bytes=_LDS))

    def launches(self) -> None:
        """Launch one thread, a grid, and kernels with shared and scratch memory."""
        queue, programs = self.device.compute, self.programs
        one, grid, shared, local = self.words(4), self.words(1024), self.words(256), self.words(256)
        commands = queue.record().exec(
            programs["store"], programs["store"].args(one), groups=ONE, threads=ONE
        )
        commands.exec(programs["grid"], programs["grid"].args(grid, 5), groups=(3, 1, 1), threads=(64, 1, 1))
        commands.exec(programs["shared"], programs["shared"].args(shared), groups=ONE, threads=(256, 1, 1))
        commands.exec(programs["local"], programs["local"].args(local, 5), groups=ONE, threads=(64, 1, 1))
        queue.submit(commands).wait(timeout_s=WAIT_S)
        self.expect("store", one, [TOKEN, 0])
        self.expect("shared", shared, [255 - i for i in range(256)])

    def dependent(self) -> None:
        """Launch dependent kernels, in one submission and in several."""
        queue, count = self.device.compute, self.programs["count"]
        cells = [self.words(4) for _ in range(5)]
        commands = queue.record()
        for source, target in pairwise(cells[:3]):
            commands.exec(count, count.args(target, source), groups=ONE, threads=ONE).barrier()
        queue.submit(commands)
        for source, target in pairwise(cells[2:]):
            point = queue.submit(
                queue.record().exec(count, count.args(target, source), groups=ONE, threads=ONE)
            )
        point.wait(timeout_s=WAIT_S)
        self.expect("a chain of kernels", cells[-1], [4])

    def private(self) -> None:
        """Count in video memory that copies fill and read."""
        device, count = self.device, self.programs["count"]
        source, back = self.words(1024, 7), self.words(1024)
        first, middle = device.alloc(4096, VRAM), device.alloc(4096, VRAM)
        copies, compute = device.copies[0], device.compute
        begun = copies.submit(copies.record().copy(first, source, 4096).fill(middle, 1, 4096))
        commands = compute.record().exec(count, count.args(middle, first), groups=ONE, threads=ONE)
        counted = compute.submit(commands, after=[begun])
        copies.submit(copies.record().copy(back, middle, 4096), after=[counted]).wait(timeout_s=WAIT_S)
        self.expect("a kernel between copies", back, [8, 1])

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
        done.wait(timeout_s=WAIT_S)
        self.expect("work of three queues", back, [9, 7])

    def graphs(self) -> None:
        """Replay a chain of kernels with three inputs in turn, and copies."""
        device, count = self.device, self.programs["count"]
        cells = [self.words(4) for _ in range(3)]
        graph = hcq.Graph()
        start = graph.param("start")
        commands = device.compute.record()
        for i in range(2):
            args = count.args(cells[i + 1], start if i == 0 else cells[i])
            commands.exec(count, args, groups=ONE, threads=ONE).barrier()
        graph.add(device.compute, commands)
        executable = graph.compile()
        for source in [self.words(4, 10), self.words(4, 20), self.words(4, 30)]:
            executable.submit({start: source}).wait(timeout_s=WAIT_S)
            self.expect("a replayed chain", cells[-1], [source.host().cast("I")[0] + 2])
        executable.close()
        source, target = self.words(1024, 3), self.words(1024)
        moved = hcq.Graph()
        moved.add(device.copies[0], device.copies[0].record().copy(target, source, 4096))
        copying = moved.compile()
        for _ in range(2):
            copying.submit().wait(timeout_s=WAIT_S)
        self.expect("a replayed copy", target, [3])
        copying.close()

    def laps(self) -> None:
        """Submit more often than the rings have room for."""
        device = self.device
        for queue in (device.copies[0], device.compute):
            cell = self.words(4)
            for lap in range(_LAPS):
                point = queue.submit(queue.record().fill(cell, lap, 16))
            point.wait(timeout_s=WAIT_S)
            self.expect("the last of many fills", cell, [_LAPS - 1])

    def play(self) -> None:
        """Run all parts and close the device; `Wrong` if a result is wrong."""
        self.launches()
        self.dependent()
        self.private()
        self.between_queues()
        self.graphs()
        self.laps()
        self.device.close()
        if self.wrong:
            raise Wrong("; ".join(self.wrong))


if __name__ == "__main__":
    report(lambda: Program(sys.argv[1]).play())
