"""The doorbell page: a clock to read, and the register that takes tokens (nv.md 2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.emu.machine.reports import Kind
from drivers.nv.layouts.gpfifo import UsermodeRegister
from hcq.errors import UsageError

if TYPE_CHECKING:
    from drivers.nv.emu.machine.machine import Machine
    from drivers.nv.emu.machine.objects import Usermode

_HIGH_BITS = 0x1FFF_FFFF


class Doorbell:
    """A `drivers.kernel.Mmio` over the page. A write takes note and returns; the scheduler does the work."""

    def __init__(self, machine: Machine, target: Usermode) -> None:
        self._machine = machine
        self._target = target
        self._fences = -1
        self._open = True

    def read32(self, offset: int) -> int:
        """Read a clock register."""
        if not self._open:
            self._refuse("a read of a page that was unmapped")
        now = self._machine.time_ns()
        if offset == UsermodeRegister.TIME_0:
            return now & 0xFFFF_FFFF
        if offset == UsermodeRegister.TIME_1:
            return now >> 32 & _HIGH_BITS
        return self._refuse(f"a read of 32 bits at {offset:#x}")

    def read64(self, offset: int) -> int:
        """Refuse: the registers have 32 bits."""
        return self._refuse(f"a read of 64 bits at {offset:#x}")

    def write32(self, offset: int, value: int) -> None:
        """Ring the bell."""
        machine = self._machine
        if offset != UsermodeRegister.NOTIFY_CHANNEL_PENDING:
            self._refuse(f"a write of 32 bits at {offset:#x}")
        if not self._open:
            self._refuse("a write to a page that was unmapped")
        channel = machine.tokens.get(value)
        if channel is None:
            machine.find(Kind.HOST, f"the doorbell was rung with {value:#x}, which is no channel's token")
            return
        combined = channel.run.setup.userd[0].write_combined
        if combined and machine.fences == self._fences:
            machine.find(
                Kind.COHERENCE,
                f"no fence between GPPut of {channel.run.name}, in write-combined memory, and the doorbell",
            )
        self._fences = machine.fences
        machine.scheduler.rung(channel)

    def write64(self, offset: int, value: int) -> None:
        """Refuse: the registers have 32 bits."""
        self._refuse(f"a write of 64 bits at {offset:#x}: {value:#x}")

    def close(self) -> None:
        """Unmap."""
        self._open = False

    def _refuse(self, what: str) -> int:
        self._machine.find(Kind.HOST, f"doorbell page: {what}")
        raise UsageError(
            f"the doorbell page knows TIME_0, TIME_1 and NOTIFY_CHANNEL_PENDING, 32 bits each; seen: {what}"
        )
