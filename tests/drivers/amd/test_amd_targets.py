"""Scratch sizes and resident workgroups, worked out on paper; rows of targets: `tests.facts`."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from drivers.amd import context, quirks
from drivers.amd.context import Geometry
from drivers.amd.layouts import chips
from drivers.amd.layouts.chips import CHIPS, Generation
from drivers.amd.layouts.registers import RSRC1, TMPRING
from drivers.amd.program import residency
from drivers.shared.choices import describe
from hcq.errors import UnsupportedError, UsageError
from hcq.program import Residency
from tests.drivers.amd.test_amd_code import program_of


def test_unknown_target_is_refused_with_its_name():
    with pytest.raises(UnsupportedError, match="gfx1000"):
        chips.by_version(100000)
    assert chips.by_mach(0x2C) is None


def test_targets_that_only_compile_are_refused_at_open():
    refused = {t.name for t in CHIPS.values() if t.refusal}
    assert refused == {"gfx90a", "gfx1030"}
    with pytest.raises(UnsupportedError, match="buffer descriptors"):
        CHIPS["gfx90a"].open_or_refuse()
    assert CHIPS["gfx1100"].open_or_refuse() is CHIPS["gfx1100"]


GEOMETRY = {
    "gfx1100": context.Geometry(compute_units=96, engines=6),
    "gfx1201": context.Geometry(compute_units=64, engines=4),
    "gfx942": context.Geometry(compute_units=38, engines=4, xccs=8),
}


@pytest.mark.parametrize(
    ("name", "wanted", "lane", "waves", "units"),
    [
        ("gfx1100", 260, 260, 96 * 32 // 6, 260 * 64 // 256),
        ("gfx1201", 1, 4, 64 * 32 // 4, 1),
        ("gfx942", 260, 272, 38 * 32, 272 * 64 // 1024),
    ],
)
def test_scratch_follows_the_formula(name: str, wanted: int, lane: int, waves: int, units: int):
    target, geometry = CHIPS[name], GEOMETRY[name]
    backing = context.backing(target, geometry, wanted, va=0x10000)
    word = TMPRING[target.generation].from_int(backing.tmpring)
    assert (backing.lane_bytes, word.WAVES, word.WAVESIZE) == (lane, waves, units)
    memory = lane * 64 * geometry.compute_units * 32
    assert memory <= backing.xcc_bytes < memory + context.SCRATCH_ALIGN
    assert word.check() == []


def test_scratch_beyond_the_register_is_refused():
    target = CHIPS["gfx1100"]
    most = ((1 << 15) - 1) * 256 // 64
    assert context.backing(target, GEOMETRY["gfx1100"], most).lane_bytes == most
    with pytest.raises(UnsupportedError, match=str(most)):
        context.backing(target, GEOMETRY["gfx1100"], most + 1)


def test_tmpring_waves_never_exceed_their_bits():
    geometry = context.Geometry(compute_units=200, engines=4, scratch_slots=40)
    word = TMPRING[9].from_int(context.backing(CHIPS["gfx942"], geometry, 16).tmpring)
    assert word.WAVES == 4092


def test_choices_are_named_and_read_back():
    assert quirks.parse("default") == quirks.DEFAULT
    assert set(quirks.ALTERNATIVES) == {field.name for field in dataclasses.fields(quirks.AmdQuirks)}
    for name, values in quirks.ALTERNATIVES.items():
        assert values[0] == getattr(quirks.DEFAULT, name)
        for value in values:
            choice = quirks.AmdQuirks(**{name: value})
            assert quirks.parse(describe(choice)) == choice
    with pytest.raises(UsageError, match="priv=listed"):
        quirks.parse("priv=always")


def test_generation_is_the_major_number_of_the_name():
    for target in CHIPS.values():
        assert Generation(target.version // 10000) is target.generation


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
