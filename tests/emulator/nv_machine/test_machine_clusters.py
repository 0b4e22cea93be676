"""Cluster launches by launch descriptor: the fields that make one, what they do, and what is refused."""

# ruff: noqa: E501 - instructions read best one row a step

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from drivers.nv.layouts.compute import ComputeMethod as M
from drivers.nv.layouts.compute import InvalidateShaderCaches
from emulator.nv.machine import FindingKind
from tests.emulator.nv_machine.client import Client, method
from tests.emulator.nv_machine.launching import Launcher, cubin, upload

Make = Callable[..., Client]

NEIGHBOUR = """
.visible .entry neighbour(.param .u64 at) {
 .shared .align 4 .b8 tile[128]; .reg .b32 %r<16>; .reg .b64 %d<4>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
 mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %cluster_nctarank; mov.u32 %r6, tile; shl.b32 %r7, %r0, 2; add.u32 %r6, %r6, %r7;
 st.shared.u32 [%r6], %r3; barrier.cluster.arrive; barrier.cluster.wait;
 add.u32 %r8, %r4, 1; rem.u32 %r8, %r8, %r5; mapa.shared::cluster.u32 %r9, %r6, %r8; ld.shared::cluster.u32 %r10, [%r9];
 mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r10; barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""
PLAIN = """
.visible .entry plain(.param .u64 at) { .reg .b32 %r<4>; .reg .b64 %d<3>;
 ld.param.u64 %d0, [at]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; st.global.u32 [%d1], %r0; ret; }
"""
SHARED = 0x800


@pytest.fixture(params=["sm_90", "sm_120"])
def launcher(make: Make, request: Any) -> Launcher:
    return Launcher.make(make(request.param).up())


def cluster(shape: tuple[int, int, int], kind: int = 3) -> dict[str, int]:
    """Return the fields of a descriptor with clusters."""
    names = ("GPC_CGA_WIDTH", "GPC_CGA_HEIGHT", "GPC_CGA_DEPTH")
    return {"QMD_TYPE": kind} | dict(zip(names, shape, strict=True))


def words(grid: tuple[int, int, int], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Return the words of constant bank 0 that describe clusters."""
    counts = tuple(a // b for a, b in zip(grid, shape, strict=True))
    return {"cluster_nctaid": shape, "nclusterid": counts, "cluster_nctarank": shape[0] * shape[1] * shape[2]}


def test_workgroups_of_a_cluster_read_their_neighbours(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, NEIGHBOUR))
    data = launcher.client.memory(4096)
    for size in (1, 2, 4, 8):
        grid, shape = (8, 1, 1), (size, 1, 1)
        launcher.run(
            code, "neighbour", struct.pack("<Q", data.va), grid=grid, block=(32, 1, 1), shared=SHARED, words=words(grid, shape),
            **cluster(shape),
        )  # fmt: skip
        found = struct.unpack_from("<256I", data.view)
        groups = [found[32 * n] // 32 for n in range(8)]
        assert groups == [n - n % size + (n + 1) % size for n in range(8)]
        assert all(found[32 * n + k] == 32 * groups[n] + k for n in range(8) for k in range(32))


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"grid": (6, 1, 1)}, cluster((4, 1, 1)), "whole number of clusters"),
    ({"grid": (32, 1, 1)}, cluster((32, 1, 1)), "at most, 8 are portable"),
    ({}, cluster((0, 1, 1)), "1 at least"),
    ({}, cluster((4, 1, 1), kind=2), "wanted GRID_GPC_CGA"),
    ({}, cluster((4, 1, 1), kind=4), "across GPCs"),
    ({"words": {"cluster_nctaid": (2, 1, 1)}}, cluster((4, 1, 1)), "cluster_nctaid is"),
    ({"words": {"cluster_nctarank": 4}}, {}, "cluster_nctarank is 4, wanted 1 or nothing"),
    ({}, cluster((4, 1, 1)) | {"GPU_CGA_WIDTH": 2}, "wanted the same"),
]


