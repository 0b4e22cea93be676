"""The launch descriptor layouts put every field of the QMD headers where the headers put it."""

import pytest

from drivers.nv.layouts.chips import CHIPS
from drivers.nv.layouts.qmd import ALIASES, ALIGNMENT, QMDS, sass_version, sm_config
from tests.facts import nv_controls, nv_cubin, nv_qmd_v03, nv_qmd_v04, nv_qmd_v05
from tests.facts.layout_probe import bit_range

FACTS = {"V03": nv_qmd_v03, "V04": nv_qmd_v04, "V05": nv_qmd_v05}
ROWS = [(version, *row, *(0, None)[len(row) - 3 :]) for version, facts in FACTS.items() for row in facts.ROWS]
"""Rows of the tables; a stride of 0 and no names are left out there."""


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


def test_every_field_has_the_bits_of_the_header():
    seen, want = {}, {}
    for version, lo, hi, header_name, stride, _ in ROWS:
        found = places(version, header_name)
        assert (len(found) > 1) == bool(stride), (version, header_name)
        for i, (name, index) in enumerate(found):
            field = (QMDS[version].FIELDS | QMDS[version].FIXED)[name]
            first, last = bit_range(field)
            seen[version, header_name, i] = (first + index * field.stride, last + index * field.stride)
            want[version, header_name, i] = (lo + i * stride, hi + i * stride)
    assert len(seen) >= len(ROWS)
    assert seen == want


def test_every_encoded_field_sets_its_bits_alone():
    wrong = []
    for version, lo, hi, header_name, stride, _ in ROWS:
        layout = QMDS[version]
        ones = (1 << hi - lo + 1) - 1
        for i, (name, index) in enumerate(places(version, header_name)):
            field = layout.FIELDS[name]
            values = [0] * field.count
            values[index] = ones << field.shift
            value = values[0] if field.count == 1 else tuple(values)
            mask = ones << lo + i * stride
            want = int(layout()) & ~mask | mask
            packed = sum(word << 32 * n for n, word in enumerate(layout.pack(**{name: value})))
            if (int(layout(**{name: value})), packed) != (want, want):
                wrong.append((version, name, index))
    assert wrong == []


def test_field_values_have_the_names_of_the_header():
    seen, want = {}, {}
    for version, _, _, header_name, _, names in ROWS:
        for name, _ in places(version, header_name) if names is not None else ():
            seen[version, header_name, name] = {int(v): v.name for v in QMDS[version].FIELDS[name].type}
            want[version, header_name, name] = names
    assert len(seen) >= 49
    assert seen == want


@pytest.mark.parametrize("version", FACTS)
def test_empty_descriptor_holds_its_version_alone(version: str):
    facts = FACTS[version]
    rows = {row[2]: row for row in facts.ROWS}
    minor = rows.get("QMD_MINOR_VERSION") or rows["QMD_VERSION"]
    stamp = facts.MINOR_VERSION << minor[0] | facts.MAJOR_VERSION << rows["QMD_MAJOR_VERSION"][0]
    assert int(QMDS[version]()) == stamp


@pytest.mark.parametrize("arch", nv_cubin.SHARED_CARVEOUTS_KIB)
def test_carve_outs_are_those_of_the_architecture(arch: str):
    assert CHIPS[arch].carveouts_kib == nv_cubin.SHARED_CARVEOUTS_KIB[arch]
    assert CHIPS[arch].groups == nv_cubin.GROUPS_PER_SM[arch]


@pytest.mark.parametrize("kib", nv_cubin.SM_CONFIG_EXAMPLES)
def test_code_of_a_carve_out(kib: int):
    assert sm_config(kib) == nv_cubin.SM_CONFIG_EXAMPLES[kib]


@pytest.mark.parametrize("version", nv_controls.SASS_VERSIONS)
def test_sass_version_of_an_sm_version(version: int):
    assert sass_version(version) == nv_controls.SASS_VERSIONS[version]
