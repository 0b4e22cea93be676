"""The transcribed AMD tables hold together: nothing overlaps, sizes cover fields, vectors follow formulas."""

import errno
from itertools import pairwise

import pytest

from tests.facts import amd_aql, amd_code, amd_errnos, amd_kfd, amd_pm4, amd_sdma, amd_topology

TARGETS = set(amd_topology.QUEUE_OF_TARGET) | {"gfx90a"}
Fields = tuple[tuple[int, int, str], ...]
"""Offset, size and name of each field."""


def test_request_word_is_direction_size_type_and_number():
    for name in amd_kfd.IOCTLS:
        number, word, size = amd_kfd.IOCTLS[name]
        assert word & 0xFF == number, name
        assert word >> 8 & 0xFF == amd_kfd.TYPE, name
        assert word >> 16 & 0x3FFF == size, name
        assert word >> 30 in (1, 2, 3), name


def test_create_queue_of_1_11_is_eight_bytes_shorter():
    assert amd_kfd.IOCTLS["CREATE_QUEUE"][1] - amd_kfd.CREATE_QUEUE_1_11[1] == 8 << 16
    assert amd_kfd.STRUCTS["CREATE_QUEUE"][-2][0] == amd_kfd.CREATE_QUEUE_1_11[2]


def test_fields_of_an_ioctl_struct_fill_its_size():
    for name in amd_kfd.STRUCTS:
        end = 0
        for offset, size, field in amd_kfd.STRUCTS[name]:
            assert offset == end, field
            assert offset % size == 0, field
            end = offset + size
        assert 0 <= amd_kfd.IOCTLS[name][2] - end < 8, name


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        (amd_kfd.HW_EXCEPTION, 32),
        (amd_kfd.DRM_INFO, 32),
        (amd_kfd.DEV_INFO, amd_kfd.DEV_INFO_BYTES),
        (amd_aql.KERNEL_DISPATCH, amd_aql.PACKET_BYTES),
        (amd_aql.BARRIER, amd_aql.PACKET_BYTES),
        (amd_aql.PM4_IB, amd_aql.PACKET_BYTES),
        (amd_aql.BARRIER_VALUE, amd_aql.PACKET_BYTES),
        (amd_aql.SIGNAL, amd_aql.SIGNAL_BYTES),
        (amd_aql.QUEUE, amd_aql.QUEUE_BYTES),
        (amd_code.DESCRIPTOR, amd_code.DESCRIPTOR_BYTES),
        (amd_code.HIDDEN_ARGUMENTS, amd_code.HIDDEN_BYTES),
    ],
)
def test_fields_of_a_struct_follow_each_other_within_its_size(fields: Fields, size: int):
    for (offset, width, name), (following, _, _) in pairwise([*fields, (size, 0, "end")]):
        assert offset + width <= following, name
    assert len({name for _, _, name in fields}) == len(fields)


