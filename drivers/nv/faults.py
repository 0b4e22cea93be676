"""Fault reports of a stopped channel: from the error notifier, SM error states and MMU faults.

Once a notifier has an error, `report` queries a debugger object, which sandboxes allow. If a sandbox filters
the MMU query, the fault address comes from the SM's registers (nv.md 6.2, 7.2).

Not here: polling the notifiers (`device`), the text for users (`hcq.faults.messages`), the line table
(`lines`). Next: `drivers.nv.layouts.debugger`, the queries' structures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from drivers.elf import EXECUTE
from drivers.nv import cubin
from drivers.nv.channel import Channel
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.cubin import PTX_SECTION
from drivers.nv.layouts.debugger import (
    MAX_SMS_PER_READ,
    NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS,
    NV83DE_SM_ERROR_STATE_REGISTERS,
    NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS,
)
from drivers.nv.layouts.fault import (
    RC_CURE,
    RC_MEANING,
    RC_UNKNOWN,
    WARP_ESR_INVALID_ADDRESS_SPACE,
    MmuFaultType,
    NvNotification,
    RcCode,
)
from drivers.nv.layouts.rm_classes import NV83DE_ALLOC_PARAMETERS, RmClass
from drivers.nv.lines import LineTable, ptx_line
from drivers.nv.memory import NvMemory
from drivers.nv.program import NvProgram
from drivers.nv.rm import Rm
from drivers.nv.topology import Handles, NvGpu
from drivers.shared.memorymap import MemoryMap
from hcq.errors import DriverError, FaultKind, FaultReport, UsageError

Access = Literal["read", "write", "execute", "atomic"]

_KINDS: dict[int, FaultKind] = {
    RcCode.MMU_FAULT: FaultKind.PAGE_FAULT,
    RcCode.PBDMA_ERROR: FaultKind.BAD_PACKET,
    RcCode.GR_CLASS_ERROR: FaultKind.BAD_PACKET,
    RcCode.GR_EXCEPTION: FaultKind.ENGINE_EXCEPTION,
    RcCode.CONTEXT_SWITCH_TIMEOUT: FaultKind.HANG,
    RcCode.GSP_RPC_TIMEOUT: FaultKind.HANG,
    RcCode.OFF_THE_BUS: FaultKind.RESET,
}
_OF_KERNELS = frozenset({RcCode.GR_EXCEPTION, RcCode.CONTEXT_SWITCH_TIMEOUT})
"""Codes that a kernel usually causes. If no kernel was launched, they have another cause."""


@dataclass(frozen=True, slots=True)
class SmError:
    """The error state of one SM that stopped."""

    sm: int
    state: NV83DE_SM_ERROR_STATE_REGISTERS

    def __str__(self) -> str:
        state = self.state
        known = (
            " (invalid address space)" if state.hwwWarpEsr & 0xFFFF == WARP_ESR_INVALID_ADDRESS_SPACE else ""
        )
        return (
            f"SM {self.sm}: global ESR {state.hwwGlobalEsr:#x}, warp ESR {state.hwwWarpEsr:#x}{known}, "
            f"pc {pc_of(state):#x}, address {state.hwwEsrAddr:#x}"
        )


def pc_of(state: NV83DE_SM_ERROR_STATE_REGISTERS) -> int:
    """Return the program counter of the warp, as a device address."""
    return state.hwwWarpEsrPc64 or state.hwwWarpEsrPc


def sm_errors(rm: Rm, handles: Handles, gpu: NvGpu, channel: Channel) -> tuple[list[SmError], str]:
    """Query a debugger object; return the stopped SMs, and a description of the MMU fault or "".

    Raises `DriverError` if the kernel driver refuses a query.
    """
    params = NV83DE_ALLOC_PARAMETERS(hAppClient=rm.root, hClass3dObject=channel.compute_object)
    debugger = rm.alloc(handles.device, RmClass.GT200_DEBUGGER, params)
    found: list[SmError] = []
    mmu = ""
    try:
        for start in range(0, gpu.sms, MAX_SMS_PER_READ):
            count = min(MAX_SMS_PER_READ, gpu.sms - start)
            reply = rm.control(
                debugger,
                Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES,
                NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS(
                    hTargetChannel=channel.handle, numSMsToRead=count, startingSM=start
                ),
            )
            if reply.mmuFault.valid:
                mmu = f"the MMU reports a fault on the SMs: raw word {reply.mmuFault.faultInfo:#x}"
            states = reply.smErrorStateArray[:count]
            found += [
                SmError(start + i, state)
                for i, state in enumerate(states)
                if state.hwwGlobalEsr or state.hwwWarpEsr
            ]
    finally:
        rm.free(debugger)
    return found, mmu


@dataclass(frozen=True, slots=True)
class MmuFault:
    """A failed access, as the channel recorded it."""

    va: int
    """Device address of the access; 0: not reported."""
    kind: int
    """The fault type: a `MmuFaultType`, or a number without a name."""
    access: Access | None
    """None: not reported."""
    text: str
    shaders: tuple[int, ...]
    """Start addresses of the programs that ran, without zeros."""


def mmu_fault(rm: Rm, channel: Channel) -> MmuFault | None:
    """Query the channel for its MMU fault; None if there is none or a sandbox filters the query."""
    # Sandboxes filter this control, and no control that they allow gives the full address (nv.md 7.2).
    with contextlib.suppress(DriverError):
        reply: Any = rm.control(
            channel.handle, Control.NV906F_CTRL_GET_MMU_FAULT_INFO, NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS()
        )
        va = reply.addrHi << 32 | reply.addrLo
        if va or reply.faultString or reply.faultType:
            text = reply.faultString or _fault_name(reply.faultType)
            access = _access_in(reply.faultString)
            return MmuFault(va, reply.faultType, access, text, tuple(v for v in reply.shaderProgramVA if v))
    return None


def _fault_name(kind: int) -> str:
    return MmuFaultType(kind).name if kind in MmuFaultType._value2member_map_ else f"type {kind}"


def _access_in(text: str) -> Access | None:
    for word in ("write", "atomic", "read"):
        if word in text.lower():
            return word
    return None


def source_at(program: NvProgram, pc: int) -> str:
    """Describe the PTX line of the instruction at `pc`; "" if the image has no line for it.

    Hardware may report a later instruction than the one that faulted: this is not known (nv.md 6.2). Raises
    `UsageError` if the line table is malformed.
    """
    name = program.image.name
    elf, placement, _ = cubin.read(program.image.code, name)
    at = pc - program.memory.va
    for section in elf.sections:
        start = placement.offsets.get(section.index)
        if start is None or not section.flags & EXECUTE or not start <= at < start + section.size:
            continue
        table = LineTable.of(elf, section.name)
        line = table.line_at(at - start) if table is not None else None
        if line is None:
            return ""
        ptx = elf.section(PTX_SECTION)
        text = elf.content(ptx).rstrip(b"\0").decode(errors="replace") if ptx is not None else ""
        return f"at or just before line {line} of {name}.ptx: {ptx_line(text, line)}".rstrip(" :")
    return ""


def off_the_bus(device: str) -> FaultReport:
    """Return the report of a GPU whose registers read as all ones. No error notifier reports this state."""
    return FaultReport(
        device=device,
        kind=FaultKind.RESET,
        message=(
            f"the clock register TIME_1 reads 0xffffffff: {RC_MEANING[RcCode.OFF_THE_BUS]} (Xid 79), or it "
            "sleeps after a suspend"
        ),
        cure=RC_CURE[RcCode.OFF_THE_BUS],
    )


def report(
    *,
    device: str,
    rm: Rm,
    handles: Handles,
    gpu: NvGpu,
    channel: Channel,
    notification: NvNotification,
    memory: MemoryMap[NvMemory],
    programs: Iterable[NvProgram],
    launched: Iterable[str],
    stuck: str,
) -> FaultReport:
    """Return a fault report with all available information about a channel's error.

    `launched` are the names of kernels, oldest first. `stuck` describes the position of the ring. A query
    that the kernel driver refuses becomes a line of the report.
    """
    code = notification.info32
    meaning = RC_MEANING.get(code, "see the list of Xid codes of the kernel driver")
    lines = [f"the kernel driver stopped the channel with code {code} (Xid): {meaning}"]
    errors: list[SmError] = []
    if channel.compute_object:
        try:
            errors, mmu = sm_errors(rm, handles, gpu, channel)
            lines += [mmu] * bool(mmu)
        except DriverError as error:
            lines.append(f"SM error states could not be read: {error}")
    lines += [str(error) for error in errors[:8]]
    fault = mmu_fault(rm, channel)
    if fault is not None:
        lines.append(f"MMU: {fault.text} at {fault.va:#x}")
    va = (
        fault.va
        if fault and fault.va
        else next((e.state.hwwEsrAddr for e in errors if e.state.hwwEsrAddr), None)
    )
    programs = tuple(programs)
    counters = [pc_of(e.state) for e in errors] + list(fault.shaders if fault else ())
    kernel = next((p.image.name for pc in counters for p in programs if p.holds(pc)), None)
    try:
        # The shader addresses of an MMU fault are start addresses of programs, not of instructions.
        sources = [source_at(p, pc_of(e.state)) for e in errors for p in programs if p.holds(pc_of(e.state))]
    except UsageError as error:
        lines.append(f"the PTX line could not be found: {error}")
        sources = []
    last = tuple(dict.fromkeys(launched))
    if not last and code in _OF_KERNELS:
        lines.append("no kernel was encoded on this device, so no kernel caused the fault")
    elif kernel is None and last:
        lines.append(f"no program counter names the kernel; encoded last: {', '.join(last)}")
    return FaultReport(
        device=device,
        kind=_KINDS.get(code, FaultKind.QUEUE_ERROR),
        message="\n  ".join(lines),
        va=va,
        access=fault.access if fault else None,
        kernel=kernel,
        source=next(filter(None, sources), ""),
        nearest=memory.nearest(va) if va is not None else "",
        queue=channel.label,
        stuck_at=stuck,
        reports=rm.kernel.diagnostics(),
        cure=RC_CURE.get(code, RC_UNKNOWN),
    )
