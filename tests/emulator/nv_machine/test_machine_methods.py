"""Refusals of ring entries, headers and methods that the other files do not test, with their messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import ReportSemaphoreD, ReportSemaphoreExecute
from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaReduction
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import GpfifoControl, GpfifoEntry, GpfifoOpcode
from drivers.nv.layouts.host import HostMethod, MemOperation, SemOperation, SemReduction
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, Memory, Ring, method, sem, wait_word
from tests.emulator.nv_machine.launching import STORE, Launcher, cubin, upload
from tests.emulator.nv_machine.test_machine_copy import ONE, SIGNAL, copy, launch, semaphore

Make = Callable[..., Client]
ACQUIRE = SemOperation.ACQ_STRICT_GEQ
METHOD, HOST, UNSUPPORTED = FindingKind.METHOD, FindingKind.HOST, FindingKind.UNSUPPORTED


def fails(  # noqa: PLR0917 - the parts of a report
    client: Client, ring: Ring, words: list[int], text: str, kind: FindingKind, code: RcCode
) -> None:
    """Push words that are refused; compare report, kind and code."""
    ring.push(words)
    ring.wait_error()
    report = client.kernel.reports[0]
    assert text in str(report)
    assert (report.kind, RcCode(report.code)) == (kind, code)


def test_a_control_entry_that_does_nothing_has_no_operand(up: Client) -> None:
    ring = up.copy_channel()
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.NOP, OPERAND=5)))
    fails(up, ring, sem(0x1000, 1), "NOP has operand 0x5, wanted 0", HOST, RcCode.PBDMA_ERROR)


def twin(client: Client, size: int, va: int) -> Memory:
    """Return memory that is also mapped at an address above 2^40."""
    memory = client.memory(size)
    client.map_gpu(memory.handle, va, size)
    return memory


def test_an_extended_base_reaches_above_2_to_40(up: Client) -> None:
    high = 3 << 40
    ring, memory = up.copy_channel(), up.memory(4096)
    words = sem(memory.va, 7)
    segment = up.memory(4096)
    up.map_gpu(segment.handle, high + 0x10000, 4096)
    struct.pack_into(f"<{len(words)}I", segment.view, 0, *words)
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE, OPERAND=3)))
    ring.entry(int(GpfifoEntry(ADDRESS=0x10000, LENGTH=len(words))))
    ring.ring()
    wait_word(memory, 0, 7, up)


def test_ampere_has_no_extended_base(make: Make) -> None:
    client = make("sm_80").up()
    ring = client.copy_channel()
    ring.entry(int(GpfifoControl(OPCODE=GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE, OPERAND=0)))
    text = "SET_PB_SEGMENT_EXTENDED_BASE is not for this channel"
    fails(client, ring, sem(0x1000, 1), text, HOST, RcCode.PBDMA_ERROR)


@pytest.mark.parametrize("subchannel", range(8))
def test_host_methods_are_taken_on_any_subchannel(up: Client, subchannel: int) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push([word | subchannel << 13 if i == 0 else word for i, word in enumerate(sem(memory.va, 9))])
    wait_word(memory, 0, 9, up)


def test_a_method_on_a_subchannel_without_object_is_reported(up: Client) -> None:
    words = [0x2001_0000 | 7 << 13 | 0x100 >> 2, 0]
    text = "subchannel 7, which has no object"
    fails(up, up.copy_channel(), words, text, HOST, RcCode.PBDMA_ERROR)


@pytest.mark.parametrize("bits", [1 << 16, 4, 1 << 13, 1 << 12])
def test_the_header_that_ends_a_segment_has_no_other_bits(up: Client, bits: int) -> None:
    ring = up.copy_channel()
    ring.push([0xE000_0000 | bits])
    assert ring.wait_error() == RcCode.PBDMA_ERROR


def test_a_segment_may_end_itself(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    ring.push([*sem(memory.va, 3), 0xE000_0000])
    wait_word(memory, 0, 3, up)


def test_a_class_bound_again_keeps_its_state(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(1 << 16)
    words = copy(memory.va, memory.va + 4096, 64)
    bind = method(4, 0, up.generation.copy[0])
    memory.view[:4] = b"abcd"
    ring.push(words[:-2] + bind + words[-2:] + bind + semaphore(memory.va + 0x8000, 1))
    wait_word(memory, 0x8000, 1, up)
    assert bytes(memory.view[4096:4100]) == b"abcd"


def test_work_left_on_a_subchannel_that_another_class_takes_is_reported(up: Client) -> None:
    ring, memory = up.compute_channel(), up.memory(4096)
    up.alloc(ring.handle, up.generation.copy[0])
    ring.push(method(1, M.SEND_PCAS_A, memory.va >> 8) + method(1, 0, up.generation.copy[0]))
    ring.wait_error()
    assert "was sent and not scheduled" in up.reports()[0]


@pytest.mark.parametrize(
    ("operation", "fields", "whose"),
    [
        (ACQUIRE, {"RELEASE_WFI": True}, "a release"),
        (ACQUIRE, {"RELEASE_TIMESTAMP": True}, "a plain release"),
        (ACQUIRE, {"REDUCTION": SemReduction.IADD}, "a reduction"),
        (ACQUIRE, {"REDUCTION_FORMAT": True}, "a reduction"),
        (SemOperation.RELEASE, {"REDUCTION_FORMAT": True}, "a reduction"),
        (SemOperation.RELEASE, {"ACQUIRE_SWITCH_TSG": True}, "an acquire"),
        (SemOperation.REDUCTION, {"ACQUIRE_SWITCH_TSG": True}, "an acquire"),
        (SemOperation.REDUCTION, {"RELEASE_TIMESTAMP": True, "RELEASE_WFI": True}, "a plain release"),
    ],
)
def test_bits_of_another_semaphore_operation_are_named(
    up: Client, operation: SemOperation, fields: Any, whose: str
) -> None:
    words = sem(up.memory(4096).va, 0, operation, **fields)
    text = f"{operation.name} with bits of {whose}"
    fails(up, up.copy_channel(), words, text, HOST, RcCode.PBDMA_ERROR)


@pytest.mark.parametrize(
    ("operation", "kind", "text"),
    [
        (MemOperation.MMU_TLB_INVALIDATE, HOST, "needs a privileged channel"),
        (MemOperation.MMU_TLB_INVALIDATE_TARGETED, HOST, "needs a privileged channel"),
        (MemOperation.L2_FLUSH_DIRTY, UNSUPPORTED, "L2_FLUSH_DIRTY is not emulated"),
        (MemOperation.L2_SYSMEM_INVALIDATE, UNSUPPORTED, "is not emulated"),
        (MemOperation.MEMBAR, HOST, "before MEM_OP_C"),
    ],
)
def test_memory_operations_are_distinguished(
    up: Client, operation: MemOperation, kind: FindingKind, text: str
) -> None:
    words = method(0, HostMethod.MEM_OP_D, operation << 27)
    fails(up, up.copy_channel(), words, text, kind, RcCode.PBDMA_ERROR)


def test_set_reference_is_unsupported(up: Client) -> None:
    words = method(0, HostMethod.SET_REFERENCE, 1)
    fails(up, up.copy_channel(), words, "SET_REFERENCE", UNSUPPORTED, RcCode.PBDMA_ERROR)


def test_a_semaphore_address_of_ampere_has_8_upper_bits(make: Make) -> None:
    client = make("sm_80").up()
    words = method(0, HostMethod.SEM_ADDR_HI, 1 << 8)
    fails(client, client.copy_channel(), words, "SEM_ADDR_HI 0x100", HOST, RcCode.PBDMA_ERROR)


@pytest.mark.parametrize(
    ("address", "value"), [(HostMethod.SEM_ADDR_LO, 2), (HostMethod.SEM_ADDR_HI, 1 << 25)]
)
def test_addresses_of_semaphores_have_their_bits(up: Client, address: HostMethod, value: int) -> None:
    words = method(0, address, value)
    fails(up, up.copy_channel(), words, f"{address.name} {value:#x}", HOST, RcCode.PBDMA_ERROR)


def test_an_acquire_is_aligned_and_mapped(make: Make) -> None:
    for offset, code in ((4, RcCode.PBDMA_ERROR), (8192, RcCode.MMU_FAULT)):
        client = make().up()
        ring, memory = client.copy_channel(), client.memory(4096)
        ring.push(sem(memory.va + offset, 1, ACQUIRE))
        assert ring.wait_error() == code


COMPUTE = {
    "cut short before a release": (
        method(1, M.LINE_LENGTH_IN, 8, 1, 2, 0)
        + method(1, M.LAUNCH_DMA, 0x41)
        + method(1, M.LOAD_INLINE_DATA, 1)
        + sem(0x1000, 1),
        "4 bytes of inline data are missing",
        METHOD,
    ),
    "an upload to nowhere": (method(1, M.LINE_LENGTH_IN, 8, 1) + method(1, M.LAUNCH_DMA, 0x41),
        "LAUNCH_DMA before OFFSET_OUT_UPPER", METHOD),
    "a block-linear upload": (method(1, M.LINE_LENGTH_IN, 8, 1) + method(1, M.LAUNCH_DMA, 0x40),
        "pitch-linear", UNSUPPORTED),
    "an upload before its size": (method(1, M.LAUNCH_DMA, 0x41), "before LINE_COUNT", METHOD),
    "the version of another architecture": (method(1, M.SET_SPA_VERSION, 0x806),
        "SET_SPA_VERSION 0x806: sm_90 has 0x900", METHOD),
    "data for INVALIDATE_SKED_CACHES": (method(1, M.INVALIDATE_SKED_CACHES, 1), "takes 0", METHOD),
    "data for a texture cache": (method(1, M.INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI, 1), "takes 0",
        UNSUPPORTED),
    "data for a sampler cache": (method(1, M.INVALIDATE_SAMPLER_CACHE_NO_WFI, 1), "takes 0", UNSUPPORTED),
    "a descriptor at 0": (method(1, M.SEND_PCAS_A, 0) + method(1, M.SEND_SIGNALING_PCAS2_B, 9),
        "the launch descriptor touches [0x0, ", FindingKind.MMU_FAULT),
    "a wide local window": (method(1, M.SET_SHADER_LOCAL_MEMORY_WINDOW_A, 1 << 17), "WINDOW_A", METHOD),
    "a wide backing": (method(1, M.SET_SHADER_LOCAL_MEMORY_A, 1 << 25), "MEMORY_A", METHOD),
    "a wide size": (method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 1 << 8), "_A 0x100", METHOD),
    "a wide report": (method(1, M.SET_REPORT_SEMAPHORE_A, 1 << 25), "SEMAPHORE_A", METHOD),
    "a wide newer report": (method(1, M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, 1 << 25), "ADDRESS_UPPER",
        METHOD),
    "an action that is not known": (method(1, M.SEND_SIGNALING_PCAS2_B, 0xE), "PCAS_ACTION", METHOD),
    "trap handlers": (method(1, M.SET_TRAP_HANDLER_A, 0), "not emulated", UNSUPPORTED),
}  # fmt: skip


@pytest.mark.parametrize("what", COMPUTE)
def test_compute_methods_are_validated(up: Client, what: str) -> None:
    words, text, kind = COMPUTE[what]
    code = RcCode.MMU_FAULT if kind is FindingKind.MMU_FAULT else RcCode.GR_CLASS_ERROR
    fails(up, up.compute_channel(), words, text, kind, code)


@pytest.mark.parametrize(
    ("address", "bits"), [(M.SET_SHADER_LOCAL_MEMORY_A, 17), (M.SET_REPORT_SEMAPHORE_A, 8)]
)
def test_upper_halves_of_ampere_are_narrow(make: Make, address: M, bits: int) -> None:
    client = make("sm_80").up()
    words = method(1, address, 1 << bits)
    fails(client, client.compute_channel(), words, address.name, METHOD, RcCode.GR_CLASS_ERROR)


@pytest.mark.parametrize(("profile", "version"), [("sm_80", 0x802), ("sm_90", 0x900), ("sm_120", 0xC00)])
def test_versions_that_may_be_set_are_taken(make: Make, profile: str, version: int) -> None:
    client = make(profile).up()
    ring, memory = client.compute_channel(), client.memory(4096)
    words = method(1, M.SET_SPA_VERSION, version) + method(1, M.SET_QMD_VERSION, 0x0001_0040)
    ring.push(words + sem(memory.va, 1))
    wait_word(memory, 0, 1, client)


def classic(va: int, **fields: Any) -> list[int]:
    data = int(ReportSemaphoreD(**({"OPERATION": 0} | fields)))
    return method(1, M.SET_REPORT_SEMAPHORE_A, va >> 32, va & 0xFFFF_FFFF, 7, data)


def newer(va: int, **fields: Any) -> list[int]:
    data = int(ReportSemaphoreExecute(**({"OPERATION": 0} | fields)))
    address = method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 7, 0, va & 0xFFFF_FFFF, va >> 32)
    return address + method(1, M.REPORT_SEMAPHORE_EXECUTE, data)


REPORTS: list[tuple[Any, int, dict[str, int], str, FindingKind]] = [
    (classic, 0, {"OPERATION": 1}, "RELEASE and TRAP", METHOD),
    (classic, 0, {"OPERATION": 2}, "RELEASE and TRAP", METHOD),
    (classic, 0, {"OPERATION": 3}, "only plain releases", UNSUPPORTED),
    (classic, 0, {"REDUCTION_OP": 1}, "reduction bits without reduction", METHOD),
    (classic, 0, {"REDUCTION_FORMAT": 1}, "reduction bits without reduction", METHOD),
    (classic, 8, {}, "must be aligned to 16 bytes", METHOD),
    (classic, 2, {"STRUCTURE_SIZE": True}, "must be aligned to 4 bytes", METHOD),
    (newer, 0, {"OPERATION": 1}, "only plain releases", UNSUPPORTED),
    (newer, 0, {"REDUCTION_OP": 1}, "reduction bits without reduction", METHOD),
    (newer, 0, {"STRUCTURE_SIZE": 3}, "structure size 3, which does not exist", METHOD),
    (newer, 0, {"STRUCTURE_SIZE": 2}, "two words with a payload of 32 bits", UNSUPPORTED),
    (newer, 0, {"STRUCTURE_SIZE": 1, "PAYLOAD_SIZE64": True}, "one word with a payload", METHOD),
    (newer, 4, {"STRUCTURE_SIZE": 2, "PAYLOAD_SIZE64": True}, "must be aligned to 8 bytes", METHOD),
]


@pytest.mark.parametrize(("words", "offset", "fields", "text", "kind"), REPORTS)
def test_report_semaphores_are_validated(  # noqa: PLR0917 - the columns of its table
    up: Client, words: Any, offset: int, fields: dict[str, int], text: str, kind: FindingKind
) -> None:
    va = up.memory(4096).va + offset
    fails(up, up.compute_channel(), words(va, **fields), text, kind, RcCode.GR_CLASS_ERROR)


VA = 0x2_0000_0000
NOTHING = {"DATA_TRANSFER_TYPE": DataTransferType.NONE}
COPY_WORDS: dict[str, tuple[list[int], str, FindingKind]] = {
    "a prefetch before Blackwell": (copy(VA, VA + 4096, 4, DATA_TRANSFER_TYPE=DataTransferType.PREFETCH),
        "class 0xc8b5 has no prefetch", METHOD),
    "block-linear memory": (copy(VA, VA + 4096, 4, DST_MEMORY_LAYOUT=False), "only pitch-linear",
        UNSUPPORTED),
    "physical memory": (copy(VA, VA + 4096, 4, SRC_TYPE=True), "SRC_TYPE is not emulated", UNSUPPORTED),
    "protected memory": (copy(VA, VA + 4096, 4, VPRMODE=True), "VPRMODE is not", UNSUPPORTED),
    "a flush of the GPU alone": (copy(VA, VA + 4096, 4, FLUSH_ENABLE=True, FLUSH_TYPE=True),
        "FLUSH_TYPE is not emulated", UNSUPPORTED),
    "lines of no transfer": (launch(**NOTHING, MULTI_LINE_ENABLE=True), "without a transfer", METHOD),
    "remap of no transfer": (launch(**NOTHING, REMAP_ENABLE=True), "without a transfer", METHOD),
    "a payload of no semaphore": (launch(**SIGNAL, SEMAPHORE_PAYLOAD_SIZE=True),
        "SEMAPHORE_PAYLOAD_SIZE without a semaphore", METHOD),
    "a reduction of no semaphore": (launch(**SIGNAL, SEMAPHORE_REDUCTION_ENABLE=True),
        "SEMAPHORE_REDUCTION_ENABLE without a semaphore", METHOD),
    "a sign of no reduction": (semaphore(VA, 1, ONE, SEMAPHORE_REDUCTION_SIGN=True),
        "SEMAPHORE_REDUCTION_SIGN without reduction", METHOD),
    "a semaphore off its alignment": (semaphore(VA + 2, 1, ONE), "aligned to 4 bytes", METHOD),
    "a record off its alignment": (semaphore(VA + 8, 1), "aligned to 16 bytes", METHOD),
    "a float off its alignment": (
        semaphore(VA + 2, 1, ONE, SEMAPHORE_REDUCTION=DmaReduction.FADD, SEMAPHORE_REDUCTION_ENABLE=True),
        "aligned to 4 bytes", METHOD),
    "lines without a pitch": (
        method(4, DmaMethod.LINE_COUNT, 2) + copy(VA, VA + 4096, 4, MULTI_LINE_ENABLE=True),
        "before PITCH_IN", METHOD),
    "no lines": (
        method(4, DmaMethod.PITCH_IN, 8, 8)
        + method(4, DmaMethod.LINE_COUNT, 0)
        + copy(VA, VA + 4096, 4, MULTI_LINE_ENABLE=True),
        "4 bytes and 0 lines",
        METHOD,
    ),
    "a wide target": (method(4, DmaMethod.OFFSET_OUT_UPPER, 1 << 25), "OFFSET_OUT_UPPER", METHOD),
    "a wide semaphore": (method(4, DmaMethod.SET_SEMAPHORE_A, 1 << 25), "SET_SEMAPHORE_A", METHOD),
    "reserved bits": ([*launch(**SIGNAL)[:1], 1 << 28], "no field declares it", METHOD),
}  # fmt: skip


@pytest.mark.parametrize("what", COPY_WORDS)
def test_copy_methods_are_validated(up: Client, what: str) -> None:
    words, text, kind = COPY_WORDS[what]
    fails(up, up.copy_channel(), words, text, kind, RcCode.CE2_ERROR)


def test_blackwells_prefetch_is_known_and_not_emulated(make: Make) -> None:
    client = make("sm_120").up()
    words = copy(VA, VA + 4096, 4, DATA_TRANSFER_TYPE=DataTransferType.PREFETCH)
    text = "a prefetching transfer is not emulated"
    fails(client, client.copy_channel(), words, text, UNSUPPORTED, RcCode.CE2_ERROR)


def test_old_copy_classes_have_payloads_of_one_word(make: Make) -> None:
    client = make("sm_80").up()
    words = method(4, DmaMethod.SET_SEMAPHORE_A, VA >> 32, 0, 7)
    words += launch(**SIGNAL, SEMAPHORE_TYPE=ONE, SEMAPHORE_PAYLOAD_SIZE=True)
    text = "class 0xc6b5 has payloads of 32 bits"
    fails(client, client.copy_channel(), words, text, METHOD, RcCode.CE2_ERROR)


def test_a_sum_of_floats_overflows_to_infinity(up: Client) -> None:
    ring, memory = up.copy_channel(), up.memory(4096)
    struct.pack_into("<f", memory.view, 64, 3e38)
    (most,) = struct.unpack("<I", struct.pack("<f", 3e38))
    fields = {"SEMAPHORE_REDUCTION": DmaReduction.FADD, "SEMAPHORE_REDUCTION_ENABLE": True}
    ring.push(semaphore(memory.va + 64, most, ONE, **fields) + sem(memory.va, 1, RELEASE_WFI=True))
    wait_word(memory, 0, 1, up)
    assert struct.unpack_from("<f", memory.view, 64)[0] == float("inf")


def test_the_engine_of_a_graphics_channel_posts_the_first_copy_error(up: Client) -> None:
    ring = up.compute_channel()
    up.alloc(ring.handle, up.generation.copy[0])
    words = method(4, 0, up.generation.copy[0]) + method(4, 0x104, 0)
    fails(up, ring, words, "has no method 0x104", METHOD, RcCode.CE0_ERROR)


@pytest.fixture
def launcher(up: Client) -> Launcher:
    return Launcher.make(up)


RELEASE = {"RELEASE_ENABLE": (True,), "RELEASE_MEMBAR_TYPE": (1,)}
DESCRIPTORS: dict[str, tuple[dict[str, Any], str, FindingKind]] = {
    "a wide payload in one word": ({"RELEASE_STRUCTURE_SIZE": (1,), "RELEASE_PAYLOAD64B": (True,)},
        "release 0: one word with a payload of 64 bits", FindingKind.LAUNCH),
    "a narrow payload in two words": ({"RELEASE_STRUCTURE_SIZE": (2,)},
        "release 0: two words with a payload of 32 bits", UNSUPPORTED),
    "a reduction of four words": ({"RELEASE_REDUCTION_ENABLE": (True,)},
        "release 0: a reduction of four words", UNSUPPORTED),
    "an operation without reduction": ({"RELEASE_REDUCTION_OP": (1,)},
        "release 0: reduction bits without reduction", FindingKind.LAUNCH),
    "a condition of a trap": ({"RELEASE_TRAP_TYPE": (2,)}, "release 0: trap type 2", UNSUPPORTED),
    "an unknown structure": ({"RELEASE_STRUCTURE_SIZE": (3,)}, "not a SemaphoreSize", FindingKind.LAUNCH),
    "a release off its alignment": ({"RELEASE_SEMAPHORE0_ADDR_LOWER": 8, "RELEASE_SEMAPHORE0_ADDR_UPPER": 2},
        "the grid's release at 0x200000008 must be aligned to 16 bytes", FindingKind.LAUNCH),
    "the second release": (
        {"RELEASE_ENABLE": (False, True), "RELEASE_MEMBAR_TYPE": (0, 1), "RELEASE_TRAP_TYPE": (0, 3)},
        "release 1: trap type 3", UNSUPPORTED),
    "a bank of more than 64 KiB": ({"CONSTANT_BUFFER_SIZE_SHIFTED4": (0x1001,)},
        "constant bank 0 has 0x10010 bytes, wanted", FindingKind.LAUNCH),
    "an unknown membar": ({"CWD_MEMBAR_TYPE": 2}, "not a MembarType", FindingKind.LAUNCH),
    "an unknown prefetch of a bank": ({"CONSTANT_BUFFER_PREFETCH": (3,)}, "ConstantPrefetch",
        FindingKind.LAUNCH),
    "a dependent at 0": (
        {"RELEASE_ENABLE": (), "DEPENDENT_QMD_ENABLE": (True,), "DEPENDENT_QMD_ACTION": (1,)},
        "the launch descriptor touches [0x0, ", FindingKind.MMU_FAULT),
}  # fmt: skip


@pytest.mark.parametrize("what", DESCRIPTORS)
def test_descriptors_are_validated(launcher: Launcher, what: str) -> None:
    fields, text, kind = DESCRIPTORS[what]
    code = upload(launcher.client, cubin("sm_90", STORE))
    params = struct.pack("<QI", launcher.client.memory(4096).va, 1)
    assert text in launcher.fails(code, "store", params, **(RELEASE | fields))
    assert launcher.client.kernel.reports[0].kind is kind


@pytest.mark.parametrize("profile", ["sm_80", "sm_120"])
def test_the_other_versions_releases_are_validated_too(make: Make, profile: str) -> None:
    launcher = Launcher.make(make(profile).up())
    code = upload(launcher.client, cubin(profile, STORE))
    fields: dict[str, Any] = (
        {"RELEASE2_ENABLE": True, "RELEASE2_STRUCTURE_SIZE": 1, "RELEASE2_PAYLOAD64B": True}
        if profile == "sm_80"
        else {
            "RELEASE_ENABLE": (False, False, True),
            "RELEASE_STRUCTURE_SIZE": (0, 0, 1),
            "RELEASE_PAYLOAD64B": (False, False, True),
        }
    )
    assert "release 2: one word" in launcher.fails(code, "store", bytes(12), **fields)


@pytest.mark.parametrize(("action", "first", "taken"), [(1, 9, False), (1, 0xA, False), (3, 9, True)])
def test_a_reused_dependent_is_taken_by_its_own_action(
    launcher: Launcher, action: int, first: int, taken: Any
) -> None:
    """What the first launch invalidates is its own descriptor (nv.md 4.3)."""
    client = launcher.client
    code, data = upload(client, cubin("sm_90", STORE)), client.memory(4096)
    params = struct.pack("<QI", data.va, 5)
    second = launcher.descriptor(code, "store", params)
    va = launcher.qmd(second)
    chain = {"DEPENDENT_QMD0_POINTER": va >> 8, "DEPENDENT_QMD_ENABLE": (True,)}
    chain["DEPENDENT_QMD_ACTION"] = (action,)
    head = launcher.qmd(launcher.descriptor(code, "store", params, **chain))
    launcher.finish(launcher.send(head, first))
    used, launcher.used = launcher.used, va - launcher.arguments.va
    assert launcher.qmd(second | {"REGISTER_COUNT": 65}) == va
    launcher.used = used
    if taken:
        launcher.finish(launcher.send(head, first))
    else:
        bad = launcher.send(head, first)
        fails(client, launcher.ring, bad, "was reused", FindingKind.COHERENCE, RcCode.GR_EXCEPTION)


def test_a_longer_binding_of_the_same_bank_is_no_change(launcher: Launcher) -> None:
    client = launcher.client
    code, data = upload(client, cubin("sm_90", STORE)), client.memory(4096)
    params = struct.pack("<QI", data.va, 5)
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    bank = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)) + bytes(64))
    for size in (0x22, 0x24, 0x22):
        more = {"CONSTANT_BUFFER_SIZE_SHIFTED4": (size,)}
        launcher.run(code, "store", params, bank0=bank, **quiet, **more)
