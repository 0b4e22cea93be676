"""The transcribed NVIDIA tables hold together: nothing overlaps, sizes cover fields, no row is missing."""

from collections.abc import Iterator, Sized
from itertools import pairwise

import pytest

from tests.facts import (
    nv_classes,
    nv_controls,
    nv_cubin,
    nv_escapes,
    nv_faults,
    nv_methods,
    nv_qmd_meanings,
    nv_qmd_v03,
    nv_qmd_v04,
    nv_qmd_v05,
    nv_status,
    nv_structs,
    nv_uvm,
)

ALL_STRUCTS = {
    **nv_structs.FRONTEND,
    **nv_structs.ALLOCATION,
    **nv_structs.OTHER,
    **nv_uvm.STRUCTS,
    **nv_controls.STRUCTS,
}
QMDS = {3: nv_qmd_v03, 4: nv_qmd_v04, 5: nv_qmd_v05}
INDEXED = {"CONSTANT_BUFFER": 8, "RELEASE": 3, "DEPENDENT_QMD": 2, "TPC_DISABLE_MASK": 1}


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (nv_structs.FRONTEND, 20),
        (nv_uvm.STRUCTS, 17),
        (nv_structs.ALLOCATION, 16),
        (nv_controls.STRUCTS, 42),
        (nv_structs.OTHER, 3),
        (nv_structs.BRANCH_SIZES, 13),
        (nv_escapes.ESCAPES, 25),
        (nv_uvm.COMMANDS, 20),
        (nv_status.STATUS, 20),
        (nv_qmd_v03.ROWS, 139),
        (nv_qmd_v04.ROWS, 134),
        (nv_qmd_v05.ROWS, 154),
        (nv_methods.HOST, 15),
        (nv_methods.COMPUTE, 48),
        (nv_methods.COPY, 17),
        (nv_classes.BY_ROLE, 7),
        (nv_faults.MMU_FAULT_TYPES, 16),
        (nv_cubin.INFO_ATTRIBUTES, 13),
    ],
)
def test_table_has_as_many_rows_as_its_source(table: Sized, rows: int):
    assert len(table) == rows


@pytest.mark.parametrize("name", ALL_STRUCTS)
def test_fields_of_a_struct_follow_each_other_within_its_size(name: str):
    size, fields = ALL_STRUCTS[name]
    assert size >= 1
    for (offset, width, field), (following, _, _) in pairwise([*fields, (size, 0, "end")]):
        assert offset + width <= following, field
    assert len({field for _, _, field in fields}) == len(fields)


SPARSE = {"HopperAControlGPFifo", "BlackwellAControlGPFifo"}
"""Windows of registers, whose fields do not fill them."""


@pytest.mark.parametrize("name", sorted(ALL_STRUCTS.keys() - SPARSE))
def test_gaps_between_fields_are_only_those_that_alignment_makes(name: str):
    size, fields = ALL_STRUCTS[name]
    for (offset, width, _), (following, _, field) in pairwise([*fields, (size, 0, "end")]):
        assert following - offset - width < 8, field


@pytest.mark.parametrize("name", nv_structs.BRANCH_SIZES)
def test_size_of_branch_580_is_the_size_in_the_struct_table(name: str):
    assert nv_structs.BRANCH_SIZES[name][580] == ALL_STRUCTS[name][0]


@pytest.mark.parametrize(
    ("name", "branch"), [(n, b) for n, per_branch in nv_structs.BRANCH_FIELDS.items() for b in per_branch]
)
def test_fields_of_a_branch_variant_fit_its_size(name: str, branch: int):
    size = nv_structs.BRANCH_SIZES[name][branch]
    for (offset, width, field), (following, _, _) in pairwise(
        [*nv_structs.BRANCH_FIELDS[name][branch], (size, 0, "end")]
    ):
        assert 0 <= following - offset - width < 8, field


