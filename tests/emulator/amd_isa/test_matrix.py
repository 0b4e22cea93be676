"""Matrix operations: register maps as AMD's calculator has them, sums of any numbers, and what is refused.

Products whose sums are exact are compared by `test_pcode`.
"""

from __future__ import annotations

import hashlib
import re
import struct

import numpy as np
import pytest

from emulator.amd.isa import accuracy, modes
from emulator.amd.isa.matrix_shapes import BYTES, shape_of
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import read_kernel
from tests.emulator.amd_isa import pcode_matrix
from tests.emulator.amd_isa.pcode_matrix import Form, computed, gathered, number, pair, spread, words_of
from tests.emulator.amd_isa.pcode_tally import refused
from tests.emulator.amd_isa.single import NAMES
from tests.emulator.amd_isa.test_pcode import there
from tests.facts import amd_matrix_maps
from tools.record.amd.encode import find


@pytest.mark.parametrize("row", amd_matrix_maps.MAPS, ids=lambda row: " ".join(map(str, row)))
def test_elements_lie_where_the_calculator_says(row: tuple[str, int, str]) -> None:
    family, lanes, name = row
    shape = shape_of(name, family, lanes)
    assert shape is not None
    assert shape.copies == (lanes // 16 if family == "gfx11" else 1)
    digest = hashlib.blake2b(digest_size=8)
    for block in range(shape.blocks):
        on = shape.m * block
        for i in range(shape.m):
            for k in range(shape.k):
                register, part, lane = shape.a_place(i, k)
                digest.update(bytes((register, part, lane + on)))
                b_register, b_part, b_lane = (shape.b_place or shape.a_place)(i, k)
                digest.update(bytes((b_register, b_part, b_lane + on)))
                if shape.sparse:
                    digest.update(bytes((2 * (register * (4 // BYTES[shape.a_type]) + part), lane)))
            for j in range(shape.n):
                register, part, lane = shape.d_place(i, j)
                registers_on, lanes_on = shape.d_block(block)
                digest.update(bytes((register + registers_on, part, lane + lanes_on)))
    assert digest.hexdigest() == amd_matrix_maps.MAPS[row]


@there
@pytest.mark.parametrize("name", NAMES)
def test_sums_of_any_numbers_are_nearly_those_of_float64(name: str) -> None:
    known = ({}, {"cbsz": 1, "abid": 1}, {"blgp": 3}, {"op_sel": 4})
    forms = [one for one in pcode_matrix.forms(name, {}) if one.more in known and one.constant is None]
    assert [why for one in forms if (why := pcode_matrix.difference(name, one, exact=False))] == []
    assert len(forms) >= 10


def form(name: str, stem: str, lanes: int, **more: int) -> Form:
    opcode_number, opcode = find(name, stem)
    shape = shape_of(stem, target(name).family, lanes)
    assert shape is not None
    return Form(opcode, opcode_number, (shape.m, shape.n, shape.k), shape, lanes, more)


SPARSE = "v_smfmac_f32_16x16x32_f16"
HALVES = "v_wmma_f32_16x16x16_f16"


def test_copies_of_an_operand_must_be_equal() -> None:
    one = form("gfx1100", HALVES, 32)
    a, b = (spread(one, np.full((1, 16, 16), 0x3C00), side) for side in "ab")
    a[3, 17] ^= 1
    with pytest.raises(AssertionError, match=f"unequal copies of an operand.*{HALVES}"):
        computed("gfx1100", one, a, b, np.zeros((8, 32), "u4"))


def test_rows_of_b_that_no_index_names_take_no_part() -> None:
    """Infinities there would make NaNs of 0 * infinity; each row of A names others."""
    one = form("gfx942", SPARSE, 64)
    a, b = (np.full((1, 16, 32), 0x3C00) for _ in range(2))
    named = {four + at for four in range(0, 32, 4) for at in pair(0, four)}
    b[:, :, [k for k in range(32) if k not in named]] = 0x7C00
    out = computed("gfx942", one, spread(one, a, "a"), spread(one, b, "b"), np.zeros((4, 64), "u4"))
    assert np.array_equal(number(gathered(one, out, "d"), "f32")[0, 0], np.full(16, 16.0))


@pytest.mark.parametrize(
    ("name", "stem", "more", "why"),
    [
        ("gfx942", "v_mfma_f32_16x16x16_f16", {"cbsz": 1}, "1 blocks, saw cbsz 1"),
        ("gfx942", "v_smfmac_i32_16x16x64_i8", {"abid": 2}, "2 sets"),
    ],
)
def test_modifiers_that_an_operation_has_no_use_for_are_refused(
    name: str, stem: str, more: dict[str, int], why: str
) -> None:
    assert why in refused(name, words_of(name, form(name, stem, 64, **more)))


def test_modes_without_a_source_are_refused() -> None:
    words = words_of("gfx1100", form("gfx1100", HALVES, 32))
    assert refused("gfx1100", words, modes.KEEP_ALL) == ""
    assert re.search(r"no public source.*0xc0", refused("gfx1100", words, 0xC0))


def test_sums_of_sparse_products_are_counted_as_inexact() -> None:
    words = words_of("gfx942", form("gfx942", SPARSE, 64))
    code = struct.pack(f"<{len(words) + 1}I", *words, 0xBF81_0000)  # s_endpgm
    found = accuracy.counts(read_kernel(code, target("gfx942"), lanes=64, kernel="k"), "gfx9")
    assert SPARSE not in found["exact"]
    assert any(SPARSE in of for bound, of in found.items() if bound != "exact")
