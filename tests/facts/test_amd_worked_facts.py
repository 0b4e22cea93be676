"""Worked values of the AMD tables follow from their formulas; tables of targets name the same ones."""

import errno

import pytest

from tests.facts import (
    amd_aql,
    amd_code,
    amd_errnos,
    amd_faults,
    amd_kfd,
    amd_matrix,
    amd_pm4,
    amd_rings,
    amd_sdma,
    amd_topology,
)

TARGETS = set(amd_topology.QUEUE_OF_TARGET) | {"gfx90a"}


def test_requests_that_are_read_and_written_have_such_fields():
    for name in amd_kfd.INOUT_FIELDS:
        assert set(amd_kfd.INOUT_FIELDS[name]) <= {field for _, _, field in amd_kfd.STRUCTS[name]}, name
        assert amd_kfd.IOCTLS[name][1] >> 30 == 3, name


def test_flags_of_a_kind_are_flags_and_name_one_type():
    types = {name for name, bit in amd_kfd.ALLOC_FLAGS.items() if bit <= 4}
    for kind, flags in amd_kfd.ALLOC_KINDS.items():
        assert set(flags) <= set(amd_kfd.ALLOC_FLAGS), kind
        assert len(types & set(flags)) == 1, kind


def test_size_fields_of_a_queue_descriptor_follow_their_formula():
    for dwords, field in amd_kfd.MQD_QUEUE_SIZE.items():
        assert 1 << field + 1 == dwords
    for dwords, field in amd_kfd.MQD_EOP_SIZE.items():
        assert field == min(amd_kfd.MQD_EOP_SIZE_MAX, dwords.bit_length() - 2)


def test_sdma_doorbells_lie_in_turn_in_both_halves_of_a_slice():
    for queue, doorbell in amd_kfd.SDMA_DOORBELL_VECTORS:
        assert doorbell == (queue & 1) * amd_kfd.SDMA_DOORBELL_MIRROR + (queue >> 1)
    assert amd_kfd.DOORBELLS_PER_SLICE * amd_kfd.DOORBELL_BYTES == amd_kfd.DOORBELL_SLICE_BYTES


def test_deprecated_apertures_are_seven_records_and_a_count():
    assert amd_kfd.IOCTLS["GET_PROCESS_APERTURES"][2] == amd_kfd.OLD_APERTURES * amd_kfd.APERTURE_BYTES + 8


def test_every_error_has_a_number():
    for call, conditions in {"any": amd_errnos.ANY_CALL, **amd_errnos.ERRNOS}.items():
        for condition, number in conditions.items():
            assert number in errno.errorcode or number == amd_errnos.ENOTSUPP, (call, condition)
    assert amd_errnos.ENOTSUPP == amd_kfd.ENOTSUPP


def test_tables_of_targets_name_the_same_targets():
    for table in (amd_topology.WAVES, amd_topology.MATRIX, amd_topology.SDMA_VERSIONS):
        assert set(table) == TARGETS
    assert {name for names in amd_topology.TIERS.values() for name in names} == TARGETS - {"gfx1150"}
    assert set(amd_code.MACH) == TARGETS | {"gfx940"}
    sized = {name for names in amd_kfd.CWSR_VGPR_BYTES.values() for name in names}
    assert sized == TARGETS | {"gfx908", "gfx940", "gfx941"}


def test_large_register_files_are_the_same_in_both_tables():
    assert set(amd_kfd.CWSR_VGPR_BYTES[0x60000]) == set(amd_code.LARGE_VGPR_PARTS)


def test_targets_with_packed_work_item_ids_are_all_but_one():
    assert set(amd_code.PACKED_WORKITEM_ID_TARGETS) == TARGETS - {"gfx1030"}


def test_full_range_sets_every_bit_of_the_size():
    for field, value in amd_pm4.FULL_RANGE.items():
        _, lo, hi = amd_pm4.ACQUIRE_MEM[field]
        assert value in (0, (1 << hi - lo + 1) - 1), field


