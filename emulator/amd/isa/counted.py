"""The class and the floating-point operations of each instruction of AMD's GPUs, for the counters.

Counted for each lane: an addition or multiplication is one operation, a fused one is two, a packed
instruction has twice as many. Reciprocals, roots and transcendental functions are of class "special" and have
none. A matrix instruction has 2 M N K operations for each block, also if A is sparse.

Not here: the code that counts (`emulator.simt.counting`). Next: `translate`, the user.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical
from emulator.simt.counting import CountedOperation

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction

LINE: Final = 128
"""Bytes of a line of the vector caches, the unit of transfers."""
_MATRIX: Final = re.compile(
    r"v_(?:wmma|swmmac|s?mfmac?)_(\w+?)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?_?(\w+)"
)  # v_mfma_f32_32x32x8_f16, v_mfma_f32_4x4x4_16b_f16, v_wmma_f32_16x16x16_f16, v_mfma_f32_16x16x32_fp8_bf8
_ARITHMETIC: Final = re.compile(
    r"v_(pk_|dual_)?(add|sub|subrev|mul|mul_legacy|mul_dx9_zero|fma|fmac|fmaak|fmamk|mad|mac|fma_mix|fma_mixlo|"
    r"fma_mixhi|div_fmas|fmac_dx9_zero|fma_dx9_zero)_(f16|f32|f64)"
)
_DOT: Final = re.compile(r"v_(dual_)?dot(\d+)(acc|c)?_(f32|f16|bf16)_(f16|bf16)")
_SPECIAL: Final = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos)(_iflag|_clamp)?_f\d+")
_SHUFFLES: Final = re.compile(r"v_(readlane|writelane|readfirstlane|permlane\w*|perm)|ds_(b?permute|swizzle)")
_MOVES: Final = re.compile(r"v_(dual_)?(mov|cndmask|accvgpr|swap|movrel)")
_WAITS: Final = re.compile(
    r"s_(waitcnt|wait_|nop|delay_alu|clause|sleep|sethalt|setprio|inst_prefetch|set_inst_prefetch|code_end|version)"
)
_FUSED: Final = ("fma", "mad", "mac", "fmac", "fmaak", "fmamk", "div_fmas")


def counted_as(instruction: Instruction, family: str) -> CountedOperation:
    """Return an instruction's class and operations; a dual-issue one has the operations of both halves."""
    first = operation(canonical(instruction.stem, family))
    if instruction.second is None:
        return first
    second = operation(canonical(instruction.second.stem, family))
    if not first.flops or not second.flops:
        return first if first.flops else second
    return replace(first, flops=first.flops + second.flops)  # both halves are of f32


def operation(stem: str) -> CountedOperation:
    """Return the class and floating-point operations of an operation, by its canonical name."""
    if matrix := _MATRIX.fullmatch(stem):
        m, n, k, blocks = (int(matrix[at] or 1) for at in (2, 3, 4, 5))
        return CountedOperation(kind="matrix", matrix=2 * m * n * k * blocks, type=matrix[6].split("_")[0])
    if found := _ARITHMETIC.fullmatch(stem):
        each = 2 if found[2].startswith(_FUSED) else 1
        type_ = "f32" if found[2].startswith("fma_mix") else found[3]
        return CountedOperation(kind="float", flops=each * (2 if found[1] == "pk_" else 1), type=type_)
    if dot := _DOT.fullmatch(stem):
        return CountedOperation(kind="float", flops=2 * int(dot[2]), type=dot[5])
    return CountedOperation(kind=_kind(stem))


def _kind(stem: str) -> str:
    for kind, pattern in (("special", _SPECIAL), ("shuffle", _SHUFFLES), ("move", _MOVES), ("wait", _WAITS)):
        if pattern.match(stem):
            return kind
    if stem.startswith("s_"):
        return _scalar(stem)
    if stem.startswith(("global_", "flat_", "scratch_", "buffer_", "ds_")):
        return _memory(stem)
    if stem.startswith("v_cvt"):
        return "convert"
    return "float" if re.search(r"_(f16|f32|f64|bf16)$", stem) else "integer"


def _memory(stem: str) -> str:
    if "storexchg" not in stem:
        for kind in ("load", "store"):
            if f"_{kind}" in stem:
                return kind
    return "fence" if "_inv" in stem or "_wb" in stem else "atomic"


def _scalar(stem: str) -> str:
    if stem.startswith("s_barrier"):
        return "barrier" if stem != "s_barrier_signal" else "wait"  # signal and wait count as one barrier
    if stem.startswith(("s_load", "s_buffer_load")):
        return "scalar load"
    if stem.startswith(("s_branch", "s_cbranch", "s_endpgm", "s_trap", "s_setpc", "s_swappc")):
        return "branch"
    return "scalar"


def executes_in_lanes(stem: str) -> bool:
    """Return whether each lane of EXEC executes an operation; else the wave executes it once."""
    return not stem.startswith("s_") and _kind(stem) != "fence"
