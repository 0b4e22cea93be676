from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from hcq.config import override
from tests.emulator.nv_machine.client import Client
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
    upload,
)

PROFILES = ["sm_80", "sm_90", "sm_120"]

Make = Callable[..., Client]


@pytest.fixture(params=PROFILES)
def launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


def test_a_grid_adds_vectors(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, VADD))
    data = client.memory(1 << 16)
    n = 1000
    struct.pack_into(f"<{n}I", data.view, 0, *range(n))
    struct.pack_into(f"<{n}I", data.view, 0x2000, *range(0, 5 * n, 5))
    params = struct.pack("<QQQI", data.va, data.va + 0x2000, data.va + 0x4000, n)
    launcher.run(code, "vadd", params, grid=(8, 1, 1), block=(128, 1, 1))
    assert struct.unpack_from(f"<{n}I", data.view, 0x4000) == tuple(6 * i for i in range(n))
    assert client.machine.launches["vadd"] == 1


def test_shared_memory_and_a_barrier(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, REVERSE))
    data = client.memory(4096)
    struct.pack_into("<128I", data.view, 0, *range(128))
    launcher.run(code, "reverse", struct.pack("<Q", data.va), block=(128, 1, 1), shared=0x600)
    assert struct.unpack_from("<128I", data.view) == tuple(reversed(range(128)))


def test_local_memory(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, STACK))
    launcher.local(0x400 * 32 * 64 * 2)
    data = client.memory(4096)
    struct.pack_into("<64I", data.view, 0, *range(127, 63, -1))
    launcher.run(code, "stack", struct.pack("<QI", data.va, 100), low=0x200, words={"stack_pointer": 0x200})
    assert struct.unpack_from("<I", data.view)[0] == 27


def test_constants_and_global_variables(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, CONSTANTS))
    data = client.memory(4096)
    banks = launcher.banks(code, "constants")
    launcher.run(code, "constants", struct.pack("<QI", data.va, 2), banks=banks)
    assert struct.unpack_from("<I", data.view)[0] == 47
    at = code.at(".nv.global.init") - code.memory.va
    assert struct.unpack_from("<I", code.memory.view, at)[0] == 47


def test_a_table_of_jumps(launcher: Any):
    """The assembler keeps it in constant bank 2, which is the kernel's own."""
    client = launcher.client
    code = upload(client, cubin(launcher.profile, JUMPS, STORE))
    data = client.memory(4096)
    banks = launcher.banks(code, "jumps")
    assert set(banks) == {2}
    launcher.run(code, "jumps", struct.pack("<Q", data.va), block=(16, 1, 1), banks=banks)
    first = [16, 77, 2 ^ 1234567, 33, 2, 5 << 9, 2, 29]
    second = [16, 9 * 77, 10 ^ 1234567, 41, 10, 13 << 9, 3, 28]
    assert list(struct.unpack_from("<16I", data.view)) == first + second
    launcher.run(code, "store", struct.pack("<QI", data.va, 7))
    assert struct.unpack_from("<I", data.view)[0] == 7


def test_a_grids_releases_and_its_dependent(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, STORE))
    data = client.memory(4096)
    second = launcher.qmd(launcher.descriptor(code, "store", struct.pack("<QI", data.va, 2)))
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
    launcher.run(code, "store", struct.pack("<QI", data.va + 4, 1), **release, **chain)
    assert struct.unpack_from("<II", data.view) == (2, 1)
    assert struct.unpack_from("<I", data.view, 64)[0] == 77
    assert struct.unpack_from("<Q", data.view, 72)[0] > 0


def test_the_same_launch_runs_again(launcher: Any):
    client = launcher.client
    code = upload(client, cubin(launcher.profile, INCREMENT))
    data = client.memory(4096)
    va = launcher.qmd(launcher.descriptor(code, "increment", struct.pack("<Q", data.va)))
    for _ in range(5):
        launcher.finish(launcher.send(va))
    assert struct.unpack_from("<I", data.view)[0] == 5


@pytest.mark.slow
def test_the_simt_engine_is_made_with_the_channel_and_not_by_the_first_kernel(make: Make, tmp_path: Any):
    with override(cache=tmp_path):
        client = make().up()
    client.copy_channel()
    assert not list(tmp_path.iterdir())
    client.compute_channel()
    assert list((tmp_path / "emu").rglob("*"))
