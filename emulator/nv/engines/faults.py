"""A kernel's fault as hardware shows it: error code, SM and instruction, and the debugger object's replies.

The engine runs PTX. The assembler's line table gives the machine instruction of the PTX line that faulted.
The debugger object replies with the error state of the SMs and the MMU's last faults (docs/facts/nv.md 6.2).

Not here: the error notifier (`emulator.nv.machine.machine`). Next: `emulator.nv.reports`, the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts.debugger import (
    NV83DE_MMU_FAULT_INFO,
    NV83DE_MMU_FAULT_INFO_ENTRY,
    NV83DE_SM_ERROR_STATE_REGISTERS,
)
from drivers.nv.layouts.fault import WARP_ESR_INVALID_ADDRESS_SPACE, MmuAccess, MmuFaultType, RcCode
from drivers.nv.lines import LineTable, ptx_line, source_place
from emulator.ir.report import ReportKind
from emulator.nv.reports import ChannelError, FindingKind, mmu_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emulator.ir.report import KernelReport
    from emulator.nv.engines.images import LoadedImage

_MOST_FAULTS = 4
"""MMU faults that are kept."""
_GLOBAL_ESR = 4
"""An arbitrary bit: the facts state only that the word is not zero."""


class Faults:
    """The fault state of one channel."""

    def __init__(self) -> None:
        self.sms: dict[int, NV83DE_SM_ERROR_STATE_REGISTERS] = {}
        """Number of an SM -> its error state; SMs without an error are absent."""
        self.mmu: list[NV83DE_MMU_FAULT_INFO_ENTRY] = []
        """The last four MMU faults, the oldest first."""

    def take(self, error: ChannelError) -> None:
        """Record a fault as hardware does: as an MMU fault, an SM's error state, or both."""
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
        """Return the error state of an SM, all zero if it has none."""
        return self.sms.get(number, NV83DE_SM_ERROR_STATE_REGISTERS())

    @property
    def mmu_word(self) -> NV83DE_MMU_FAULT_INFO:
        """The debugger's word about MMU faults: whether one is pending, type and access of the last."""
        if not self.mmu:
            return NV83DE_MMU_FAULT_INFO()
        last = self.mmu[-1]
        return NV83DE_MMU_FAULT_INFO(valid=True, faultInfo=last.faultType | last.accessType << 16)

    def clear(self, sms: int) -> None:
        """Clear the MMU's faults, and the states of the first `sms` SMs."""
        self.sms = {number: state for number, state in self.sms.items() if number >= sms}
        self.mmu.clear()


_ACCESS = {"read": MmuAccess.READ, "write": MmuAccess.WRITE, "atomic": MmuAccess.ATOMIC_STRONG}
_WINDOW_FAULTS = (
    ReportKind.SHARED_OUT_OF_BOUNDS,
    ReportKind.LOCAL_OUT_OF_BOUNDS,
    ReportKind.PARAM_OUT_OF_BOUNDS,
)
_SOME_ESR = 1
"""A placeholder: the codes of most SM exceptions are not documented."""


def kernel_error(
    fault: KernelReport,
    findings: Iterable[KernelReport],
    loaded: LoadedImage,
    grid: tuple[int, int, int],
    sms: int,
) -> ChannelError:
    """Return the error that stops the channel. Its text also has the sanitizers' `findings`.

    `grid` are the workgroups along each axis, `sms` is the GPU's number of SMs; both choose the SM that
    faults.
    """
    also = "".join(f"\nalso: {in_source(finding, loaded)}" for finding in findings)
    if fault.kind is ReportKind.HANG:
        return ChannelError(
            RcCode.CONTEXT_SWITCH_TIMEOUT, FindingKind.KERNEL, in_source(fault, loaded) + also
        )
    pc, where = locate(fault.line, loaded)
    source = ptx_line(loaded.cubin.ptx, fault.line)
    text = f"{in_source(fault, loaded)}; {where}" + (f"; PTX line {fault.line}: {source}" if source else "")
    text += also
    x, y, z = fault.block or (0, 0, 0)
    sm = (x + grid[0] * (y + grid[1] * z)) % sms
    if fault.kind in (ReportKind.OUT_OF_BOUNDS, ReportKind.FORBIDDEN) and fault.address is not None:
        kind = MmuFaultType.PTE if fault.kind is ReportKind.OUT_OF_BOUNDS else MmuFaultType.RO
        error = mmu_fault(fault.address, _ACCESS.get(fault.access, MmuAccess.READ), text, kind)
        error.pc, error.sm = pc, sm
        return error
    window = fault.kind in _WINDOW_FAULTS
    esr = WARP_ESR_INVALID_ADDRESS_SPACE if window else _SOME_ESR
    return ChannelError(
        RcCode.GR_EXCEPTION, FindingKind.KERNEL, text, va=fault.address, pc=pc, sm=sm, esr=esr
    )


def in_source(finding: KernelReport, loaded: LoadedImage) -> str:
    """Return the text of a finding, with the line of the kernel's source if the PTX has it."""
    place = source_place(loaded.cubin.ptx, finding.line)
    return f"{finding}; source: {place}" if place else str(finding)


def locate(line: int, loaded: LoadedImage) -> tuple[int, str]:
    """Return the address of the last machine instruction of a PTX line, and a text for the report.

    The last one is likely the access, because address arithmetic precedes it. Without a line table, or
    without an instruction of that line, the result is the kernel's entry.
    """
    table = LineTable.of(loaded.cubin.elf, loaded.kernel.text.name)
    entry = loaded.program
    if table is None:
        return entry, f"pc {entry:#x}, the entry: the image has no table of lines"
    offsets = table.offsets_of(line)
    if not offsets:
        return entry, f"pc {entry:#x}, the entry: no machine instruction belongs to the line"
    return entry + offsets[-1], f"pc {entry + offsets[-1]:#x}, {offsets[-1]:#x} in the code"
