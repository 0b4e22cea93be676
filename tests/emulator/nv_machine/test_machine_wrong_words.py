"""Words, ring entries and doorbells that stop a channel: what is wrong, and the report of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import ReportSemaphoreD, ReportSemaphoreExecute
from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaReduction, DmaSemaphoreType, RemapSource
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoControl, GpfifoEntry, GpfifoOpcode
from drivers.nv.layouts.host import HostMethod, MemOperation, SemExecute, SemOperation, SemReduction
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import WINDOW as VA
from tests.emulator.nv_machine.client import Client, method, sem
from tests.emulator.nv_machine.copying import COPY, FOUR, ONE, SIGNAL, copy, launch, remap, semaphore

Make = Callable[..., Client]
ACQUIRE, RELEASE = SemOperation.ACQ_STRICT_GEQ, SemOperation.RELEASE
METHOD, HOST, UNSUPPORTED, FAULT = (
    FindingKind.METHOD,
    FindingKind.HOST,
    FindingKind.UNSUPPORTED,
    FindingKind.MMU_FAULT,
)
UPLOAD = method(1, M.LAUNCH_DMA, 0x41)
NOTHING = {"DATA_TRANSFER_TYPE": DataTransferType.NONE}
PREFETCH = copy(VA, VA + 4096, 4, DATA_TRANSFER_TYPE=DataTransferType.PREFETCH)


class Wrong(NamedTuple):
    """Words for a channel of an engine, and a part of the report."""

    words: list[int]
    text: str
    kind: FindingKind = METHOD
    profile: str = "sm_90"


def host(words: list[int], text: str, kind: FindingKind = HOST, profile: str = "sm_90") -> Wrong:
    return Wrong(words, text, kind, profile)


def execute(**fields: Any) -> list[int]:
    return method(0, HostMethod.SEM_EXECUTE, int(SemExecute(**fields)))


def of_another(operation: SemOperation, whose: str, **fields: Any) -> Wrong:
    """Return a semaphore operation with bits that are another's."""
    return host(sem(VA, 0, operation, **fields), f"{operation.name} with bits of {whose}")


