"""NVIDIA fault codes and cubin facts are those of the headers and of the measured images."""

import pytest

from drivers.nv.layouts import cubin, fault
from drivers.nv.layouts.chips import CHIPS
from tests.facts import nv_cubin, nv_faults, nv_structs
from tests.facts.layout_probe import bit_ranges, leaves


def test_notifier_match_the_vendor_headers():
    assert fault.NOTIFIER_POSTED == nv_faults.NOTIFIER_POSTED
    assert nv_faults.NOTIFIER_INDICES[fault.NOTIFIER_ERROR] == "error"
    assert fault.NOTIFIER_ENTRIES == nv_structs.ERROR_NOTIFIER_ENTRIES == len(nv_faults.NOTIFIER_INDICES)
    assert fault.NOTIFIER_ENTRIES * fault.NvNotification.SIZE == nv_structs.ERROR_NOTIFIER_BYTES


def test_every_robust_channel_code_has_a_meaning():
    assert {code for codes in nv_faults.RC_CODES for code in codes} == set(fault.RC_MEANING)


@pytest.mark.parametrize("engine", nv_faults.COPY_ENGINE_CODES)
def test_copy_engine_code_names_its_engine(engine: int):
    assert f"copy engine {engine} " in fault.RC_MEANING[nv_faults.COPY_ENGINE_CODES[engine]]


def test_named_copy_engine_codes_match_the_vendor_headers():
    named = {int(c.name.strip("CE_RO")): c.value for c in fault.RcCode if c.name.startswith("CE")}
    assert named.items() <= nv_faults.COPY_ENGINE_CODES.items()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (13, "graphics engine exception"),
        (31, "MMU fault"),
        (45, "removed"),
        (48, "memory error"),
        (69, "graphics class"),
        (79, "bus"),
        (94, "contained"),
        (95, "uncontained"),
        (109, "context switch timeout"),
    ],
)
def test_meaning_of_a_code_match_the_vendor_headers(code: int, words: str):
    assert words in fault.RC_MEANING[code]


def test_mmu_fault_and_access_types_match_the_vendor_headers():
    assert [t.name for t in fault.MmuFaultType] == list(nv_faults.MMU_FAULT_TYPES)
    assert [t.value for t in fault.MmuFaultType] == list(range(16))
    assert {a.value: a.name.lower().replace("_", " ") for a in fault.MmuAccess} == nv_faults.MMU_ACCESS_TYPES
    assert fault.MMU_ACCESS_PHYSICAL == nv_faults.MMU_ACCESS_PHYSICAL
    assert fault.WARP_ESR_INVALID_ADDRESS_SPACE == nv_faults.WARP_ESR_INVALID_ADDRESS_SPACE


def test_elf_words_match_the_measurements():
    assert cubin.EM_CUDA == nv_cubin.MACHINE
    for toolkit, osabi in (("12", cubin.OSABI_12), ("13", cubin.OSABI_13)):
        assert (osabi, cubin.ABIVERSION[osabi]) == nv_cubin.IDENT[toolkit]
        assert cubin.SM_SHIFT[osabi] == nv_cubin.SM_SHIFT[toolkit]
    assert cubin.TEXT_ALIGN == nv_cubin.TEXT_ALIGNMENT
    assert cubin.PREFETCH_PAD >= nv_cubin.PREFETCH_PADDING
    assert cubin.TEXT_BARRIERS_SHIFT == nv_cubin.BARRIER_SHIFT
    assert cubin.TEXT_REGISTERS_SHIFT == nv_cubin.REGISTER_SHIFT


@pytest.mark.parametrize("flags", nv_cubin.SM_FLAGS_12)
def test_flags_of_a_toolkit_12_image_hold_its_architecture(flags: int):
    assert f"sm_{flags >> cubin.SM_SHIFT[cubin.OSABI_12] & 0xFF}" == nv_cubin.SM_FLAGS_12[flags]


def test_section_names_match_the_measurements():
    since = {".nv_debug_line_sass"}  # measured later, with -lineinfo: docs/facts/nv.md does not know it
    assert {str(section) for section in cubin.Section} - since <= set(nv_cubin.SECTIONS)


def test_info_formats_and_attributes_match_the_measurements():
    assert {f.name: f.value for f in cubin.InfoFormat} == nv_cubin.INFO_FORMATS
    known = {a.name: a.value for a in cubin.InfoAttribute}
    assert (nv_cubin.INFO_ATTRIBUTES | nv_cubin.CLUSTER_ATTRIBUTES).items() <= known.items()


def test_info_records_match_the_measurements():
    assert {n: leaf[:2] for n, leaf in leaves(cubin.InfoRecord).items()} == {
        "format": (0, 1),
        "attribute": (1, 1),
        "value": (2, 2),
    }
    assert {n: leaf[:2] for n, leaf in leaves(cubin.InfoParamCbank).items()} == {
        "symbol": (0, 4),
        "offset": (4, 2),
        "size": (6, 2),
    }
    assert {n: leaf[:2] for n, leaf in leaves(cubin.InfoSymbolValue).items()} == {
        "symbol": (0, 4),
        "value": (4, 4),
    }


def test_parameter_record_splits_its_last_word():
    ranges = bit_ranges(cubin.InfoKparam)
    width = nv_cubin.KPARAM_SIZE_MASK.bit_length()
    low = 64 + nv_cubin.KPARAM_SIZE_SHIFT
    assert ranges["size"] == (low, low + width - 1)
    assert (ranges["index"], ranges["ordinal"], ranges["offset"]) == ((0, 31), (32, 47), (48, 63))


@pytest.mark.parametrize("arch", [arch for arch in nv_cubin.PARAMETER_BASE if arch in CHIPS])
def test_parameters_follow_the_driver_words(arch: str):
    assert nv_cubin.PARAMETER_BASE[arch] == CHIPS[arch].bank0.SIZE


@pytest.mark.parametrize("arch", nv_cubin.BANK0)
def test_driver_words_of_bank_0_are_where_code_reads_them(arch: str):
    facts: dict[str, int] = {}
    for name, offset in nv_cubin.BANK0[arch].items():
        stem, _, axis = name.replace(" ", "_").partition(".")
        assert not axis or offset == facts.setdefault(stem, offset) + 4 * "xyz".index(axis)
        facts.setdefault(stem, offset)
    seen = leaves(CHIPS[arch].bank0)
    assert {name: leaf.offset for name, leaf in seen.items()} == facts
    assert all(seen[name.replace(" ", "_")].size == 8 for name in nv_cubin.BANK0_U64)


def test_relocations_match_the_measurements():
    facts = {name.removesuffix("_32"): number for name, number in nv_cubin.RELOCATIONS.items()}
    assert facts.items() <= {r.name: r.value for r in cubin.Relocation}.items()
    assert cubin.RELOCATION_WORD_OFFSET == nv_cubin.RELOCATION_HALF_OFFSET


def test_shared_memory_and_stack_match_the_measurements():
    assert cubin.RESERVED_SHARED == nv_cubin.RESERVED_SHARED
    assert cubin.SHARED_GRANULE == nv_cubin.SHARED_ROUNDING
    assert cubin.STACK_POINTER_TOP == nv_cubin.STACK_TOP == nv_cubin.LOCAL_WINDOW - nv_cubin.STACK_RESERVED
