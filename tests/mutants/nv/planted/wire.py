"""Bugs on the wire of an NVIDIA driver, written from the facts by an author who had not read the driver.

Each is a fact that a hasty reader of the documents gets wrong. The list, with the words that a report must
have, was complete before the first of them ran (docs/reliability.md).

Not here: what a change does (`stream`, `tests.mutants.planted.wire`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.dma import DataTransferType, DmaSemaphoreType
from drivers.nv.layouts.host import SemOperation
from drivers.nv.layouts.qmd_values import DependentAction, QmdType
from drivers.nv.layouts.rm_classes import VaspaceFlags
from drivers.nv.layouts.uvm import UvmGpuMappingType
from emulator.ir.library import Sanitizers
from emulator.nv.machine import open_machine
from tests.mutants.nv.emulated import NvMachine
from tests.mutants.nv.planted import program
from tests.mutants.nv.planted.stream import Bank, Bell, Entry, Freed, Method, NoMethod, Qmd, Swapped
from tests.mutants.planted.wire import Member, NoCall, NoFence, WireBug, Wires

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mutants.planted.wire import Change

_MAP: Final = "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS"
_CHANNEL: Final = "NV_ESC_RM_ALLOC class 0xc(56|86|96|a6)f"
_SCHEDULE: Final = "NV_ESC_RM_CONTROL 0xa06c0101"
_HANDLES: Final = ("hObjectNew", "hObjectOld")
_PAGE: Final = 0x1000
_LAUNCHES: Final = ("launches",)
_COPIES: Final = ("copies",)


def _bug(  # noqa: PLR0917 - columns of a table
    name: str,
    change: Change | tuple[Change, ...],
    names: str,
    seen: str,
    parts: tuple[str, ...] = (),
    device: str = "sm_90",
    harmless: Mapping[str, str] = MappingProxyType({}),
) -> WireBug:
    changes = change if isinstance(change, tuple) else (change,)
    return WireBug(
        name=name, device=device, changes=changes, names=names, seen=seen, parts=parts, harmless=harmless
    )


_CALLS: Final = (
    _bug("memory is mapped for its first page only", Member(call=_MAP, name="length", value=_PAGE),
         r"UVM_MAP_EXTERNAL_ALLOCATION|(mapping|mapped|maps).*(only|short|part|less|page)",
         "lengths of UVM are bytes of the whole range"),
    _bug("memory is mapped for reading only",
         Member(call=_MAP, name="perGpuAttributes[0].gpuMappingType", value=int(UvmGpuMappingType.READ_ONLY)),
         r"READ_ONLY|read.only", "mapping types are numbers, not bits: 3 is not read and write"),
    _bug("the count of attributes stays 0", Member(call=_MAP, name="gpuAttributesCount", value=0),
         r"gpuAttributesCount", "one record of attributes, and its count behind 256 of them"),
    _bug("no external range before a mapping",
         NoCall(call="UVM_CREATE_EXTERNAL_RANGE_PARAMS", undo="UVM_FREE_PARAMS"),
         r"UVM_CREATE_EXTERNAL_RANGE|external range", "two calls make a mapping"),
    _bug("channels are not registered with UVM",
         NoCall(call="UVM_REGISTER_CHANNEL_PARAMS", undo="UVM_UNREGISTER_CHANNEL_PARAMS"),
         r"UVM_REGISTER_CHANNEL",
         "context buffers of a graphics channel are mapped by UVM, before it is scheduled"),
    _bug(
        "a channel is registered before it has an engine object",
        (  # the channel's objects of compute and of copies; the roots are without parameters, too
            NoCall(at=0, call="NV_ESC_RM_ALLOC class 0xcbc0", undo="NV_ESC_RM_FREE", handles=_HANDLES),
            NoCall(at=2, call="NV_ESC_RM_ALLOC$", undo="NV_ESC_RM_FREE", handles=_HANDLES),
        ),
        r"UVM_REGISTER_CHANNEL.*(bound|engine|INVALID_STATE)",
        "the engine object binds the context",
    ),
    _bug("context buffers of Ampere above 2^40",
         Member(call="UVM_REGISTER_CHANNEL_PARAMS", name="base", value=lambda v: v + (1 << 40)),
         r"UVM_REGISTER_CHANNEL.*(base|window|2\^40|2\*\*40|above|beyond|below)",
         "the window of context buffers lies below 2^40 up to Ada", device="sm_80",
         harmless=dict.fromkeys(("sm_90", "sm_100", "sm_120"), "channels reach 2^57 since Hopper")),
    _bug("a group is never scheduled", Member(call=_SCHEDULE, name="bEnable", value=0),
         r"not scheduled|never scheduled|schedul|bEnable", "scheduling is a call with bEnable"),
    _bug("scheduling with the structure of branch 570", Member(call=_SCHEDULE, name="paramsSize", value=2),
         r"paramsSize|INVALID_PARAM_STRUCT", "580 adds a byte, and sizes must match"),
    _bug("the ring's size in bytes", Member(call=_CHANNEL, name="gpFifoEntries", value=lambda v: 8 * v),
         r"gpFifoEntries", "entries, not bytes"),
    _bug("a user area at a multiple of 256",
         Member(call=_CHANNEL, name="userdOffset[0]", value=lambda v: v + 0x100), r"userdOffset|USERD",
         "its slots have 512 bytes"),
    _bug("the engine type is the copy engine's index",
         Member(call="NV_ESC_RM_ALLOC class 0xa06c", name="engineType",
                value=lambda v: v - 9 if v >= 9 else v), r"engineType", "COPY0 is 9"),
    _bug("a channel of a group names an address space",
         Member(call=_CHANNEL, name="hVASpace", value=0x5C00_0003), r"hVASpace",
         "under a group it must be 0"),
    _bug("an address space that UVM does not own",
         Member(call="NV_ESC_RM_ALLOC class 0x90f1", name="flags",
                value=lambda v: v & ~int(VaspaceFlags.IS_EXTERNALLY_OWNED)), r"externally.owned",
         "the flag 0x8 looks optional"),
    _bug("the limit of host memory is its size",
         Member(call="NV_ESC_RM_ALLOC_MEMORY", name="params.limit", value=lambda v: v + 1), r"limit",
         "limits are the last byte"),
    _bug("the identifier is asked for as text",
         Member(call="NV_ESC_RM_CONTROL 0x2080014a", name="flags", value=0), r"uuid|GID_INFO",
         "flags 2 asks for bytes"),
    _bug("the second descriptor of UVM is not initialized", NoCall(call="UVM_MM_INITIALIZE_PARAMS"),
         r"UVM_MM_INITIALIZE", "without sharing between processes UVM needs a second descriptor",
         device="sm_90+native"),
    _bug("memory is unmapped while a launch uses it", Freed(at=0), r"freed|unmapped|UVM_FREE",
         "a submission is not complete when its doorbell was rung", _LAUNCHES),
)  # fmt: skip
_RINGS: Final = (
    _bug("the length of an entry in bytes", Entry(name="LENGTH", value=lambda v: 4 * v),
         r"LENGTH|entry.*(words|beyond|past)|(beyond|past|behind) .*segment", "lengths are words"),
    _bug("the address of an entry shifted twice", Entry(name="ADDRESS", value=lambda v: v >> 2),
         r"ring entry|GPFIFO entry|ADDRESS|segment", "bits 31:2 lie in place"),
    _bug("GPPut does not wrap", Bell(what="GPPut", value=lambda put, run: put or run.setup.entries), r"GPPut",
         "it is an index below the ring's entries", ("laps",)),
    _bug("GPPut is one entry ahead", Bell(what="GPPut", value=lambda put, run: (put + 1) % run.setup.entries),
         r"GPPut|entry.*(not|never).*written", "it is the index behind the last entry", _LAUNCHES),
    _bug("GPPut stays where it was",
         Bell(what="GPPut", value=lambda put, run: (put - 1) % run.setup.entries, at=9), r"GPPut",
         "the doorbell says that there is work, not which", _LAUNCHES),
    _bug("the token is the channel's number", Bell(what="token", value=lambda token, _: token & 0xFFF),
         r"token", "the run list is a part of it"),
    _bug("the token of a GB20x without its doorbell bit",
         Bell(what="token", value=lambda token, _: token & ~(1 << 30)), r"RUNLIST_DOORBELL|bit 30|token",
         "tokens are opaque", device="sm_120"),
    _bug("the doorbell at the register behind", Bell(what="offset", value=lambda offset, _: offset + 4),
         r"0x94|NOTIFY_CHANNEL_PENDING", "the doorbell is at 0x90"),
    _bug("no fences", NoFence(), r"fence", "stores to write-combined memory pass each other"),
)  # fmt: skip
_RACE: Final = r"race|wfi|wait.for.idle|still runn|nothing orders|not (?:been )?(?:done|finished|ordered)"
_ORDER: Final = (
    _bug("a release that does not wait for the engine",
         Method(engine="host", method="SEM_EXECUTE", name="RELEASE_WFI", value=0), _RACE,
         "the host reads memory that is not written yet"),
    _bug("no wait between dependent grids", NoMethod(engine="compute", method="WAIT_FOR_IDLE"),
         rf"{_RACE}|barrier", "grids of one channel overlap"),
    _bug("copies pipelined",
         Method(engine="copy", method="LAUNCH_DMA", name="DATA_TRANSFER_TYPE",
                value=int(DataTransferType.PIPELINED),
                where={"DATA_TRANSFER_TYPE": DataTransferType.NON_PIPELINED}),
         r"pipelin|race|overlap", "a copy reads the memory of the previous fill"),
    _bug("a release of four words into the slot of a signal",
         Method(engine="copy", method="LAUNCH_DMA", name="SEMAPHORE_TYPE",
                value=int(DmaSemaphoreType.RELEASE_FOUR_WORD),
                where={"SEMAPHORE_TYPE": DmaSemaphoreType.RELEASE_ONE_WORD}),
         r"four.?word|16 bytes|overwr|timestamp|high word|align", "16 bytes into a slot of 8"),
    _bug("halves of a copy's address swapped",
         Swapped(engine="copy", first="OFFSET_IN_UPPER", second="OFFSET_IN_LOWER"),
         r"OFFSET_(?:IN|OUT)_UPPER|not mapped", "the upper half comes first"),
)  # fmt: skip
_METHODS: Final = (
    _bug("the copy class is not bound", NoMethod(engine="copy", method="SET_OBJECT"),
         r"SET_OBJECT|not bound|no class|unbound", "SET_OBJECT is the first method on each subchannel"),
    _bug("halves of a semaphore's address swapped",
         Swapped(engine="host", first="SEM_ADDR_LO", second="SEM_ADDR_HI"), r"SEM_ADDR|semaphore",
         "engines take the upper half first, the host the lower"),
    _bug("a wait for equality",
         Method(engine="host", method="SEM_EXECUTE", name="OPERATION", value=int(SemOperation.ACQUIRE),
                where={"OPERATION": SemOperation.ACQ_CIRC_GEQ}), r"equal|==|ACQUIRE (?!_)",
         "ACQUIRE compares for equality", ("between_queues",)),
    _bug("a release of 64 bits at an odd multiple of 4",
         Method(engine="host", method="SEM_ADDR_LO", name="OFFSET", value=lambda v: v + 1),
         r"align|multiple of 8", "addresses in units of 4 bytes", _LAUNCHES),
    _bug("a copy from block-linear memory",
         Method(engine="copy", method="LAUNCH_DMA", name="SRC_MEMORY_LAYOUT", value=0,
                where={"DATA_TRANSFER_TYPE": DataTransferType.NON_PIPELINED}),
         r"SRC_MEMORY_LAYOUT|block.?linear|pitch", "1 is pitch-linear"),
    _bug("lengths of fills in bytes", Method(engine="copy", method="LINE_LENGTH_IN", value=lambda v: 4 * v),
         r"LINE_LENGTH|LAUNCH_DMA.*(beyond|past|outside|not mapped)",
         "with remapped components it counts elements"),
    _bug("a copy's signal without its flush",
         Method(engine="copy", method="LAUNCH_DMA", name="FLUSH_ENABLE", value=0,
                where={"SEMAPHORE_TYPE": DmaSemaphoreType.RELEASE_ONE_WORD}), r"FLUSH_ENABLE|flush",
         "what is copied is visible behind a flush"),
    _bug("a copy to physical memory",
         Method(engine="copy", method="LAUNCH_DMA", name="DST_TYPE", value=1,
                where={"DATA_TRANSFER_TYPE": DataTransferType.NON_PIPELINED}), r"DST_TYPE|physical",
         "bits 12 and 13 look like the layout's"),
    _bug("lines without a count",
         Method(engine="copy", method="LAUNCH_DMA", name="MULTI_LINE_ENABLE", value=1,
                where={"DATA_TRANSFER_TYPE": DataTransferType.NON_PIPELINED}), r"MULTI_LINE|LINE_COUNT|PITCH",
         "LINE_COUNT and the pitches belong to it"),
    _bug("the descriptor's address in bytes",
         Method(engine="compute", method="SEND_PCAS_A", value=lambda v: v << 8), r"SEND_PCAS_A|descriptor",
         "in units of 256 bytes", _LAUNCHES),
    _bug("a descriptor is invalidated, not scheduled",
         Method(engine="compute", method="SEND_SIGNALING_PCAS2_B", name="PCAS_ACTION",
                value=int(PcasAction.INVALIDATE)), r"PCAS|schedul", "actions are numbers, not bits",
         _LAUNCHES),
    _bug("the shared window at 16 MiB",
         Method(engine="compute", method="SET_SHADER_SHARED_MEMORY_WINDOW_B", value=1 << 24),
         r"SHARED_MEMORY_WINDOW|shared.*window", "since Hopper it spans 4 GiB and is aligned to them",
         _LAUNCHES),
    _bug("local memory of a TPC as large as the chip's",
         Method(engine="compute", method="SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B", value=lambda v: 72 * v),
         r"NON_THROTTLED|local memory", "the methods take the bytes of a TPC", _LAUNCHES),
    _bug("halves of local memory's address swapped",
         Swapped(engine="compute", first="SET_SHADER_LOCAL_MEMORY_A", second="SET_SHADER_LOCAL_MEMORY_B"),
         r"SET_SHADER_LOCAL_MEMORY|local memory", "A is the upper half", _LAUNCHES),
    _bug("caches are not invalidated for new code",
         NoMethod(engine="compute", method="INVALIDATE_SHADER_CACHES"),
         r"INVALIDATE_SHADER_CACHES|instruction cache|invalidat",
         "code is uploaded behind the back of the instruction cache", ("launches", "reloads")),
)  # fmt: skip
_DESCRIPTORS: Final = (
    _bug("type of a descriptor left at 0", Qmd(names=("QMD_TYPE",), value=int(QmdType.QUEUE)),
         r"QMD_TYPE", "0 is QUEUE", _LAUNCHES),
    _bug("version of Ampere's descriptor on Hopper", Qmd(names=("QMD_MAJOR_VERSION",), value=3),
         r"QMD_MAJOR_VERSION|version", "V04 is Hopper's", _LAUNCHES),
    _bug(
        "program address in bytes on Blackwell",
        Qmd(names=("PROGRAM_ADDRESS_LOWER_SHIFTED4", "PROGRAM_ADDRESS_UPPER_SHIFTED4"),
            value=lambda v: v << 4),
        r"PROGRAM_ADDRESS|no code|program", "V05 shifts it by 4", _LAUNCHES, "sm_120",
    ),
    _bug(
        "address of a constant bank in bytes on Hopper",
        Qmd(names=("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6"),
            value=lambda v: v << 6),
        r"CONSTANT_BUFFER_ADDR|constant bank|bank 0", "V04 shifts it by 6", _LAUNCHES,
    ),
    _bug(
        "address of a constant bank in units of 64 bytes on Ampere",
        Qmd(names=("CONSTANT_BUFFER_ADDR_LOWER", "CONSTANT_BUFFER_ADDR_UPPER"), value=lambda v: v >> 6),
        r"CONSTANT_BUFFER_ADDR|constant bank|bank 0", "V03 does not shift it", _LAUNCHES, "sm_80",
    ),
    _bug(
        "height and depth of the grid swapped on Ampere",
        Qmd(names=("CTA_RASTER_HEIGHT", "CTA_RASTER_DEPTH"), value=lambda v: v >> 16 | (v & 0xFFFF) << 16),
        r"CTA_RASTER|nctaid", "two numbers of 16 bits", _LAUNCHES, "sm_80",
    ),
    _bug(
        "the grid's height is that of its resume field",
        Qmd(names=("GRID_HEIGHT",), value=1),
        r"GRID_HEIGHT|nctaid", "GRID_HEIGHT_RESUME has the same width", _LAUNCHES,
    ),
    _bug("dimensions 0 and 2 of a group swapped",
         Qmd(names=("CTA_THREAD_DIMENSION0", "CTA_THREAD_DIMENSION2"),
             value=lambda v: v >> 16 | (v & 0xFFFF) << 16),
         r"CTA_THREAD_DIMENSION|ntid", "three fields in turn", _LAUNCHES),
    _bug("shared size in units of 256 bytes on Blackwell",
         Qmd(names=("SHARED_MEMORY_SIZE_SHIFTED7",), value=lambda v: v >> 1),
         r"SHARED_MEMORY_SIZE|shared memory", "sizes are multiples of 256, the field has units of 128",
         _LAUNCHES, "sm_120"),
    _bug("the carve-out in KiB",
         Qmd(names=("TARGET_SM_CONFIG_SHARED_MEM_SIZE",), value=lambda v: (v - 1) * 4),
         r"SM_CONFIG|carve.?out", "KiB / 4 + 1", _LAUNCHES),
    _bug("registers in units of 8", Qmd(names=("REGISTER_COUNT",), value=lambda v: v // 8),
         r"REGISTER_COUNT|registers", "counted a thread", _LAUNCHES),
    _bug("no barriers on Ampere", Qmd(names=("BARRIER_COUNT",), value=0),
         r"BARRIER_COUNT|barriers?", "from the section's flags or an attribute", _LAUNCHES, "sm_80"),
    _bug("local memory of a warp for that of a thread",
         (Qmd(names=("SHADER_LOCAL_MEMORY_HIGH_SIZE",), value=lambda v: 32 * v),),
         r"SHADER_LOCAL_MEMORY|local memory", "bytes a thread", _LAUNCHES),
    _bug("local size in bytes on Blackwell",
         Qmd(names=("SHADER_LOCAL_MEMORY_HIGH_SIZE_SHIFTED4",), value=lambda v: v << 4),
         r"SHADER_LOCAL_MEMORY|local memory", "V05 shifts it by 4", _LAUNCHES, "sm_120"),
    _bug("code prefetch of the largest size on Blackwell",
         Qmd(names=("PROGRAM_PREFETCH_SIZE",), value=0x1FF),
         r"PREFETCH", "in units of 256 bytes", _LAUNCHES, "sm_120"),
    _bug("SASS version of another GPU", Qmd(names=("SASS_VERSION",), value=0x86),
         r"SASS_VERSION", "from SM_VERSION", _LAUNCHES),
    _bug("address of a dependent descriptor in bytes",
         Qmd(names=("DEPENDENT_QMD0_POINTER",), value=lambda v: v << 8),
         r"DEPENDENT_QMD", "in units of 256 bytes", ("dependent", "graph")),
    _bug("a dependent descriptor that is used again is not invalidated",
         Qmd(names=("DEPENDENT_QMD_ACTION", "DEPENDENT_QMD_PREFETCH"),
             value=int(DependentAction.QMD_SCHEDULE)),
         r"DEPENDENT_QMD|QMD_SCHEDULE|INVALIDATE_COPY", "the cache of descriptors may have the old one",
         ("dependent", "graph", "grids")),
    _bug("constant bank not invalidated", Qmd(names=("CONSTANT_BUFFER_INVALIDATE",), value=0),
         r"CONSTANT_BUFFER_INVALIDATE|constant.{0,40}(?:cache|stale|invalid)|stale",
         "arguments of an earlier launch at the same address"),
    _bug("constant bank too small by a factor of 16",
         Qmd(names=("CONSTANT_BUFFER_SIZE_SHIFTED4",), value=lambda v: v >> 4),
         r"CONSTANT_BUFFER_SIZE|bank 0|constant bank", "the field is shifted already", _LAUNCHES),
    _bug("size of a group missing in bank 0", Bank(name="ntid", value=0),
         r"ntid", "compiled code reads it there", _LAUNCHES),
    _bug("no stack pointer in bank 0 on Ampere", Bank(name="stack_pointer", value=0),
         r"stack", "the stack grows down from it", _LAUNCHES, "sm_80"),
    _bug("no shared window in bank 0 on Blackwell", Bank(name="shared_window", value=0),
         r"shared.window", "generic addresses come from it", _LAUNCHES, "sm_120",
         harmless={"sm_90": "Hopper's kernels read it from SR_SWINHI, not there"}),
)  # fmt: skip

BUGS: Final[Sequence[WireBug]] = (*_CALLS, *_RINGS, *_ORDER, *_METHODS, *_DESCRIPTORS)


def _open(gpu: str, version: str) -> NvMachine:
    native = version == "native"
    return NvMachine(
        open_machine(
            gpu,
            driver="580" if native or not version else version,
            filtered=not native,
            checks=Sanitizers.all(in_step=False),
        )
    )


WIRES: Final = Wires(
    bugs=BUGS,
    open=_open,
    program=lambda device, _: program.Program(device),
    parts=program.PARTS,
    ring_bytes=program.RING_BYTES,
)