HOST_WORDS = {
    "unknown method": host(method(0, 0x0C, 0), "host method 0xc is not known"),
    "no object on a subchannel": host(method(7, 0x100, 0), "subchannel 7, which has no object"),
    "a method beyond all": host([0x2002_0000 | 0xFFF, 0, 0], "word 0: the methods run past 0x4000"),
    "a header of no kind": host([0x0001_0000], "word 0"),
    "data that is not there": host([0x2005_0000 | 0x1B, 0],
        "word 0: 5 data words announced, 1 are left in the segment"),
    "a header without data": host([0x2000_0000 | 0x1B], "word 0: header 0x2000001b has no data"),
    "words behind the end of a segment": host([0xE000_0000, 0], "word 0: the segment ends, 1 words follow"),
    **{f"bit {bit} in the end of a segment": host([0xE000_0000 | 1 << bit], "") for bit in (16, 2, 13, 12)},
    "a class the channel does not have": host(method(4, 0, 0xCBC0),
        "SET_OBJECT 0xcbc0: the channel has no object of that class"),
    "an engine in SET_OBJECT": host(method(4, 0, 0x1_C8B5), "SET_OBJECT 0x1c8b5"),
    "an undeclared bit of SEM_EXECUTE": host(method(0, HostMethod.SEM_EXECUTE, 1 << 5 | 1),
        "SEM_EXECUTE 0x21: SemExecute.bit 5 of word 0 = 0x1"),
    "an unknown semaphore operation": host(method(0, HostMethod.SEM_EXECUTE, 7),
        "SEM_EXECUTE 0x7: SemExecute.OPERATION = 0x7"),
    "an execute before its address": host(execute(OPERATION=RELEASE, PAYLOAD_SIZE=True),
        "SEM_EXECUTE before SEM_PAYLOAD_LO"),
    "an execute before its payload": host(method(0, HostMethod.SEM_ADDR_LO, 0, 0, 1) + execute(OPERATION=1,
        PAYLOAD_SIZE=True), "SEM_EXECUTE with 64 bits before SEM_PAYLOAD_HI"),
    "an execute behind a payload alone": host(method(0, HostMethod.SEM_PAYLOAD_LO, 1) + method(0,
        HostMethod.SEM_EXECUTE, 1), "SEM_EXECUTE before SEM_ADDR_LO and SEM_ADDR_HI"),
    "a WFI with an unknown bit": host(method(0, HostMethod.WFI, 4), "WFI 0x4: Wfi.bit 2 of word 0 = 0x1"),
    "a reference": host(method(0, HostMethod.SET_REFERENCE, 1), "SET_REFERENCE", UNSUPPORTED),
    "a membar with operands": host(method(0, HostMethod.MEM_OP_C, 1, 5 << 27),
        "MEM_OP MEMBAR takes zeros in A, B and C (system scope)"),
    "a membar before MEM_OP_C": host(method(0, HostMethod.MEM_OP_D, MemOperation.MEMBAR << 27),
        "before MEM_OP_C"),
    **{one.name: host(method(0, HostMethod.MEM_OP_D, one << 27), "needs a privileged channel")
        for one in (MemOperation.MMU_TLB_INVALIDATE, MemOperation.MMU_TLB_INVALIDATE_TARGETED)},
    **{one.name: host(method(0, HostMethod.MEM_OP_D, one << 27), f"{one.name} is not emulated", UNSUPPORTED)
        for one in (MemOperation.L2_FLUSH_DIRTY, MemOperation.L2_SYSMEM_INVALIDATE)},
    "an upper address of ampere": host(method(0, HostMethod.SEM_ADDR_HI, 1 << 8), "SEM_ADDR_HI 0x100",
        profile="sm_80"),
    "an address off its words": host(method(0, HostMethod.SEM_ADDR_LO, 2), "SEM_ADDR_LO 0x2"),
    "a wide upper address": host(method(0, HostMethod.SEM_ADDR_HI, 1 << 25), "SEM_ADDR_HI 0x2000000"),
    "a release off its alignment": host(sem(VA + 4, 1), "SEM_EXECUTE, at SEM_ADDR,"),
    "a record off its alignment": host(sem(VA + 8, 1, RELEASE_TIMESTAMP=True), "SEM_EXECUTE, at SEM_ADDR,"),
    "an acquire off its alignment": host(sem(VA + 4, 1, ACQUIRE),
        "SEM_EXECUTE at 0x200000004 must be aligned to 8 bytes"),
    "an acquire of no memory": host(sem(0x1000, 1, ACQUIRE), "which is not mapped", FAULT),
    "WFI of an acquire": of_another(ACQUIRE, "a release", RELEASE_WFI=True),
    "time of an acquire": of_another(ACQUIRE, "a plain release", RELEASE_TIMESTAMP=True),
    "reduction of an acquire": of_another(ACQUIRE, "a reduction", REDUCTION=SemReduction.IADD),
    "format of an acquire": of_another(ACQUIRE, "a reduction", REDUCTION_FORMAT=True),
    "reduction of a release": of_another(RELEASE, "a reduction", REDUCTION=SemReduction.IXOR),
    "format of a release": of_another(RELEASE, "a reduction", REDUCTION_FORMAT=True),
    "switch of a release": of_another(RELEASE, "an acquire", ACQUIRE_SWITCH_TSG=True),
    "switch of a reduction": of_another(SemOperation.REDUCTION, "an acquire", ACQUIRE_SWITCH_TSG=True),
    "time of a reduction": of_another(SemOperation.REDUCTION, "a plain release", RELEASE_TIMESTAMP=True,
        RELEASE_WFI=True),
}  # fmt: skip
SHORT = method(1, M.LINE_LENGTH_IN, 8, 1)


