"""Bugs on the wire of an AMD driver, written from the facts by an author who had not read the driver.

Each is a fact that a hasty reader of the documents gets wrong. The list, with the words that a report must
have, was complete before the first of them ran (docs/reliability.md).

Not here: what a change does (`stream`, `tests.mutants.planted.wire`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import aql, cwsr, pm4, pm4_generations, sdma
from drivers.amd.layouts.kfd import MemFlags, QueueType
from drivers.amd.layouts.registers import SH_BASE, Initiator
from emulator.amd.engines.engines import AmdEngines
from emulator.amd.machine import open_machine
from emulator.ir.library import Sanitizers
from emulator.simt.engine import Settings
from hcq.config import config
from tests.mutants.amd.emulated import AmdMachine
from tests.mutants.amd.planted import program
from tests.mutants.amd.planted.stream import (
    Bell,
    Exchanged,
    LateHeader,
    NoPacket,
    Packet,
    Prepared,
    Register,
    Unmapped,
)
from tests.mutants.planted.wire import LateCall, Mapped, Member, NoCall, NoFence, WireBug, Wires

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mutants.planted.wire import Change

_ALLOC: Final = "ALLOC_MEMORY_OF_GPU"
_QUEUE: Final = "CREATE_QUEUE of COMPUTE(_AQL)?"
_SCRATCH_LANE: Final = 64 * 32 * 38 * 8
"""Lanes of all waves that a gfx942 of 8 XCCs with 38 compute units has scratch for."""
_LAUNCHES: Final = ("launches",)
_PM4: Final = (QueueType.COMPUTE,)
_AQL: Final = (QueueType.COMPUTE_AQL,)
_SDMA: Final = (QueueType.SDMA,)


def _bug(  # noqa: PLR0917 - columns of a table
    name: str,
    change: Change,
    names: str,
    seen: str,
    parts: tuple[str, ...] = (),
    device: str = "gfx1100",
    harmless: Mapping[str, str] = MappingProxyType({}),
) -> WireBug:
    return WireBug(
        name=name, device=device, changes=(change,), names=names, seen=seen, parts=parts, harmless=harmless
    )


_page_handle: Final[list[int]] = []


def _first_handle(value: int) -> int:
    _page_handle.append(value)
    return next(filter(None, _page_handle), 0)


_CALLS: Final = (
    _bug("the process is not tied to the GPU", NoCall(call="ACQUIRE_VM"), r"ACQUIRE_VM",
         "the first call for a GPU, before any memory"),
    _bug("one block of memory is not mapped",
         NoCall(call="MAP_MEMORY_TO_GPU", at=1, undo="UNMAP_MEMORY_FROM_GPU", handles=("handle", "handle")),
         r"MAP_MEMORY_TO_GPU|not mapped|no mapping", "allocating does not map"),
    _bug("memory is mapped to no GPU", Member(call="MAP_MEMORY_TO_GPU", name="n_devices", value=0),
         r"n_devices", "an array and its length"),
    _bug("system memory without WRITABLE",
         Member(call=_ALLOC, name="flags", value=lambda v: v & ~int(MemFlags.WRITABLE),
                where=("flags", lambda v: bool(v & MemFlags.GTT))),
         r"WRITABLE|read.only", "readable always, the others by their bits"),
    _bug("video memory without EXECUTABLE",
         Member(call=_ALLOC, name="flags", value=lambda v: v & ~int(MemFlags.EXECUTABLE),
                where=("flags", lambda v: bool(v & MemFlags.VRAM))),
         r"EXECUTABLE|not executable|no.?execute", "code lies in it"),
    _bug("doorbells of one page", Mapped(call="mmio", name="size", value=4096),
         r"8192|0x2000|doorbell", "a process slice has 8 KiB"),
    _bug("the ring's size in dwords", Member(call=_QUEUE, name="ring_size", value=lambda v: v // 4),
         r"ring_size", "bytes, for every type of queue"),
    _bug("a control stack of a page more",
         Member(call=_QUEUE, name="ctl_stack_size", value=lambda v: v + 4096),
         r"ctl_stack_size", "must be equal, not only as large"),
    _bug("context of all XCCs for that of one",
         Member(call=_QUEUE, name="ctx_save_restore_size", value=lambda v: 8 * v),
         r"ctx_save_restore_size|context.?save", "the size of one XCC", device="gfx942"),
    _bug("an end-of-pipe buffer of 2 KiB", Member(call=_QUEUE, name="eop_buffer_size", value=2048),
         r"eop_buffer_size|eop|end.of.pipe", "at least 4096"),
    _bug("copy queue of the type for links between GPUs",
         Member(call="CREATE_QUEUE of SDMA", name="queue_type", value=int(QueueType.SDMA_XGMI)),
         r"XGMI|queue_type", "SDMA_XGMI looks like SDMA",
         harmless=dict.fromkeys(("gfx942", "gfx942-cpx", "gfx950"),
                                "SDMA engines for links run copies, too, and the topology has 14 of them")),
    _bug("a queue of no percentage", Member(call=_QUEUE, name="queue_percentage", value=0),
         r"queue_percentage|inactive|percent", "0 takes it off the hardware",
         harmless=dict.fromkeys(("gfx942", "gfx950"),
                                "the driver binds scratch by UPDATE_QUEUE, which activates an AQL queue")),
    _bug("write pointer of an AQL queue a member too far",
         Member(call=_QUEUE, name="write_pointer_address", value=lambda v: v + 8),
         r"write_dispatch_id|write.?pointer", "write_dispatch_id lies at 56", device="gfx942"),
    _bug("a read pointer at an odd multiple of 4",
         Member(call=_QUEUE, name="read_pointer_address", value=lambda v: v + 4),
         r"read_pointer|read pointer|align", "8 bytes, aligned"),
    _bug("the event page is handed over twice",
         Member(call="CREATE_EVENT", name="event_page_offset", value=_first_handle),
         r"event.?page", "only the first event brings it"),
    _bug("the run time is enabled behind the first queue",
         LateCall(call="RUNTIME_ENABLE", behind="CREATE_QUEUE of SDMA"),
         r"RUNTIME_ENABLE", "before any queue"),
    _bug("no event for exceptions in the context-save header",
         Prepared(layout=cwsr.kfd_context_save_area_header, name="err_event_id", value=0),
         r"err_event_id|names no event", "the driver writes the header before CREATE_QUEUE"),
    _bug("memory is freed while it is mapped", NoCall(call="UNMAP_MEMORY_FROM_GPU"),
         r"UNMAP_MEMORY|still mapped|mapped", "freeing does not unmap"),
    _bug("memory is unmapped while a launch uses it", Unmapped(at=0),
         r"UNMAP_MEMORY|unmapped", "a submission is not complete when its doorbell was rung", _LAUNCHES),
)  # fmt: skip
_RINGS: Final = (
    _bug("doorbell of a compute queue in bytes", Bell(what="value", value=lambda v: 4 * v, kinds=_PM4),
         r"doorbell|write pointer", "dwords for PM4"),
    _bug("doorbell of a copy queue in dwords", Bell(what="value", value=lambda v: v // 4, kinds=_SDMA),
         r"doorbell|write pointer", "bytes for SDMA"),
    _bug("doorbell of an AQL queue is its write index", Bell(what="value", value=lambda v: v + 1, kinds=_AQL),
         r"doorbell", "the index of the last packet", device="gfx942"),
    _bug("the write pointer in memory stays 0", Bell(what="pointer", value=lambda _: 0, kinds=_PM4),
         r"write.?pointer", "the kernel reads it when it maps the queue again"),
    _bug("doorbells of 4 bytes", Bell(what="offset", value=lambda v: v // 2, kinds=_PM4),
         r"doorbell", "64-bit doorbells since gfx9"),
    _bug("headers of AQL packets behind the doorbell", LateHeader(), r"INVALID|header",
         "the header is stored last of the packet, before the doorbell", device="gfx942"),
    _bug("no fences", NoFence(), r"fence", "two fences: behind the packets, behind the write pointer"),
)  # fmt: skip
_RELEASE: Final = pm4_generations.ReleaseMem
_PM4_PACKETS: Final = (
    _bug("an interrupt with the next event",
         Packet(layout=_RELEASE, name="INT_CTXID", value=lambda v: v + 1, events=True),
         r"INT_CTXID|another event|event 0x2|context id", "slot and interrupt have the same number"),
    _bug("a 64-bit release at an odd multiple of 4",
         Packet(layout=_RELEASE, name="ADDRESS_LO", value=lambda v: v + 4, events=False),
         r"align|multiple of 8", "8 bytes for 64-bit data", _LAUNCHES),
    _bug("a release at the end of the shader",
         Packet(layout=_RELEASE, name="EVENT_INDEX", value=int(pm4.EventIndex.SHADER_DONE)),
         r"EVENT_INDEX", "6 goes with CS_DONE", _LAUNCHES),
    _bug("a wait for a register",
         Packet(layout=pm4.WaitRegMem, name="MEM_SPACE", value=int(pm4.MemSpace.REGISTER)),
         r"MEM_SPACE|register", "0 is registers", ("between_queues",)),
    _bug("a wait for more than the value",
         Packet(layout=pm4.WaitRegMem, name="FUNCTION", value=int(pm4.Function.GT)),
         r"FUNCTION|\bGT\b|greater|more than|> ", "5 is >=, 6 is >", ("between_queues",)),
    _bug("a wait under no mask", Packet(layout=pm4.WaitRegMem, name="MASK", value=0),
         r"MASK|mask", "the mask selects bits to compare", ("between_queues",)),
    _bug("ACQUIRE_MEM of gfx9 on gfx11",
         Packet(layout=pm4_generations.AcquireMem, name="_header",
                value=pm4.header(pm4.Opcode.ACQUIRE_MEM, 7)),
         r"ACQUIRE_MEM", "8 dwords since gfx10", _LAUNCHES),
    _bug("a release without writing L2 back",
         Packet(layout=_RELEASE, name="GL2_WB", value=0),
         r"GL2_WB|GL2|L2", "results in L2 are not in memory", ("private",)),
    _bug("an acquire that keeps the vector cache",
         Packet(layout=pm4_generations.AcquireMem, name="GLV_INV", value=0,
                nested=pm4_generations.GcrCntl, word=7),
         r"GLV_INV", "each level has its bit"),
    _bug("an acquire that keeps the instruction cache",
         Packet(layout=pm4_generations.AcquireMem, name="GLI_INV", value=0,
                nested=pm4_generations.GcrCntl, word=7),
         r"GLI_INV|instruction cache", "code was uploaded"),
    _bug("registers by their absolute place",
         Packet(layout=pm4.SetShReg, name="REG_OFFSET", value=lambda v: v + SH_BASE),
         r"REG_OFFSET|register", "from the base of the SH registers", _LAUNCHES),
    _bug("SET_SH_REG counts its offset",
         Packet(layout=pm4.SetShReg, name="COUNT", value=lambda v: v + 1),
         r"SET_SH_REG|COUNT", "the count is that of the values", _LAUNCHES),
    _bug("code address in bytes", Register(register="COMPUTE_PGM_LO", value=lambda v: v << 8),
         r"PGM_LO|PGM|code", "in units of 256 bytes", _LAUNCHES),
    _bug("the upper half of the arguments' address stays 0",
         Register(register="COMPUTE_USER_DATA_1", value=0),
         r"USER_DATA|kernel arguments?|kernarg", "two registers", _LAUNCHES),
    _bug("waves of 64 lanes for code of 32",
         Packet(layout=pm4.DispatchDirect, name="CS_W32_EN", value=0, nested=Initiator, word=4),
         r"CS_W32_EN|wave32|32 lanes", "the dispatch says so, not the code", _LAUNCHES),
    _bug("LDS in granules of 1 KiB",
         Register(register="COMPUTE_PGM_RSRC2", name="LDS_SIZE", value=lambda v: v // 2),
         r"LDS", "512 bytes", _LAUNCHES),
    _bug("scratch without its bit",
         Register(register="COMPUTE_PGM_RSRC2", name="SCRATCH_EN", value=0),
         r"SCRATCH_EN|scratch", "TMPRING alone gives none", _LAUNCHES),
    _bug("scratch of a wave in KiB on gfx11",
         Register(register="COMPUTE_TMPRING_SIZE", name="WAVESIZE", value=lambda v: v // 4),
         r"WAVESIZE|TMPRING", "256 bytes since gfx11", _LAUNCHES),
    _bug("scratch waves of the chip for those of an engine",
         Register(register="COMPUTE_TMPRING_SIZE", name="WAVES", value=lambda v: min(6 * v, 0xFFF)),
         r"WAVES\b|TMPRING", "divided by the shader engines since gfx11", _LAUNCHES),
    _bug("scratch base in bytes",
         Register(register="COMPUTE_DISPATCH_SCRATCH_BASE_LO", value=lambda v: v << 8),
         r"SCRATCH_BASE|scratch", "in units of 256 bytes", _LAUNCHES),
    _bug("PRIV on gfx12", Register(register="COMPUTE_PGM_RSRC1", name="PRIV", value=1),
         r"PRIV", "only gfx11 wants it", _LAUNCHES, "gfx1201",
         harmless={"gfx1151": "open in the sources: one driver sets it on all of gfx11 (D9)"}),
    _bug("the IEEE bit of gfx11 on gfx12",
         Register(register="COMPUTE_PGM_RSRC1", name="DISABLE_PERF", value=1),
         r"DISABLE_PERF|RSRC1", "bit 23 has another meaning", _LAUNCHES, "gfx1201"),
    _bug("interleaved work-items on gfx12",
         Register(register="COMPUTE_NUM_THREAD_X", name="INTERLEAVE_BITS", value=1),
         r"INTERLEAVE", "NUM_THREAD has 13 bits there", _LAUNCHES, "gfx1201"),
    _bug("an indirect buffer that is not valid",
         Packet(layout=pm4.IndirectBuffer, name="VALID", value=0),
         r"VALID", "bit 23 must be 1", ("graphs",)),
    _bug("an indirect buffer's size in bytes",
         Packet(layout=pm4.IndirectBuffer, name="IB_SIZE", value=lambda v: 4 * v),
         r"IB_SIZE|INDIRECT_BUFFER|indirect buffer", "dwords", ("graphs",)),
    _bug("a fill that goes on at once",
         Packet(layout=pm4.DmaData, name="CP_SYNC", value=0),
         r"CP_SYNC", "bytes may still be on their way", ("laps",)),
    _bug("kernels without a flush between them", NoPacket(layout=pm4.EventWrite),
         r"race|before|order", "kernels of one queue overlap"),
    _bug("an acquire that keeps the scalar cache",
         Packet(layout=pm4_generations.AcquireMem, name="GLK_INV", value=0,
                nested=pm4_generations.GcrCntl, word=7),
         r"GLK_INV|scalar cache", "each level has its bit"),
    _bug("work-items for workgroups", Packet(layout=pm4.DispatchDirect, name="DIM_X", value=lambda v: 32 * v),
         r"work-items in workgroups", "dispatch packets of AQL count work-items", ("pointers",)),
    _bug("a release without writing L2 back on gfx9",
         Packet(layout=pm4_generations.ReleaseMemGfx9, name="TC_WB_ACTION", value=0),
         r"TC_WB|L2", "results in L2 are not in memory", ("private",), "gfx942-cpx",
         harmless=dict.fromkeys(("gfx942", "gfx950"), "the release fence of the AQL packet before does it")),
    _bug("an acquire that keeps the vector cache on gfx9",
         Packet(layout=pm4_generations.AcquireMemGfx9, name="TCL1", value=0),
         r"TCL1", "each level has its bit", (), "gfx942-cpx",
         harmless=dict.fromkeys(("gfx942", "gfx950"), "the acquire fence of each dispatch packet does it")),
)  # fmt: skip
_AQL_PACKETS: Final = (
    _bug("a dispatch of no dimensions", Packet(layout=aql.KernelDispatch, name="DIMENSIONS", value=0),
         r"DIMENSIONS|dimensions", "setup counts the axes", _LAUNCHES, "gfx942"),
    _bug("the kernel object is 16 bytes into its descriptor",
         Packet(layout=aql.KernelDispatch, name="KERNEL_OBJECT", value=lambda v: v + 16),
         r"KERNEL_OBJECT|descriptor", "64-byte aligned, the descriptor's start", _LAUNCHES, "gfx942"),
    _bug("no LDS in the dispatch",
         Packet(layout=aql.KernelDispatch, name="GROUP_SEGMENT_SIZE", value=0),
         r"GROUP_SEGMENT_SIZE|group segment|LDS", "not taken from the descriptor", _LAUNCHES, "gfx942"),
    _bug("no scratch in the dispatch",
         Packet(layout=aql.KernelDispatch, name="PRIVATE_SEGMENT_SIZE", value=0),
         r"PRIVATE_SEGMENT_SIZE|private segment|scratch", "not taken from the descriptor", _LAUNCHES,
         "gfx942"),
    _bug("a workgroup without depth",
         Packet(layout=aql.KernelDispatch, name="WORKGROUP_SIZE_Z", value=0),
         r"WORKGROUP_SIZE", "axes that are not used are 1", _LAUNCHES, "gfx942"),
    _bug("an address of arguments of 32 bits",
         Packet(layout=aql.KernelDispatch, name="KERNARG_ADDRESS", value=lambda v: v & 0xFFFF_FFFF),
         r"KERNARG_ADDRESS|kernarg|kernel arguments?", "8 bytes at 40", _LAUNCHES, "gfx942"),
    _bug("kernels without the barrier bit", Packet(layout=aql.KernelDispatch, name="BARRIER", value=0),
         r"race|before|order", "kernels of one queue overlap", (), "gfx942"),
    _bug("vendor packets without the barrier bit", Packet(layout=aql.Pm4Ib, name="BARRIER", value=0),
         r"BARRIER|barrier bit", "signals would come before the work", (), "gfx942"),
    _bug("every XCC signals", NoPacket(layout=pm4.PredExec), r"PRED_EXEC|XCC",
         "each XCC runs the buffer", _LAUNCHES, "gfx942"),
    _bug("PRED_EXEC covers the first release only",
         Packet(layout=pm4.PredExec, name="EXEC_COUNT", value=lambda v: v - 8),
         r"PRED_EXEC|EXEC_COUNT|XCC", "dwords that follow, not packets", _LAUNCHES, "gfx942"),
    _bug("a vendor packet without its remaining count", Packet(layout=aql.Pm4Ib, name="_remain", value=0),
         r"remain", "10 in dword 5", _LAUNCHES, "gfx942"),
    _bug("no offset of the read index in the queue's structure",
         Prepared(layout=aql.Queue, name="read_dispatch_id_field_base_byte_offset", value=0),
         r"read_dispatch_id", "the firmware finds the structure by it", _LAUNCHES, "gfx942"),
    _bug("scratch of one XCC for eight",
         Member(call=_ALLOC, name="size", value=lambda v: v // 8,
                where=("size", lambda v: v % _SCRATCH_LANE == 0)),
         r"scratch", "each XCC has its own", _LAUNCHES, "gfx942"),
)  # fmt: skip
_SDMA_PACKETS: Final = (
    _bug("copies count their bytes",
         Packet(layout=sdma.CopyLinear, name="COUNT_MINUS_ONE", value=lambda v: v + 1),
         r"COUNT|one byte|past|beyond", "bytes less one"),
    _bug("fills by bytes", Packet(layout=sdma.ConstFill, name="FILL_SIZE", value=0),
         r"FILL_SIZE|CONST_FILL", "2 is dwords"),
    _bug("a trap with the next event", Packet(layout=sdma.Trap, name="INT_CONTEXT", value=lambda v: v + 1),
         r"INT_CONTEXT|another event|event 0x2", "slot and trap have the same number"),
    _bug("the trap before the slot is written", Exchanged(first=sdma.Fence, second=sdma.Trap),
         r"slot", "the kernel looks for slots that were written"),
    _bug("a poll of a register", Packet(layout=sdma.PollRegmem, name="MEM_POLL", value=0),
         r"MEM_POLL|register", "bit 31 says memory", ("between_queues",)),
    _bug("a poll that gives up", Packet(layout=sdma.PollRegmem, name="RETRY", value=1),
         r"RETRY|retr", "0xfff is for ever", ("between_queues",)),
    _bug("fence of version 6 on version 4",
         Packet(layout=sdma.FenceV4, name="MTYPE", value=3, nested=sdma.Fence),
         r"FENCE", "v4 has no memory type", (), "gfx942"),
    _bug("a fence of another memory type", Packet(layout=sdma.Fence, name="MTYPE", value=0),
         r"MTYPE", "signals that arrive late"),
    _bug("a fence at an odd multiple of 2",
         Packet(layout=sdma.Fence, name="ADDRESS_LO", value=lambda v: v + 2),
         r"align|multiple of 4", "4 bytes"),
    _bug("an indirect buffer at a multiple of 16",
         Packet(layout=sdma.Indirect, name="BASE_LO", value=lambda v: v + 16),
         r"align|multiple of 32|INDIRECT|32 bytes", "32 bytes", ("graphs",)),
    _bug("a compressed copy on version 7", Packet(layout=sdma.CopyLinear, name="DCC", value=1),
         r"DCC", "bit 19 adds a dword", (), "gfx1201"),
    _bug("a poll for more than the value",
         Packet(layout=sdma.PollRegmem, name="FUNCTION", value=int(sdma.Function.GT)),
         r"FUNCTION|\bGT\b|greater|more than|> ", "5 is >=, 6 is >", ("between_queues",)),
)  # fmt: skip

BUGS: Final[Sequence[WireBug]] = (*_CALLS, *_RINGS, *_PM4_PACKETS, *_AQL_PACKETS, *_SDMA_PACKETS)


def _open(gpu: str, version: str) -> AmdMachine:
    engines = AmdEngines(Settings(cache=config().cache, checks=Sanitizers.all()), remaps=False)
    return AmdMachine(open_machine(gpu, linux=version or "6.12", engines=engines, tracks=True, fences=True))


WIRES: Final = Wires(
    bugs=BUGS,
    open=_open,
    program=program.Program,
    parts=program.PARTS,
    ring_bytes=program.RING_BYTES,
)
