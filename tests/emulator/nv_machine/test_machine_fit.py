"""What an image requires of a launch: descriptor, banks, local memory, clusters, its container."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.elf import Elf
from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import InvalidateShaderCaches
from drivers.nv.layouts.fault import RcCode
from emulator.ir.library import Sanitizers
from emulator.nv.engines.cubins import Cubin
from emulator.nv.machine import FindingKind
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.cubins import header_of, patched
from tests.emulator.nv_machine.launching import (
    CONSTANTS,
    INCREMENT,
    NEIGHBOUR,
    PLAIN,
    REVERSE,
    STACK,
    STORE,
    Launcher,
    cluster,
    cubin,
    set_pair,
    split,
    upload,
)

PROFILES = ["sm_80", "sm_90", "sm_120"]

Make = Callable[..., Client]


@pytest.fixture(params=PROFILES)
def any_launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


@pytest.fixture
def hopper(make: Make) -> Launcher:
    return Launcher.make(make().up())


def test_the_reserved_part_alone_needs_no_window(any_launcher: Launcher) -> None:
    """Also where the image counts it as static memory (nv.md 5.6)."""
    code = upload(any_launcher.client, cubin(any_launcher.profile, STORE))
    data = any_launcher.client.memory(4096)
    params = struct.pack("<QI", data.va, 3)
    any_launcher.run(code, "store", params, shared=0x400, words={"shared_window": 0})
    assert data.view[0] == 3


LOCAL = {"low": 0x200, "words": {"stack_pointer": 0x200}}


def test_local_memory_is_mapped_to_its_rounded_end(hopper: Launcher) -> None:
    """66 TPCs of 0x208000 bytes end 0x10000 before the next multiple of 0x20000 (nv.md 2.8)."""
    code = upload(hopper.client, cubin("sm_90", STACK))
    per_tpc = 0x20_8000
    backing = hopper.client.memory(per_tpc * 66)
    assert backing.size % 0x20000 == 0x10000
    hopper.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
    hopper.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 0, per_tpc, 0xFF), ring=False)
    params = struct.pack("<QI", hopper.client.memory(4096).va, 1)
    assert "local memory of stack touches" in hopper.fails(code, "stack", params, **LOCAL)
    assert hopper.ring.error() == RcCode.MMU_FAULT


LITTER = {"sm_80": (8, 8), "sm_90": (8, 9), "sm_120": (12, 8)}
"""GPCs of the full die, and TPCs of each."""
IN_USE = {"sm_80": 54, "sm_90": 66, "sm_120": 85}


PER_TPC = 0x20_0000


def strict(make: Make, profile: str) -> Launcher:
    """Return a any_launcher of a machine on which doubtful findings stop a channel."""
    return Launcher.make(make(profile, checks=Sanitizers.all()).up())


def back(any_launcher: Launcher, parts: int) -> None:
    """Back local memory with a part for each of so many TPCs."""
    backing = any_launcher.client.memory(PER_TPC * parts)
    any_launcher.ring.push(set_pair(M.SET_SHADER_LOCAL_MEMORY_A, backing.va), ring=False)
    any_launcher.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 0, PER_TPC, 0xFF), ring=False)


def launch_stack(any_launcher: Launcher) -> dict[str, Any]:
    """Return the launch of a kernel with local memory."""
    code = upload(any_launcher.client, cubin(any_launcher.profile, STACK))
    data = any_launcher.client.memory(4096)
    return {"code": code, "name": "stack", "params": struct.pack("<QI", data.va, 0)} | LOCAL


@pytest.mark.sampled(7)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("parts", ["in use", "all but one"])
def test_local_memory_is_backed_for_the_full_die(make: Make, profile: str, parts: str) -> None:
    any_launcher = strict(make, profile)
    gpcs, tpcs = LITTER[profile]
    number = IN_USE[profile] if parts == "in use" else gpcs * tpcs - 1
    back(any_launcher, number)
    text = any_launcher.fails(**launch_stack(any_launcher))
    assert f"backing of local memory of stack has {PER_TPC * number:#x} bytes" in text
    assert f"wanted {PER_TPC * gpcs * tpcs:#x}: {PER_TPC:#x} per TPC x {gpcs * tpcs} TPCs" in text
    assert any_launcher.ring.error() == RcCode.GR_EXCEPTION


@pytest.mark.sampled(3)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_backing_for_the_full_die_is_enough(make: Make, profile: str) -> None:
    any_launcher = strict(make, profile)
    gpcs, tpcs = LITTER[profile]
    back(any_launcher, gpcs * tpcs)
    any_launcher.run(**launch_stack(any_launcher))
    assert any_launcher.client.kernel.reports == []


def test_memory_behind_a_backing_is_no_part_of_it(make: Make) -> None:
    any_launcher = strict(make, "sm_90")
    client = any_launcher.client
    back(any_launcher, 66)
    client.next_va -= 64 << 10  # the hole that is left behind every allocation
    client.memory(PER_TPC * 6)
    assert "backing of local memory of stack has" in any_launcher.fails(**launch_stack(any_launcher))


def test_a_backing_for_the_tpcs_in_use_gets_advice_by_default(hopper: Launcher) -> None:
    back(hopper, 66)
    hopper.run(**launch_stack(hopper))
    (report,) = hopper.client.kernel.reports
    assert report.kind is FindingKind.ADVICE
    assert "backing of local memory of stack has" in report.message


def test_hopper_may_count_further_with_local_memory(hopper: Launcher) -> None:
    code = upload(hopper.client, cubin("sm_90", STACK))
    hopper.local(0x20_0000)
    data = hopper.client.memory(4096)
    hopper.ring.push(method(1, M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, 0x4242_00FF), ring=False)
    hopper.run(code, "stack", struct.pack("<QI", data.va, 1), **LOCAL)


def test_the_words_of_clusters_may_state_that_there_are_none(hopper: Launcher) -> None:
    code = upload(hopper.client, cubin("sm_90", STORE))
    words = {"cluster_nctaid": (1, 1, 1), "nclusterid": (3, 2, 1), "cluster_nctarank": 1}
    params = struct.pack("<QI", hopper.client.memory(4096).va, 1)
    hopper.run(code, "store", params, grid=(3, 2, 1), words=words)


def test_the_program_itself_may_be_prefetched(any_launcher: Launcher) -> None:
    code = upload(any_launcher.client, cubin(any_launcher.profile, STORE))
    at = split("PROGRAM_PREFETCH_ADDR", (code.at(".text.store") & -256) >> 8, "_SHIFTED")
    params = struct.pack("<QI", any_launcher.client.memory(4096).va, 1)
    any_launcher.run(code, "store", params, **at, PROGRAM_PREFETCH_SIZE=2)


@pytest.mark.parametrize(
    ("what", "change", "text"),
    [
        ("machine", {18: b"\x3e\0"}, "no cubin: machine 62"),
        ("ABI", {7: b"\x40"}, "ABI 0x40 version 8"),
        ("ABI version", {8: b"\x07"}, "ABI 0x41 version 7"),
    ],
)
def test_other_containers_are_refused(what: str, change: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Cubin.parse(patched(cubin("sm_90", STORE), change))
    assert what


def test_info_records_of_an_unknown_format_or_cut_off_are_refused() -> None:
    raw = cubin("sm_90", STORE)
    info = Elf(raw).section(".nv.info.store")
    assert info is not None
    with pytest.raises(UsageError, match="format 5"):
        Cubin.parse(patched(raw, {info.offset: b"\x05"}))
    size = header_of(raw, ".nv.info.store") + 0x20
    for less in (1, 5):
        with pytest.raises(UsageError):
            Cubin.parse(patched(raw, {size: struct.pack("<Q", info.size - less)}))


def test_relocations_that_cannot_be_are_refused() -> None:
    raw = cubin("sm_90", CONSTANTS)
    elf = Elf(raw)
    table = next(s for s in elf.sections if s.name == ".rela.text.constants")
    for change, text in (
        ({table.offset: struct.pack("<Q", 1 << 20)}, "lies outside"),
        ({table.offset + 8: struct.pack("<I", 99)}, "type 99 has no formula"),
        ({table.offset + 12: struct.pack("<I", 0)}, "does not define"),
    ):
        with pytest.raises(UsageError, match=text):
            Cubin.parse(patched(raw, change))


def releases(launcher: Launcher, va: int, **more: Any) -> dict[str, Any]:
    fields = {
        "RELEASE_ENABLE": (True,),
        "RELEASE_SEMAPHORE0_ADDR_LOWER": va & 0xFFFF_FFFF,
        "RELEASE_MEMBAR_TYPE": (1,),
    }
    return fields | {"RELEASE_SEMAPHORE0_ADDR_UPPER": va >> 32, "RELEASE_SEMAPHORE0_PAYLOAD_LOWER": 5} | more


def test_a_release_can_reduce_and_trap(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    struct.pack_into("<I", data.view, 64, 7)
    more = {"RELEASE_REDUCTION_ENABLE": (True,), "RELEASE_STRUCTURE_SIZE": (1,), "RELEASE_TRAP_TYPE": (1,)}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **releases(launcher, data.va + 64, **more))
    assert struct.unpack_from("<I", data.view, 64)[0] == 12


def test_all_zero_carve_outs_go_with_no_shared_memory(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    data = launcher.client.memory(4096)
    zeros = {f"{name}_SM_CONFIG_SHARED_MEM_SIZE": 0 for name in ("MIN", "TARGET", "MAX")}
    launcher.run(code, "store", struct.pack("<QI", data.va, 1), **zeros)


def test_an_invalidate_without_waiting_and_one_of_a_descriptor(launcher: Launcher) -> None:
    client = launcher.client
    code = upload(client, cubin("sm_90", INCREMENT))
    data = client.memory(4096)
    quiet = {"INVALIDATE_SHADER_CONSTANT_CACHE": False}
    params = struct.pack("<Q", data.va)
    first = launcher.place(launcher.bank0(params, (1, 1, 1), (1, 1, 1)))
    va = launcher.qmd(launcher.descriptor(code, "increment", params, bank0=first, **quiet))
    launcher.finish(launcher.send(va))
    at = first - launcher.arguments.va + 0x210
    struct.pack_into("<Q", launcher.arguments.view, at, data.va + 64)
    invalidate = method(1, M.INVALIDATE_SHADER_CACHES_NO_WFI, 0x1011)
    launcher.finish(invalidate + launcher.send(va, 1) + launcher.send(va))
    assert struct.unpack_from("<I", data.view, 64)[0] == 1


def test_a_kernel_that_writes_its_own_parameters_is_a_lifetime_error(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin("sm_90", STORE))
    launcher.used = 4096
    first = launcher.arguments.va + launcher.used
    launcher.fails(code, "store", struct.pack("<QI", first + 0x210, 9))
    assert launcher.client.kernel.reports[0].kind is FindingKind.LIFETIME


def test_a_sanitizer_finding_stops_the_channel(make: Make) -> None:
    from emulator.ir.library import Sanitizers

    text = REVERSE.replace("bar.sync 0;", "")
    for checks, found in ((None, False), (Sanitizers.all(), True)):
        launcher = Launcher.make(make(checks=checks).up())
        code = upload(launcher.client, cubin("sm_90", text))
        data = launcher.client.memory(4096)
        shape: dict[str, Any] = {"block": (128, 1, 1), "shared": 0x600}
        if found:
            assert "uninitialized" in launcher.fails(code, "reverse", struct.pack("<Q", data.va), **shape)
        else:
            launcher.run(code, "reverse", struct.pack("<Q", data.va), **shape)


SHARED = 0x800


@pytest.fixture(params=["sm_90", "sm_120"])
def new_launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


def words(grid: tuple[int, int, int], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the words of constant bank 0 that describe clusters."""
    counts = tuple(a // b for a, b in zip(grid, shape, strict=True))
    return {"cluster_nctaid": shape, "nclusterid": counts, "cluster_nctarank": shape[0] * shape[1] * shape[2]}


def test_workgroups_of_a_cluster_read_their_neighbours(new_launcher: Launcher) -> None:
    code = upload(new_launcher.client, cubin(new_launcher.profile, NEIGHBOUR))
    data = new_launcher.client.memory(4096)
    for size in (1, 2, 4, 8):
        grid, shape = (8, 1, 1), (size, 1, 1)
        new_launcher.run(
            code, "neighbour", struct.pack("<Q", data.va), grid=grid, block=(32, 1, 1), shared=SHARED,
            words=words(grid, shape), **cluster(shape),
        )  # fmt: skip
        found = struct.unpack_from("<256I", data.view)
        groups = [found[32 * n] // 32 for n in range(8)]
        assert groups == [n - n % size + (n + 1) % size for n in range(8)]
        assert all(found[32 * n + k] == 32 * groups[n] + k for n in range(8) for k in range(32))


def test_images_of_the_same_code_keep_their_own_directives(new_launcher: Launcher) -> None:
    """Of two files with one code the one at the program address is run."""
    free, bound = (
        upload(new_launcher.client, cubin(new_launcher.profile, PLAIN.replace(" { .reg", f" {limit}{{ .reg")))
        for limit in ("", ".reqnctapercluster 2 ")
    )
    params = struct.pack("<Q", new_launcher.client.memory(4096).va)
    forget = method(1, M.INVALIDATE_SHADER_CACHES, int(InvalidateShaderCaches(INSTRUCTION=True)))
    for code, size in ((free, 4), (bound, 2), (free, 4)):
        new_launcher.finish(forget)
        new_launcher.run(code, "plain", params, grid=(8, 1, 1), **cluster((size, 1, 1)))


def test_clusters_that_no_gpc_can_hold(make: Make) -> None:
    """Two such workgroups never share an SM; the emulated H200 has 18 SMs in its largest GPC, so 16 fit."""
    new_launcher = Launcher.make(make().up())
    code = upload(new_launcher.client, cubin("sm_90", PLAIN))
    data = new_launcher.client.memory(4096)
    given: dict[str, Any] = {"block": (32, 1, 1), "shared": 200 << 10}
    new_launcher.run(
        code, "plain", struct.pack("<Q", data.va), grid=(16, 1, 1), **given, **cluster((16, 1, 1))
    )
    assert struct.unpack_from("<16I", data.view) == tuple(range(16))
    blackwell = Launcher.make(make("sm_120").up())
    code = upload(blackwell.client, cubin("sm_120", PLAIN))
    assert "at most, 8 are portable" in blackwell.fails(
        code, "plain", struct.pack("<Q", data.va), grid=(16, 1, 1), block=(32, 1, 1), **cluster((16, 1, 1))
    )


def test_clusters_across_gpcs_are_refused_as_unsupported(make: Make) -> None:
    new_launcher = Launcher.make(make().up())
    code = upload(new_launcher.client, cubin("sm_90", PLAIN))
    data = new_launcher.client.memory(4096)
    both = cluster((4, 1, 1)) | {"GPU_CGA_WIDTH": 4, "GPU_CGA_HEIGHT": 1, "GPU_CGA_DEPTH": 1}
    given = struct.pack("<Q", data.va)
    new_launcher.run(code, "plain", given, grid=(4, 1, 1), CGA_CTA_DISTRIBUTION_MODE=1, **both)
    new_launcher.fails(code, "plain", given, grid=(4, 1, 1), **cluster((4, 1, 1), kind=4))
    assert new_launcher.client.machine.reports[-1].kind is FindingKind.UNSUPPORTED
