"""Where the elements of a matrix operand lie: register, part of the register, lane.

Source: compared element by element with AMD's matrix instruction calculator; `checked` names the operands
that were. D[i][j] = sum over k of A[i][k] * B[k][j] + C[i][j]; C lies as D.
"""

# fmt: off
from collections.abc import Callable
from dataclasses import dataclass

Place = tuple[int, int, int]
"""(register of the operand, part of the 32-bit register, lane)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One instruction: shape, lanes, parts a register, and where an element lies (B is A with j for i)."""

    m: int
    n: int
    k: int
    wave: int
    a_registers: int
    parts: int
    d_registers: int
    a: Callable[[int, int], Place]
    d: Callable[[int, int], Place]
    copies: int = 1
    d_parts: int = 1
    checked: str = "A and D"


def _gfx11_a(i: int, k: int) -> Place:
    return k // 2, k % 2, i


def _gfx12_a(i: int, k: int) -> Place:
    return 2 * (k // 8) + k // 2 % 2, k % 2, 16 * (k // 4 % 2) + i


LAYOUTS: dict[str, Layout] = {
    "gfx11 w32 f32_16x16x16_f16": Layout(
        16, 16, 16, 32, 8, 2, 8, _gfx11_a, lambda i, j: (i // 2, 0, i % 2 * 16 + j), copies=2,
    ),
    "gfx11 w32 f16_16x16x16_f16": Layout(
        16, 16, 16, 32, 8, 2, 8, _gfx11_a, lambda i, j: (i // 2, 0, i % 2 * 16 + j), copies=2, checked="",
    ),
    "gfx11 w64 f32_16x16x16_f16": Layout(
        16, 16, 16, 64, 8, 2, 4, _gfx11_a, lambda i, j: (i // 4, 0, 16 * i % 64 + j), copies=4, checked="",
    ),
    "gfx11 w32 i32_16x16x16_iu8": Layout(
        16, 16, 16, 32, 4, 4, 8, lambda i, k: (k // 4, k % 4, i), lambda i, j: (i // 2, 0, i % 2 * 16 + j),
        copies=2, checked="A",
    ),
    "gfx12 w32 f32_16x16x16_f16": Layout(
        16, 16, 16, 32, 4, 2, 8, _gfx12_a, lambda i, j: (i % 8, 0, 16 * (i // 8) + j),
    ),
    "gfx12 w32 f16_16x16x16_f16": Layout(
        16, 16, 16, 32, 4, 2, 4, _gfx12_a, lambda i, j: (i // 2 % 4, i % 2, 16 * (i // 8) + j), d_parts=2,
        checked="",
    ),
    "gfx12 w32 f32_16x16x16_fp8": Layout(
        16, 16, 16, 32, 2, 4, 8, lambda i, k: (k // 4 % 2, k % 4, 16 * (k // 8) + i),
        lambda i, j: (i % 8, 0, 16 * (i // 8) + j), checked="A",
    ),
    "gfx12 w64 f32_16x16x16_f16": Layout(
        16, 16, 16, 64, 2, 2, 4, lambda i, k: (k // 2 % 2, k % 2, 32 * (k // 8 % 2) + 16 * (k // 4 % 2) + i),
        lambda i, j: (i % 4, 0, 32 * (i // 4 % 2) + 16 * (i // 8) + j), checked="",
    ),
    "gfx90a mfma f32_16x16x16": Layout(
        16, 16, 16, 64, 2, 2, 4, lambda i, k: (k // 2 % 2, k % 2, 16 * (k // 4) + i),
        lambda i, j: (i % 4, 0, 16 * (i // 4) + j),
    ),
    "gfx90a mfma f32_32x32x8": Layout(
        32, 32, 8, 64, 2, 2, 16, lambda i, k: (k // 2 % 2, k % 2, 32 * (k // 4) + i),
        lambda i, j: (4 * (i // 8) + i % 4, 0, 32 * (i // 4) % 64 + j),
    ),
    "gfx942 mfma f32_16x16x32_fp8": Layout(
        16, 16, 32, 64, 2, 4, 4, lambda i, k: (k // 4 % 2, k % 4, 16 * (k // 8) + i),
        lambda i, j: (i % 4, 0, 16 * (i // 4) + j), checked="A",
    ),
}
"""`copies`: the operand is held so many times, at lanes i, i + wave / copies, ..."""
