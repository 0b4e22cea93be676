"""`hcq.layout.BitStruct`: one declaration builds, packs, decodes, checks and documents."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.layout import BitStruct, Field, Site, bits, const, optional, removed, reserved, split


class Operation(enum.IntEnum):
    ACQUIRE = 0
    RELEASE = 1
    REDUCE = 6


class Flags(enum.IntFlag):
    READ = 1
    WRITE = 2


class Execute(BitStruct, source="a made-up manual"):
    """A semaphore operation."""

    operation: Operation = bits(2, 0)
    wide: bool = optional(4, doc="compare 64 bits")
    flags: Flags = optional(9, 8)
    delta: int = optional(15, 12, signed=True)
    _reserved = reserved(30, 20)
    opcode = const(31, 31, 1)


class Descriptor(BitStruct, words=96):
    """A launch descriptor of 3072 bits."""

    version: int = bits(583, 580)
    program: int = optional(1264, 1216, shift=4)
    prefetch: int = split((287, 256), (2140, 2132), default=0, shift=8)
    valid: tuple[bool, ...] = optional(416, count=8, stride=4)
    constants: tuple[int, ...] = optional(1586, 1536, shift=6, count=8, stride=64)
    last: int = optional(3071, 3064)


class Newer(Descriptor):
    """A later version, as a diff."""

    version: int = bits(587, 584)
    last = removed()
    cluster: int = optional(3071, 3066)


class Packet(BitStruct, words=8, word_bits=64):
    """A packet of eight u64."""

    op: int = bits(7, 0)
    address: int = bits(63, 0, word=1)
    both: int = optional(95, 32, word=6)


LAYOUTS = (Execute, Descriptor, Newer, Packet)


def legal(field: Field) -> st.SearchStrategy:
    lowest, highest = field.bounds
    one = st.integers(lowest >> field.shift, highest >> field.shift).map(lambda v: v << field.shift)
    return one if field.count == 1 else st.lists(one, max_size=field.count).map(tuple)


def arguments(layout: type[BitStruct]) -> st.SearchStrategy:
    fields = layout.FIELDS.items()
    required = {name: legal(f) for name, f in fields if not isinstance(f.default, (int, tuple))}
    given_too = {name: legal(f) for name, f in fields if name not in required}
    return st.fixed_dictionaries(required, optional=given_too)


@given(st.sampled_from(LAYOUTS).flatmap(lambda k: st.tuples(st.just(k), arguments(k))))
def test_pack_equals_the_object_path(case: Any):
    layout, values = case
    assert list(layout.pack(**values)) == layout(**values).to_words()


@pytest.mark.slow
@given(st.sampled_from(LAYOUTS).flatmap(lambda k: st.tuples(st.just(k), arguments(k))))
def test_decoding_inverts_packing(case: Any):
    layout, values = case
    packet = layout.from_words(layout.pack(**values))
    for name, value in values.items():
        field = layout.FIELDS[name]
        want = value if field.count == 1 else (*value, *(0,) * (field.count - len(value)))
        assert getattr(packet, name) == want
    assert packet == layout(**values)
    assert layout.from_bytes(packet.to_bytes()) == packet


@given(
    st.sampled_from(LAYOUTS).flatmap(
        lambda k: st.tuples(
            st.just(k), arguments(k), st.sampled_from(list(k.FIELDS)), st.integers(-(1 << 70), 1 << 70)
        )
    )
)
def test_both_paths_refuse_the_same_values(case: Any):
    layout, values, name, value = case
    field = layout.FIELDS[name]
    lowest, highest = field.bounds
    fits = lowest <= value <= highest and not value % (1 << field.shift)
    values = values | {name: value if field.count == 1 else (0, value)}
    for make in (layout, layout.pack):
        if fits:
            make(**values)
        else:
            with pytest.raises(UsageError, match=f"{layout.__name__}.{name} = "):
                make(**values)


@given(
    st.sampled_from(LAYOUTS).flatmap(
        lambda k: st.tuples(st.just(k), st.sampled_from(list(k.FIELDS)), st.integers(0, (1 << 70) - 1))
    )
)
def test_sites_locate_a_value(case: Any):
    layout, name, value = case
    field = layout.FIELDS[name]
    value &= field.bounds[1]
    value = value >> field.shift << field.shift
    zeros = {n: 0 for n, f in layout.FIELDS.items() if not isinstance(f.default, (int, tuple))}
    words = list(layout.pack(**zeros))
    for site in layout.sites(name, field.count - 1):
        words[site.word] |= (value >> site.shift & ((1 << site.width) - 1)) << site.lo
    want = value if field.count == 1 else (*(0,) * (field.count - 1), value)
    if not field.signed:
        assert layout.from_words(words) == layout(**zeros | {name: want})


def test_a_split_field_has_a_site_for_each_run():
    assert Descriptor.sites("prefetch") == (Site(8, 0, 32, 8), Site(66, 20, 9, 40))


def test_fields_read_as_their_declared_types():
    packet = Execute(operation=Operation.RELEASE, wide=True, flags=Flags.READ | Flags.WRITE, delta=-3)
    assert packet.operation is Operation.RELEASE
    assert packet.wide is True
    assert packet.flags == Flags.READ | Flags.WRITE
    assert packet.delta == -3
    assert packet.opcode == 1


def test_check_names_every_broken_rule():
    raw = int(Execute(operation=Operation.RELEASE)) & ~(1 << 31) | 5 | 1 << 25 | 1 << 17
    broken = {(violation.field, violation.rule) for violation in Execute.from_int(raw).check()}
    assert broken == {
        ("operation", "not a Operation"),
        ("_reserved", "must be 0x0"),
        ("opcode", "must be 0x1"),
        ("bit 17 of word 0", "no field declares it, it must be 0"),
    }


def test_packed_layouts_have_no_violation():
    assert Execute.from_words(Execute.pack(operation=1)).check() == []


def test_a_newer_layout_is_the_diff_of_the_older():
    assert "last" not in Newer.FIELDS
    assert Newer(version=5).to_words()[18] == 5 << 8
    assert Newer.sites("program") == Descriptor.sites("program")


def test_replace_keeps_the_other_fields_and_stray_bits():
    packet = Execute.from_int(int(Execute(operation=1, delta=-1)) | 1 << 17)
    assert int(packet.replace(wide=True)) == int(packet) | 1 << 4


def test_missing_and_unknown_fields_are_refused_by_name():
    with pytest.raises(TypeError, match="Execute needs operation"):
        Execute()
    with pytest.raises(TypeError, match="no field colour; it has: operation"):
        Execute(operation=1, colour=2)


def test_too_many_elements_are_refused_on_both_paths():
    for make in (Descriptor, Descriptor.pack):
        with pytest.raises(UsageError, match="valid has 8 elements, 9 were given"):
            make(version=1, valid=(1,) * 9)


def test_a_float_is_refused_on_both_paths():
    for make in (Execute, Execute.pack):
        with pytest.raises(TypeError):
            make(operation=1.0)


def test_overlapping_fields_are_a_type_error():
    with pytest.raises(TypeError, match=r"Broken\.second: bits 4:3 overlap"):
        type("Broken", (BitStruct,), {"__annotations__": {}, "first": bits(3, 0), "second": bits(4, 3)})


def test_a_field_beyond_the_layout_is_a_type_error():
    with pytest.raises(TypeError, match="exceed 32 bits"):
        type("Broken", (BitStruct,), {"__annotations__": {}, "field": bits(32)})


def test_a_field_may_not_take_a_name_of_the_base():
    with pytest.raises(TypeError, match="belongs to every layout"):
        type("Broken", (BitStruct,), {"__annotations__": {}, "check": bits(1, 0)})


def test_wrong_number_of_words_is_refused():
    with pytest.raises(UsageError, match="Execute is 1 words of 32 bits, 2 were given"):
        Execute.from_words([1, 2])


def test_repr_shows_names_and_leaves_defaults_out():
    assert (
        repr(Execute(operation=Operation.REDUCE, delta=-2)) == "Execute(operation=Operation.REDUCE, delta=-2)"
    )


def test_markdown_lists_source_and_fields():
    text = Execute.markdown()
    assert "Source: a made-up manual" in text
    assert "| 4 | `wide` | bool | compare 64 bits |" in text


def test_objects_match_patterns_and_hash_by_value():
    assert len({Execute(operation=1), Execute(operation=1), Execute(operation=0)}) == 2
    match Execute(operation=Operation.RELEASE):
        case Execute(operation=Operation.RELEASE):
            pass
        case _:
            pytest.fail("the pattern did not match")