@pytest.mark.parametrize(
    ("outer", "field", "inner"),
    [
        ("nv_ioctl_nvos02_parameters_with_fd", "params.", "NVOS02_PARAMETERS"),
        ("nv_ioctl_nvos33_parameters_with_fd", "params.", "NVOS33_PARAMETERS"),
        ("NV_CHANNEL_ALLOC_PARAMS", "userdMem.", "NV_MEMORY_DESC_PARAMS"),
        ("NV_CHANNEL_ALLOC_PARAMS", "errorNotifierMem.", "NV_MEMORY_DESC_PARAMS"),
        ("NV2080_CTRL_GR_GET_INFO_PARAMS", "grRouteInfo.", "NV2080_CTRL_GR_ROUTE_INFO"),
        ("NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS", "mmuFault.", "NV83DE_MMU_FAULT_INFO"),
    ],
)
def test_embedded_struct_has_the_layout_of_the_struct_alone(outer: str, field: str, inner: str):
    parts = [(o, w, n.removeprefix(field)) for o, w, n in ALL_STRUCTS[outer][1] if n.startswith(field)]
    assert tuple((o - parts[0][0], w, n) for o, w, n in parts) == ALL_STRUCTS[inner][1]


@pytest.mark.parametrize(
    ("outer", "field", "element"),
    [
        (
            "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS",
            "perGpuAttributes[256]",
            ALL_STRUCTS["UvmGpuMappingAttributes"][0],
        ),
        (
            "UVM_ALLOC_SEMAPHORE_POOL_PARAMS",
            "perGpuAttributes[256]",
            ALL_STRUCTS["UvmGpuMappingAttributes"][0],
        ),
        (
            "NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS",
            "smErrorStateArray[100]",
            ALL_STRUCTS["NV83DE_SM_ERROR_STATE_REGISTERS"][0],
        ),
        (
            "NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS",
            "globalSmId[512]",
            2 * len(nv_structs.GLOBAL_SM_ORDER_ENTRY),
        ),
        ("NV2080_CTRL_GPU_GET_INFO_V2_PARAMS", "gpuInfoList[70]", ALL_STRUCTS["NV2080_CTRL_GR_INFO"][0]),
        ("NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS", "classList[200]", 4),
    ],
)
def test_array_is_as_long_as_its_elements(outer: str, field: str, element: int):
    (width,) = (w for _, w, n in ALL_STRUCTS[outer][1] if n == field)
    assert width == element * int(field.rstrip("]").split("[")[1])


def test_prose_on_channels_gives_the_offsets_of_the_struct_table():
    offsets = {n.split("[")[0]: o for o, _, n in ALL_STRUCTS["NV_CHANNEL_ALLOC_PARAMS"][1]}
    assert {n: offsets[n] for n in nv_structs.CHANNEL_FIELDS} == nv_structs.CHANNEL_FIELDS


def test_userd_fields_are_where_the_prose_puts_them():
    size, fields = ALL_STRUCTS["HopperAControlGPFifo"]
    offsets = {n: o for o, _, n in fields}
    assert (offsets["GPGet"], offsets["GPPut"], size) == (
        nv_structs.USERD_GP_GET,
        nv_structs.USERD_GP_PUT,
        nv_structs.USERD_SIZE,
    )


@pytest.mark.parametrize("name", [n for n, (_, struct, _) in nv_escapes.ESCAPES.items() if struct])
def test_escape_carries_its_struct(name: str):
    _, struct, size = nv_escapes.ESCAPES[name]
    assert struct is not None
    assert size in (None, ALL_STRUCTS[struct][0])


def test_escape_numbers_are_distinct():
    assert len({number for number, _, _ in nv_escapes.ESCAPES.values()}) == len(nv_escapes.ESCAPES)


@pytest.mark.parametrize(("name", "size"), nv_escapes.REQUESTS)
def test_request_word_is_direction_size_magic_and_number(name: str, size: int):
    number = nv_escapes.ESCAPES[name][0]
    assert nv_escapes.REQUESTS[name, size] == (
        nv_escapes.DIRECTION << nv_escapes.DIRECTION_SHIFT
        | size << nv_escapes.SIZE_SHIFT
        | nv_escapes.MAGIC << nv_escapes.MAGIC_SHIFT
        | number
    )


@pytest.mark.parametrize("name", [n for n in nv_uvm.COMMANDS if f"{n}_PARAMS" in nv_uvm.STRUCTS])
def test_uvm_command_has_the_size_and_status_place_of_its_struct(name: str):
    _, size, status = nv_uvm.COMMANDS[name]
    struct_size, fields = nv_uvm.STRUCTS[f"{name}_PARAMS"]
    assert (size, status) == (struct_size, next(o for o, _, n in fields if n == "rmStatus"))