def action(number: int, at: int = 4) -> list[int]:
    return method(1, M.SEND_PCAS_A, at) + method(1, M.SEND_SIGNALING_PCAS2_B, number)


def classic(offset: int = 0, **fields: Any) -> list[int]:
    data = int(ReportSemaphoreD(**({"OPERATION": 0} | fields)))
    return method(1, M.SET_REPORT_SEMAPHORE_A, VA >> 32, (VA + offset) & 0xFFFF_FFFF, 7, data)


def newer(offset: int = 0, **fields: Any) -> list[int]:
    data = int(ReportSemaphoreExecute(**({"OPERATION": 0} | fields)))
    words = method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 7, 0, (VA + offset) & 0xFFFF_FFFF, VA >> 32)
    return words + method(1, M.REPORT_SEMAPHORE_EXECUTE, data)


COMPUTE_WORDS = {
    "unknown method": Wrong(method(1, 0x104, 0), "class 0xcbc0 has no method 0x104"),
    "an undeclared bit": Wrong(method(1, M.INVALIDATE_SHADER_CACHES, 1 << 9),
        "INVALIDATE_SHADER_CACHES 0x200: InvalidateShaderCaches.bit"),
    "data for WAIT_FOR_IDLE": Wrong(method(1, M.WAIT_FOR_IDLE, 1), "WAIT_FOR_IDLE takes 0, not 0x1"),
    "data for INVALIDATE_SKED_CACHES": Wrong(method(1, M.INVALIDATE_SKED_CACHES, 1), "takes 0"),
    "data for a texture cache": Wrong(method(1, M.INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI, 1), "takes 0",
        UNSUPPORTED),
    "data for a sampler cache": Wrong(method(1, M.INVALIDATE_SAMPLER_CACHE_NO_WFI, 1), "takes 0",
        UNSUPPORTED),
    "the old signalling method": Wrong(method(1, M.SEND_SIGNALING_PCAS_B, 1),
        "class 0xcbc0 has no method 0x2bc"),
    "an inline descriptor": Wrong(method(1, M.LOAD_INLINE_QMD_DATA, 1),
        "LOAD_INLINE_QMD_DATA is not emulated", UNSUPPORTED),
    "an unknown action": Wrong(action(4), "SEND_SIGNALING_PCAS2_B 0x4: SendSignalingPcas2B.PCAS_ACTIO"),
    "an action that is not emulated": Wrong(action(6), "INCREMENT_PUT is not emulated", UNSUPPORTED),
    "an action that is not known": Wrong(method(1, M.SEND_SIGNALING_PCAS2_B, 0xE), "PCAS_ACTION"),
    "a launch without descriptor": Wrong(method(1, M.SEND_SIGNALING_PCAS2_B, 9),
        "SEND_SIGNALING_PCAS2_B before SEND_PCAS_A"),
    "a descriptor that is not mapped": Wrong(action(9, 5), "SEND_PCAS_A", FAULT),
    "a descriptor at 0": Wrong(action(9, 0), "the launch descriptor touches [0x0, ", FAULT),
    "inline data without launch": Wrong(method(1, M.LOAD_INLINE_DATA, 0),
        "LOAD_INLINE_DATA without a LAUNCH_DMA"),
    "an upload of nothing": Wrong(method(1, M.LINE_LENGTH_IN, 0, 1) + UPLOAD,
        "LAUNCH_DMA before OFFSET_OUT_UPPER"),
    "an upload of two lines": Wrong(method(1, M.LINE_LENGTH_IN, 4, 2) + UPLOAD,
        "only uploads of one line are emulated", UNSUPPORTED),
    "an upload cut short": Wrong(SHORT + UPLOAD + method(1, M.NO_OPERATION, 0),
        "LAUNCH_DMA before OFFSET_OUT_UPPER"),
    "an upload cut short by a release": Wrong(method(1, M.LINE_LENGTH_IN, 8, 1, 2, 0) + UPLOAD + method(1,
        M.LOAD_INLINE_DATA, 1) + sem(0x1000, 1), "4 bytes of inline data are missing"),
    "an upload to nowhere": Wrong(SHORT + UPLOAD, "LAUNCH_DMA before OFFSET_OUT_UPPER"),
    "an upload before its size": Wrong(UPLOAD, "before LINE_COUNT"),
    "a block-linear upload": Wrong(SHORT + method(1, M.LAUNCH_DMA, 0x40), "pitch-linear", UNSUPPORTED),
    "the version of another GPU": Wrong(method(1, M.SET_SPA_VERSION, 0x806),
        "SET_SPA_VERSION 0x806: sm_90 has 0x900"),
    "trap handlers": Wrong(method(1, M.SET_TRAP_HANDLER_A, 0), "not emulated", UNSUPPORTED),
    "a wide shared window": Wrong(method(1, M.SET_SHADER_SHARED_MEMORY_WINDOW_A, 1 << 17), "WINDOW_A"),
    "a wide local window": Wrong(method(1, M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, 1 << 17), "WINDOW_A"),
    "a wide backing": Wrong(method(1, M.SET_SHADER_LOCAL_MEMORY_A, 1 << 25), "MEMORY_A"),
    "a wide backing of ampere": Wrong(method(1, M.SET_SHADER_LOCAL_MEMORY_A, 1 << 17), "MEMORY_A",
        profile="sm_80"),
    "a wide size": Wrong(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 1 << 8), "_A 0x100"),
    **{f"bits {word:#x} of the count of {profile}": Wrong(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C,
        word), "", profile=profile) for profile, word in (("sm_90", 0x3FF), ("sm_80", 0x1_00FF), ("sm_120",
        0x1_00FF))},
    "a wide report": Wrong(method(1, M.SET_REPORT_SEMAPHORE_A, 1 << 25), "SEMAPHORE_A"),
    "a wide report of ampere": Wrong(method(1, M.SET_REPORT_SEMAPHORE_A, 1 << 8), "SEMAPHORE_A",
        profile="sm_80"),
    "a wide newer report": Wrong(method(1, M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, 1 << 25), "ADDRESS_UPPER"),
    "the newer report of ampere": Wrong(method(1, M.REPORT_SEMAPHORE_EXECUTE, 0),
        "class 0xc6c0 has no method 0x168", profile="sm_80"),
    "a report before its address": Wrong(method(1, M.SET_REPORT_SEMAPHORE_D, 0),
        "SET_REPORT_SEMAPHORE_D before SET_REPORT_SEMAPHORE_A"),
    "a reducing report": Wrong(method(1, M.SET_REPORT_SEMAPHORE_A, 2, 0, 1, 8),
        "only plain releases are emulated: ReportSemaphoreD(OPERATI", UNSUPPORTED),
    "a reducing newer report": Wrong(method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 1, 0, 64, 2, 1 << 6),
        "only plain releases are emulated: ReportSemaphoreExecute(O", UNSUPPORTED),
    "a report of operation 1": Wrong(classic(OPERATION=1), "RELEASE and TRAP"),
    "a report of operation 2": Wrong(classic(OPERATION=2), "RELEASE and TRAP"),
    "a report of operation 3": Wrong(classic(OPERATION=3), "only plain releases", UNSUPPORTED),
    "reduction bits of a report": Wrong(classic(REDUCTION_OP=1), "reduction bits without reduction"),
    "reduction format of a report": Wrong(classic(REDUCTION_FORMAT=1), "reduction bits without reduction"),
    "four words off their alignment": Wrong(classic(8), "must be aligned to 16 bytes"),
    "one word off its alignment": Wrong(classic(2, STRUCTURE_SIZE=True), "must be aligned to 4 bytes"),
    "a newer report of operation 1": Wrong(newer(OPERATION=1), "only plain releases", UNSUPPORTED),
    "reduction bits of a newer report": Wrong(newer(REDUCTION_OP=1), "reduction bits without reduction"),
    "an unknown structure": Wrong(newer(STRUCTURE_SIZE=3), "structure size 3, which does not exist"),
    "two words of 32 bits": Wrong(newer(STRUCTURE_SIZE=2), "two words with a payload of 32 bits",
        UNSUPPORTED),
    "one word of 64 bits": Wrong(newer(STRUCTURE_SIZE=1, PAYLOAD_SIZE64=True), "one word with a payload"),
    "two words off their alignment": Wrong(newer(4, STRUCTURE_SIZE=2, PAYLOAD_SIZE64=True),
        "must be aligned to 8 bytes"),
}  # fmt: skip


