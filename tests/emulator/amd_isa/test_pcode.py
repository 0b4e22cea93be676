"""Instructions of the emulated AMD GPUs against the pseudo-code of AMD's ISA documents, form by form.

The pseudo-code is that which tinygrad's wheel carries (extra `test`); `pcode_forms` says what a form is, which inputs it
gets, and where another public source is followed. `python -m tests.emulator.amd_isa.pcode_tally` prints the tally.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.emulator.amd_isa import (
    pcode,
    pcode_definitions,
    pcode_forms,
    pcode_memory,
    pcode_products,
    pcode_smem,
    pcode_values,
)
from tests.emulator.amd_isa.pcode_tally import (
    Tally,
    duals,
    float_modes,
    matrices,
    memory,
    modes_of,
    movrel,
    refusal,
    refused,
    scalars,
    smem,
    tally,
    wide_waves,
)
from tests.emulator.amd_isa.single import NAMES

there = pytest.mark.skipif(
    pcode.folder() is None, reason="tinygrad, whose pseudo-code this reads, is not installed"
)
CLAMPED = pcode_forms.Choice(clamp=1)
UNKNOWN = {
    r"v_movrel.*|v_swaprel.*": "registers addressed by M0: test_registers_that_m0_numbers; v_swaprel is not run",
    r"v_s?wmmac?_.*|v_mfma.*|v_smfmac.*": "matrices, in words: test_matrix_operations",
}
"""Operations whose pseudo-code is not evaluated, and why."""


def evaluated(text: str, **registers: pcode_values.Value) -> dict[str, pcode_values.Value]:
    lanes = max(v.raw.size for v in registers.values())
    return pcode.program(text).run(dict(registers), lanes, 32, {})


def words(*values: int) -> pcode_values.Value:
    return pcode_values.value("b", 32, np.array(values, "u8"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("D0.u32 = S0.u32 + 1U", [0, 0x8000_0000]),
        ("D0.i32 = S0.i32 >> 4U", [0xFFFF_FFFF, 0x07FF_FFFF]),
        ("D0.u32 = 32'U(S0[7 : 0].u8) << 8U", [0xFF00, 0xFF00]),
        ("D0.i32 = 32'I(signext(S0.i8))", [0xFFFF_FFFF, 0xFFFF_FFFF]),
        ("D0.u32[31 : 0] = S0.u32[0 : 31]", [0xFFFF_FFFF, 0xFFFF_FFFE]),
        ("D0 = { S0[15 : 0].u16, S0[31 : 16].u16 }", [0xFFFF_FFFF, 0xFFFF_7FFF]),
        ("if S0.i32 < 0 then\nD0.u32 = 1U\nelse\nD0.u32 = 2U\nendif", [1, 2]),
        (
            "tmp = 0;\nfor i in 0 : 31 do\nif S0.u32[i] == 1'0U then\ntmp = i;\nbreak\nendif\nendfor;\nD0.i32 = tmp",
            [0, 31],
        ),
        (
            "F = lambda(n) (\nif n.i32 < 0 then\nreturn 7U\nelse\nreturn 9U\nendif);\nD0.u32 = F(S0.i32)",
            [7, 9],
        ),
        ("D0.u32 = isNAN(S0.f32) ? 3U : 4U", [3, 3]),
        ("D0.f32 = 1.5F * 2.0F ** 3", [0x4140_0000, 0x4140_0000]),
    ],
)
def test_evaluator(text: str, wanted: list[int]) -> None:
    """Of -1 and 0x7fffffff."""
    found = evaluated(text, S0=words(0xFFFF_FFFF, 0x7FFF_FFFF), D0=words(0, 0))
    assert np.broadcast_to(found["D0"].raw, (2,)).tolist() == wanted


def test_fused_sums_are_rounded_once() -> None:
    a, b, c = (np.array([v], "f4") for v in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    assert pcode_values.fused(a, b, c, "f4")[0] == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert pcode_values.fused(a, b, -c, "f4")[0] == np.float32(1 + 2.0**-11)


def verdict(found: Tally) -> None:
    unknown = [
        what for what in found.uncovered if not any(re.fullmatch(p, what.split()[-1]) for p in UNKNOWN)
    ]
    assert found.differ == []
    assert unknown == []
    assert found.forms > 0


@there
def test_plain_forms_of_short_encodings() -> None:
    verdict(tally("gfx1100", lambda _: [pcode_forms.Choice()], lambda form: form.kind in ("VOP1", "VOP2")))


@there
@pytest.mark.slow
@pytest.mark.sampled(25)
@pytest.mark.parametrize("kind", pcode_forms.KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_plain_forms(name: str, kind: str) -> None:
    verdict(tally(name, lambda _: [pcode_forms.Choice()], lambda form: form.kind == kind))


@there
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_clamps_that_are_not_run_are_refused(name: str) -> None:
    """One of each family of operations: none may be run as if it had no clamp."""
    families: dict[str, pcode_forms.Form] = {}
    for form in pcode_forms.forms(name):
        if "clamp" in form.opcode.modifiers and form.refuses_clamp:
            families.setdefault("_".join(form.stem.split("_")[:2]) + form.kind, form)
    run = [key for key, form in families.items() if not refusal(name, pcode_definitions.case(form, CLAMPED))]
    assert families
    assert run == []


MODIFIED = (
    ("gfx942", "VOP3P"),
    ("gfx942", "VOP2"),
    ("gfx1100", "VOP1"),
    ("gfx1100", "VOP3SD"),
    ("gfx1201", "VOP3P"),
)
"""What also README's command runs of the next test: one of each short format, packed operations of two targets."""


