"""Replies of the debugger object after a fault: error state of the SMs, the MMU's last faults (nv.md 6.2).

Not here: which fault a kernel causes (`kernel_faults`), the error notifier (`channel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.debugger import (
    NV83DE_MMU_FAULT_INFO,
    NV83DE_MMU_FAULT_INFO_ENTRY,
    NV83DE_SM_ERROR_STATE_REGISTERS,
)

if TYPE_CHECKING:
    from drivers.nv.emu.machine.reports import ChannelError

_MOST_FAULTS = 4
_GLOBAL_ESR = 4
"""An arbitrary bit: it is documented only that the word is not zero."""


class Faults:
    """The fault state of one channel."""

    def __init__(self) -> None:
        self.sms: dict[int, NV83DE_SM_ERROR_STATE_REGISTERS] = {}
        """SM -> its state, if it is not all zero."""
        self.mmu: list[NV83DE_MMU_FAULT_INFO_ENTRY] = []

    def take(self, error: ChannelError) -> None:
        """Record a fault as hardware does."""
        if error.va is not None and not error.esr:
            entry = NV83DE_MMU_FAULT_INFO_ENTRY(
                faultAddress=error.va, faultType=int(error.fault), accessType=int(error.access)
            )
            self.mmu = [*self.mmu, entry][-_MOST_FAULTS:]
        if error.esr or error.sm is not None:
            self.sms[error.sm or 0] = NV83DE_SM_ERROR_STATE_REGISTERS(
                hwwGlobalEsr=_GLOBAL_ESR,
                hwwWarpEsr=error.esr,
                hwwWarpEsrPc=error.pc & 0xFFFF_FFFF,
                hwwWarpEsrPc64=error.pc,
                hwwEsrAddr=error.va or 0,
            )

    def sm(self, number: int) -> NV83DE_SM_ERROR_STATE_REGISTERS:
        """Return the state of an SM."""
        return self.sms.get(number, NV83DE_SM_ERROR_STATE_REGISTERS())

    @property
    def mmu_word(self) -> NV83DE_MMU_FAULT_INFO:
        """Return whether an MMU fault is pending, and its type and access."""
        if not self.mmu:
            return NV83DE_MMU_FAULT_INFO()
        last = self.mmu[-1]
        return NV83DE_MMU_FAULT_INFO(valid=True, faultInfo=last.faultType | last.accessType << 16)

    def clear(self, sms: int) -> None:
        """Clear the MMU's faults, and the states of the first `sms` SMs."""
        self.sms = {number: state for number, state in self.sms.items() if number >= sms}
        self.mmu.clear()
