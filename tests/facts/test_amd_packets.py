"""The driver's PM4 and SDMA packets are those of the facts: every field of either stands in the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import pm4, pm4_generations, sdma
from tests.facts import amd_pm4, amd_sdma
from tests.facts.layout_probe import bit_ranges

if TYPE_CHECKING:
    import enum

    from hcq.layout import BitStruct

Field = tuple[int, int, int]
GENERATIONS = {9: "gfx9", 10: "gfx10", 11: "gfx11", 12: "gfx12"}


def values(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def absolute(fields: dict[str, Field]) -> dict[str, tuple[int, int]]:
    """Return bits counted from bit 0 of the packet; SIZE is a property of every layout, so it is IB_SIZE."""
    return {
        "IB_SIZE" if name == "SIZE" else name: (32 * dword + lo, 32 * dword + hi)
        for name, (dword, lo, hi) in fields.items()
    }


def singles(bits: dict[str, int], dword: int) -> dict[str, Field]:
    return {name: (dword, bit, bit) for name, bit in bits.items()}


HEADER_FIELDS: dict[str, Field] = {name: (0, *amd_pm4.HEADER[name]) for name in ("TYPE", "COUNT", "OPCODE")}
"""Of packets with data behind them, whose length is not fixed."""


def release_bits(number: int) -> dict[str, Field]:
    table = dict(amd_pm4.RELEASE_CACHE_BITS["gfx11" if number == 10 else GENERATIONS[number]])
    if number == 10:
        for name in amd_pm4.GFX10_LACKS:
            del table[name]
    return {name: (1, lo, hi) for name, (lo, hi) in table.items()}


def pm4_facts(number: int) -> dict[str, dict[str, Field]]:
    acquire = dict(amd_pm4.ACQUIRE_MEM)
    if number == 9:
        acquire |= singles(amd_pm4.COHER_CNTL_GFX9, 1)
    else:
        acquire["GCR_CNTL"] = (amd_pm4.GCR_CNTL_DWORD, 0, max(hi for _, hi in amd_pm4.GCR_CNTL.values()))
    return {
        "WAIT_REG_MEM": amd_pm4.WAIT_REG_MEM,
        "EVENT_WRITE": amd_pm4.EVENT_WRITE,
        "PRED_EXEC": amd_pm4.PRED_EXEC,
        "INDIRECT_BUFFER": amd_pm4.INDIRECT_BUFFER,
        "DISPATCH_DIRECT": amd_pm4.DISPATCH_DIRECT,
        "WRITE_DATA": {**HEADER_FIELDS, **amd_pm4.WRITE_DATA},
        "COPY_DATA": amd_pm4.COPY_DATA,
        "DMA_DATA": amd_pm4.DMA_DATA,
        "ATOMIC_MEM": amd_pm4.ATOMIC_MEM,
        "SET_SH_REG": {**HEADER_FIELDS, **amd_pm4.SET_REG},
        "ACQUIRE_MEM": acquire,
        "RELEASE_MEM": {**amd_pm4.RELEASE_MEM, **release_bits(number)},
    }


@pytest.mark.parametrize("number", GENERATIONS)
def test_packets_of_a_generation_have_the_fields_of_the_facts(number: int):
    layouts = {pm4.Opcode(op).name: layout for op, layout in pm4_generations.packets(number).items()}
    assert {name: bit_ranges(layout) for name, layout in layouts.items()} == {
        name: absolute(fields) for name, fields in pm4_facts(number).items()
    }


def fixed_words(layout: type[BitStruct]) -> dict[tuple[int, int], int]:
    return {field.runs[0]: field.default for field in layout.FIXED.values()}


@pytest.mark.parametrize("number", GENERATIONS)
def test_ready_made_headers_and_lengths(number: int):
    layouts = pm4_generations.packets(number)
    for packet, (opcode, word, dwords) in amd_pm4.HEADERS.items():
        if packet.startswith("ACQUIRE_MEM") and packet.endswith("gfx9") != (number == 9):
            continue
        layout = layouts[pm4.Opcode[opcode]]
        assert 4 * dwords == layout.SIZE, packet
        assert fixed_words(layout) == {(0, 32): word}, packet
        assert pm4.header(pm4.Opcode[opcode], dwords) == word, packet
    assert layouts[pm4.Opcode.DMA_DATA].SIZE == 4 * amd_pm4.DMA_DATA_DWORDS
    acquire = layouts[pm4.Opcode.ACQUIRE_MEM]
    assert 4 * amd_pm4.ACQUIRE_MEM_DWORDS[GENERATIONS[number]] == acquire.SIZE


def test_header_and_cache_word():
    assert bit_ranges(pm4.Header) == amd_pm4.HEADER
    assert pm4.Header.FIELDS["TYPE"].default == amd_pm4.TYPE_3 == pm4.TYPE_3
    assert bit_ranges(pm4_generations.GcrCntl) == amd_pm4.GCR_CNTL


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (pm4.Opcode, amd_pm4.OPCODES),
        (pm4.Event, amd_pm4.EVENT_TYPES),
        (pm4.DataSel, amd_pm4.DATA_SEL),
        (pm4.IntSel, amd_pm4.INT_SEL),
        (pm4.ReleaseDst, amd_pm4.DST_SEL),
        (pm4.Function, amd_pm4.FUNCTIONS),
        (pm4.MemSpace, amd_pm4.MEM_SPACES),
        (pm4.WaitOperation, amd_pm4.WAIT_OPERATIONS),
        (pm4.WriteDst, {**amd_pm4.WRITE_DATA_DST, **amd_pm4.COPY_DATA_DST}),
        (pm4.CopySrc, amd_pm4.COPY_DATA_SRC),
        (pm4.DmaSrc, amd_pm4.DMA_DATA_SRC),
        (pm4.DmaDst, amd_pm4.DMA_DATA_DST),
        (pm4.AtomicCommand, amd_pm4.ATOMIC_COMMANDS),
        (pm4.Sequence, amd_pm4.GCR_SEQUENCES),
        (sdma.Op, amd_sdma.OPS),
        (sdma.Function, amd_sdma.FUNCTIONS),
    ],
)
def test_values_have_the_names_and_numbers_of_the_facts(kind: type[enum.IntEnum], table: dict[str, int]):
    assert values(kind) == table


def test_event_indices():
    assert values(pm4.EventIndex) == {
        "CS_PARTIAL_FLUSH": amd_pm4.CS_PARTIAL_FLUSH_INDEX,
        "END_OF_PIPE": amd_pm4.EVENT_INDEX_END_OF_PIPE,
        "SHADER_DONE": amd_pm4.EVENT_INDEX_SHADER_DONE,
    }


def test_partial_flush_is_the_worked_word():
    flush = pm4.EventWrite(EVENT_TYPE=pm4.Event.CS_PARTIAL_FLUSH, EVENT_INDEX=pm4.EventIndex.CS_PARTIAL_FLUSH)
    _, header, _ = amd_pm4.HEADERS["EVENT_WRITE"]
    assert flush.to_words() == [header, amd_pm4.CS_PARTIAL_FLUSH_WORD]


def test_numbers_of_pm4():
    assert pm4.NOP_ONE_DWORD == amd_pm4.NOP_ONE_DWORD
    assert pm4.NOP_COUNT_ONE_DWORD == amd_pm4.NOP_COUNT_ONE_DWORD
    assert pm4.TYPE_2_FILLER == amd_pm4.TYPE_2_FILLER
    assert pm4.GLI_INV_ALL == amd_pm4.GLI_INV_ALL
    assert pm4.ACQUIRE_POLL_INTERVAL == amd_pm4.ACQUIRE_MEM_POLL_INTERVAL
    assert pm4.WAIT_POLL_INTERVAL == amd_pm4.WAIT_POLL_INTERVAL
    assert pm4.TEMPORAL_HINT == amd_pm4.TEMPORAL_HINT_GFX12
    assert amd_pm4.RELEASE_CACHE_POLICIES["BYPASS"] == pm4.CACHE_BYPASS
    assert pm4.MAX_IB_WORDS == amd_pm4.INDIRECT_BUFFER_DWORDS_MAX
    assert pm4.IB_ALIGN == amd_pm4.INDIRECT_BUFFER_ALIGNMENT
    assert amd_pm4.DATA_ALIGNMENT["FULL_64"] == pm4.RELEASE_ALIGN_64
    assert {GENERATIONS[n]: most for n, most in pm4.MAX_DMA_BYTES.items()} == amd_pm4.DMA_DATA_BYTES_MAX


def sdma_facts(version: tuple[int, ...]) -> dict[str, dict[str, Field]]:
    table = {name: dict(fields) for name, fields in amd_sdma.PACKETS.items()}
    table["GCR_REQ"]["SUB_OP"] = amd_sdma.SUB_OP
    known = version[:2] if version[0] > 4 else version
    table["COPY_LINEAR"]["COUNT_MINUS_ONE"] = (1, 0, amd_sdma.COPY_COUNT_BITS[known] - 1)
    table["CONST_FILL"]["COUNT"] = (4, 0, amd_sdma.FILL_COUNT_BITS[known] - 1)
    if version[0] == 4:
        del table["GCR_REQ"]
        for name in amd_sdma.COPY_FIELDS_SINCE_V5:
            del table["COPY_LINEAR"][name]
        for name in amd_sdma.FENCE_FIELDS_SINCE_V5:
            del table["FENCE"][name]
    return table


SDMA_NAMES = {"COPY": "COPY_LINEAR", "WRITE": "WRITE_UNTILED"}


@pytest.mark.parametrize("version", [(4, 4, 0), (4, 4, 2), (5, 2, 0), (6, 0, 0), (7, 0, 0)])
def test_sdma_packets_of_a_version_have_the_fields_of_the_facts(version: tuple[int, ...]):
    layouts = {}
    for op, layout in sdma.packets(version).items():
        name = sdma.Op(op).name
        layouts[SDMA_NAMES.get(name, name)] = layout
    assert {name: bit_ranges(layout) for name, layout in layouts.items()} == {
        name: absolute(fields) for name, fields in sdma_facts(version).items()
    }
    dwords = {**amd_sdma.DWORDS, "NOP": 1, "WRITE_UNTILED": amd_sdma.WRITE_UNTILED_FIXED_DWORDS}
    assert {name: layout.SIZE // 4 for name, layout in layouts.items()} == {
        name: dwords[name] for name in layouts
    }


@pytest.mark.parametrize("name", amd_sdma.PACKETS)
def test_first_sdma_dword_holds_operation_and_suboperation(name: str):
    short = {long: short for short, long in SDMA_NAMES.items()}
    op = amd_sdma.OPS[short.get(name, name)]
    sub = {"TIMESTAMP": amd_sdma.SUB_OPS["TIMESTAMP_GET_GLOBAL"]}.get(name, 0)
    width = 8 if name == "GCR_REQ" else 16
    assert fixed_words(sdma.packets((6, 0, 0))[op]) == {(0, width): op | sub << amd_sdma.SUB_OP[1]}


def test_head_and_suboperations():
    assert bit_ranges(sdma.Head) == absolute({"OP": amd_sdma.OP, "SUB_OP": amd_sdma.SUB_OP})
    assert values(sdma.SubOp).items() <= amd_sdma.SUB_OPS.items()


def test_numbers_of_sdma():
    assert amd_sdma.OPS["NOP"] == sdma.NOP_WORD
    assert sdma.POLL_FOREVER == amd_sdma.POLL_RETRY_FOREVER
    assert sdma.FENCE_MTYPE_UC == amd_sdma.FENCE_MTYPE_UC
    assert sdma.FILL_SIZE_DWORD == amd_sdma.FILL_SIZE_DWORD
    assert sdma.INDIRECT_ALIGN == amd_sdma.INDIRECT_BASE_ALIGNMENT
    assert sdma.TIMESTAMP_ALIGN == amd_sdma.TIMESTAMP_ALIGNMENT
    assert amd_sdma.DWORDS["INDIRECT"] + amd_sdma.INDIRECT_START_DWORD_MOD_8 == sdma.ALIGN_WORDS
    assert sdma.MAX_INDIRECT_WORDS < 1 << 20
    assert sdma.SMALL_PIECE == amd_sdma.COPY_SPLIT_V4
    assert sdma.LARGE_PIECE == amd_sdma.COPY_SPLIT_V5_2


def test_every_pm4_value_is_encoded_in_its_dword():
    for number in GENERATIONS:
        for op, layout in pm4_generations.packets(number).items():
            name = pm4.Opcode(op).name
            for field, (dword, lo, hi) in pm4_facts(number)[name].items():
                seen = layout.FIELDS["IB_SIZE" if field == "SIZE" else field]
                value = (1 << hi - lo + 1) - 1
                assert seen.insert(value) == value << lo + 32 * dword, (name, field)
