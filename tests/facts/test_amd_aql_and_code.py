"""The driver's AQL packets, signals, queue structure and code objects are those of the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import aql, code
from tests.facts import amd_aql, amd_code, amd_pm4
from tests.facts.layout_probe import Leaf, bit_ranges, expected, leaves

Fields = tuple[tuple[int, int, str], ...]
"""Offset, size and name of each field."""

if TYPE_CHECKING:
    import enum

    from hcq.layout import BitStruct, Struct


def values(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def ranges(layout: type[BitStruct]) -> dict[str, tuple[int, int]]:
    """Return the bits of every field, all elements of an array together."""
    return {
        name: (field.runs[0][0], field.runs[0][0] + field.width * field.count - 1)
        for name, field in layout.FIELDS.items()
    }


def packet(fields: Fields, *parts: str, **renamed: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the bits of a table's fields in capitals, with the header's parts; `parts` are left out."""
    found = {}
    for name, leaf in expected(fields).items():
        if name != "header" and not name.startswith("reserved") and name not in parts:
            found[name.upper()] = (8 * leaf.offset, 8 * (leaf.offset + leaf.size) - 1)
    return {**amd_aql.HEADER, **found, **renamed}


def moved(bits: tuple[int, int], by: int) -> tuple[int, int]:
    return bits[0] + by, bits[1] + by


def test_header_and_types():
    assert bit_ranges(aql.Header) == amd_aql.HEADER
    assert values(aql.Type) == amd_aql.TYPES
    assert values(aql.FenceScope) == amd_aql.SCOPES
    assert aql.PACKET_BYTES == amd_aql.PACKET_BYTES == 4 * aql.PACKET_WORDS


@pytest.mark.parametrize("name", amd_aql.HEADER_WORDS)
def test_header_words(name: str):
    word = amd_aql.HEADER_WORDS[name]
    assert int(aql.Header.from_int(word)) == word
    assert aql.Header.from_int(word).check() == []


def test_kernel_dispatch():
    dimensions = moved(amd_aql.SETUP_DIMENSIONS, 16)
    assert ranges(aql.KernelDispatch) == packet(amd_aql.KERNEL_DISPATCH, "setup", DIMENSIONS=dimensions)
    assert aql.KernelDispatch.FIELDS["TYPE"].default == amd_aql.TYPES["KERNEL_DISPATCH"]


@pytest.mark.parametrize(("layout", "kind"), [(aql.BarrierAnd, "BARRIER_AND"), (aql.BarrierOr, "BARRIER_OR")])
def test_barriers(layout: type[BitStruct], kind: str):
    assert ranges(layout) == packet(amd_aql.BARRIER)
    assert layout.FIELDS["DEP_SIGNAL"].count == 5
    assert layout.FIELDS["TYPE"].default == amd_aql.TYPES[kind]


def fixed(layout: type[BitStruct]) -> dict[tuple[int, int], int]:
    return {field.runs[0]: field.default for field in layout.FIXED.values()}


def test_vendor_packet_of_pm4():
    places = expected(amd_aql.PM4_IB)
    start = 8 * places["ib_jump_cmd"].offset
    indirect = {
        name: (start + 32 * dword + lo, start + 32 * dword + hi)
        for name, (dword, lo, hi) in amd_pm4.INDIRECT_BUFFER.items()
    }
    assert ranges(aql.Pm4Ib) == packet(
        amd_aql.PM4_IB,
        "ven_hdr",
        "ib_jump_cmd",
        "dw_cnt_remain",
        IB_HEADER=(start, start + 31),
        IB_ADDRESS_LO=indirect["ADDRESS_LO"],
        IB_ADDRESS_HI=indirect["ADDRESS_HI"],
        IB_SIZE=indirect["SIZE"],
        IB_VALID=indirect["VALID"],
    )
    assert fixed(aql.Pm4Ib) == {
        (8 * places["ven_hdr"].offset, 16): amd_aql.PM4_IB_FORMAT,
        (8 * places["dw_cnt_remain"].offset, 32): amd_aql.PM4_IB_DW_CNT_REMAIN,
    }


def test_first_dword_of_a_vendor_packet():
    built = aql.Pm4Ib(
        BARRIER=True,
        ACQUIRE_SCOPE=aql.FenceScope.SYSTEM,
        RELEASE_SCOPE=aql.FenceScope.SYSTEM,
        IB_HEADER=0,
        IB_ADDRESS_LO=0,
        IB_ADDRESS_HI=0,
        IB_SIZE=0,
        IB_VALID=True,
    )
    assert built.to_words()[0] == amd_aql.VENDOR_FIRST_DWORD


def test_vendor_packet_that_waits_for_a_value():
    condition = expected(amd_aql.BARRIER_VALUE)["cond"]
    start = 8 * condition.offset
    assert ranges(aql.BarrierValue) == packet(
        amd_aql.BARRIER_VALUE, "cond", CONDITION=(start, start + 8 * condition.size - 1)
    )
    assert fixed(aql.BarrierValue) == {(16, 16): amd_aql.BARRIER_VALUE_FORMAT}
    assert values(aql.BarrierValueCondition) == amd_aql.BARRIER_VALUE_CONDITIONS


def test_packets_are_found_by_type_and_format():
    assert set(aql.PACKETS) == {
        amd_aql.TYPES[name] for name in ("KERNEL_DISPATCH", "BARRIER_AND", "BARRIER_OR")
    }
    assert set(aql.VENDOR_PACKETS) == {amd_aql.PM4_IB_FORMAT, amd_aql.BARRIER_VALUE_FORMAT}


