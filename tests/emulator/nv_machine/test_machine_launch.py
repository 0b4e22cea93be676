"""Launches: results, code and banks that change between them, and faults with their state."""

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
from emulator.nv.machine import FindingKind
from hcq.config import override
from tests.emulator.nv_machine.client import Client, method, wait_word
from tests.emulator.nv_machine.launching import (
    CONSTANTS,
    INCREMENT,
    JUMPS,
    REVERSE,
    STACK,
    STORE,
    VADD,
    Launcher,
    cubin,
    set_pair,
    upload,
)

PROFILES = ["sm_80", "sm_90", "sm_120"]

Make = Callable[..., Client]


@pytest.fixture(params=PROFILES)
def any_launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


def test_a_grid_adds_vectors(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, VADD))
    data = client.memory(1 << 16)
    n = 1000
    struct.pack_into(f"<{n}I", data.view, 0, *range(n))
    struct.pack_into(f"<{n}I", data.view, 0x2000, *range(0, 5 * n, 5))
    params = struct.pack("<QQQI", data.va, data.va + 0x2000, data.va + 0x4000, n)
    any_launcher.run(code, "vadd", params, grid=(8, 1, 1), block=(128, 1, 1))
    assert struct.unpack_from(f"<{n}I", data.view, 0x4000) == tuple(6 * i for i in range(n))
    assert client.machine.launches["vadd"] == 1


def test_shared_memory_and_a_barrier(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, REVERSE))
    data = client.memory(4096)
    struct.pack_into("<128I", data.view, 0, *range(128))
    any_launcher.run(code, "reverse", struct.pack("<Q", data.va), block=(128, 1, 1), shared=0x600)
    assert struct.unpack_from("<128I", data.view) == tuple(reversed(range(128)))


def test_local_memory(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, STACK))
    any_launcher.local(0x400 * 32 * 64 * 2)
    data = client.memory(4096)
    struct.pack_into("<64I", data.view, 0, *range(127, 63, -1))
    any_launcher.run(
        code, "stack", struct.pack("<QI", data.va, 100), low=0x200, words={"stack_pointer": 0x200}
    )
    assert struct.unpack_from("<I", data.view)[0] == 27


def test_constants_and_global_variables(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, CONSTANTS))
    data = client.memory(4096)
    banks = any_launcher.banks(code, "constants")
    any_launcher.run(code, "constants", struct.pack("<QI", data.va, 2), banks=banks)
    assert struct.unpack_from("<I", data.view)[0] == 47
    at = code.at(".nv.global.init") - code.memory.va
    assert struct.unpack_from("<I", code.memory.view, at)[0] == 47


def test_a_table_of_jumps(any_launcher: Any):
    """The assembler keeps it in constant bank 2, which is the kernel's own."""
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, JUMPS, STORE))
    data = client.memory(4096)
    banks = any_launcher.banks(code, "jumps")
    assert set(banks) == {2}
    any_launcher.run(code, "jumps", struct.pack("<Q", data.va), block=(16, 1, 1), banks=banks)
    first = [16, 77, 2 ^ 1234567, 33, 2, 5 << 9, 2, 29]
    second = [16, 9 * 77, 10 ^ 1234567, 41, 10, 13 << 9, 3, 28]
    assert list(struct.unpack_from("<16I", data.view)) == first + second
    any_launcher.run(code, "store", struct.pack("<QI", data.va, 7))
    assert struct.unpack_from("<I", data.view)[0] == 7


