"""How many workgroups a GPU runs at the same time: figures worked out on paper from the published limits."""

from types import SimpleNamespace
from typing import Any

import pytest

from drivers.amd.context import Geometry
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.layouts.registers import RSRC1
from drivers.amd.program import residency
from hcq.errors import UnsupportedError
from hcq.program import Residency
from tests.drivers.amd.test_amd_code import program_of


def of(
    arch: str, threads: int, *, wave: int = 32, units: int = 96, lds: int = 0, scratch: int = 0, **fields: Any
) -> Residency:
    target = CHIPS[arch]
    word = int(RSRC1[int(target.generation)](**fields))
    kernel = SimpleNamespace(wave=wave, fields=SimpleNamespace(compute_pgm_rsrc1=word))
    what: Any = SimpleNamespace(kernel=kernel, group_bytes=lds, scratch_bytes=scratch)
    return residency(what, target, Geometry(compute_units=units, engines=6), threads)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # 96 registers: 1536 / 96 = 16 waves a SIMD, 64 on a workgroup processor; 8 waves a workgroup
        (lambda: of("gfx1100", 256, VGPRS=11, WGP_MODE=True), (8, 48)),
        # 128 registers take 144: 10 waves a SIMD, 40 on a workgroup processor
        (lambda: of("gfx1100", 256, VGPRS=15, WGP_MODE=True), (5, 48)),
        # the same on a compute unit of two SIMDs
        (lambda: of("gfx1100", 256, VGPRS=15), (2, 96)),
        # 128 registers of 64 lanes take 2 * 132: 5 waves a SIMD
        (lambda: of("gfx1100", 256, wave=64, VGPRS=31, WGP_MODE=True), (5, 48)),
        # 1024 registers a SIMD, in units of 16: 128 fit 8 times
        (lambda: of("gfx1102", 256, VGPRS=15, WGP_MODE=True, units=32), (4, 16)),
        # LDS: 128 KiB a workgroup processor
        (lambda: of("gfx1201", 256, VGPRS=0, WGP_MODE=True, lds=60 << 10, units=64), (2, 32)),
        # barriers: 32 workgroups of several waves; one wave needs none
        (lambda: of("gfx1100", 64, VGPRS=0, WGP_MODE=True), (32, 48)),
        (lambda: of("gfx1100", 32, VGPRS=0, WGP_MODE=True), (64, 48)),
        # CDNA: 128 registers, 512 / 128 = 4 waves on each of 4 SIMDs; 4 waves a workgroup
        (lambda: of("gfx942", 256, wave=64, VGPRS=15, units=38), (4, 38)),
        # scalar registers: 112 of 800 are 7 waves a SIMD
        (lambda: of("gfx942", 64, wave=64, VGPRS=0, SGPRS=12, units=38), (28, 38)),
        # 32 waves with scratch a compute unit
        (lambda: of("gfx1100", 256, VGPRS=0, scratch=64), (4, 96)),
    ],
)
def test_figures_follow_from_the_published_limits(found: Any, expected: tuple[int, int]):
    assert (found().per_unit, found().units) == expected


def test_a_program_without_a_topology_refuses():
    with pytest.raises(UnsupportedError, match="units of its device"):
        program_of("gfx1100").residency((64, 1, 1))