@pytest.mark.parametrize(
    ("layout", "fields", "size"),
    [
        (aql.Signal, amd_aql.SIGNAL, amd_aql.SIGNAL_BYTES),
        (aql.Queue, amd_aql.QUEUE, amd_aql.QUEUE_BYTES),
        (code.HiddenArguments, amd_code.HIDDEN_ARGUMENTS, amd_code.HIDDEN_BYTES),
    ],
)
def test_structures(layout: type[Struct], fields: Fields, size: int):
    assert size == layout.SIZE
    assert leaves(layout) == expected(fields)


def test_descriptor_lacks_only_what_is_reserved():
    known = {name: leaf for name, leaf in expected(amd_code.DESCRIPTOR).items() if "reserved" not in name}
    assert leaves(code.Descriptor) == known
    assert code.Descriptor.SIZE == amd_code.DESCRIPTOR_BYTES
    assert code.Descriptor.FIELDS["kernel_code_entry_byte_offset"].code == "q"


def test_values_of_signals_and_queues():
    assert values(aql.SignalKind) == amd_aql.SIGNAL_KINDS
    assert bit_ranges(aql.QueueProperties) == {n: (b, b) for n, b in amd_aql.QUEUE_PROPERTIES.items()}
    assert aql.READ_DISPATCH_ID_FIELD_BASE == amd_aql.READ_DISPATCH_ID_FIELD_BASE
    assert leaves(aql.Queue)["read_dispatch_id"] == Leaf(amd_aql.READ_DISPATCH_ID_FIELD_BASE, 8, 1)
    assert aql.LDS_APERTURE_HI == amd_aql.LDS_APERTURE_HI
    assert aql.SCRATCH_APERTURE_HI == amd_aql.SCRATCH_APERTURE_HI
    assert aql.RING_PACKETS_MIN == amd_aql.RING_PACKETS_MIN
    assert aql.RING_PACKETS_MAX == amd_aql.RING_PACKETS_MAX
    assert amd_aql.ALIGNMENTS["kernarg_address"] == aql.KERNARG_ALIGN
    assert {error.value for error in aql.Inactive} == set(amd_aql.INACTIVE_ERRORS)
    assert {int(error): text for error, text in aql.INACTIVE_TEXT.items()} == amd_aql.INACTIVE_ERRORS


def test_scratch_descriptor():
    assert bit_ranges(aql.ScratchDescriptor) == {
        "BASE": (0, 47),
        "SWIZZLE": (62, 63),
        "BYTES": (64, 95),
        "FORMAT": (96, 127),
    }
    assert {f"gfx{n}": word for n, word in aql.FORMAT.items()} == amd_aql.SCRATCH_DESCRIPTOR_WORD_3
    swizzle = {f"gfx{n}": value << 62 - 32 for n, value in aql.SWIZZLE.items()}
    assert swizzle == amd_aql.SCRATCH_DESCRIPTOR_SWIZZLE


def test_elf_words():
    assert code.OSABI_HSA == amd_code.OSABI
    assert {name: number for number, name in code.ABI_NAMES.items()} == amd_code.ABI_VERSIONS
    assert (amd_code.ABI_VERSIONS["V5"], amd_code.ABI_VERSIONS["V6"]) == (code.ABI_V5, code.ABI_V6)
    assert (code.NOTE_NAME, code.NOTE_TYPE) == (amd_code.NOTE_NAME, amd_code.NOTE_TYPE)
    assert code.DESCRIPTOR_SUFFIX == amd_code.DESCRIPTOR_SUFFIX
    assert code.DESCRIPTOR_ALIGN == amd_code.DESCRIPTOR_ALIGNMENT
    assert code.CODE_ALIGN == amd_code.TEXT_ALIGNMENT
    assert code.PREFETCH_PAD >= amd_code.PREFETCH_PADDING
    assert code.PREFETCH_UNIT == amd_code.INST_PREF_UNIT
    assert code.PRELOAD_ENTRY_SKIP == amd_code.PRELOAD_ENTRY_SKIP
    assert code.HIDDEN_ALIGN == amd_code.HIDDEN_ALIGNMENT
    assert code.HIDDEN_PREFIX == amd_code.HIDDEN_KIND_PREFIX
    assert values(code.Relocation) == amd_code.RELOCATIONS


def test_flags_of_an_image():
    assert bit_ranges(code.Flags) == {
        "MACH": amd_code.MACH_BITS,
        "XNACK": amd_code.XNACK_BITS,
        "SRAMECC": amd_code.SRAMECC_BITS,
        "GENERIC_VERSION": amd_code.GENERIC_VERSION_BITS,
    }
    for low, table in ((8, amd_code.XNACK), (10, amd_code.SRAMECC)):
        assert {feature.name.lower(): feature.value << low for feature in code.Feature} == table


@pytest.mark.parametrize("target", amd_code.E_FLAGS_VECTORS)
def test_flags_of_the_compiled_images(target: str):
    flags = code.Flags.from_int(amd_code.E_FLAGS_VECTORS[target])
    assert flags == code.Flags(MACH=amd_code.MACH[target], XNACK=code.Feature.ANY, SRAMECC=code.Feature.ANY)


def test_properties_of_a_descriptor():
    assert bit_ranges(code.Properties) == {name: (bit, bit) for name, bit in amd_code.PROPERTIES.items()}
    assert bit_ranges(code.Preload) == amd_code.PRELOAD
    assert code.USER_SGPRS == amd_code.USER_SGPR_ORDER


@pytest.mark.parametrize("target", amd_code.DESCRIPTOR_VECTORS)
def test_properties_of_the_compiled_kernels(target: str):
    for _, _, word in amd_code.DESCRIPTOR_VECTORS[target].values():
        assert code.Properties.from_int(word).check() == []
        assert int(code.Properties.from_int(word)) == word