@pytest.mark.parametrize(("shape", "fields", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_cluster_launches_that_hardware_would_refuse(
    launcher: Launcher, shape: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    code = upload(launcher.client, cubin(launcher.profile, PLAIN))
    data = launcher.client.memory(4096)
    given = {"grid": (8, 1, 1), "block": (32, 1, 1)} | shape | fields
    assert message in launcher.fails(code, "plain", struct.pack("<Q", data.va), **given)


def test_code_that_reads_a_missing_word_of_clusters_is_refused(launcher: Launcher) -> None:
    code = upload(launcher.client, cubin(launcher.profile, NEIGHBOUR))
    data = launcher.client.memory(4096)
    launcher.fails(
        code, "neighbour", struct.pack("<Q", data.va), grid=(8, 1, 1), block=(32, 1, 1), shared=SHARED, **cluster((4, 1, 1))
    )  # fmt: skip
    assert any("cluster_nctarank is 0, wanted 4" in text for text in launcher.client.reports())


def test_a_kernel_that_requires_clusters_refuses_others(launcher: Launcher) -> None:
    code = upload(
        launcher.client, cubin(launcher.profile, PLAIN.replace(" { .reg", " .reqnctapercluster 2 { .reg"))
    )
    data = launcher.client.memory(4096)
    assert "reqnctapercluster" in launcher.fails(code, "plain", struct.pack("<Q", data.va), grid=(8, 1, 1))


def test_images_of_the_same_code_keep_their_own_directives(launcher: Launcher) -> None:
    """Of two files with one code the one at the program address is run."""
    free, bound = (
        upload(launcher.client, cubin(launcher.profile, PLAIN.replace(" { .reg", f" {limit}{{ .reg")))
        for limit in ("", ".reqnctapercluster 2 ")
    )
    params = struct.pack("<Q", launcher.client.memory(4096).va)
    forget = method(1, M.INVALIDATE_SHADER_CACHES, int(InvalidateShaderCaches(INSTRUCTION=True)))
    for code, size in ((free, 4), (bound, 2), (free, 4)):
        launcher.finish(forget)
        launcher.run(code, "plain", params, grid=(8, 1, 1), **cluster((size, 1, 1)))


def test_clusters_that_no_gpc_can_hold(make: Make) -> None:
    """Two workgroups of this shared memory never share an SM; the emulated H200 has 18 SMs in its largest GPC, so 16 fit."""
    launcher = Launcher.make(make().up())
    code = upload(launcher.client, cubin("sm_90", PLAIN))
    data = launcher.client.memory(4096)
    given: dict[str, Any] = {"block": (32, 1, 1), "shared": 200 << 10}
    launcher.run(code, "plain", struct.pack("<Q", data.va), grid=(16, 1, 1), **given, **cluster((16, 1, 1)))
    assert struct.unpack_from("<16I", data.view) == tuple(range(16))
    blackwell = Launcher.make(make("sm_120").up())
    code = upload(blackwell.client, cubin("sm_120", PLAIN))
    assert "at most, 8 are portable" in blackwell.fails(
        code, "plain", struct.pack("<Q", data.va), grid=(16, 1, 1), block=(32, 1, 1), **cluster((16, 1, 1))
    )


def test_clusters_across_gpcs_are_refused_as_unsupported(make: Make) -> None:
    launcher = Launcher.make(make().up())
    code = upload(launcher.client, cubin("sm_90", PLAIN))
    data = launcher.client.memory(4096)
    both = cluster((4, 1, 1)) | {"GPU_CGA_WIDTH": 4, "GPU_CGA_HEIGHT": 1, "GPU_CGA_DEPTH": 1}
    given = struct.pack("<Q", data.va)
    launcher.run(code, "plain", given, grid=(4, 1, 1), CGA_CTA_DISTRIBUTION_MODE=1, **both)
    launcher.fails(code, "plain", given, grid=(4, 1, 1), **cluster((4, 1, 1), kind=4))
    assert launcher.client.machine.reports[-1].kind is FindingKind.UNSUPPORTED
