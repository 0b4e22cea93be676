"""Reasons for which the emulated AMD GPUs refuse forms of their opcode tables; refused forms are not recorded.

A class of forms is either defined by AMD's ISA documents and not implemented, or not settled by them: then it
must be seen on silicon first. `tests/tools/test_record_amd.py` checks that every refused form belongs to a
class, and that every class has a form. Sources: AMD's ISA documents of CDNA3, RDNA3 and RDNA4
(docs/sources.md).

Not here: the refusals themselves (`emulator.amd.isa`). Next: `vendor`, which leaves refused forms out.
"""

# ruff: noqa: E501 - a class reads best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_DEFINED: Final = "defined; no kernel that the tests run has it"
_OPEN: Final = "not settled from the documents"
_UNSUPPORTED: Final = ": this instruction is not supported"
OPERATIONS: Final = {
    r"v_cvt_(off_f32_i4|norm_[iu]16_f16|pk_u8_f32|pkaccum_u8_f32|pk_i16_i32|pk_[iu]16_f32)": f"{_DEFINED}: conversions of image and colour data",
    r"v_(exp|log)_legacy_f32": f"{_OPEN}: the error of the older approximations",
    r"v_cvt_sr_(fp8|bf8)_f32": f"{_OPEN}: how random bits and a NaN's payload meet in stochastic rounding",
    r"v_(mad_legacy_f16|fmac_dx9_zero_f32|fma_dx9_zero_f32|mullit_f32)": f"{_DEFINED}: products where 0 times anything is 0",
    r"v_cube(id|sc|tc|ma)_f32": f"{_DEFINED}: faces of cube maps, which only graphics has",
    r"v_(sad_hi_u8|sad_u16|msad_u8|qsad_pk_u16_u8|mqsad_pk_u16_u8|mqsad_u32_u8)": f"{_DEFINED}: sums of absolute differences, which only video has",
    r"v_(dot2c_i32_i16|dot4c_i32_i8|dot8c_i32_i4|dot2_[iu]32_[iu]16|dot8_[iu]32_(i4|u4)|dot8_i32_iu4|pk_fmac_f16)": f"{_DEFINED}: dot products that no dialect here writes",
    r"v_dot2_(f16_f16|bf16_bf16|f32_bf16)|v_dot4_f32_(fp8|bf8)_(fp8|bf8)": f"{_OPEN}: the order and the roundings of the sum",
    r"v_(minimum3|maximum3|minimummaximum|maximumminimum)_f(16|32)|v_pk_(minimum|maximum)_f16|s_(minimum|maximum)_f(16|32)": f"{_DEFINED}: of gfx12 alone",
    r"s_(wqm|quadmask)_b(32|64)|s_ff0_i32_b(32|64)|s_flbit_i32_i64|s_cls_i32_i64|s_bitreplicate_b64_b32|s_cvt_pk_rtz_f16_f32": f"{_DEFINED}: scalar bits",
    r"ds_(rsub|mskor|wrap|cond_sub|sub_clamp)_\w+|ds_(cmpst|cmpstore)_(rtn_)?f(32|64)|ds_(wrxchg2|storexchg_2addr)\w*|ds_condxchg32_rtn_b64": f"{_DEFINED}: atomics of LDS",
    r"(flat|global|buffer)_atomic_(cmpswap_f32|csub_u32|sub_clamp_u32|cond_sub_u32)": f"{_DEFINED}: atomics of memory that few GPUs have",
    r"buffer_(load|store)_\w*d16\w*|s_buffer_load_[iu](8|16)": f"{_DEFINED}: narrow accesses of buffers",
    r"v_permlanex?16_var_b32": f"{_DEFINED}: of gfx12 alone",
    r"v_(wmma|swmmac)_i32_16x16x\d+_iu4": f"{_DEFINED}: matrices of 4 bits",
}  # fmt: skip
"""Pattern of operations that the emulated GPUs lack -> why."""
REASONS: Final = {
    r".*: clamp of a comparison \(a signalling one\) is not supported": f"{_DEFINED}: it only raises exceptions for quiet NaNs",
    r".*: output modifier of an integer result": f"{_OPEN}: what clamp and omod do to results that are no float",
    r".*: output modifier of a scalar result": f"{_DEFINED}: of gfx12's scalar results of vector operations",
    r".*: wanted a float mode that flushes subnormals of f16: .*": f"{_OPEN}: a multiply-add of f16 that does not flush",
    r".*: sign of an integer operand.*": f"{_OPEN}: what the sign modifiers do to integers",
    r".*: clamp of this packed operation is not supported": f"{_DEFINED}: saturating packed integers",
    r".*: clamp of a packed pair is not supported": f"{_DEFINED}: clamp of two float32",
    r".*: a modifier of the results of this conversion is not supported": f"{_OPEN}: clamp and omod of conversions from 8 bits",
    r".*: clamp with a carry is not supported": f"{_OPEN}: the carry of a saturated sum",
    r".*: clamp is not supported": f"{_DEFINED}: saturating dot products and wide multiply-adds",
    r".*: one sign of a pair of halves is not documented": f"{_OPEN}: a sign modifier of two halves at once",
    r".*: wanted no CBSZ and ABID, .*": f"{_OPEN}: broadcasts of float64 matrices",
    r".*: wanted an op_sel that selects halves of .*": f"{_OPEN}: other op_sel of matrices",
    r".*: wanted one of the \d sets of indices of a register, saw number \d": f"{_OPEN}: index sets past a register's end",
    r".*: this modifier of a matrix operation is not supported": f"{_DEFINED}: saturating sums of integer matrices",
    r".*s_getpc_b64: this launch does not give the address of the code": "a code address is no result that two machines share",
}
"""Pattern of "form: error" of other refusals -> why they remain."""


def class_of(name: str, why: str) -> str:
    """Return the class of a refused form, a key of `OPERATIONS` or `REASONS`; "" if it has none.

    `why` is the emulated GPU's error.
    """
    operation = name.split(" ", 1)[0].partition(".")[2]
    if f": {why}" == _UNSUPPORTED:
        return next((one for one in OPERATIONS if re.fullmatch(one, operation)), "")
    return next((one for one in REASONS if re.fullmatch(one, f"{name}: {why}")), "")


def unused(classes: Iterable[str]) -> list[str]:
    """Return the classes of `OPERATIONS` and `REASONS` that are not in `classes`, sorted."""
    return sorted((OPERATIONS | REASONS).keys() - set(classes))
