from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.debugger import NV83DE_SM_ERROR_STATE_REGISTERS
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.gpfifo import SecOp
from drivers.nv.layouts.qmd import sm_config
from drivers.nv.layouts.rm_classes import NV83DE_ALLOC_PARAMETERS, RmClass
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method, wait_word
from tests.emulator.nv_machine.launching import (
    CONSTANTS,
    INCREMENT,
    JUMPS,
    REVERSE,
    SHARED_WINDOW,
    SPIN,
    STACK,
    STORE,
    TRAP,
    Launcher,
    cubin,
    set_pair,
    upload,
)

Make = Callable[..., Client]


@pytest.fixture
def store(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    return launcher, code, struct.pack("<QI", data.va, 1)


FIELDS: dict[str, dict[str, Any]] = {
    "version": {"QMD_MAJOR_VERSION": 3},
    "minor version": {"QMD_MINOR_VERSION": 1},
    "type queue": {"QMD_TYPE": 0},
    "type unknown": {"QMD_TYPE": 7},
    "a field of the hardware's own": {"HW_ONLY_INNER_GET": 1},
    "resume state": {"GRID_WIDTH_RESUME": 1},
    "reserved bits of a release": {"RELEASE_RESERVED_INFO": (1,)},
    "a latch": {"WAIT_ON_LATCH_ID": 1},
    "a circular queue": {"CIRCULAR_QUEUE_SIZE": 1},
    "another machine code": {"SASS_VERSION": 0x80},
    "an empty grid": {"GRID_WIDTH": 0},
    "an empty block": {"CTA_THREAD_DIMENSION1": 0},
    "too many threads": {"CTA_THREAD_DIMENSION0": 1025},
    "too deep a block": {"CTA_THREAD_DIMENSION2": 65},
    "shared memory off its step": {"SHARED_MEMORY_SIZE": 0x180},
    "a carve-out that does not exist": {
        "MIN_SM_CONFIG_SHARED_MEM_SIZE": 2,
        "TARGET_SM_CONFIG_SHARED_MEM_SIZE": 2,
    },
    "carve-outs out of order": {"MIN_SM_CONFIG_SHARED_MEM_SIZE": 9, "TARGET_SM_CONFIG_SHARED_MEM_SIZE": 3},
    "too small a carve-out": {"SHARED_MEMORY_SIZE": 0x8000, "MIN_SM_CONFIG_SHARED_MEM_SIZE": sm_config(8)},
    "too few registers": {"REGISTER_COUNT": 1},
    "too many registers": {"REGISTER_COUNT": 256},
    "a bank without bytes": {"CONSTANT_BUFFER_SIZE_SHIFTED4": (0,)},
    "a bank of the image's that it has not": {"CONSTANT_BUFFER_VALID": (True, False, True)},
    "a release without a membar": {"RELEASE_ENABLE": (True,), "CWD_MEMBAR_TYPE": 0},
    "a dependent action": {"DEPENDENT_QMD_ENABLE": (True,), "DEPENDENT_QMD_ACTION": (4,)},
    "prefetch of other code": {"PROGRAM_PREFETCH_SIZE": 1},
    "no bank 0": {"CONSTANT_BUFFER_VALID": (False,)},
    "a program off its alignment": {"PROGRAM_ADDRESS_LOWER": 0x2_0000_0040 & 0xFFFF_FFFF},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", FIELDS)
def test_a_bad_descriptor_is_refused(store: Any, what: Any):
    launcher, code, params = store
    fields = dict(FIELDS[what])
    if what == "too small a carve-out":
        fields["TARGET_SM_CONFIG_SHARED_MEM_SIZE"] = fields["MIN_SM_CONFIG_SHARED_MEM_SIZE"]
    if "program" in what:
        fields["PROGRAM_ADDRESS_LOWER"] = (code.at(".text.store") + 0x40) & 0xFFFF_FFFF
    launcher.fails(code, "store", params, **fields)
    assert launcher.ring.error() == RcCode.GR_EXCEPTION, launcher.client.reports()


def test_an_undeclared_bit_of_a_descriptor_is_refused(store: Any):
    launcher, code, params = store
    va = launcher.qmd(launcher.descriptor(code, "store", params))
    launcher.arguments.view[va - launcher.arguments.va + 3] |= 0x04  # bit 26
    launcher.ring.push(launcher.send(va))
    launcher.ring.wait_error()
    assert "no field declares it" in launcher.client.reports()[0]


WORDS: dict[str, dict[str, Any]] = {
    "ntid": {"ntid": (2, 1, 1)},
    "nctaid": {"nctaid": (1, 2, 1)},
    "shared_window": {"shared_window": 4},
    "local_window": {"local_window": 4},
    "global_descriptor": {"global_descriptor": 5},
    "nsmid": {"nsmid": 5},
    "constant_bank_3": {"constant_bank_3": 4096},
    "reserved_shared_size": {"reserved_shared_size": 1},
    "dynamic_shared_size": {"dynamic_shared_size": 64},
}


@pytest.mark.parametrize("what", WORDS)
def test_a_bad_word_of_bank_0_is_refused(store: Any, what: Any):
    launcher, code, params = store
    text = launcher.fails(code, "store", params, words=WORDS[what])
    assert "constant bank 0 of store" in text


def test_stray_bytes_of_bank_0_are_refused(store: Any):
    launcher, code, params = store
    content = bytearray(launcher.bank0(params, (1, 1, 1), (1, 1, 1)))
    content[0x100] = 1
    text = launcher.fails(code, "store", params, bank0=launcher.place(bytes(content)))
    assert "no field declares it" in text


def test_bank_0_must_hold_the_parameters(store: Any):
    launcher, code, params = store
    assert "reads" in launcher.fails(code, "store", params, CONSTANT_BUFFER_SIZE_SHIFTED4=(0x21,))


def test_a_bank_that_is_not_mapped_faults(store: Any):
    launcher, code, params = store
    launcher.fails(code, "store", params, bank0=0x1_0000_0000)
    assert launcher.ring.error() == RcCode.MMU_FAULT


def test_code_of_no_image_is_refused(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STORE), whole=False)
    text = launcher.fails(code, "store", bytes(12))
    assert "no image was uploaded" in text


def test_an_image_can_be_made_known_by_hand(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STORE), whole=False)
    launcher.client.machine.images.learn(code.raw)
    data = launcher.client.memory(4096)
    launcher.run(code, "store", struct.pack("<QI", data.va, 3))
    assert data.view[0] == 3


