"""The cpu device's packets and shared records have the shape that the ring and the patches rely on."""

import ctypes
from itertools import pairwise

import pytest

from drivers.cpu import layouts
from hcq.hostpool import SIGNALS, STAMPS, HostPool
from hcq.layout import BitStruct
from tests.facts import cpu_packets as facts


def by_name(name: str) -> type[BitStruct]:
    return layouts.LAYOUTS[layouts.Op[name]]


@pytest.mark.parametrize("op", layouts.LAYOUTS)
def test_packet_is_one_cache_line_of_eight_words(op: layouts.Op):
    layout = layouts.LAYOUTS[op]
    assert (layout.SIZE, layout.WORDS, layout.WORD_BITS) == (
        facts.PACKET_BYTES,
        facts.PACKET_WORDS,
        8 * facts.WORD_BYTES,
    )


def test_constants_of_packets_are_the_designs():
    assert (layouts.PACKET, layouts.PACKET_WORDS) == (facts.PACKET_BYTES, facts.PACKET_WORDS)
    assert layouts.LINE == facts.PACKET_BYTES
    assert layouts.WAITERS == facts.WAITER_COUNTERS


def test_no_packet_straddles_the_end_of_a_ring_that_is_a_power_of_two():
    assert facts.PACKET_BYTES.bit_count() == 1


@pytest.mark.parametrize("name", facts.PACKETS)
def test_packet_of_the_design_exists(name: str):
    assert layouts.Op[name] in layouts.LAYOUTS


@pytest.mark.parametrize("op", layouts.LAYOUTS)
def test_operation_is_all_of_word_0(op: layouts.Op):
    layout = layouts.LAYOUTS[op]
    assert {field.default for field in layout.FIXED.values()} == {int(op)}
    (field,) = layout.FIXED.values()
    assert field.runs == ((0, 64),)
    assert all(layout.sites(name)[0].word > 0 for name in layout.FIELDS)


@pytest.mark.parametrize("op", layouts.LAYOUTS)
def test_no_two_operands_share_a_word(op: layouts.Op):
    layout = layouts.LAYOUTS[op]
    words = [site.word for name in layout.FIELDS for site in layout.sites(name)]
    assert len(words) == len(set(words))


def test_operations_are_distinct():
    assert len({int(op) for op in layouts.LAYOUTS}) == len(layouts.LAYOUTS)


@pytest.mark.parametrize("name", facts.OPERANDS)
def test_operands_stand_in_the_order_of_the_design(name: str):
    layout = by_name(name)
    assert tuple(layout.FIELDS) == facts.OPERANDS[name]
    for word, field in enumerate(facts.OPERANDS[name], 1):
        (site,) = layout.sites(field)
        assert (site.word, site.lo) == (word, 0)


@pytest.mark.parametrize("word", range(1, 7))
def test_a_patch_offset_is_64_a_packet_and_8_a_word(word: int):
    place = layouts.place_of(by_name("EXEC"), facts.OPERANDS["EXEC"][word - 1])
    assert place is not None
    assert (place.offset, place.lo) == (facts.WORD_BYTES * word, 0)


def test_exec_encodes_to_the_designed_packets():
    packet = by_name("EXEC")(**dict(zip(facts.OPERANDS["EXEC"], facts.EXAMPLE_EXEC, strict=True)))
    assert packet.to_words() == [int(layouts.Op.EXEC), *facts.EXAMPLE_EXEC, 0]


def test_packets_decode_to_what_was_encoded():
    packets = [
        by_name("EXEC")(**dict(zip(facts.OPERANDS["EXEC"], facts.EXAMPLE_EXEC, strict=True))),
        by_name("BARRIER")(),
        by_name("INDIRECT")(packets=0x7F00_0000_3000, count=256),
    ]
    words = [word for packet in packets for word in packet.to_words()]
    assert layouts.decode(words) == packets


def test_an_unknown_operation_decodes_to_a_bare_packet():
    assert type(layouts.decode([0xDEAD, *[0] * 7])[0]) is layouts.Packet


@pytest.mark.parametrize("record", [layouts.Queue, layouts.Pool])
def test_shared_record_is_whole_cache_lines(record: type[layouts.Record]):
    assert record.SIZE % layouts.LINE == 0
    assert all(offset % facts.WORD_BYTES == 0 for offset in record.OFFSETS.values())


def test_host_and_processor_write_different_lines_of_a_queue():
    line = {name: offset // layouts.LINE for name, offset in layouts.Queue.OFFSETS.items()}
    assert line["write"] != line["read"]
    assert len({line["read"], line["ticket"], line["done"], line["function"]}) == 4


@pytest.mark.parametrize("name", facts.FUTEX_WORDS)
def test_words_to_sleep_on_are_in_the_queue(name: str):
    assert name in layouts.Queue.OFFSETS


def test_an_entry_of_a_patch_plan_is_destination_and_slot():
    assert layouts.Pair.OFFSETS == {"destination": 0, "slot": facts.WORD_BYTES}
    assert layouts.Pair.SIZE == 2 * facts.WORD_BYTES


@pytest.mark.parametrize(("pool", "size"), [(SIGNALS, facts.SIGNAL_BYTES), (STAMPS, facts.STAMP_BYTES)])
def test_slots_of_the_process_are_aligned_to_their_size_and_apart(pool: HostPool, size: int):
    slots = [pool.take() for _ in range(100)]
    addresses = sorted(slot[2] for slot in slots)
    for slot in slots:
        slot[3].append(slot)
    assert all(address % size == 0 for address in addresses)
    assert all(b - a >= size for a, b in pairwise(addresses))


def test_value_of_a_signal_is_the_u64_at_the_begin_of_its_slot():
    words, index, address, _ = HostPool(facts.SIGNAL_BYTES).take()
    words[index] = 0x1122_3344_5566_7788
    value = ctypes.c_uint64.from_address(address + facts.SIGNAL_VALUE_OFFSET).value
    assert value == 0x1122_3344_5566_7788
