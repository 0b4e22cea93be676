"""The doorbell page: the clock registers and the doorbell register (docs/facts/nv.md 2.3).

Both mappings of the page accept doorbell stores. Only the mapping through BAR0 can be read. A load through
BAR1 returns all ones, as on the bus.

Not here: the driver's side (`drivers.nv.doorbell`). Next: `channel`, which a doorbell starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.gpfifo import UsermodeRegister, WorkSubmitToken
from emulator.nv.reports import FindingKind
from hcq.errors import UsageError

if TYPE_CHECKING:
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.objects import Usermode

_HIGH_BITS = 0x1FFF_FFFF
_ALL_ONES = 0xFFFF_FFFF
_CLOCK = (UsermodeRegister.TIME_0, UsermodeRegister.TIME_1)


class DoorbellPage:
    """A `drivers.kernel.Mmio` of the page.

    A doorbell store only records entries: the scheduler's thread runs them.
    """

    def __init__(self, machine: NvMachine, target: Usermode) -> None:
        self._machine = machine
        self._gpu = target.gpu
        self._stores_only = target.bar1
        self._told = False
        self._open = True

    def read32(self, offset: int) -> int:
        """Read a clock register; through BAR1, return all ones and report the mistake once.

        Raises `UsageError` for another offset, and after `close`.
        """
        if not self._open:
            self._refuse("a read of a page that was unmapped")
        if offset not in _CLOCK:
            return self._refuse(f"a read of 32 bits at {offset:#x}")
        register = UsermodeRegister(offset)
        if self._stores_only:
            self._tell(register)
            return _ALL_ONES
        if self._machine.surprises.at("clock") is not None:
            return _ALL_ONES
        now = self._machine.time_ns()
        return now & 0xFFFF_FFFF if register == UsermodeRegister.TIME_0 else now >> 32 & _HIGH_BITS

    def _tell(self, register: UsermodeRegister) -> None:
        if not self._told:
            self._told = True
            text = f"doorbell page: {register.name} was read through BAR1, which takes stores only"
            self._machine.find(
                FindingKind.HOST, f"{text}: map another page with bBar1Mapping 0 for the clock"
            )

    def read64(self, offset: int) -> int:
        """Report and raise `UsageError`: the registers have 32 bits."""
        return self._refuse(f"a read of 64 bits at {offset:#x}")

    def write32(self, offset: int, value: int) -> None:
        """Write a token to the doorbell. A token of no channel is reported.

        Raises `UsageError` for another offset, and after `close`.
        """
        machine = self._machine
        if offset != UsermodeRegister.NOTIFY_CHANNEL_PENDING:
            self._refuse(f"a write of 32 bits at {offset:#x}")
        if not self._open:
            self._refuse("a write to a page that was unmapped")
        channel = self._gpu.tokens.get(value)
        if channel is None:
            machine.find(FindingKind.HOST, self._strange(value))
            return
        machine.doorbell_rung(channel)

    def _strange(self, value: int) -> str:
        """Describe a token that belongs to no channel."""
        text = f"the doorbell was rung with {value:#x}, which is no channel's token"
        mask = WorkSubmitToken.FIELDS["CHANNEL"].mask()
        near = [(one, channel) for one, channel in self._gpu.tokens.items() if not (one ^ value) & mask]
        for token, channel in near:
            fields = WorkSubmitToken.FIELDS.items()
            changed = [name for name, field in fields if (token ^ value) & field.mask()]
            other = f"{', '.join(changed)} differs" if changed else f"bits {token ^ value:#x} differ"
            text += (
                f"; {channel.run.name} has {token:#x}: {other}. A token is rung as "
                "GPFIFO_GET_WORK_SUBMIT_TOKEN gave it"
            )
        return text

    def write64(self, offset: int, value: int) -> None:
        """Report and raise `UsageError`: the registers have 32 bits."""
        self._refuse(f"a write of 64 bits at {offset:#x}: {value:#x}")

    def close(self) -> None:
        """Unmap the page: later accesses are errors."""
        self._open = False

    def _refuse(self, what: str) -> int:
        self._machine.find(FindingKind.HOST, f"doorbell page: {what}")
        raise UsageError(
            f"the doorbell page has TIME_0, TIME_1 and NOTIFY_CHANNEL_PENDING, 32 bits each; seen: {what}"
        )