def test_names_of_cache_bits_exist():
    for names in (amd_pm4.GCR_BEFORE_KERNEL, amd_pm4.GCR_BETWEEN_DISPATCHES, amd_pm4.GCR_CNTL_RESERVED_GFX12):
        assert set(names) <= set(amd_pm4.GCR_CNTL)
    for generation, names in amd_pm4.SYSTEM_RELEASE.items():
        bits = amd_pm4.RELEASE_CACHE_BITS["gfx11" if generation == "gfx10" else generation]
        assert set(names) <= set(bits), generation
    assert set(amd_pm4.GFX10_LACKS) <= set(amd_pm4.RELEASE_CACHE_BITS["gfx11"])


def test_registers_of_a_launch_in_order_and_in_runs():
    names = [name for name in amd_pm4.DISPATCH_ORDER if name.startswith("COMPUTE_")]
    known = amd_pm4.SH_REGISTERS | amd_pm4.SH_REGISTERS_GFX11
    assert set(names) <= set(known)
    run = known["COMPUTE_PERFCOUNT_ENABLE"] - known["COMPUTE_START_X"] + 1
    assert run == amd_pm4.START_RUN_VALUES
    users = known["COMPUTE_USER_DATA_15"] - known["COMPUTE_USER_DATA_0"] + 1
    assert users == amd_pm4.USER_DATA_REGISTERS == amd_code.USER_SGPRS_MAX


def test_absolute_register_is_its_base_and_offset():
    base = amd_pm4.REGISTER_BASES["SET_UCONFIG_REG"]
    assert base + amd_pm4.GRBM_GFX_INDEX == amd_pm4.GRBM_GFX_INDEX_ABSOLUTE
    segment = amd_pm4.GC_SEGMENT_1 + amd_pm4.GRBM_GFX_INDEX_SEGMENT_1
    assert segment == amd_pm4.GRBM_GFX_INDEX_ABSOLUTE


def test_gfx90a_registers_do_not_meet_the_common_ones():
    assert not set(amd_pm4.SH_REGISTERS_GFX90A.values()) & set(amd_pm4.SH_REGISTERS.values())
    first = amd_pm4.SH_REGISTERS_GFX90A["COMPUTE_STATIC_THREAD_MGMT_SE4"]
    assert first == amd_pm4.THREAD_MGMT_SE4_GFX90A


@pytest.mark.parametrize(
    ("name", "kind", "barrier", "scope"),
    [
        ("dispatch: barrier, acquire and release of the system", "KERNEL_DISPATCH", 1, "SYSTEM"),
        ("barrier-and, likewise", "BARRIER_AND", 1, "SYSTEM"),
        ("vendor: barrier, acquire and release of the system", "VENDOR_SPECIFIC", 1, "SYSTEM"),
        ("invalid", "INVALID", 0, "NONE"),
    ],
)
def test_aql_header_words_follow_from_their_fields(name: str, kind: str, barrier: int, scope: str):
    header, level = amd_aql.HEADER, amd_aql.SCOPES[scope]
    word = amd_aql.TYPES[kind] | barrier << header["BARRIER"][0]
    word |= level << header["ACQUIRE_SCOPE"][0] | level << header["RELEASE_SCOPE"][0]
    assert amd_aql.HEADER_WORDS[name] == word


def test_first_dword_of_a_vendor_packet_is_header_and_format():
    header = amd_aql.HEADER_WORDS["vendor: barrier, acquire and release of the system"]
    assert header | amd_aql.PM4_IB_FORMAT << 16 == amd_aql.VENDOR_FIRST_DWORD


def test_free_space_of_a_pm4_ring_follows_its_formula():
    for read, write, ring, free in amd_rings.FREE_VECTORS_PM4:
        assert (read - 1 - write) % ring == free


