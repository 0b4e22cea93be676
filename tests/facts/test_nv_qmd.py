"""The launch descriptor layouts put every field of the QMD headers where the headers put it."""

import pytest

from drivers.nv.layouts.qmd import (
    ALIASES,
    ALIGNMENT,
    CARVEOUTS_KIB,
    GROUPS_PER_SM,
    QMDS,
    sass_version,
    sm_config,
)
from tests.facts import nv_controls, nv_cubin, nv_qmd_v03, nv_qmd_v04, nv_qmd_v05
from tests.facts.layout_probe import bit_range

FACTS = {"V03": nv_qmd_v03, "V04": nv_qmd_v04, "V05": nv_qmd_v05}
ROWS = [
    pytest.param(version, row, id=f"{version}-{row[2]}")
    for version, facts in FACTS.items()
    for row in facts.ROWS
]
ENUMS = [
    pytest.param(version, row, id=f"{version}-{row[2]}")
    for version, facts in FACTS.items()
    for row in facts.ROWS
    if row[4] is not None
]
Row = nv_qmd_v03.Row


def places(version: str, header_name: str) -> list[tuple[str, int]]:
    """Return the layout's (field, index) for every index of a name of the header."""
    numbered = ALIASES.get(version, {}).get(header_name)
    if numbered:
        return [(name, 0) for name in numbered]
    fields = QMDS[version].FIELDS | QMDS[version].FIXED
    return [(header_name, i) for i in range(fields[header_name].count)]


@pytest.mark.parametrize("version", FACTS)
def test_descriptor_has_the_size_of_the_header(version: str):
    assert QMDS[version].SIZE == FACTS[version].SIZE
    assert ALIGNMENT == FACTS[version].ALIGNMENT


@pytest.mark.parametrize("version", FACTS)
def test_layout_names_exactly_the_fields_of_the_header(version: str):
    seen = {n for n in QMDS[version].FIELDS | QMDS[version].FIXED if not n.startswith("_")}
    assert seen | set(ALIASES.get(version, {})) == {row[2] for row in FACTS[version].ROWS}


@pytest.mark.parametrize(("version", "row"), ROWS)
def test_field_lies_at_the_bits_of_the_header(version: str, row: Row):
    lo, hi, header_name, stride, _ = row
    found = places(version, header_name)
    assert len(found) > 1 if stride else len(found) == 1
    for i, (name, index) in enumerate(found):
        field = (QMDS[version].FIELDS | QMDS[version].FIXED)[name]
        first, last = (bit + index * field.stride for bit in bit_range(field))
        assert (first, last) == (lo + i * stride, hi + i * stride)


@pytest.mark.parametrize(("version", "row"), ROWS)
def test_encoded_field_sets_its_bits_and_no_other(version: str, row: Row):
    lo, hi, header_name, stride, _ = row
    layout = QMDS[version]
    ones = (1 << hi - lo + 1) - 1
    for i, (name, index) in enumerate(places(version, header_name)):
        field = layout.FIELDS[name]
        values = [0] * field.count
        values[index] = ones << field.shift
        value = values[0] if field.count == 1 else tuple(values)
        mask = ones << lo + i * stride
        assert int(layout(**{name: value})) == int(layout()) & ~mask | mask
        words = layout.pack(**{name: value})
        assert sum(word << 32 * n for n, word in enumerate(words)) == int(layout()) & ~mask | mask


@pytest.mark.parametrize(("version", "row"), ENUMS)
def test_values_of_a_field_have_the_names_of_the_header(version: str, row: Row):
    for name, _ in places(version, row[2]):
        assert {int(v): v.name for v in QMDS[version].FIELDS[name].type} == row[4]


@pytest.mark.parametrize("version", FACTS)
def test_empty_descriptor_holds_its_version_alone(version: str):
    facts = FACTS[version]
    rows = {row[2]: row for row in facts.ROWS}
    minor = rows.get("QMD_MINOR_VERSION") or rows["QMD_VERSION"]
    stamp = facts.MINOR_VERSION << minor[0] | facts.MAJOR_VERSION << rows["QMD_MAJOR_VERSION"][0]
    assert int(QMDS[version]()) == stamp


@pytest.mark.parametrize("arch", nv_cubin.SHARED_CARVEOUTS_KIB)
def test_carve_outs_are_those_of_the_architecture(arch: str):
    assert CARVEOUTS_KIB[arch] == nv_cubin.SHARED_CARVEOUTS_KIB[arch]
    assert GROUPS_PER_SM[arch] == nv_cubin.GROUPS_PER_SM[arch]


@pytest.mark.parametrize("kib", nv_cubin.SM_CONFIG_EXAMPLES)
def test_code_of_a_carve_out(kib: int):
    assert sm_config(kib) == nv_cubin.SM_CONFIG_EXAMPLES[kib]


@pytest.mark.parametrize("version", nv_controls.SASS_VERSIONS)
def test_sass_version_of_an_sm_version(version: int):
    assert sass_version(version) == nv_controls.SASS_VERSIONS[version]
