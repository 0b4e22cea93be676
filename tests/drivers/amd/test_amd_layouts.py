"""AMD layouts: each packs as its object does and reads back; streams are decoded, and other data refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from drivers.amd import decode, packets
from drivers.amd.layouts import aql, code, pm4, pm4_generations, registers, sdma
from hcq.layout import BitStruct

LAYOUTS = sorted(
    {
        one
        for module in (pm4, registers, aql, sdma, code)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, BitStruct) and one is not BitStruct
    },
    key=lambda one: f"{one.__module__}.{one.__name__}",
)


def values_of(layout: type[BitStruct], draw: random.Random) -> dict[str, Any]:
    """Return legal values of all fields, extremes among them."""
    values: dict[str, Any] = {}
    for name, field in layout.FIELDS.items():
        lowest, highest = field.bounds
        legal = [member.value for member in field.type] if hasattr(field.type, "__members__") else []
        pick = legal or [lowest, highest, draw.randint(lowest, highest)]
        one = tuple(draw.choice(pick) for _ in range(field.count))
        values[name] = one if field.count > 1 else one[0]
    return values


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_pack_equals_the_object_and_reads_back(layout: type[BitStruct]):
    draw = random.Random(layout.__name__)
    for _ in range(20):
        values = values_of(layout, draw)
        packed = layout.pack(**values)
        packet = layout(**values)
        assert list(packed) == packet.to_words()
        assert layout.from_words(packed) == packet
        assert {name: getattr(packet, name) for name in values} == values
        assert packet.check() == []


def test_shorter_packets_of_newer_engines_drop_fields():
    old, new = sdma.packets((4, 4, 2)), sdma.packets((7, 0, 0))
    assert set(new) - set(old) == {sdma.Op.GCR_REQ}
    assert set(new[sdma.Op.FENCE].FIELDS) - set(old[sdma.Op.FENCE].FIELDS) == {"MTYPE", "SYS", "SNOOP"}
    assert sdma.packets((5, 2, 0))[sdma.Op.CONST_FILL] is old[sdma.Op.CONST_FILL]


def test_words_that_are_no_pm4_packet_are_named():
    with pytest.raises(ValueError, match=r"word 2 \(0x40001000\) is no PM4 packet"):
        list(decode.pm4_packets([*packets.FLUSH, 0x4000_1000], 11))
    with pytest.raises(ValueError, match="no PM4 packet of gfx11"):
        list(decode.pm4_packets([pm4.header(pm4.Opcode.HDP_FLUSH, 2), 0], 11))
    with pytest.raises(ValueError, match="needs 1 more words, 0 are left"):
        list(decode.pm4_packets(packets.FLUSH[:1], 11))


def test_length_of_acquire_distinguishes_generations():
    short = pm4_generations.AcquireMemGfx9.pack(SIZE_LO=0, SIZE_HI=0, POLL_INTERVAL=0)
    assert len(list(decode.pm4_packets(short, 9))) == 1
    with pytest.raises(ValueError, match="7 words, AcquireMem has 8"):
        list(decode.pm4_packets(short, 12))


def test_bits_of_another_generation_are_no_packet():
    words = pm4_generations.ReleaseMemGfx11.pack(
        EVENT_TYPE=pm4.Event.CACHE_FLUSH_AND_INV_TS, EVENT_INDEX=pm4.EventIndex.END_OF_PIPE,
        INT_SEL=pm4.IntSel.NONE, DATA_SEL=pm4.DataSel.NONE, ADDRESS_LO=0, ADDRESS_HI=0, DATA_LO=0, DATA_HI=0,
        INT_CTXID=0, GL1_INV=True,
    )  # fmt: skip
    assert "GL1_INV=1" in decode.pm4_text(words, 11)[0]
    with pytest.raises(ValueError, match="bit 15 of word 1"):
        decode.pm4_text(words, 12)


def test_writes_to_registers_that_do_not_exist_are_named():
    words = packets.set_registers(0x2F0, 1)
    with pytest.raises(ValueError, match="gfx12 has no compute register at 0x2f0"):
        decode.pm4_text(words, 12)


def test_one_dword_nops_are_packets():
    words = [pm4.NOP_ONE_DWORD] * 2 + [pm4.header(pm4.Opcode.NOP, 3), 5, 6]
    assert [(p.at, p.end, p.data) for p in decode.pm4_packets(words, 9)] == [
        (0, 1, ()),
        (1, 2, ()),
        (2, 5, (5, 6)),
    ]


def test_words_that_are_no_aql_packet_are_named():
    with pytest.raises(ValueError, match="begins no AQL packet"):
        decode.aql_text([aql.Type.INVALID, *[0] * 15], 9)
    with pytest.raises(ValueError, match="begins no AQL packet"):
        decode.aql_text(aql.BarrierAnd.pack()[:8], 9)
    (line,) = decode.aql_text(aql.BarrierAnd.pack(DEP_SIGNAL=(0x40,), BARRIER=True), 9)
    assert line == "BarrierAnd BARRIER=1 DEP_SIGNAL=[0x40, 0, 0, 0, 0]"


def test_words_that_are_no_sdma_packet_are_named():
    with pytest.raises(ValueError, match="no SDMA packet of v4"):
        list(decode.sdma_packets([sdma.Op.GCR_REQ, 0, 0, 0, 0], (4, 4, 2)))
    with pytest.raises(ValueError, match="needs 4 words, 2 are left"):
        list(decode.sdma_packets([sdma.Op.FENCE, 0], (6, 0, 0)))
    with pytest.raises(ValueError, match="bit 16 of word 0"):
        list(decode.sdma_packets([sdma.Op.FENCE | 3 << 16, 0, 0, 0], (4, 4, 2)))


def test_data_of_sdma_writes_belongs_to_them():
    words = [*sdma.WriteUntiled.pack(DST_LO=0x100, DST_HI=0, COUNT_MINUS_ONE=1), 5, 6, sdma.NOP_WORD]
    write, nop = decode.sdma_packets(words, (7, 0, 0))
    assert (write.data, nop.at) == ((5, 6), 6)
    skipping = [int(sdma.Nop(COUNT=2)), 0xFFFF_FFFF, 0xFFFF_FFFF, sdma.NOP_WORD]
    assert [p.at for p in decode.sdma_packets(skipping, (7, 0, 0))] == [0, 3]