def test_code_with_one_wrong_byte_is_refused_and_the_byte_is_named(store: Any):
    launcher, code, params = store
    at = code.at(".text.store") - code.memory.va
    code.memory.view[at + 5] ^= 1
    assert "byte 0x5 differs" in launcher.fails(code, "store", params)


def test_a_program_that_is_not_mapped_faults(store: Any):
    launcher, code, params = store
    launcher.fails(code, "store", params, PROGRAM_ADDRESS_UPPER=9)
    assert launcher.ring.error() == RcCode.MMU_FAULT


def test_code_of_another_architecture_is_refused(launcher: Any):
    code = upload(launcher.client, cubin("sm_80", STORE))
    assert "sm_80" in launcher.fails(code, "store", bytes(12))


def test_an_image_without_ptx_is_refused(launcher: Any):
    raw = bytearray(cubin("sm_90", STORE))
    raw[raw.index(b".version") :][:8]
    at = raw.rindex(b".version 8")
    raw[at : at + 8] = b".VERSION"
    code = upload(launcher.client, bytes(raw))
    assert "no PTX" in launcher.fails(code, "store", bytes(12))


def test_code_needs_prefetch_padding(launcher: Any):
    client = launcher.client
    raw = cubin("sm_90", STORE)
    code = upload(client, raw, whole=False)
    client.machine.images.learn(raw)
    section = code.elf.section(".text.store")
    assert section is not None
    small = client.memory(4096)
    at = 4096 - (-(-section.size // 128) * 128)
    small.view[at : at + section.size] = code.elf.content(section)
    va = small.va + at
    text = launcher.fails(
        code, "store", bytes(12), PROGRAM_ADDRESS_LOWER=va & 0xFFFF_FFFF, PROGRAM_ADDRESS_UPPER=va >> 32
    )
    assert "prefetch" in text


def test_changed_code_needs_an_invalidate(store: Any):
    launcher, code, params = store
    launcher.run(code, "store", params)
    other = upload(launcher.client, cubin("sm_90", INCREMENT))
    section = other.elf.section(".text.increment")
    assert section is not None
    at = code.at(".text.store") - code.memory.va
    code.memory.view[at : at + section.size] = other.elf.content(section)
    code.memory.view[8192 * 4 : 8192 * 4 + len(other.raw)] = other.raw
    values = launcher.descriptor(code, "store", params)
    launcher.ring.push(launcher.send(launcher.qmd(values)))
    launcher.ring.wait_error()
    assert launcher.client.kernel.reports[0].kind is FindingKind.COHERENCE


def test_a_reused_constant_bank_needs_an_invalidate(store: Any):
    launcher, code, params = store
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    first = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)))
    launcher.run(code, "store", params, bank0=first, **quiet)
    launcher.arguments.view[first - launcher.arguments.va + 0x218] = 9
    launcher.run(code, "store", params, bank0=first, CONSTANT_BUFFER_INVALIDATE=(True,), **quiet)
    launcher.arguments.view[first - launcher.arguments.va + 0x218] = 8
    launcher.fails(code, "store", params, bank0=first, **quiet)
    assert launcher.client.kernel.reports[0].kind is FindingKind.COHERENCE