@pytest.mark.parametrize("name", nv_uvm.COMMANDS_590)
def test_uvm_command_of_590_agrees_with_the_branch_table(name: str):
    _, size, status = nv_uvm.COMMANDS_590[name]
    assert size == nv_structs.BRANCH_SIZES[f"{name}_PARAMS"][590]
    assert status == next(o for o, _, n in nv_structs.BRANCH_FIELDS[f"{name}_PARAMS"][590] if n == "rmStatus")


def test_control_number_carries_the_class_its_name_starts_with():
    for name, number in nv_controls.COMMANDS.items():
        assert name.startswith(f"NV{number >> 16:04X}_")


def test_sass_version_byte_follows_from_the_sm_version():
    for version, byte in nv_controls.SASS_VERSIONS.items():
        assert byte == (version & 0xF00) >> 4 | version & 0xF


def test_robust_channel_codes_are_distinct_and_cover_the_copy_engines():
    codes = [code for codes in nv_faults.RC_CODES for code in codes]
    assert len(codes) == len(set(codes))
    (copy,) = (codes for codes, meaning in nv_faults.RC_CODES.items() if meaning == "copy engine error")
    assert sorted(copy) == sorted(nv_faults.COPY_ENGINE_CODES.values())
    assert sorted(nv_faults.COPY_ENGINE_CODES) == list(range(20))


@pytest.mark.parametrize("version", QMDS)
def test_qmd_field_lies_in_one_word_and_inside_the_descriptor(version: int):
    qmd = QMDS[version]
    for lo, hi, name, _, values in qmd.ROWS:
        assert lo // 32 == hi // 32, name
        assert hi < qmd.SIZE * 8, name
        assert all(value < 1 << (hi - lo + 1) for value in values or {}), name


def spans(version: int) -> Iterator[tuple[int, int, str]]:
    """Every field of a descriptor version, indexed ones once for each index, without aliases by index."""
    names = {row[2] for row in QMDS[version].ROWS}
    for lo, hi, name, stride, _ in QMDS[version].ROWS:
        count = next(n for prefix, n in INDEXED.items() if name.startswith(prefix)) if stride else 1
        if stride and name.replace("DEPENDENT_QMD_", "DEPENDENT_QMD0_") in names - {name}:
            continue
        for i in range(count):
            yield lo + i * stride, hi + i * stride, f"{name}[{i}]"


@pytest.mark.parametrize("version", QMDS)
def test_qmd_fields_do_not_overlap(version: int):
    ordered = sorted(spans(version))
    for (_, hi, name), (lo, _, following) in pairwise(ordered):
        assert hi < lo, (name, following)


@pytest.mark.parametrize("version", QMDS)
def test_qmd_rows_are_ordered_and_named_once(version: int):
    rows = QMDS[version].ROWS
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert len({row[2] for row in rows}) == len(rows)


def test_qmd_fields_by_index_are_the_numbered_ones():
    rows = {row[2]: row for row in nv_qmd_v05.ROWS}
    for what in ("ENABLE", "ACTION", "PREFETCH", "POINTER"):
        lo, hi, _, stride, _ = rows[f"DEPENDENT_QMD_{what}"]
        for i in range(2):
            assert rows[f"DEPENDENT_QMD{i}_{what}"][:2] == (lo + i * stride, hi + i * stride)


@pytest.mark.parametrize(
    ("version", "place"),
    [(v, p) for v in QMDS for p in getattr(nv_qmd_meanings, f"V0{v}")],
    ids=lambda value: value[0] if isinstance(value, tuple) else f"v{value}",
)
def test_side_by_side_table_and_full_table_put_a_field_at_the_same_bits(
    version: int, place: nv_qmd_meanings.Place
):
    name, lo, width, stride = place
    rows = {row[2]: row for row in QMDS[version].ROWS}
    assert rows[name][:2] == (lo, lo + width - 1)
    assert rows[name][3] == stride


