"""Cooperative grids: figures worked out on paper from the published limits, and what is refused."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from hcq.errors import UnsupportedError, UsageError
from hcq.params import Param
from hcq.registry import wrap
from tests.drivers.nv.test_nv_clusters import HOPPER, image, opened
from tests.hcq.fake import ADD, ONE, FakeDevice
from tools.nv.golden import sample

SHAPE = (256, 1, 1)


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
        with pytest.raises(UnsupportedError, match="how many clusters"):
            commands.exec(program, args, groups=(2, 1, 1), threads=SHAPE, cooperative=True, cluster=(2, 1, 1))
        clusters = device.load(image(*HOPPER[1:], CTA_PER_CLUSTER=struct.pack("<3I", 2, 1, 1)))
        with pytest.raises(UnsupportedError, match="how many clusters"):
            clusters.residency(SHAPE)


def test_a_device_that_states_nothing_refuses():
    device = wrap(FakeDevice())
    program = device.load(ADD)
    args = program.args(*[device.alloc(64) for _ in range(3)])
    with pytest.raises(UnsupportedError, match="how many workgroups"):
        device.compute.record().exec(program, args, groups=ONE, threads=ONE, cooperative=True)
    with pytest.raises(UnsupportedError, match="clusters"):
        device.compute.record().exec(program, args, groups=(2, 1, 1), threads=ONE, cluster=(2, 1, 1))
    device.close()
