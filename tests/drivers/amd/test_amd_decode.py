"""Decoding names what is no stream, and shows what is."""

from __future__ import annotations

import pytest

from drivers.amd import decode, packets
from drivers.amd.layouts import aql, pm4, pm4_generations, sdma


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