def _align(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def test_context_save_vector_follows_the_formula():
    for target in amd_kfd.CWSR_VECTORS:
        vector, node = amd_kfd.CWSR_VECTORS[target], amd_topology.SAMPLE_NODES[target]
        xcc, gfx9 = node["num_xcc"], target.startswith("gfx9")
        cu = node["simd_count"] // node["simd_per_cu"] // xcc
        arrays = node["array_count"] // xcc // node["simd_arrays_per_engine"]
        waves = min(cu * 40, arrays * 512) if gfx9 else cu * 32
        (vgpr,) = (size for size, targets in amd_kfd.CWSR_VGPR_BYTES.items() if target in targets)
        per_cu = vgpr + amd_kfd.CWSR_SGPR_BYTES + amd_kfd.CWSR_LDS_BYTES + amd_kfd.CWSR_HW_BYTES
        data = _align(cu * per_cu, 4096)
        control = _align(40 + waves * (8 if gfx9 else 12) + 8, 4096)
        debug = _align(waves * amd_kfd.CWSR_DEBUG_WAVE_BYTES, 64)
        assert (cu, xcc, control, data, control + data, debug) == tuple(vector.values())[:6], target
        assert _align((control + data + debug) * xcc, 4096) == vector["total"], target


def test_compute_units_follow_from_the_sample_node():
    for target in amd_topology.COMPUTE_UNITS_PER_XCC:
        node = amd_topology.SAMPLE_NODES[target]
        cu = node["simd_count"] // node["simd_per_cu"] // node["num_xcc"]
        assert cu == amd_topology.COMPUTE_UNITS_PER_XCC[target], target


def test_target_name_is_the_version_with_hexadecimal_minor_and_step():
    for version in amd_topology.TARGETS:
        major, minor, step = version // 10000, version // 100 % 100, version % 100
        assert amd_topology.TARGETS[version] == f"gfx{major}{minor:x}{step:x}", version


def test_gc_versions_name_known_targets():
    assert set(amd_topology.TARGET_OF_GC.values()) <= set(amd_topology.TARGETS)


def test_ready_made_header_is_type_count_and_opcode():
    for packet in amd_pm4.HEADERS:
        opcode, word, dwords = amd_pm4.HEADERS[packet]
        assert word == amd_pm4.TYPE_3 << 30 | dwords - 2 << 16 | amd_pm4.OPCODES[opcode] << 8, packet


def test_one_dword_nop_has_the_largest_count():
    header = amd_pm4.TYPE_3 << 30 | amd_pm4.NOP_COUNT_ONE_DWORD << 16 | amd_pm4.OPCODES["NOP"] << 8
    assert header == amd_pm4.NOP_ONE_DWORD


@pytest.mark.parametrize(
    ("fields", "dwords"),
    [
        (amd_pm4.ACQUIRE_MEM, 7),
        (amd_pm4.RELEASE_MEM, 8),
        (amd_pm4.WAIT_REG_MEM, 7),
        (amd_pm4.WRITE_DATA, 5),
        (amd_pm4.COPY_DATA, 6),
        (amd_pm4.INDIRECT_BUFFER, 4),
        (amd_pm4.DISPATCH_DIRECT, 5),
        (amd_pm4.EVENT_WRITE, 2),
        (amd_pm4.PRED_EXEC, 2),
        (amd_pm4.ATOMIC_MEM, 9),
        *((fields, amd_sdma.DWORDS.get(name, 8)) for name, fields in amd_sdma.PACKETS.items()),
    ],
)
def test_fields_of_a_packet_lie_apart_inside_it(fields: dict[str, tuple[int, int, int]], dwords: int):
    for (dword, _, hi), (following, lo, _) in pairwise(sorted(fields.values())):
        assert (dword, hi) < (following, lo)
    assert all(dword < dwords and lo <= hi < 32 for dword, lo, hi in fields.values())


@pytest.mark.parametrize(
    "fields",
    [
        amd_pm4.HEADER,
        amd_pm4.GCR_CNTL,
        *amd_pm4.RELEASE_CACHE_BITS.values(),
        amd_pm4.RESOURCE_LIMITS,
        amd_pm4.NUM_THREAD,
        amd_pm4.NUM_THREAD_GFX12,
        amd_aql.HEADER,
        amd_code.RSRC1,
        amd_code.RSRC2,
        *amd_code.RSRC3.values(),
        amd_code.PRELOAD,
    ],
)
def test_fields_of_a_word_do_not_overlap(fields: dict[str, tuple[int, int]]):
    for (_, hi), (lo, _) in pairwise(sorted(fields.values())):
        assert hi < lo


def test_cache_bits_of_release_mem_leave_event_and_index_free():
    for generation in amd_pm4.RELEASE_CACHE_BITS:
        assert min(lo for lo, _ in amd_pm4.RELEASE_CACHE_BITS[generation].values()) > 11, generation


def test_usual_initiators_follow_from_the_bits():
    bits = amd_pm4.DISPATCH_INITIATOR
    wave64 = 1 << bits["COMPUTE_SHADER_EN"] | 1 << bits["FORCE_START_AT_000"]
    assert wave64 == amd_pm4.INITIATOR_WAVE64
    assert wave64 | 1 << bits["CS_W32_EN"] == amd_pm4.INITIATOR_WAVE32


def test_partial_flush_word_follows_from_its_fields():
    word = amd_pm4.EVENT_TYPES["CS_PARTIAL_FLUSH"] | amd_pm4.CS_PARTIAL_FLUSH_INDEX << 8
    assert word == amd_pm4.CS_PARTIAL_FLUSH_WORD


@pytest.mark.parametrize(
    "extra", [amd_pm4.SH_REGISTERS_GFX9, amd_pm4.SH_REGISTERS_GFX10, amd_pm4.SH_REGISTERS_GFX11]
)
def test_registers_of_a_generation_are_distinct_and_in_range(extra: dict[str, int]):
    registers = {**amd_pm4.SH_REGISTERS, **extra}
    assert len(set(registers.values())) == len(registers)
    assert max(registers.values()) < amd_pm4.SH_END - amd_pm4.REGISTER_BASES["SET_SH_REG"]


def test_barrier_of_one_packet_is_as_long_as_its_signals():
    assert {name: size for _, size, name in amd_aql.BARRIER}["dep_signal[5]"] == 5 * 8


def test_e_flags_of_a_vector_name_their_target():
    for target in amd_code.E_FLAGS_VECTORS:
        flags = amd_code.E_FLAGS_VECTORS[target]
        assert flags & 0xFF == amd_code.MACH[target], target
        assert flags & ~0xFF == amd_code.XNACK["any"] | amd_code.SRAMECC["any"], target


def test_descriptor_vector_decodes_to_what_its_kernel_needs():
    for target in amd_code.DESCRIPTOR_VECTORS:
        rsrc2 = amd_code.RSRC2
        for name, (_, word, properties) in amd_code.DESCRIPTOR_VECTORS[target].items():
            fields = {n: word >> lo & (1 << hi - lo + 1) - 1 for n, (lo, hi) in rsrc2.items()}
            assert fields["SCRATCH_EN"] == (name == "B"), target
            assert (fields["TGID_X_EN"], fields["TGID_Y_EN"], fields["TGID_Z_EN"]) == (1, 1, 1), target
            assert fields["LDS_SIZE"] == 0, target
            assert properties >> amd_code.PROPERTIES["KERNARG_SEGMENT_PTR"] & 1, target
            assert properties >> amd_code.PROPERTIES["WAVEFRONT_SIZE32"] & 1 == (
                not target.startswith("gfx9")
            ), target


def test_user_registers_of_a_vector_are_the_enabled_ones_or_padded():
    for target in amd_code.DESCRIPTOR_VECTORS:
        for _, word, properties in amd_code.DESCRIPTOR_VECTORS[target].values():
            enabled = sum(n for p, n in amd_code.USER_SGPR_ORDER if properties >> amd_code.PROPERTIES[p] & 1)
            count = word >> 1 & 0x1F
            if target in amd_code.PADDED_USER_SGPR_TARGETS:
                assert count + 3 == amd_code.USER_SGPRS_MAX, target
            else:
                assert count == enabled, target


def test_flags_of_a_kind_are_flags_and_name_one_type():
    types = {name for name, bit in amd_kfd.ALLOC_FLAGS.items() if bit <= 4}
    for kind, flags in amd_kfd.ALLOC_KINDS.items():
        assert set(flags) <= set(amd_kfd.ALLOC_FLAGS), kind
        assert len(types & set(flags)) == 1, kind


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
    assert set(amd_code.MACH) == TARGETS | {"gfx940"}
    sized = {name for names in amd_kfd.CWSR_VGPR_BYTES.values() for name in names}
    assert sized == TARGETS | {"gfx908", "gfx940", "gfx941"}


def test_targets_with_packed_work_item_ids_are_all_but_one():
    assert set(amd_code.PACKED_WORKITEM_ID_TARGETS) == TARGETS - {"gfx1030"}


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
