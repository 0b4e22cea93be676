"""Buffers of 32-bit words on a device with a planted bug, and the comparison of their contents.

Not here: the programs (a vendor's folder: `tests.mutants.nv.planted.program`). Next: `outcome`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hcq
from tests.mutants.planted.outcome import Advised, Wrong
from tools.bringup.checks import wait_while_threads_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device

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
        commands = compute.record().exec(count, count.args(last, middle), groups=(1, 1, 1), threads=(1, 1, 1))
        counted = compute.submit(commands, after=[begun])
        again = other.record().exec(count, count.args(middle, last), groups=(1, 1, 1), threads=(1, 1, 1))
        counted = other.submit(again, after=[counted])
        done = copies.submit(copies.record().copy(back, middle, 4096), after=[counted])
        gate.value = 2
        self.wait(done)
        self.expect("work of three queues", back, [9, 7])

    def expect(self, what: str, buffer: hcq.Buffer, wanted: list[int]) -> None:
        """Record a wrong result unless a buffer starts with the expected words."""
        seen = list(buffer.host().cast("I")[: len(wanted)])
        if seen != wanted:
            self.wrong.append(f"{what}: {seen[:8]} instead of {wanted[:8]}")