def reduction(offset: int, **fields: Any) -> list[int]:
    return semaphore(VA + offset, 1, ONE, SEMAPHORE_REDUCTION_ENABLE=True, **fields)


COPY_WORDS = {
    "unknown method": Wrong(method(4, 0x104, 0), "has no method 0x104"),
    "an undeclared bit": Wrong(method(4, DmaMethod.LAUNCH_DMA, 1 << 24 | 0x182),
        "LAUNCH_DMA 0x1000182: LaunchDma.bit 24 of word 0 = 0x1"),
    "reserved bits": Wrong([*launch(**SIGNAL)[:1], 1 << 28], "no field declares it"),
    "a block-linear source": Wrong(copy(VA, VA + 4096, 4, SRC_MEMORY_LAYOUT=False),
        "only pitch-linear transfers are emulated: LaunchDma(DATA_T", UNSUPPORTED),
    "a block-linear target": Wrong(copy(VA, VA + 4096, 4, DST_MEMORY_LAYOUT=False), "only pitch-linear",
        UNSUPPORTED),
    "a physical source": Wrong(copy(VA, VA + 4096, 4, SRC_TYPE=True), "SRC_TYPE is not emulated",
        UNSUPPORTED),
    "a physical target": Wrong(copy(VA, VA + 4096, 4, DST_TYPE=True),
        "DST_TYPE is not emulated: LaunchDma(DATA_TRANSFER_TYPE=Dat", UNSUPPORTED),
    "protected memory": Wrong(copy(VA, VA + 4096, 4, VPRMODE=True), "VPRMODE is not", UNSUPPORTED),
    "another copy type": Wrong(copy(VA, VA + 4096, 4, COPY_TYPE=1),
        "COPY_TYPE is not emulated: LaunchDma(DATA_TRANSFER_TYPE=Da", UNSUPPORTED),
    "a scrub": Wrong(copy(VA, VA + 4096, 4, MEMORY_SCRUB_ENABLE=True),
        "MEMORY_SCRUB_ENABLE is not emulated: LaunchDma(DATA_TRANSF", UNSUPPORTED),
    "a flush of the GPU alone": Wrong(copy(VA, VA + 4096, 4, FLUSH_ENABLE=True, FLUSH_TYPE=True),
        "FLUSH_TYPE is not emulated", UNSUPPORTED),
    "a prefetch before Blackwell": Wrong(PREFETCH, "class 0xc8b5 has no prefetch"),
    "a prefetch of Blackwell": Wrong(PREFETCH, "a prefetching transfer is not emulated", UNSUPPORTED,
        "sm_120"),
    "no length": Wrong(copy(VA, VA + 4096, 0), "a transfer of 0 bytes and 1 lines"),
    "a launch before its offsets": Wrong(launch(**COPY), "LAUNCH_DMA of a transfer before OFFSET_IN_UPPER"),
    "an overlapping copy": Wrong(copy(VA, VA + 2, 4),
        "a copy of 0x4 bytes from 0x200000000 to 0x200000002 overla"),
    "lines without a count": Wrong(copy(VA, VA + 4096, 4, MULTI_LINE_ENABLE=True),
        "LAUNCH_DMA with lines before PITCH_IN"),
    "lines without a pitch": Wrong(method(4, DmaMethod.LINE_COUNT, 2) + copy(VA, VA + 4096, 4,
        MULTI_LINE_ENABLE=True), "before PITCH_IN"),
    "no lines": Wrong(method(4, DmaMethod.PITCH_IN, 8, 8) + method(4, DmaMethod.LINE_COUNT, 0) + copy(VA, VA
        + 4096, 4, MULTI_LINE_ENABLE=True), "4 bytes and 0 lines"),
    "lines of no transfer": Wrong(launch(**NOTHING, MULTI_LINE_ENABLE=True), "without a transfer"),
    "remap of no transfer": Wrong(launch(**NOTHING, REMAP_ENABLE=True), "without a transfer"),
    "remap without components": Wrong(copy(VA, VA + 4096, 4, REMAP_ENABLE=True),
        "LAUNCH_DMA with remap before SET_REMAP_COMPONENTS"),
    "a component that is not there": Wrong(remap(DST_X=RemapSource.SRC_W) + copy(VA, VA + 4096, 4,
        REMAP_ENABLE=True), "a component that the source does not have: RemapComponents"),
    "an unknown component": Wrong(method(4, DmaMethod.SET_REMAP_COMPONENTS, 7),
        "SET_REMAP_COMPONENTS 0x7: RemapComponents.DST_X = 0x7"),
    "a conditional interrupt": Wrong(semaphore(VA, 1, DmaSemaphoreType.CONDITIONAL_INTERRUPT),
        "a conditional interrupt is not emulated", UNSUPPORTED),
    "an unknown interrupt": Wrong(semaphore(VA, 1, ONE, INTERRUPT_TYPE=3), "interrupt type 3 is not known"),
    "a semaphore before its address": Wrong(launch(**SIGNAL, SEMAPHORE_TYPE=ONE),
        "LAUNCH_DMA with a semaphore before SET_SEMAPHORE_A"),
    "a payload of no semaphore": Wrong(launch(**SIGNAL, SEMAPHORE_PAYLOAD_SIZE=True),
        "SEMAPHORE_PAYLOAD_SIZE without a semaphore"),
    "a reduction of no semaphore": Wrong(launch(**SIGNAL, SEMAPHORE_REDUCTION_ENABLE=True),
        "SEMAPHORE_REDUCTION_ENABLE without a semaphore"),
    "a reduction without enable": Wrong(semaphore(VA, 1, ONE, SEMAPHORE_REDUCTION=DmaReduction.IADD),
        "SEMAPHORE_REDUCTION without reduction: LaunchDma(DATA_TRAN"),
    "a sign of no reduction": Wrong(semaphore(VA, 1, ONE, SEMAPHORE_REDUCTION_SIGN=True),
        "SEMAPHORE_REDUCTION_SIGN without reduction"),
    "a reduction of four words": Wrong(semaphore(VA, 1, FOUR, SEMAPHORE_REDUCTION_ENABLE=True),
        "a reducing semaphore has one word or two"),
    "an unknown reduction": Wrong(semaphore(VA, 1, ONE) + method(4, DmaMethod.LAUNCH_DMA, 9 << 14 | 1 << 19
        | 8), "LAUNCH_DMA 0xa4008: LaunchDma.SEMAPHORE_REDUCTION = 0x9"),
    "a float reduction of 64 bits": Wrong(reduction(0, SEMAPHORE_PAYLOAD_SIZE=True,
        SEMAPHORE_REDUCTION=DmaReduction.FADD), "FADD of 64 bits is not emulated", UNSUPPORTED),
    "a semaphore off its alignment": Wrong(semaphore(VA + 2, 1, ONE), "aligned to 4 bytes"),
    "a record off its alignment": Wrong(semaphore(VA + 8, 1), "aligned to 16 bytes"),
    "a float off its alignment": Wrong(reduction(2, SEMAPHORE_REDUCTION=DmaReduction.FADD),
        "aligned to 4 bytes"),
    "payloads of 64 bits of ampere": Wrong(method(4, DmaMethod.SET_SEMAPHORE_A, VA >> 32, 0, 7)
        + launch(**SIGNAL, SEMAPHORE_TYPE=ONE, SEMAPHORE_PAYLOAD_SIZE=True),
        "class 0xc6b5 has payloads of 32 bits", profile="sm_80"),
    "an upper payload of ampere": Wrong(method(4, DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, 0),
        "class 0xc6b5 has no method 0x24c", profile="sm_80"),
    "a wide semaphore of ampere": Wrong(method(4, DmaMethod.SET_SEMAPHORE_A, 1 << 17), "SET_SEMAPHORE_A",
        profile="sm_80"),
    "a wide semaphore": Wrong(method(4, DmaMethod.SET_SEMAPHORE_A, 1 << 25), "SET_SEMAPHORE_A"),
    "a wide source": Wrong(method(4, DmaMethod.OFFSET_IN_UPPER, 1 << 25), "OFFSET_IN_UPPER"),
    "a wide target": Wrong(method(4, DmaMethod.OFFSET_OUT_UPPER, 1 << 25), "OFFSET_OUT_UPPER"),
}  # fmt: skip
ROWS = [
    pytest.param(channel, code, row, id=f"{channel.removesuffix('_channel')}: {what}")
    for channel, code, table in (
        ("copy_channel", RcCode.PBDMA_ERROR, HOST_WORDS),
        ("copy_channel", RcCode.CE2_ERROR, COPY_WORDS),
        ("compute_channel", RcCode.GR_CLASS_ERROR, COMPUTE_WORDS),
    )
    for what, row in table.items()
]


