"""Cooperative grids: figures worked out on paper from the published limits, and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.nv.layouts.branches import STRUCTS, branch_of
from drivers.nv.layouts.controls import Control
from hcq.errors import UnsupportedError, UsageError
from hcq.params import Param
from hcq.registry import wrap
from tests.drivers.nv.test_nv_clusters import AMPERE, HOPPER, image, opened
from tests.hcq.fake import ADD, ONE, FakeDevice
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.device import Device
    from hcq.program import Program

SHAPE = (256, 1, 1)
WHOLE = (1024, 1, 1)
"""A workgroup that fills half of an SM; with 64 registers a thread all of it."""
H100 = ((0, 0, 16), (1, 1, 16), (2, 2, 16), (3, 3, 16), (4, 4, 18), (5, 5, 18), (6, 6, 18), (7, 7, 14))
"""GPC, virtual GPC and SMs of each part: 132 SMs, as many as an H100 has."""
SINGLETONS = (*((gpc, gpc, 16) for gpc in range(8)), (4, 8, 2), (5, 9, 2))
"""The same number, where two GPCs have a TPC that is a virtual GPC of its own."""


@contextlib.contextmanager
def with_order(parts: Sequence[tuple[int, int, int]], version: str = "580.159.03") -> Iterator[Device]:
    """Open a Hopper whose kernel driver states where its SMs lie."""
    branch = branch_of(version)
    assert branch is not None
    entry = STRUCTS[branch]["NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS"].FIELDS["globalSmId"].type
    places = [(gpc, virtual) for gpc, virtual, sms in parts for _ in range(sms)]
    records = tuple(entry(gpcId=gpc, virtualGpcId=virtual) for gpc, virtual in places)
    order: dict[str, Any] = {"globalSmId": records, "numSm": len(places), "numTpc": len(places) // 2}
    replies = {Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: lambda: order}
    kernel = RecordedKernel(driver=version[:3], replies=replies)
    with wrap(driver_of(kernel).open(0, None)) as device:
        yield device


def filling(device: Device, registers: int) -> Program:
    """Load a kernel with so many registers a thread."""
    return device.load(sample("sm_90a", 90, registers=registers))


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "expected"),
    [
        (40, 0, 256, 6),  # 65536 / 1280 = 51 warps, 48 in multiples of 4; 8 warps a workgroup
        (16, 0, 256, 8),  # 64 warps
        (16, 0, 32, 32),  # 32 workgroups
        (32, 100 << 10, 256, 2),  # 101 of 228 KiB, with the system's reserve
        (255, 0, 32, 8),  # 8 warps
    ],
)
def test_figures_follow_from_the_published_limits(registers: int, shared: int, threads: int, expected: int):
    with opened(HOPPER) as device:
        kernel = dataclasses.replace(sample("sm_90a", 90, registers=registers), shared_bytes=shared)
        found = device.load(kernel).residency((threads, 1, 1))
        assert (found.per_unit, found.units) == (expected, device.info.compute_units)


def test_a_cooperative_grid_must_fit():
    with opened(HOPPER) as device:
        program = device.load(sample("sm_90a", 90, registers=40))
        args = program.args(device.alloc(64), device.alloc(64), 1)
        most = 6 * device.info.compute_units
        commands = device.compute.record()
        commands.exec(program, args, groups=(most // 2, 2, 1), threads=SHAPE, cooperative=True)
        with pytest.raises(UsageError, match=rf"grid of {most + 1} .* runs {most} at once, 6 on each"):
            commands.exec(program, args, groups=(most + 1, 1, 1), threads=SHAPE, cooperative=True)
        with pytest.raises(UsageError, match="cannot be open"):
            commands.exec(program, args, groups=(Param("n", 31), 1, 1), threads=SHAPE, cooperative=True)


def test_clusters_of_a_gpu_that_does_not_state_its_gpcs_are_not_counted():
    with with_order(((0, 0, 132),)) as device:
        program = filling(device, 64)
        with pytest.raises(UnsupportedError, match="how many clusters of 2 workgroups"):
            program.residency(WHOLE, (2, 1, 1))


@pytest.mark.parametrize("version", ["570.211.01", "580.159.03", "595.45.04"])
def test_clusters_fit_in_whole_gpcs(version: str):
    with with_order(H100, version) as device:
        program = filling(device, 64)
        sizes = ((2, 1, 1), (2, 2, 1), (2, 2, 2), (1, 7, 1))
        found = [program.residency(WHOLE, size) for size in sizes]
        # 132 / 2; 4 in each GPC of 16 or 18 SMs and 3 in that of 14; 2 and 1; 7 take the SMs of 8
        assert [(one.per_unit, one.units, one.kind) for one in found] == [
            (2, 66, "clusters"), (4, 31, "clusters"), (8, 15, "clusters"), (7, 15, "clusters"),
        ]  # fmt: skip
        assert [one.groups for one in found] == [132, 124, 120, 105]
        alone = program.residency(WHOLE)
        assert (alone.per_unit, alone.units, alone.kind) == (1, 132, "units")
        assert program.residency(WHOLE, ONE) == alone


def test_a_second_workgroup_of_an_sm_counts_as_if_the_first_ones_lay_badly():
    """Two workgroups an SM, clusters of 8: of 16 SMs two clusters may fill 8, the third fits then."""
    with with_order(H100) as device:
        assert filling(device, 32).residency(WHOLE, (8, 1, 1)).units == 4 * 3 + 3 * 3 + 2


def test_tpcs_that_are_virtual_gpcs_hold_clusters_of_two_alone():
    with with_order(SINGLETONS) as device:
        program = filling(device, 64)
        assert program.residency(WHOLE, (2, 1, 1)).units == 66
        assert program.residency(WHOLE, (4, 1, 1)).units == 8 * 4


def test_a_cooperative_grid_of_clusters_must_fit():
    with with_order(H100) as device:
        program = filling(device, 64)
        args = program.args(device.alloc(64), device.alloc(64), 1)
        commands = device.compute.record()
        commands.exec(program, args, groups=(120, 1, 1), threads=WHOLE, cooperative=True, cluster=(8, 1, 1))
        assert commands.commands[-1].cluster == (8, 1, 1)  # type: ignore[attr-defined]  # an Exec
        told = (
            r"grid of 128 workgroups of 1024 threads; \S+ runs 120 at once, 8 on each of 15 clusters: .*SMs"
        )
        with pytest.raises(UsageError, match=told):
            commands.exec(
                program, args, groups=(128, 1, 1), threads=WHOLE, cooperative=True, cluster=(8, 1, 1)
            )
        with pytest.raises(UsageError, match="wanted 1 to 8 in all"):
            commands.exec(
                program, args, groups=(32, 1, 1), threads=WHOLE, cooperative=True, cluster=(16, 1, 1)
            )
        assert len(commands) == 1


def test_the_cluster_that_an_image_requires_counts():
    with with_order(H100) as device:
        program = device.load(image(*HOPPER[1:], CTA_PER_CLUSTER=struct.pack("<3I", 4, 1, 1)))
        assert program.residency(WHOLE).per_unit == 4
        assert program.residency(WHOLE, (4, 1, 1)) == program.residency(WHOLE)
        with pytest.raises(UsageError, match="compiled for clusters of"):
            program.residency(WHOLE, (2, 1, 1))


def test_a_gpu_without_clusters_refuses_them():
    with opened(AMPERE) as device:
        program = device.load(sample(*AMPERE[1:]))
        with pytest.raises(UnsupportedError, match="launches none"):
            program.residency(SHAPE, (2, 1, 1))


@pytest.mark.parametrize(
    ("threads", "cluster", "told"),
    [
        ((0, 1, 1), None, r"threads: wanted three ints of at least 1, seen \(0, 1, 1\)"),
        ("abc", None, "threads: wanted three ints of at least 1, seen 'abc'"),
        ((1.5, 1, 1), None, "threads: wanted three ints"),
        (SHAPE, (2, 1), "cluster: wanted three ints"),
        (SHAPE, (-2, -1, 1), "cluster: wanted three ints"),
    ],
)
def test_shapes_that_are_none_are_refused(threads: Any, cluster: Any, told: str):
    with opened(HOPPER) as device, pytest.raises(UsageError, match=told):
        filling(device, 32).residency(threads, cluster)


def test_the_emulated_gpu_states_its_gpcs():
    with hcq.open("nv-emu") as device:
        program = filling(device, 64)
        assert program.residency(WHOLE, (2, 1, 1)).units == 66
        assert 0 < program.residency(WHOLE, (8, 1, 1)).units <= 16


def test_a_device_that_states_nothing_refuses():
    device = wrap(FakeDevice())
    program = device.load(ADD)
    args = program.args(*[device.alloc(64) for _ in range(3)])
    with pytest.raises(UnsupportedError, match="how many workgroups"):
        device.compute.record().exec(program, args, groups=ONE, threads=ONE, cooperative=True)
    with pytest.raises(UnsupportedError, match="clusters"):
        device.compute.record().exec(program, args, groups=(2, 1, 1), threads=ONE, cluster=(2, 1, 1))
    device.close()