def test_a_grids_releases_and_its_dependent(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, STORE))
    data = client.memory(4096)
    second = any_launcher.qmd(any_launcher.descriptor(code, "store", struct.pack("<QI", data.va, 2)))
    old = client.generation.qmd == "V03"
    at = data.va + 64
    release = (
        {
            "RELEASE0_ENABLE": True,
            "RELEASE0_ADDRESS_LOWER": at & 0xFFFF_FFFF,
            "RELEASE0_ADDRESS_UPPER": at >> 32,
        }
        | {"RELEASE0_PAYLOAD_LOWER": 77, "RELEASE0_MEMBAR_TYPE": 1}
        if old
        else {"RELEASE_ENABLE": (True,), "RELEASE_SEMAPHORE0_ADDR_LOWER": at & 0xFFFF_FFFF}
        | {
            "RELEASE_SEMAPHORE0_ADDR_UPPER": at >> 32,
            "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": 77,
            "RELEASE_MEMBAR_TYPE": (1,),
        }
    )
    chain = {"DEPENDENT_QMD0_POINTER": second >> 8}
    if client.generation.qmd == "V04":
        chain |= {"DEPENDENT_QMD_ENABLE": (True,), "DEPENDENT_QMD_ACTION": (1,)}
    else:
        chain |= {"DEPENDENT_QMD0_ENABLE": True, "DEPENDENT_QMD0_ACTION": 1}
    any_launcher.run(code, "store", struct.pack("<QI", data.va + 4, 1), **release, **chain)
    assert struct.unpack_from("<II", data.view) == (2, 1)
    assert struct.unpack_from("<I", data.view, 64)[0] == 77
    assert struct.unpack_from("<Q", data.view, 72)[0] > 0


def test_the_same_launch_runs_again(any_launcher: Any):
    client = any_launcher.client
    code = upload(client, cubin(any_launcher.profile, INCREMENT))
    data = client.memory(4096)
    va = any_launcher.qmd(any_launcher.descriptor(code, "increment", struct.pack("<Q", data.va)))
    for _ in range(5):
        any_launcher.finish(any_launcher.send(va))
    assert struct.unpack_from("<I", data.view)[0] == 5


@pytest.mark.slow
def test_the_simt_engine_is_made_with_the_channel_and_not_by_the_first_kernel(make: Make, tmp_path: Any):
    with override(cache=tmp_path):
        client = make().up()
    client.copy_channel()
    assert not list(tmp_path.iterdir())
    client.compute_channel()
    assert list((tmp_path / "emu").rglob("*"))


@pytest.fixture
def store(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    return launcher, code, struct.pack("<QI", data.va, 1)


def test_an_undeclared_bit_of_a_descriptor_is_refused(store: Any):
    launcher, code, params = store
    va = launcher.qmd(launcher.descriptor(code, "store", params))
    launcher.arguments.view[va - launcher.arguments.va + 3] |= 0x04  # bit 26
    launcher.ring.push(launcher.send(va))
    launcher.ring.wait_error()
    assert "no field declares it" in launcher.client.reports()[0]


def test_an_image_can_be_made_known_by_hand(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STORE), whole=False)
    launcher.client.machine.images.learn(code.raw)
    data = launcher.client.memory(4096)
    launcher.run(code, "store", struct.pack("<QI", data.va, 3))
    assert data.view[0] == 3


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


def test_the_other_stack_scheme_is_accepted(launcher: Any):
    code = upload(launcher.client, cubin("sm_90", STACK))
    launcher.local(0x600 * 32 * 64 * 2)
    data = launcher.client.memory(4096)
    struct.pack_into("<64I", data.view, 0, *range(127, 63, -1))
    launcher.run(
        code, "stack", struct.pack("<QI", data.va, 100), high=0x440, words={"stack_pointer": 0xFFFDC0}
    )
    assert data.view[0] == 27


@pytest.mark.parametrize("window", [0, 0x1000, 0x2_0000_0000])
def test_a_bad_shared_window_is_an_invalid_address_space(make: Make, window: Any):
    launcher = Launcher.make(make().up())
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.ring.push(set_pair(M.SET_SHADER_SHARED_MEMORY_WINDOW_A, window), ring=False)
    launcher.fails(code, "store", bytes(12), words={"shared_window": 0})
    debugger = launcher.client.debugger()
    state = states(launcher.client, debugger, 0, 100)[0]
    assert (launcher.ring.error(), state.hwwWarpEsr) == (13, 0x10)


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
    debugger = client.debugger()
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
    out = client.control(client.debugger(), Control.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO)
    assert (out.count, out.mmuFaultInfoList[0].faultAddress) == (1, 0x9_0000_0000)
    out = client.control(launcher.ring.handle, Control.NV906F_CTRL_GET_MMU_FAULT_INFO)
    assert (out.addrHi, out.faultString) == (9, "FAULT_PTE")


def test_a_store_into_read_only_memory_faults(store: Any):
    launcher, code, _ = store
    data = launcher.client.memory(4096, kind=3)
    launcher.fails(code, "store", struct.pack("<QI", data.va, 1))
    assert launcher.ring.error() == RcCode.MMU_FAULT


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