@pytest.mark.parametrize("action", [2, 9, 3, 0xA])
def test_a_reused_descriptor_needs_an_action_that_invalidates(store: Any, action: Any):
    launcher, code, params = store
    values = launcher.descriptor(code, "store", params)
    va = launcher.qmd(values)
    launcher.finish(launcher.send(va, action))
    launcher.used -= 384
    assert launcher.qmd(values | {"REGISTER_COUNT": 65}) == va
    if action != 2:  # each of the others reads the descriptor again
        launcher.finish(launcher.send(va, action))
    else:
        launcher.ring.push(launcher.send(va, action))
        launcher.ring.wait_error()
        assert launcher.client.kernel.reports[0].kind is FindingKind.COHERENCE


def test_invalidating_the_scheduler_makes_reuse_legal(store: Any):
    launcher, code, params = store
    values = launcher.descriptor(code, "store", params)
    va = launcher.qmd(values)
    launcher.finish(launcher.send(va))
    launcher.used -= 384
    launcher.qmd(values | {"REGISTER_COUNT": 65})
    launcher.finish(method(1, M.INVALIDATE_SKED_CACHES, 0) + launcher.send(va))


def test_a_descriptor_changed_in_flight_is_a_lifetime_error(make: Make):
    found = False
    for seed in range(10):
        launcher = Launcher.make(make(seed=seed).up())
        code = upload(launcher.client, cubin("sm_90", STORE))
        data = launcher.client.memory(4096)
        va = launcher.qmd(launcher.descriptor(code, "store", struct.pack("<QI", data.va, 1)))
        at = va - launcher.arguments.va
        inline = method(1, M.LINE_LENGTH_IN, 4, 1, (va + 320) >> 32, (va + 320) & 0xFFFF_FFFF)
        inline += method(1, M.LAUNCH_DMA, 0x41) + method(1, M.LOAD_INLINE_DATA, 5)
        launcher.ring.push(launcher.send(va) + inline + launcher.signal())
        while launcher.ring.error() == 0 and not launcher.client.machine.channels[0].run.dead:
            if struct.unpack_from("<Q", launcher.arguments.view, (1 << 20) - 64)[0]:
                break
        reports = launcher.client.kernel.reports
        found |= bool(reports) and reports[0].kind is FindingKind.LIFETIME
        assert at >= 0
    assert found


@pytest.mark.parametrize(
    ("kw", "text"),
    [
        ({"low": 0, "words": {"stack_pointer": 0}}, "of stack"),
        ({"low": 0x200, "words": {"stack_pointer": 0}}, "stack pointer"),
        ({"low": 0x200, "words": {"stack_pointer": 0x240}}, "stack pointer"),
        ({"high": 0x400, "words": {"stack_pointer": 0xFFFDC0}}, "stack pointer"),
        ({"low": 0x208, "words": {"stack_pointer": 0x200}}, "multiple"),
        ({"low": 0x200, "words": {"stack_pointer": 0x200, "local_window": 0}}, "local_window is 0"),
    ],
)
def test_a_bad_stack_is_refused(launcher: Any, kw: Any, text: Any):
    code = upload(launcher.client, cubin("sm_90", STACK))
    launcher.local(0x400 * 32 * 64 * 2)
    data = launcher.client.memory(4096)
    assert text in launcher.fails(code, "stack", struct.pack("<QI", data.va, 1), **kw)


