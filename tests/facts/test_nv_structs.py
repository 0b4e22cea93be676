"""The NVIDIA byte layouts have the sizes, fields and offsets of the vendor's headers, on every branch."""

import pytest

from drivers.nv.layouts import branches
from tests.facts import nv_controls, nv_structs, nv_uvm
from tests.facts.layout_probe import encoded, expected, integers, leaves

FACTS = {
    **nv_structs.FRONTEND,
    **nv_structs.ALLOCATION,
    **nv_structs.OTHER,
    **nv_uvm.STRUCTS,
    **nv_controls.STRUCTS,
}
LAYOUTS = branches.STRUCTS[580]
VARIANTS = [(n, b) for n, per_branch in nv_structs.BRANCH_FIELDS.items() for b in per_branch]


def test_every_known_branch_has_a_table():
    assert set(branches.STRUCTS) == {570, 580, 590, 595}


@pytest.mark.parametrize("name", FACTS)
def test_size_is_the_vendors(name: str):
    assert FACTS[name][0] == LAYOUTS[name].SIZE


@pytest.mark.parametrize("name", FACTS)
def test_fields_have_the_vendors_names_offsets_and_sizes(name: str):
    facts, seen = expected(FACTS[name][1]), leaves(LAYOUTS[name])
    assert {n: leaf[:2] for n, leaf in seen.items()} == {n: leaf[:2] for n, leaf in facts.items()}


@pytest.mark.parametrize("name", [n for n in FACTS if any("[" in field for _, _, field in FACTS[n][1])])
def test_arrays_have_the_vendors_number_of_elements(name: str):
    seen = leaves(LAYOUTS[name])
    for field, leaf in expected(FACTS[name][1]).items():
        if leaf.elements > 1:
            assert seen[field].elements == leaf.elements, field


@pytest.mark.parametrize("name", FACTS)
def test_an_encoded_number_stands_where_the_vendor_reads_it(name: str):
    size, _ = FACTS[name]
    facts = expected(FACTS[name][1])
    for field, value in integers(LAYOUTS[name]):
        offset, width, _ = facts[field]
        probe = value & 0x0807_0605_0403_0201
        block = bytearray(size)
        block[offset : offset + width] = probe.to_bytes(width, "little")
        assert encoded(LAYOUTS[name], field, probe) == bytes(block), field


@pytest.mark.parametrize(
    ("name", "branch"), [(n, b) for n, sizes in nv_structs.BRANCH_SIZES.items() for b in sizes]
)
def test_size_on_a_branch_is_the_vendors(name: str, branch: int):
    assert nv_structs.BRANCH_SIZES[name][branch] == branches.STRUCTS[branch][name].SIZE


@pytest.mark.parametrize(("name", "branch"), VARIANTS)
def test_fields_of_a_branch_variant_are_the_vendors(name: str, branch: int):
    facts = expected(nv_structs.BRANCH_FIELDS[name][branch])
    assert leaves(branches.STRUCTS[branch][name]) == facts


@pytest.mark.parametrize("branch", [570, 590, 595])
def test_only_the_listed_structs_differ_between_branches(branch: int):
    differing = {name for name in FACTS if branches.STRUCTS[branch][name].SIZE != LAYOUTS[name].SIZE}
    assert differing == {
        name for name, sizes in nv_structs.BRANCH_SIZES.items() if sizes[branch] != sizes[580]
    }


@pytest.mark.parametrize("branch", [570, 590, 595])
def test_a_struct_of_the_same_size_has_the_same_fields_on_every_branch(branch: int):
    for name in FACTS:
        other = branches.STRUCTS[branch][name]
        if other.SIZE == LAYOUTS[name].SIZE:
            assert leaves(other) == leaves(LAYOUTS[name]), name


def test_branch_610_is_not_known():
    assert branches.branch_of("610.43.02") is None


@pytest.mark.parametrize(
    ("version", "branch"), [("580.159.03", 580), ("570.211.01", 570), ("595.45.04", 595)]
)
def test_branch_is_the_first_part_of_the_version(version: str, branch: int):
    assert branches.branch_of(version) == branch


def test_entry_of_the_global_sm_order_is_nine_half_words():
    entry = leaves(LAYOUTS["NV2080_CTRL_GR_GLOBAL_SM_ID"])
    assert {name: leaf[:2] for name, leaf in entry.items()} == {
        name: (2 * i, 2) for i, name in enumerate(nv_structs.GLOBAL_SM_ORDER_ENTRY)
    }


def test_parameters_of_the_context_buffer_size_are_handle_and_total():
    seen = leaves(LAYOUTS["NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS"])
    fields = tuple((leaf.offset, leaf.size, name) for name, leaf in seen.items())
    assert fields == nv_structs.GR_GET_CTX_BUFFER_SIZE
