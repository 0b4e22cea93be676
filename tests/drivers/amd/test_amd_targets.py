"""Target rows and scratch sizes reproduce the facts."""

import dataclasses

import pytest

from drivers.amd import context, quirks
from drivers.amd.layouts import chips, registers
from drivers.amd.layouts.chips import CHIPS, Generation
from drivers.amd.layouts.registers import TMPRING
from drivers.amd.layouts.topology import target_name
from drivers.shared.choices import describe
from hcq.errors import UnsupportedError, UsageError
from tests.facts import amd_code, amd_pm4, amd_topology
from tests.facts.layout_probe import bit_range, bit_ranges


def by_generation(table: dict[str, int], target: chips.AmdChip) -> int:
    return table.get(target.name) or table[f"gfx{int(target.generation)}"]


def test_rows_reproduce_the_facts():
    assert {t.version: t.name for t in CHIPS.values()}.items() <= amd_topology.TARGETS.items()
    for target in CHIPS.values():
        assert chips.by_version(target.version) is target
        assert target_name(target.version) == target.name
        assert amd_code.MACH[target.name] == target.mach
        assert chips.by_mach(target.mach) is target
        assert target.lds_bytes == by_generation(amd_code.LDS_MAX, target)
        assert target.lds_granule == by_generation(amd_code.LDS_GRANULE, target)
        assert target.vgprs == by_generation(amd_code.VGPRS_MAX, target)
        assert target.vgpr_granule == amd_code.VGPR_ENCODE_GRANULE[f"gfx{int(target.generation)}"]
        assert target.scratch_unit == amd_pm4.TMPRING_WAVESIZE[f"gfx{int(target.generation)}"][1]
        assert target.packed_ids == (target.name != "gfx1030")


def test_sdma_versions_reproduce_the_facts():
    for name, version in amd_topology.SDMA_VERSIONS.items():
        assert CHIPS[name].sdma[: len(version)] == version, name


def test_targets_with_padded_user_registers_have_the_workaround():
    """Both are properties of GC 11.0.0 to 11.0.3."""
    assert {t.name for t in CHIPS.values() if t.trap_workaround} == set(amd_code.PADDED_USER_SGPR_TARGETS)


def test_unknown_target_is_refused_with_its_name():
    with pytest.raises(UnsupportedError, match="gfx1000"):
        chips.by_version(100000)
    assert chips.by_mach(0x2C) is None


def test_targets_that_only_compile_are_refused_at_open():
    refused = {t.name for t in CHIPS.values() if t.refusal}
    assert refused == {"gfx90a", "gfx950", "gfx1030"}
    with pytest.raises(UnsupportedError, match="third-hand"):
        CHIPS["gfx950"].open_or_refuse()
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


def test_register_places_and_fields_reproduce_the_facts():
    kinds = {9: amd_pm4.SH_REGISTERS_GFX9, 10: amd_pm4.SH_REGISTERS_GFX10, 11: amd_pm4.SH_REGISTERS_GFX11}
    for generation, own in {**kinds, 12: amd_pm4.SH_REGISTERS_GFX11}.items():
        places = {name: place for place, name in registers.register_names(generation).items()}
        assert places.items() >= {**amd_pm4.SH_REGISTERS, **own}.items(), generation
        size = bit_range(TMPRING[generation].FIELDS["WAVESIZE"])
        assert size == amd_pm4.TMPRING_WAVESIZE[f"gfx{generation}"][0]
        assert bit_range(TMPRING[generation].FIELDS["WAVES"]) == amd_pm4.TMPRING_WAVES
        rsrc3 = {9: "gfx942"}.get(generation, f"gfx{generation}")
        assert bit_ranges(registers.RSRC3[generation]) == amd_code.RSRC3[rsrc3]
    assert bit_ranges(registers.Rsrc3Gfx90a) == amd_code.RSRC3["gfx90a"]
    assert amd_pm4.REGISTER_BASES["SET_SH_REG"] == registers.SH_BASE
    assert amd_pm4.SH_END == registers.SH_END
    assert bit_ranges(registers.Rsrc1) == amd_code.RSRC1
    old = amd_code.RSRC1.items() - {(n, amd_code.RSRC1[n]) for n in ("DX10_CLAMP", "IEEE_MODE")}
    assert bit_ranges(registers.Rsrc1Gfx12).items() == old | amd_code.RSRC1_GFX12.items()
    assert bit_ranges(registers.Rsrc2) == amd_code.RSRC2
    old = amd_code.RSRC2.items() - {("TRAP_PRESENT", amd_code.RSRC2["TRAP_PRESENT"])}
    assert bit_ranges(registers.Rsrc2Gfx12).items() == old | amd_code.RSRC2_GFX12.items()
    assert bit_ranges(registers.ResourceLimits) == amd_pm4.RESOURCE_LIMITS
    assert bit_ranges(registers.NumThread) == amd_pm4.NUM_THREAD
    assert bit_ranges(registers.NumThreadGfx12) == amd_pm4.NUM_THREAD_GFX12
    assert {n: lo for n, (lo, _) in bit_ranges(registers.Initiator).items()} == amd_pm4.DISPATCH_INITIATOR


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