def test_gpfifo_examples_follow_from_the_field_table():
    bits = nv_methods.GPFIFO_ENTRY
    for address, dwords, level, sync, word in nv_methods.GPFIFO_EXAMPLES:
        fields = {"GET": (address & 0xFFFF_FFFF) >> 2, "GET_HI": address >> 32, "LENGTH": dwords}
        fields |= {"LEVEL": level, "SYNC": sync}
        assert word == sum(value << bits[name][0] for name, value in fields.items())


def test_header_examples_follow_from_the_field_table():
    bits = nv_methods.HEADER
    for opcode, subchannel, count, method, word in nv_methods.HEADER_EXAMPLES:
        fields = {"OPCODE": nv_methods.OPCODES[opcode], "COUNT": count, "SUBCHANNEL": subchannel}
        fields["ADDRESS"] = method >> 2
        assert word == sum(value << bits[name][0] for name, value in fields.items())


def test_semaphore_words_follow_from_the_field_table():
    bits = nv_methods.SEM_EXECUTE
    acquire = {
        "OPERATION": nv_methods.SEM_OPERATIONS["ACQ_CIRC_GEQ"],
        "ACQUIRE_SWITCH_TSG": 1,
        "PAYLOAD_SIZE": 1,
    }
    release = {"OPERATION": nv_methods.SEM_OPERATIONS["RELEASE"], "RELEASE_WFI": 1, "PAYLOAD_SIZE": 1}
    release["RELEASE_TIMESTAMP"] = 1
    assert sum(v << bits[n][0] for n, v in acquire.items()) == nv_methods.SEM_ACQUIRE_CIRCULAR_64_SWITCH
    assert sum(v << bits[n][0] for n, v in release.items()) == nv_methods.SEM_RELEASE_64_TIMESTAMP_WFI


def test_launch_recipes_follow_from_the_field_table():
    for word, fields in nv_methods.LAUNCH_RECIPES.items():
        assert word == sum(value << nv_methods.LAUNCH_DMA[name][0] for name, value in fields.items())
    assert (
        sum(
            value << nv_methods.REMAP_COMPONENTS[name][0]
            for name, value in nv_methods.FILL_32_REMAP_FIELDS.items()
        )
        == nv_methods.FILL_32_REMAP
    )


@pytest.mark.parametrize(
    "fields",
    [
        nv_methods.SEM_EXECUTE,
        nv_methods.LAUNCH_DMA,
        nv_methods.REMAP_COMPONENTS,
        nv_methods.HEADER,
        nv_methods.GPFIFO_ENTRY,
        *nv_methods.COMPUTE_FIELDS.values(),
    ],
)
def test_fields_of_a_word_do_not_overlap(fields: dict[str, tuple[int, int]]):
    for (_, hi), (lo, _) in pairwise(sorted(fields.values())):
        assert hi < lo


@pytest.mark.parametrize("table", [nv_methods.HOST, nv_methods.COMPUTE, nv_methods.COPY])
def test_method_offsets_are_distinct_words(table: dict[str, int]):
    assert len(set(table.values())) == len(table)
    assert all(offset % 4 == 0 for offset in table.values())


def test_driver_words_of_bank_0_lie_before_the_parameters_and_apart():
    for arch, words in nv_cubin.BANK0.items():
        wide = [
            (o, o + (8 if n in nv_cubin.BANK0_U64 or n == "constant bank 3" else 4)) for n, o in words.items()
        ]
        for (_, end), (start, _) in pairwise([*sorted(wide), (nv_cubin.PARAMETER_BASE[arch], 0)]):
            assert end <= start


def test_shared_memory_configuration_is_a_quarter_of_the_kib_plus_one():
    for kib, value in nv_cubin.SM_CONFIG_EXAMPLES.items():
        assert kib // 4 + 1 == value
    assert max(nv_cubin.SHARED_CARVEOUTS_KIB["sm_90"]) == 228


def test_examples_of_the_thread_limit_follow_its_formula():
    for registers, threads in nv_cubin.MAX_THREADS.items():
        rounded = -(-registers * 32 // nv_cubin.REGISTER_ALLOCATION) * nv_cubin.REGISTER_ALLOCATION
        assert nv_cubin.REGISTER_FILE // rounded // 4 * 4 * 32 == threads