def test_fillers_are_packets_of_one_dword():
    assert amd_rings.RINGS["PM4"].filler == amd_pm4.NOP_ONE_DWORD
    assert amd_rings.RINGS["AQL"].filler == amd_aql.TYPES["INVALID"]
    assert amd_rings.RINGS["SDMA"].filler == amd_sdma.OPS["NOP"]
    assert amd_rings.RINGS["AQL"].minimum == amd_aql.RING_PACKETS_MIN * amd_aql.PACKET_BYTES
    assert amd_rings.RINGS["AQL"].maximum == amd_aql.RING_PACKETS_MAX * amd_aql.PACKET_BYTES


def test_a_signal_record_is_laid_out_as_an_hsa_signal():
    names = {"start_ts": "start", "end_ts": "end"}
    places = {names[name]: offset for offset, _, name in amd_aql.SIGNAL if name in names}
    assert places.items() <= amd_rings.SIGNAL_RECORD.items()


def test_fill_counts_are_bytes_less_one_dword():
    for dwords, count in amd_sdma.FILL_VECTORS.items():
        assert count == (dwords - 1) * 4


def test_pieces_of_a_copy_fit_the_counts_of_their_version():
    assert (
        min(amd_sdma.COPY_BYTES_MAX["kernel, every version"], amd_sdma.COPY_BYTES_MAX["ROCr v4.4.2"])
        >= amd_sdma.COPY_SPLIT_V4
    )
    assert amd_sdma.COPY_BYTES_MAX["ROCr gfx90a and v5.2 on"] >= amd_sdma.COPY_SPLIT_V5_2
    for version, bits in amd_sdma.COPY_COUNT_BITS.items():
        split = amd_sdma.COPY_SPLIT_V5_2 if version >= (5, 2) else amd_sdma.COPY_SPLIT_V4
        assert split - 1 < 1 << bits, version


def _relocated(kind: str, symbol: int, addend: int, place: int) -> int:
    absolute, relative = symbol + addend, symbol + addend - place
    value = {
        "ABS32_LO": absolute,
        "ABS32_HI": absolute >> 32,
        "ABS64": absolute,
        "ABS32": absolute,
        "REL32": relative,
        "REL64": relative,
        "REL32_LO": relative,
        "REL32_HI": relative >> 32,
        "REL16": (relative - 4) // 4,
    }[kind]
    return value & (1 << 8 * amd_code.RELOCATION_BYTES[kind]) - 1


def test_relocation_vectors_follow_their_formulas():
    for kind, symbol, addend, place, stored in amd_code.RELOCATION_VECTORS:
        assert _relocated(kind, symbol, addend, place) == stored, (kind, symbol)
    assert set(amd_code.RELOCATION_BYTES) == set(amd_code.RELOCATIONS)


def test_swizzled_scratch_follows_its_formula():
    unit = amd_code.SCRATCH_ELEMENT_BYTES
    for offset, lane, lanes, where in amd_code.SCRATCH_SWIZZLE_VECTORS:
        assert offset // unit * unit * lanes + lane * unit + offset % unit == where


def test_scratch_of_a_lane_fills_units_of_a_wave_of_64():
    for generation, unit in amd_code.SCRATCH_WAVE_UNIT.items():
        assert amd_code.SCRATCH_LANE_UNIT[generation] * 64 == unit
        assert amd_pm4.TMPRING_WAVESIZE[generation][1] == unit


def test_registers_for_scratch_are_those_of_the_vectors():
    for target, count in amd_code.SCRATCH_USER_SGPRS.items():
        _, word, _ = amd_code.DESCRIPTOR_VECTORS[target]["B"]
        assert word >> 1 & 0x1F == count, target


def test_instructions_that_share_a_layout_name_one_that_exists():
    assert set(amd_matrix.SAME_LAYOUT.values()) <= set(amd_matrix.LAYOUTS)


def test_bits_of_a_fault_are_apart():
    bits = list(amd_faults.FAULT_STATUS_BITS.values())
    assert len(set(bits)) == len(bits)
