"""Floating-point modes: the bits of register MODE, followed through a kernel's basic blocks.

A wave begins with the mode of its kernel descriptor. The kernel may change it with `s_denorm_mode`,
`s_round_mode` and `s_setreg_imm32_b32`: LLVM does so around divisions, Triton around conversions to 8-bit floats.

| bits of MODE | of COMPUTE_PGM_RSRC1 | meaning |
|---|---|---|
| 1:0, 3:2 | 15:12 | rounding of f32; of f16 and f64 |
| 5:4, 7:6 | 19:16 | subnormals of f32; of f16 and f64: the lower bit keeps those of sources, the upper those of results |
| 8 | 21 | DX10_CLAMP of gfx9 and gfx11, inverted here (`KEEPS_NAN`) |
| 9 | 23 | IEEE of gfx9 and gfx11 |
| 23 | 26 | FP16_OVFL: an f16 result that overflows is the largest finite value, unless a source is infinite |

Sources: LLVM's AMDGPUUsage, "Floating Point Denorm Mode Enumeration Values" and COMPUTE_PGM_RSRC1;
docs/sources-amd.md. Not here: flushing and overflow (`values`). Next: `program`, the instructions above.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import Instruction, IsaError, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.amd.isa.instruction import CodeBlock

KEEP_ALL: Final = 0xF0
"""Rounding to nearest even, all subnormals kept."""
MODE: Final = 1
"""The number of the register MODE."""
SATURATES: Final = 1 << 23
"""FP16_OVFL: an f16 result that overflows is the largest finite value."""
KEEPS_NAN: Final = 1 << 8
"""DX10_CLAMP is 0: a clamp keeps NaNs."""
IEEE: Final = 1 << 9
"""Minima and maxima of a signalling NaN are a quiet NaN; output multipliers have no effect."""
_ROUNDING, _SUBNORMALS, _WRITABLE = 0x0F, 0xF0, 0xFF | SATURATES
_HALVES: Final = re.compile(
    r"[vs]_(pk_)?(add|sub|subrev|mul|fma|fmac|fmaak|fmamk|ldexp)_f16|v_fma_mix(lo|hi)_f16|[vs]_cvt_f16_[fu]\d+"
)
"""Operations whose f16 result may overflow."""
_NO_OVERFLOW: Final = re.compile(
    r"[vs]_(ceil|floor|trunc|rndne|fract|frexp_mant|sqrt|sin|cos)_f16|[vs]_cvt_pk_rtz_f16_f32|v_cvt_f16_i16"
    r"|.*_(f32|b32|[iu]16|[iu]32)_(\w+_)?b?f16|[vs]_cmpx?_\w+"
)
"""Operations on f16 whose result has another type or never overflows; rounding toward zero gives no infinity."""
CHOOSES: Final = re.compile(r"[vs]_(pk_)?(min|max|med3|minmax|maxmin|cndmask)")
"""Operations whose result is one of their sources: only the mode of sources applies."""
_UNKNOWN: Final = re.compile(
    r"v_(dot\d\w*_(f|bf)16\w*|fma_mix\w*|mfma_f\w*|smfmac_f\w*|(wmma|swmmac)_b?f\w*)"
)
"""Operations for which no public source says whether they follow the mode."""


def at_start(rsrc1: int, family: str) -> int:
    """Return the mode with which a wave begins, from COMPUTE_PGM_RSRC1. gfx12 has neither IEEE nor DX10_CLAMP."""
    more = 0 if family == "gfx12" else (~rsrc1 >> 21 & 1) * KEEPS_NAN | (rsrc1 >> 23 & 1) * IEEE
    return rsrc1 >> 12 & 0xFF | (rsrc1 >> 26 & 1) * SATURATES | more


def flushes(modes: int, bits: int) -> tuple[bool, bool]:
    """Return whether subnormal sources, and subnormal results, of `bits` bits (16, 32, 64) are zeros."""
    pair = modes >> (4 if bits == 32 else 6) & 3
    return not pair & 1, not pair & 2


def check(modes: int, instruction: Instruction | None, kernel: str) -> None:
    """Raise `IsaError` for rounding other than to nearest even. `instruction` set the mode; None: the descriptor."""
    if modes & _ROUNDING:
        why = f"only rounding to nearest even is supported (FLOAT_MODE {KEEP_ALL:#x}); compile it so"
        text = f"float mode {modes:#x}" if instruction is None else instruction.text
        raise IsaError(
            why, text=text, address=0 if instruction is None else instruction.address, kernel=kernel
        )


def changed(modes: int, instruction: Instruction, kernel: str) -> int:
    """Return the mode after an instruction. Raises `IsaError` for fields of MODE and roundings not supported."""
    stem = instruction.stem
    if stem == "s_denorm_mode":
        return modes & ~_SUBNORMALS | (instruction.get("simm16") & 15) << 4
    if stem == "s_round_mode":
        after = modes & ~_ROUNDING | instruction.get("simm16") & 15
    elif stem == "s_setreg_imm32_b32":
        field, value = instruction.operands
        if not isinstance(field, Word) or not isinstance(value, Word) or field.value & 63 != MODE:
            raise IsaError(
                "only MODE can be written", text=instruction.text, address=instruction.address, kernel=kernel
            )
        offset, size = field.value >> 6 & 31, (field.value >> 11 & 31) + 1
        mask = (1 << size) - 1
        if mask << offset & ~_WRITABLE:
            why = "wanted rounding, subnormals or FP16_OVFL of MODE (bits 7:0, 23): others are not supported"
            raise IsaError(why, text=instruction.text, address=instruction.address, kernel=kernel)
        after = modes & ~(mask << offset) | (value.value & mask) << offset
    else:
        return modes
    check(after, instruction, kernel)
    return after


def at_blocks(blocks: Sequence[CodeBlock], entry: int, kernel: str) -> dict[int, int]:
    """Return the mode at the start of each basic block, by address; the first block is the kernel's entry.

    Raises `IsaError` where paths with different modes meet.
    """
    bodies = {body[0].address: (body, follow) for body, follow in blocks}
    first = blocks[0][0][0].address
    found, todo = {first: entry}, [first]
    while todo:
        body, follow = bodies[todo.pop()]
        modes = found[body[0].address]
        for instruction in body:
            modes = changed(modes, instruction, kernel)
        for target in follow:
            if target not in found:
                found[target] = modes
                todo.append(target)
            elif found[target] != modes:
                at = bodies[target][0][0]
                why = f"wanted one float mode on all paths to here, saw {found[target]:#x} and {modes:#x}"
                raise IsaError(why, text=at.text, address=at.address, kernel=kernel)
    return found


def unknown(stem: str, modes: int) -> bool:
    """Return whether no public source says what an operation does in a mode.

    With FP16_OVFL these are reciprocals, logarithms and quotients of f16, and f16 results of matrix operations, dot
    products and the scalar unit. Sources differ in whether the infinity of a division by zero is kept.
    """
    if modes & SATURATES and "f16" in stem and not saturates(stem) and not CHOOSES.match(stem):
        return _NO_OVERFLOW.fullmatch(stem) is None
    return modes & 0xFF != KEEP_ALL and _UNKNOWN.fullmatch(stem) is not None


def saturates(stem: str) -> bool:
    """Return whether an operation's f16 result may overflow, so that FP16_OVFL applies to it."""
    return _HALVES.fullmatch(stem) is not None