@there
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(*both, marks=[] if both in MODIFIED else [pytest.mark.landing])
        for both in itertools.product(NAMES, pcode_forms.KINDS)
    ],
)
def test_operands_and_modifiers(name: str, kind: str) -> None:
    verdict(tally(name, lambda form: list(pcode_forms.choices(form))[1:], lambda form: form.kind == kind))


@there
def test_a_mixed_product_takes_the_upper_half_of_a_literal() -> None:
    upper = pcode_forms.Choice(operand=(0, "literal"), op_sel=1, op_sel_hi=1)
    found = tally("gfx1100", lambda _: [upper], lambda form: form.stem == "v_fma_mix_f32")
    assert (found.forms, found.differ) == (1, [])


@there
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gfx1100", *(pytest.param(name, marks=pytest.mark.landing) for name in NAMES if name != "gfx1100")],
)
def test_every_move_between_lanes_and_every_part(name: str) -> None:
    """Of v_mov_b32 every control of DPP and every mask; of v_add_nc_u32 every part of SDWA."""
    stem = "v_add_nc_u32" if name == "gfx942" else "v_mov_b32"
    verdict(
        tally(name, pcode_products.choices, lambda form: form.stem == stem and form.kind in ("VOP1", "VOP2"))
    )


@there
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_every_pair_of_dual_operations(name: str) -> None:
    verdict(duals(name))


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_registers_that_m0_numbers(name: str) -> None:
    found = movrel(name)
    assert (found.forms, found.differ, list(found.refused)) == (32, [], ["v_swaprel_b32"])


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_waves_of_64(name: str) -> None:
    verdict(wide_waves(name, lambda _: [pcode_forms.Choice()]))


@there
@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NAMES)
def test_scalar_operations(name: str) -> None:
    verdict(scalars(name))


@there
def test_minima_and_clamps_follow_ieee_and_dx10_clamp() -> None:
    verdict(
        float_modes("gfx1100", modes_of("gfx1100")[2], lambda form: form.stem in ("v_max_f32", "v_med3_f16"))
    )


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_float_modes(name: str, number: int) -> None:
    verdict(tally(name, lambda _: [pcode_forms.Choice()], modes=modes_of(name)[number]))


@there
def test_low_bits_count_in_no_part_of_a_scalar_address() -> None:
    found = smem("gfx1201", lambda one: one.opcode.name in ("s_load_u16", "s_buffer_load_b64"))
    assert (found.forms, found.differ) == (168, [])
    assert all(
        refused("gfx1201", pcode_smem.words_of("gfx1201", one)) for one in pcode_smem.undefined("gfx1201")
    )


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("name", NAMES)
def test_scalar_loads(name: str) -> None:
    verdict(smem(name))


@there
@pytest.mark.parametrize("name", ["gfx1100", "gfx1201"])
def test_a_constant_of_16_bits_is_in_both_halves_of_c(name: str) -> None:
    found = matrices(
        name,
        lambda one: one.constant == 242 and one.lanes == 32 and one.opcode.stem.startswith("v_wmma_bf16"),
    )
    assert (found.forms, found.differ) == (1, [])


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("name", NAMES)
def test_matrix_operations(name: str) -> None:
    """Two of the values of BLGP; the tally has all."""
    found = matrices(name, lambda one: one.more.get("blgp", 0) in (0, 3) and one.more.get("abid", 0) < 3)
    assert found.differ == []
    assert found.forms >= 30
    assert all("iu4" in stem for stem in found.refused)


ACCESSES = ("buffer_atomic_add_u32", "buffer_atomic_cmpswap_b32", "ds_store_b96", "ds_store_2addr_b32")
"""What also README's command runs of the next test."""


@there
@pytest.mark.parametrize("name", NAMES)
def test_some_accesses_of_memory(name: str) -> None:
    found = memory(name, lambda one: one.stem in ACCESSES)
    assert found.differ == []
    assert {of.split()[-1] for of in found.operations} == {*ACCESSES}


@there
@pytest.mark.slow
@pytest.mark.landing
@pytest.mark.parametrize("kind", pcode_memory.ENUMS)
@pytest.mark.parametrize("name", NAMES)
def test_accesses_of_memory(name: str, kind: str) -> None:
    found = memory(name, lambda one: one.kind == kind)
    assert found.differ == []
    assert set(found.uncovered.values()) <= set(pcode_memory.NOT_COMPARED.values())
    assert found.forms > 50