def test_the_other_stack_scheme_is_accepted(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STACK))
    launcher.local(0x600 * 32 * 64 * 2)
    data = launcher.client.memory(4096)
    struct.pack_into("<64I", data.view, 0, *range(127, 63, -1))
    launcher.run(
        code, "stack", struct.pack("<QI", data.va, 100), high=0x440, words={"stack_pointer": 0xFFFDC0}
    )
    assert data.view[0] == 27


@pytest.mark.parametrize("per_tpc", [0, 0x8000])
def test_local_memory_must_be_backed(launcher: Any, per_tpc: Any):
    code = upload(launcher.client, cubin("sm_90", STACK))
    if per_tpc:
        launcher.local(per_tpc)
    launcher.fails(code, "stack", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert launcher.ring.error() == RcCode.GR_EXCEPTION


def test_local_memory_must_be_mapped_for_all_tpcs(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STACK))
    launcher.local(0x200 * 32 * 64 * 2)
    assert launcher.backing is not None
    spare = launcher.backing.size - 66 * 0x200 * 32 * 64 * 2
    at = launcher.backing.va + spare + 0x10000
    launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, at), ring=False)
    launcher.fails(code, "stack", bytes(12), low=0x200, words={"stack_pointer": 0x200})
    assert launcher.ring.error() == RcCode.MMU_FAULT