def stopped(client: Client, ring: Any, row: Wrong, code: RcCode) -> None:
    """The channel was stopped: compare report, kind and code."""
    seen = ring.wait_error()
    report = client.kernel.reports[0]
    assert row.text in str(report)
    assert report.kind is row.kind
    assert seen == RcCode(report.code) == (RcCode.MMU_FAULT if row.kind is FAULT else code)


@pytest.mark.parametrize(("channel", "code", "row"), ROWS)
def test_wrong_words_stop_their_channel(make: Make, channel: str, code: RcCode, row: Wrong) -> None:
    client = make(row.profile).up()
    assert client.memory(1 << 16).va == VA
    ring = getattr(client, channel)()
    ring.push(row.words)
    stopped(client, ring, row, code)


ENTRIES = {
    "bits below an address": host([1 | 4 << 42], "ring entry 1: conditional fetch is not known"),
    "bit 1 of an address": host([1 << 1 | 1 << 42], "ring entry 1: GpfifoEntry.bit 1 of word 0 = 0x1"),
    "bit 40 of an address": host([1 << 40 | 1 << 42], "ring entry 1: GpfifoEntry.bit 40 of word 0 = 0x1"),
    "an illegal control": host([int(GpfifoControl(OPCODE=GpfifoOpcode.ILLEGAL))],
        "ring entry 1: control ILLEGAL is not for this channel"),
    "a control that does not exist": host([0xFF << 32], "ring entry 1: GpfifoControl.OPCODE = 0xff"),
    "an operand of NOP": host([int(GpfifoControl(OPCODE=GpfifoOpcode.NOP, OPERAND=5))],
        "NOP has operand 0x5, wanted 0"),
    "an extended base of ampere": host([int(GpfifoControl(OPCODE=GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE,
        OPERAND=0))], "SET_PB_SEGMENT_EXTENDED_BASE is not for this channel", profile="sm_80"),
    "a segment that is not mapped": host([int(GpfifoEntry(ADDRESS=0x1000, LENGTH=4))], "touches [0x1000, ",
        FAULT),
}  # fmt: skip


@pytest.mark.parametrize("what", ENTRIES)
def test_wrong_ring_entries_stop_their_channel(make: Make, what: str) -> None:
    client = make(ENTRIES[what].profile).up()
    ring = client.copy_channel()
    ring.entry(ENTRIES[what].words[0])
    ring.ring()
    stopped(client, ring, ENTRIES[what], RcCode.PBDMA_ERROR)
