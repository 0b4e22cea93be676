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


def test_every_known_branch_has_a_table():
    assert set(branches.STRUCTS) == {570, 580, 590, 595}


def test_sizes_match_the_vendor_headers():
    assert {name: LAYOUTS[name].SIZE for name in FACTS} == {name: size for name, (size, _) in FACTS.items()}


def test_fields_have_the_vendors_names_offsets_sizes_and_elements():
    wrong = []
    for name, (_, fields) in FACTS.items():
        facts, seen = expected(fields), leaves(LAYOUTS[name])
        if {n: leaf[:2] for n, leaf in seen.items()} != {n: leaf[:2] for n, leaf in facts.items()}:
            wrong.append(name)
        arrays = {field: leaf.elements for field, leaf in facts.items() if leaf.elements > 1}
        wrong += [(name, field) for field, count in arrays.items() if seen[field].elements != count]
    assert wrong == []


def test_every_integer_is_encoded_at_its_offset():
    wrong = []
    for name, (size, fields) in FACTS.items():
        facts = expected(fields)
        for field, value in integers(LAYOUTS[name]):
            offset, width, _ = facts[field]
            probe = value & 0x0807_0605_0403_0201
            block = bytearray(size)
            block[offset : offset + width] = probe.to_bytes(width, "little")
            if encoded(LAYOUTS[name], field, probe) != bytes(block):
                wrong.append((name, field))
    assert wrong == []


def test_sizes_on_every_branch_match_the_vendor_headers():
    facts = {(n, b): size for n, sizes in nv_structs.BRANCH_SIZES.items() for b, size in sizes.items()}
    assert {(n, b): branches.STRUCTS[b][n].SIZE for n, b in facts} == facts


def test_fields_of_every_branch_variant_match_the_vendor_headers():
    wrong = [
        (name, branch)
        for name, variants in nv_structs.BRANCH_FIELDS.items()
        for branch, fields in variants.items()
        if leaves(branches.STRUCTS[branch][name]) != expected(fields)
    ]
    assert wrong == []


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


@pytest.mark.parametrize(("branch", "words"), [(570, 6), (580, 9), (595, 9)])
def test_entry_of_the_global_sm_order_is_half_words(branch: int, words: int):
    order = branches.STRUCTS[branch]["NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS"]
    entry = leaves(order.FIELDS["globalSmId"].type)
    assert {name: leaf[:2] for name, leaf in entry.items()} == {
        name: (2 * i, 2) for i, name in enumerate(nv_structs.GLOBAL_SM_ORDER_ENTRY[:words])
    }


def test_parameters_of_the_context_buffer_size_are_handle_and_total():
    seen = leaves(LAYOUTS["NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS"])
    fields = tuple((leaf.offset, leaf.size, name) for name, leaf in seen.items())
    assert fields == nv_structs.GR_GET_CTX_BUFFER_SIZE
