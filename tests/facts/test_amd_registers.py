"""The driver's compute registers, rows of targets and constants are those of the facts."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import aql, chips, code, drm, events, pm4, pm4_generations, registers, sdma, topology
from drivers.amd.layouts.topology import target_name
from tests.facts import amd_aql, amd_code, amd_kfd, amd_pm4, amd_sdma, amd_topology
from tests.facts.layout_probe import bit_ranges

if TYPE_CHECKING:
    import enum

    from hcq.layout import BitStruct


GENERATIONS = {
    9: amd_pm4.SH_REGISTERS_GFX9,
    10: amd_pm4.SH_REGISTERS_GFX10,
    11: amd_pm4.SH_REGISTERS_GFX11,
    12: amd_pm4.SH_REGISTERS_GFX11,
}
USER_DATA = {f"COMPUTE_USER_DATA_{n}": 0x240 + n for n in range(amd_pm4.USER_DATA_REGISTERS)}


def values(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def test_common_registers_are_at_the_offsets_of_the_facts():
    assert values(registers.ShRegister) == {**amd_pm4.SH_REGISTERS, **USER_DATA}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_registers_of_a_generation_are_at_the_offsets_of_the_facts(generation: int):
    assert values(registers.OWN_REGISTERS[generation]) == GENERATIONS[generation]


def test_bases():
    bases = amd_pm4.REGISTER_BASES
    assert tuple(bases.values()) == (registers.CONFIG_BASE, registers.SH_BASE, registers.UCONFIG_BASE)
    assert registers.SH_END == amd_pm4.SH_END
    assert registers.PROGRAM_SHIFT == amd_pm4.PGM_SHIFT == amd_pm4.SCRATCH_SHIFT
    assert registers.USER_DATA_COUNT == amd_code.USER_SGPRS_MAX


def generation(number: int) -> str:
    return f"gfx{number}"


@pytest.mark.parametrize("number", GENERATIONS)
def test_fields_of_register_words(number: int):
    layouts = {name: bit_ranges(rows[number]) for name, rows in registers.FIELDS.items()}
    thread = amd_pm4.NUM_THREAD_GFX12 if number == 12 else amd_pm4.NUM_THREAD
    size, _ = amd_pm4.TMPRING_WAVESIZE[generation(number)]
    rsrc1, rsrc2 = dict(amd_code.RSRC1), dict(amd_code.RSRC2)
    if number == 12:
        taken = set(amd_code.RSRC1_GFX12.values())
        rsrc1 = {n: place for n, place in rsrc1.items() if place not in taken} | amd_code.RSRC1_GFX12
        del rsrc2["TRAP_PRESENT"]
        rsrc2 |= amd_code.RSRC2_GFX12
    rsrc3 = amd_code.RSRC3["gfx942" if number == 9 else generation(number)]
    assert layouts == {
        "COMPUTE_PGM_RSRC1": rsrc1,
        "COMPUTE_PGM_RSRC2": rsrc2,
        "COMPUTE_PGM_RSRC3": rsrc3,
        "COMPUTE_TMPRING_SIZE": {"WAVES": amd_pm4.TMPRING_WAVES, "WAVESIZE": size},
        "COMPUTE_NUM_THREAD_X": thread,
        "COMPUTE_NUM_THREAD_Y": thread,
        "COMPUTE_NUM_THREAD_Z": thread,
        "COMPUTE_RESOURCE_LIMITS": amd_pm4.RESOURCE_LIMITS,
        "COMPUTE_DISPATCH_INITIATOR": {n: (bit, bit) for n, bit in amd_pm4.DISPATCH_INITIATOR.items()},
    }


def test_third_resource_word_of_gfx90a():
    assert bit_ranges(registers.Rsrc3Gfx90a) == amd_code.RSRC3["gfx90a"]


@pytest.mark.parametrize(("word", "lanes"), [(amd_pm4.INITIATOR_WAVE64, 64), (amd_pm4.INITIATOR_WAVE32, 32)])
def test_usual_initiators(word: int, lanes: int):
    built = registers.Initiator(COMPUTE_SHADER_EN=True, FORCE_START_AT_000=True, CS_W32_EN=lanes == 32)
    assert int(built) == word


@pytest.mark.parametrize("target", amd_code.DESCRIPTOR_VECTORS)
def test_resource_words_of_the_compiled_kernels_decode_without_unknown_bits(target: str):
    row = chips.CHIPS[target]
    words: list[tuple[type[BitStruct], int]] = []
    for first, second, _ in amd_code.DESCRIPTOR_VECTORS[target].values():
        words += [(registers.RSRC1[row.generation], first), (registers.RSRC2[row.generation], second)]
    for layout, word in words:
        assert int(layout.from_int(word)) == word
        assert layout.from_int(word).check() == []


def test_every_target_of_the_facts_has_a_row_and_no_other():
    assert set(chips.CHIPS) == set(amd_topology.SDMA_VERSIONS)


@pytest.mark.parametrize("name", chips.CHIPS)
def test_row_of_a_target(name: str):
    row = chips.CHIPS[name]
    kind = generation(row.generation)
    own = name if name in amd_code.LDS_MAX else kind
    assert row.name == name
    assert amd_topology.TARGETS[row.version] == name
    assert row.mach == amd_code.MACH[name]
    assert row.waves == amd_topology.WAVES[name]
    known = amd_topology.SDMA_VERSIONS[name]
    assert row.sdma[: len(known)] == known
    assert (row.scratch is chips.Scratch.ARCHITECTED) == (name in amd_code.ARCHITECTED_FLAT_SCRATCH)
    assert row.scratch_unit == amd_code.SCRATCH_WAVE_UNIT[kind] == amd_pm4.TMPRING_WAVESIZE[kind][1]
    assert row.scratch_waves_per_engine == (kind in amd_code.SCRATCH_WAVES_PER_ENGINE)
    assert row.lds_bytes == amd_code.LDS_MAX[own]
    assert row.lds_granule == amd_code.LDS_GRANULE[own]
    assert row.vgprs == amd_code.VGPRS_MAX[own]
    assert row.vgpr_granule == amd_code.VGPR_ENCODE_GRANULE[kind]
    assert row.packed_ids == (name in amd_code.PACKED_WORKITEM_ID_TARGETS)
    assert row.trap_workaround == (name in amd_pm4.PRIV_TARGETS)
    assert row.apu == (name in amd_topology.APUS)
    assert bool(row.refusal) == (name in amd_topology.COMPILE_ONLY)


@pytest.mark.parametrize("name", amd_topology.QUEUE_OF_TARGET)
def test_targets_with_several_xccs_take_aql(name: str):
    assert chips.CHIPS[name].compute_aql == (amd_topology.QUEUE_OF_TARGET[name] == "AQL")


def test_targets_are_found_by_version_and_by_mach():
    for version, name in amd_topology.TARGETS.items():
        assert target_name(version) == name
        if name in chips.CHIPS:
            assert chips.by_version(version) is chips.CHIPS[name]
            assert chips.by_mach(amd_code.MACH[name]) is chips.CHIPS[name]


TESTS = sorted(Path(__file__).parent.glob("test_amd_*.py"))
MODULES = (
    "aql", "chips", "code", "cwsr", "drm", "events", "kfd", "kfd_unused", "pm4", "pm4_generations",
    "registers", "sdma", "topology",
)  # fmt: skip
CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*")


@pytest.mark.parametrize("name", MODULES)
def test_every_constant_of_a_layout_is_compared(name: str):
    text = "".join(path.read_text() for path in TESTS)
    module = import_module(f"drivers.amd.layouts.{name}")
    declared = module.__annotations__
    found = {key for key in declared if CONSTANT.fullmatch(key) and isinstance(vars(module)[key], int | str)}
    assert [key for key in sorted(found) if not re.search(rf"\b{name}\.{key}\b", text)] == []


def test_every_module_of_layouts_is_compared():
    folder = Path(aql.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *MODULES}


def test_vendor_formats():
    assert aql.PM4_IB_FORMAT == amd_aql.PM4_IB_FORMAT
    assert aql.BARRIER_VALUE_FORMAT == amd_aql.BARRIER_VALUE_FORMAT
    assert aql.PM4_IB_DW_CNT_REMAIN == amd_aql.PM4_IB_DW_CNT_REMAIN


def test_names_of_files():
    assert topology.KFD_NODE == amd_topology.KFD_NODE
    assert topology.RENDER_NODE.format(minor=128) == amd_topology.RENDER_NODE_128
    assert code.NOTE_SECTION == amd_code.NOTE_SECTION


def test_masks_and_alignments():
    assert registers.PROGRAM_ALIGN == 1 << amd_pm4.PGM_SHIFT
    assert pm4.ALL_BITS == 2**32 - 1
    assert sdma.POLL_INTERVAL == amd_sdma.POLL_INTERVAL
    assert drm.IDS_FLAGS_FUSION == amd_kfd.IDS_FLAGS_FUSION


def test_every_exception_of_a_queue_has_a_text():
    assert set(events.EXCEPTION_TEXT) <= set(events.QueueException)


def test_packets_with_data():
    names = {opcode.name for opcode in pm4_generations.WITH_DATA}
    assert names == {"SET_SH_REG", "WRITE_DATA"}