def test_shared_memory_must_reach_the_images_need(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", REVERSE))
    assert "shared" in launcher.fails(code, "reverse", bytes(8), block=(128, 1, 1), shared=0x500)


def test_barriers_must_reach_the_images_need(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", REVERSE))
    text = launcher.fails(code, "reverse", bytes(8), block=(128, 1, 1), shared=0x600, BARRIER_COUNT=0)
    assert "barriers" in text


def test_an_image_s_banks_must_be_bound(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", CONSTANTS))
    assert "constant bank" in launcher.fails(code, "constants", bytes(12))


@pytest.mark.parametrize(
    ("kernel", "change", "text"),
    [
        ("jumps", {2: None}, "the image has 0x20 bytes for constant bank 2, bound are 0x0"),
        ("jumps", {2: bytes(32)}, "constant bank 2 does not hold .nv.constant2.jumps of jumps"),
        ("store", {2: bytes(32)}, "constant bank 2 is bound, the image has none"),
    ],
)
def test_a_table_of_jumps_is_bound_to_the_kernel_that_has_it(
    launcher: Any, kernel: str, change: dict[int, bytes | None], text: str
):
    code = upload(launcher.client, cubin("sm_90", JUMPS, STORE))
    banks = {bank: (launcher.place(content), len(content)) for bank, content in change.items() if content}
    assert text in launcher.fails(code, kernel, bytes(12), banks=banks)


def test_a_relocated_word_that_is_wrong_is_named(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", CONSTANTS))
    patch = next(r for r in code.elf.relocations() if r.symbol is not None and r.type != 0)
    at = code.image.offset_in(patch) + (4 if patch.type in (56, 57) else 0)
    code.memory.view[at] ^= 0x04
    launcher.fails(code, "constants", bytes(12), banks=launcher.banks(code, "constants"))
    assert launcher.ring.error() in (RcCode.GR_EXCEPTION, RcCode.MMU_FAULT)


@pytest.mark.parametrize("window", [0, 0x1000, 0x2_0000_0000])
def test_a_bad_shared_window_is_an_invalid_address_space(make: Make, window: Any):
    launcher = Launcher.make(make().up())
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.ring.push(set_pair(M.SET_SHADER_SHARED_MEMORY_WINDOW_A, window), ring=False)
    launcher.fails(code, "store", bytes(12), words={"shared_window": 0})
    debugger = debug(launcher.client)
    state = states(launcher.client, debugger, 0, 100)[0]
    assert (launcher.ring.error(), state.hwwWarpEsr) == (13, 0x10)


def debug(client: Client) -> int:
    params = NV83DE_ALLOC_PARAMETERS(hAppClient=client.root, hClass3dObject=client.engine_object)
    return client.alloc(client.device, RmClass.GT200_DEBUGGER, params)


def states(
    client: Client, debugger: int, first: int, count: int
) -> tuple[NV83DE_SM_ERROR_STATE_REGISTERS, ...]:
    number = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    out = client.control(debugger, number, numSMsToRead=count, startingSM=first)
    return tuple(out.smErrorStateArray[:count])


def test_a_launch_before_the_windows_is_refused(make: Make):
    client = make().up()
    launcher = Launcher(client, client.compute_channel(), client.memory(1 << 20))
    code = upload(client, cubin("sm_90", STORE))
    words = {"shared_window": 0, "local_window": 0}
    assert "window was set" in launcher.fails(code, "store", bytes(12), words=words)


def test_a_store_outside_every_allocation_is_an_mmu_fault_in_every_report(store: Any):
    launcher, code, _ = store
    client = launcher.client
    bad = 0x9_0000_0000
    text = launcher.fails(code, "store", struct.pack("<QI", bad, 1))
    assert launcher.ring.error() == RcCode.MMU_FAULT
    assert "store" in text
    assert client.kernel.reports[0].va == bad
    debugger = debug(client)
    number = Control.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES
    out = client.control(debugger, number, numSMsToRead=100)
    assert out.mmuFault.valid
    assert out.smErrorStateArray[0].hwwEsrAddr == bad
    assert states(client, debugger, 100, 32)[0] == NV83DE_SM_ERROR_STATE_REGISTERS()
    client.control(debugger, Control.NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES, numSMsToClear=132)
    assert not client.control(debugger, number, numSMsToRead=1).mmuFault.valid


def test_a_bare_machine_reports_the_fault_address(make: Make):
    launcher = Launcher.make(make(filtered=False).up())
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.fails(code, "store", struct.pack("<QI", 0x9_0000_0000, 1))
    client = launcher.client
    out = client.control(debug(client), Control.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO)
    assert (out.count, out.mmuFaultInfoList[0].faultAddress) == (1, 0x9_0000_0000)
    out = client.control(launcher.ring.handle, Control.NV906F_CTRL_GET_MMU_FAULT_INFO)
    assert (out.addrHi, out.faultString) == (9, "FAULT_PTE")


def test_a_store_into_read_only_memory_faults(store: Any):
    launcher, code, _ = store
    data = launcher.client.memory(4096, kind=3)
    launcher.fails(code, "store", struct.pack("<QI", data.va, 1))
    assert launcher.ring.error() == RcCode.MMU_FAULT


def test_a_misaligned_store_and_a_trap_are_exceptions(make: Make):
    for text, name in ((STORE, "store"), (TRAP, "stop")):
        launcher = Launcher.make(make().up())
        data = launcher.client.memory(4096)
        code = upload(launcher.client, cubin("sm_90", text))
        launcher.fails(code, name, struct.pack("<QI", data.va + 2, 1))
        assert launcher.ring.error() == RcCode.GR_EXCEPTION
        assert launcher.client.machine.channels[0].run.faults.sm(0).hwwWarpEsr


def test_a_hung_kernel_is_a_context_switch_timeout(make: Make, monkeypatch: Any):
    launcher = Launcher.make(make().up())
    launcher.client.machine.grids.timeout_s = 0.3
    code = upload(launcher.client, cubin("sm_90", SPIN))
    launcher.fails(code, "spin", bytes(8))
    assert launcher.ring.error() == RcCode.CONTEXT_SWITCH_TIMEOUT


METHODS = {
    "an unknown method": (method(1, 0x104, 0), RcCode.GR_CLASS_ERROR),
    "an undeclared bit": (method(1, M.INVALIDATE_SHADER_CACHES, 1 << 9), RcCode.GR_CLASS_ERROR),
    "data for WAIT_FOR_IDLE": (method(1, M.WAIT_FOR_IDLE, 1), RcCode.GR_CLASS_ERROR),
    "the old signalling method": (method(1, M.SEND_SIGNALING_PCAS_B, 1), RcCode.GR_CLASS_ERROR),
    "an inline descriptor": (method(1, M.LOAD_INLINE_QMD_DATA, 1), RcCode.GR_CLASS_ERROR),
    "an unknown action": (method(1, M.SEND_PCAS_A, 4) + method(1, M.SEND_SIGNALING_PCAS2_B, 4),
        RcCode.GR_CLASS_ERROR),
    "an action that is not emulated": (method(1, M.SEND_PCAS_A, 4) + method(1, M.SEND_SIGNALING_PCAS2_B, 6),
        RcCode.GR_CLASS_ERROR),
    "a launch without descriptor": (method(1, M.SEND_SIGNALING_PCAS2_B, 9), RcCode.GR_CLASS_ERROR),
    "a descriptor that is not mapped": (method(1, M.SEND_PCAS_A, 5) + method(1, M.SEND_SIGNALING_PCAS2_B, 9),
        RcCode.MMU_FAULT),
    "a report before its address": (method(1, M.SET_REPORT_SEMAPHORE_D, 0), RcCode.GR_CLASS_ERROR),
    "a reducing report": (method(1, M.SET_REPORT_SEMAPHORE_A, 2, 0, 1, 8), RcCode.GR_CLASS_ERROR),
    "inline data without launch": (method(1, M.LOAD_INLINE_DATA, 0), RcCode.GR_CLASS_ERROR),
    "an upload of nothing": (method(1, M.LINE_LENGTH_IN, 0, 1) + method(1, M.LAUNCH_DMA, 0x41),
        RcCode.GR_CLASS_ERROR),
    "an upload of two lines": (method(1, M.LINE_LENGTH_IN, 4, 2) + method(1, M.LAUNCH_DMA, 0x41),
        RcCode.GR_CLASS_ERROR),
    "an upload cut short": (
        method(1, M.LINE_LENGTH_IN, 8, 1) + method(1, M.LAUNCH_DMA, 0x41) + method(1, M.NO_OPERATION, 0),
        RcCode.GR_CLASS_ERROR),
    "a wide window": (method(1, M.SET_SHADER_SHARED_MEMORY_WINDOW_A, 1 << 17), RcCode.GR_CLASS_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("what", METHODS)
def test_the_compute_class_refuses(up: Client, what: Any):
    ring = up.compute_channel()
    words, code = METHODS[what]
    ring.push(words)
    assert ring.wait_error() == code, up.reports()


def test_report_semaphores_and_inline_uploads_write(up: Client):
    ring, memory = up.compute_channel(), up.memory(4096)
    high, low = memory.va >> 32, memory.va & 0xFFFF_FFFF
    words = method(1, M.LINE_LENGTH_IN, 6, 1, high, low) + method(1, M.LAUNCH_DMA, 0x41)
    words += method(1, M.LOAD_INLINE_DATA, 0x44332211, 0x6655, opcode=SecOp.NON_INCREMENTING) + method(
        1, M.SET_REPORT_SEMAPHORE_A, high, low + 64, 7, 0
    )
    words += method(1, M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 9, 1, low + 128, high, 1 << 12)
    ring.push(words)
    wait_word(memory, 128, 1 << 32 | 9, up)
    assert bytes(memory.view[:7]) == bytes.fromhex("11223344556600")
    assert struct.unpack_from("<I", memory.view, 64)[0] == 7
    assert struct.unpack_from("<Q", memory.view, 72)[0] > 0


def test_the_newer_report_is_unknown_to_ga100(make: Make):
    up = make("sm_80").up()
    ring = up.compute_channel()
    ring.push(method(1, M.REPORT_SEMAPHORE_EXECUTE, 0))
    assert ring.wait_error() == RcCode.GR_CLASS_ERROR


def test_a_bank_of_ampere_is_aligned_to_256(make: Make):
    launcher = Launcher.make(make("sm_80").up())
    code = upload(launcher.client, cubin("sm_80", STORE))
    first = launcher.place(launcher.bank0(bytes(12), (1, 1, 1), (1, 1, 1)), 64) + 64
    launcher.fails(code, "store", bytes(12), bank0=first if first % 256 else first + 64)
    assert launcher.ring.error() == RcCode.GR_EXCEPTION
    assert SHARED_WINDOW
