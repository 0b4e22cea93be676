"""Every AMD layout packs as its object does, reads back what it was given, and has its header."""

from __future__ import annotations

import random
from typing import Any

import pytest

from drivers.amd.layouts import aql, code, pm4, pm4_generations, registers, sdma
from hcq.layout import BitStruct
from tests.facts import amd_pm4

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


@pytest.mark.parametrize("name", sorted(amd_pm4.HEADERS))
def test_packets_of_fixed_length_begin_with_their_header(name: str):
    opcode, word, dwords = amd_pm4.HEADERS[name]
    for generation in {"gfx9": (9,), "gfx10": (10, 11, 12)}.get(name.partition(" ")[2], (9, 10, 11, 12)):
        layout = pm4_generations.packets(generation)[pm4.Opcode[opcode]]
        assert dwords == layout.WORDS
        assert layout.FIXED["_header"].default == word


def test_shorter_packets_of_newer_engines_drop_fields():
    old, new = sdma.packets((4, 4, 2)), sdma.packets((7, 0, 0))
    assert set(new) - set(old) == {sdma.Op.GCR_REQ}
    assert set(new[sdma.Op.FENCE].FIELDS) - set(old[sdma.Op.FENCE].FIELDS) == {"MTYPE", "SYS", "SNOOP"}
    assert sdma.packets((5, 2, 0))[sdma.Op.CONST_FILL] is old[sdma.Op.CONST_FILL]
