"""Where the emulated GPUs follow another public source than the ISA documents' pseudo-code, and why.

Not here: the forms that are compared (`pcode_forms`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """Where the emulator follows another public source than the pseudo-code: how the text changes, and why."""

    stems: str
    reason: str
    changes: tuple[tuple[str, str], ...] = ()
    """What is replaced, by what; `T` is the type of the result."""
    after: str = ""
    """What follows the text."""
    before: str = ""


DECISIONS = (
    Decision(
        r"v_(s_)?(rcp|rcp_iflag|rsq|sqrt|exp|log)_f32", "the documents' notes: subnormals of f32 are flushed in every mode",
        (("S0.f32", "flushed(S0.f32)"),), "D0.f32 = flushed(D0.f32)",
    ),
    Decision(r"v_fract_f\d+", "LLVM makes it of min(x - floor(x), the number below 1)", after="D0.T = belowOne(D0.T)"),
    Decision(
        r"v_frexp_exp_.*", "LLVM makes llvm.frexp of it alone: 0 of zeros, the true exponent of subnormals",
        ((r"exponent\((S0\.f\d+)\) - \d+ \+ 1", r"trueExponent(\1)"),),
    ),
    Decision(r"[vs]_rndne_f\d+", "LLVM makes llvm.rint of it: the sign of a zero stays", after="D0.T = signedZero(D0.T, S0.T)"),
    Decision(
        r"v_div_fmas_f\d+", "the scale is that of v_div_scale, 2^64 or 2^128, up or down; the text has half of it, and up alone",
        ((r"2\.0F \*\* 32", "2.0F ** (exponent(S2.f32) > 127 ? 64 : -64)"),
         (r"2\.0 \*\* 64", "2.0 ** (exponent(S2.f64) > 1023 ? 128 : -128)")),
    ),
    Decision(
        r"v_div_scale_f\d+", "where nothing is scaled the result is the first source; a denominator whose inverse is"
        " subnormal, as f32 for f32, is scaled down alone, as it would overflow",
        ((r"1\.0 / 64'F\(S1\.f32\) == DENORM\.f64", "1.0F / S1.f32 == DENORM.f32"),
         (r"(?s)(&& \(S2\.f\d+ / S1\.f\d+ == DENORM\.f\d+\).*?ldexp\(S0\.f\d+, )(\d+)", r"\1-\2")), before="D0.T = S0.T;",
    ),
    Decision(
        r"v_permlanex?16(_var)?_b32", "LLVM's llvm.amdgcn.permlane16: what a lane that does not execute gives",
        ((r"VGPR\[([^\]]+)\]\[VDST\.u32\] = tmp\[(.+)\](?=\n)",
          r"VGPR[\1][VDST.u32] = (EXEC[\2].u1 || OPSEL[0].u1) ? tmp[\2] : OPSEL[1].u1 ? 0U : VGPR[\1][VDST.u32]"),),
    ),
    Decision(
        r"v_(mad|mac)\w*_f16", "two operations with the mode of each: the product's subnormals are zeros where the mode is known",
        ((r"(S0\.f16 \* \w+\.\w+)", r"flushed(\1)"),),
    ),
    Decision(
        "v_trig_preop_f64", "the text masks what a shift to the left leaves; its comment means the bits before the point",
        ((r"64'F\(\(1201'B.*\)", "twoOverPi(shift)"),),
    ),
    Decision(
        r"v_fma_mix(lo|hi)?_f(32|16)", "CDNA's name is V_MAD_MIX; LLVM selects it on gfx942 for llvm.fma (+fma-mix-insts)",
        ((r"in\[0\] \* in\[1\] \+ in\[2\]", "fma(in[0], in[1], in[2])"),),
    ),
    Decision(
        r"v_pk_mov_b32", "op_sel chooses from both registers; the text's view has one",
        ((r"(S[01])\.u32\[OPSEL", r"\1.u64[OPSEL"),),
    ),
    Decision(
        r"v_div_fixup_f\d+", "a quotient that is NaN although its operands are numbers overflowed in the steps before",
        ((r"abs\(S0\.(f\d+)\)", r"(isNAN(64'F(S0.\1)) ? INF.\1 : abs(S0.\1))"),),
    ),
)  # fmt: skip
"""What the emulator does otherwise than the pseudo-code."""


def decision(stem: str) -> Decision | None:
    return next((d for d in DECISIONS if re.fullmatch(d.stems, stem)), None)


def decided(stem: str, text: str) -> str:
    """Return the text that is held against the emulator."""
    found = decision(stem)
    if found is None:
        return text
    for old, new in found.changes:
        text = re.sub(old, new, text)
    to = stem.rpartition("_")[2]
    return f"{found.before}\n{text};\n{found.after}".replace(".T", f".{to}")
