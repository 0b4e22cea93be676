"""The shapes of matrix operations: sizes, types, and the register and lane of each element.

Source: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator, 2ef9189), compared
element by element for gfx942 and gfx12. The order of the elements of k does not matter, if A and B have the same.

Not here: products and sums (`matrix_sums`). Next: `matrix`, the user.
"""

# ruff: noqa: E501, PLR0917 - tables of operations read best one a line

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = {"f16": 2, "bf16": 2, "i8": 1, "u8": 1, "fp8": 1, "bf8": 1, "f32": 4, "xf32": 4}
"""Type of an element -> its bytes. "xf32" is f32 of which 10 bits of the mantissa are used."""

Place = tuple[int, int, int]
"""(register of the operand, part of the register from the lowest bits, lane)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """The shape of one operation D = A B + C, with A of m x k, B of k x n, C and D of m x n."""

    m: int
    n: int
    k: int
    a_type: str
    """A key of `BYTES`."""
    b_type: str
    d_type: str
    """Of C and D: "f32", "i32", "f16" or "bf16"."""
    a_place: Callable[[int, int], Place]
    """(i, k) -> where A[i][k] lies. Dense B[k][j] lies at `a_place(j, k)` of its own registers."""
    d_place: Callable[[int, int], Place]
    """(i, j) -> where C[i][j] and D[i][j] lie, in the first block."""
    a_registers: int
    d_registers: int
    copies: int = 1
    """Copies of A and B, in successive rows of 16 lanes; all must be equal."""
    packed: bool = False
    """Whether 16-bit results fill both halves of a register."""
    blocks: int = 1
    """Independent products. Block b of A and B lies `m` lanes after block b - 1."""
    d_block: Callable[[int], tuple[int, int]] = lambda _: (0, 0)
    """Number of a block -> (registers, lanes) from the first block of C and D to it."""
    b_place: Callable[[int, int], Place] | None = None
    """(j, k) -> where B[k][j] lies, if A is sparse; None if A is dense. A sparse A stores 2 of 4 successive elements;
    `a_place` then gives the first of the two, and `k` is that of B."""
    b_registers: int = 0
    """Registers of B if A is sparse; 0 if A is dense: B then has `a_registers`."""

    @property
    def sparse(self) -> bool:
        """Whether A stores half of its elements, which an index operand selects."""
        return self.b_place is not None


def _gfx11(a: str, b: str, d: str, lanes: int) -> MatrixShape:
    """WMMA of gfx11, 16 x 16 x 16: every row of 16 lanes has a copy of A and B."""
    a_registers = 16 * BYTES[a] // 4
    parts = 4 // BYTES[a]
    rows = lanes // 16
    return MatrixShape(
        m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=a_registers, d_registers=16 // rows, copies=rows,
        a_place=lambda i, k: (k // parts, k % parts, i), d_place=lambda i, j: (i // rows, 0, 16 * i % lanes + j),
    )  # fmt: skip


def _gfx12(a: str, b: str, d: str, lanes: int) -> MatrixShape:
    """WMMA of gfx12, 16 x 16 x 16: no copies; 16-bit results fill both halves of registers."""
    small = BYTES[a] == 1
    if lanes == 32:
        registers = 2 if small else 4

        def a_place(i: int, k: int) -> Place:
            return (
                (k // 4 % 2, k % 4, 16 * (k // 8) + i)
                if small
                else (2 * (k // 8) + k // 2 % 2, k % 2, 16 * (k // 4 % 2) + i)
            )

        def d_place(i: int, j: int) -> Place:
            return (i % 8, 0, 16 * (i // 8) + j) if d[-2:] == "32" else (i // 2 % 4, i % 2, 16 * (i // 8) + j)

        return MatrixShape(m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=registers, d_registers=8 if d[-2:] == "32" else 4,
                     a_place=a_place, d_place=d_place, packed=d[-2:] != "32")  # fmt: skip

    def place(i: int, k: int) -> Place:
        if small:
            return (0, k % 4, 32 * (k // 4 % 2) + 16 * (k // 8) + i)
        return (k // 2 % 2, k % 2, 32 * (k // 8 % 2) + 16 * (k // 4 % 2) + i)

    def result(i: int, j: int) -> Place:
        lane = 32 * (i // 4 % 2) + 16 * (i // 8) + j
        return (i % 4, 0, lane) if d[-2:] == "32" else (i // 2 % 2, i % 2, lane)

    return MatrixShape(
        m=16, n=16, k=16, a_type=a, b_type=b, d_type=d, a_registers=1 if small else 2, a_place=place, d_place=result,
        d_registers=4 if d[-2:] == "32" else 2, packed=d[-2:] != "32",
    )  # fmt: skip


def _mfma(size: int, k: int, a: str, b: str, d: str, blocks: int = 1) -> MatrixShape:
    """MFMA of gfx942: a lane holds successive elements of k; results lie in groups of 4 registers."""
    each = k * size * blocks // 64
    parts = 4 // BYTES[a]
    across = 64 // size
    beside = -(-256 // (size * size))
    return MatrixShape(
        m=size, n=size, k=k, a_type=a, b_type=b, d_type=d, a_registers=-(-each // parts), blocks=blocks,
        d_registers=size * size * blocks // 64,
        a_place=lambda i, x: (x % each // parts, x % parts if each > 1 else 0, x // each * size * blocks + i),
        d_place=lambda i, j: (i // (4 * across) * 4 + i % 4, 0, i // 4 % across * beside * size + j),
        d_block=lambda n: (n * (size * size // 64), n % beside * size),
    )  # fmt: skip


def _smfmac(size: int, k: int, a: str, b: str, d: str) -> MatrixShape:
    """SMFMAC of gfx942: A lies as in an MFMA with half as many k, B as in an MFMA with all k."""
    dense = _mfma(size, k, a, b, d)
    half = _mfma(size, k // 2, a, b, d)
    return replace(
        dense, a_registers=half.a_registers, b_registers=dense.a_registers, b_place=dense.a_place,
        a_place=lambda i, x: half.a_place(i, x // 4 * 2),
    )  # fmt: skip


def _swmmac(a: str, b: str, d: str, lanes: int) -> MatrixShape:
    """SWMMAC of gfx12, 16 x 16 x 32: a lane holds 8 or 16 elements of B's k, and half as many of A."""
    small, wide = BYTES[a] == 1, d[-2:] == "32"

    def lane(i: int, k: int) -> int:
        if lanes == 32:
            return (16 * (k // 16) if small else 16 * (k // 8 % 2)) + i
        return (32 * (k // 8 % 2) + 16 * (k // 16) if small else 16 * (k // 8)) + i

    def a_place(i: int, k: int) -> Place:
        if small:
            return (k // 8 % 2 if lanes == 32 else 0, 2 * (k // 4 % 2), lane(i, k))
        return (2 * (k // 16) + k // 4 % 2 if lanes == 32 else k // 4 % 2, 0, lane(i, k))

    def b_place(j: int, k: int) -> Place:
        if small:
            return (k // 4 % 4 if lanes == 32 else k // 4 % 2, k % 4, lane(j, k))
        return (4 * (k // 16) + k // 2 % 4 if lanes == 32 else k // 2 % 4, k % 2, lane(j, k))

    registers = 128 // lanes * BYTES[a] // 2
    per_lane = 256 // lanes
    shift = 8 if lanes == 32 else 4

    def d_place(i: int, j: int) -> Place:
        at = 16 * (i // 8) + j if lanes == 32 else 32 * (i // 4 % 2) + 16 * (i // 8) + j
        return (i % shift, 0, at) if wide else (i // 2 % (shift // 2), i % 2, at)

    return MatrixShape(
        m=16, n=16, k=32, a_type=a, b_type=b, d_type=d, a_registers=registers, b_registers=2 * registers,
        d_registers=per_lane if wide else per_lane // 2, a_place=a_place, b_place=b_place, d_place=d_place, packed=not wide,
    )  # fmt: skip


_MFMA: dict[str, MatrixShape] = {
    f"v_mfma_f32_{size}x{size}x{k}_{name}": _mfma(size, k, *types, "f32")
    for size, k, name, types in (
        (16, 16, "f16", ("f16", "f16")), (32, 8, "f16", ("f16", "f16")), (16, 16, "bf16", ("bf16", "bf16")),
        (32, 8, "bf16", ("bf16", "bf16")), (16, 4, "f32", ("f32", "f32")), (32, 2, "f32", ("f32", "f32")),
        *((s, k, f"{a}_{b}", (a, b)) for s, k in ((16, 32), (32, 16)) for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    )
} | {"v_mfma_i32_16x16x32_i8": _mfma(16, 32, "i8", "i8", "i32"), "v_mfma_i32_32x32x16_i8": _mfma(32, 16, "i8", "i8", "i32")}  # fmt: skip
_MFMA |= {
    f"v_mfma_{d}_{size}x{size}x{k}_{blocks}b_{a}": _mfma(size, k, a, a, d, blocks)
    for size, blocks in ((32, 2), (16, 4), (4, 16))
    for k, a, d in ((1, "f32", "f32"), (4, "f16", "f32"), (4, "bf16", "f32"), (4, "i8", "i32"))
} | {f"v_mfma_f32_{s}x{s}x{k}_xf32": _mfma(s, k, "xf32", "xf32", "f32") for s, k in ((16, 8), (32, 4))}  # fmt: skip
"""MFMA of gfx942 by name, without those of f64 (`matrix`)."""
_SMFMAC: dict[str, MatrixShape] = {
    f"v_smfmac_{d}_{s}x{s}x{1024 // s if BYTES[a] == 1 else 512 // s}_{name}": _smfmac(s, 1024 // s if BYTES[a] == 1 else 512 // s, a, b, d)
    for s in (16, 32)
    for name, a, b, d in (
        ("f16", "f16", "f16", "f32"), ("bf16", "bf16", "bf16", "f32"), ("i8", "i8", "i8", "i32"),
        *((f"{a}_{b}", a, b, "f32") for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
    )
}  # fmt: skip


def shape_of(
    stem: str, family: str, lanes: int, *, signs: tuple[bool, bool] = (True, True)
) -> MatrixShape | None:
    """Return the shape of a matrix instruction; None if it is not supported.

    `signs` says whether the integers of A and of B are signed, for "iu8".
    """
    if family == "gfx9":
        return _MFMA.get(stem) or _SMFMAC.get(stem)
    sparse = stem.startswith("v_swmmac_")
    head, _, tail = (
        stem.removeprefix("v_wmma_")
        .removeprefix("v_swmmac_")
        .partition("_16x16x32_" if sparse else "_16x16x16_")
    )
    if tail == "iu8":
        kinds = ["i8" if s else "u8" for s in signs]
    elif tail in ("f16", "bf16") and head in ("f32", tail):
        kinds = [tail, tail]
    elif family == "gfx12" and tail.count("_") == 1 and set(tail.split("_")) <= {"fp8", "bf8"}:
        kinds = tail.split("_")
    else:
        return None
    if sparse:
        return _swmmac(kinds[0], kinds[1], head, lanes)
    if family == "gfx11":
        return _gfx11(kinds[0], kinds[1], head, lanes)
    return _gfx12(kinds[0], kinds[1], head, lanes)


MFMA_NAMES = (*_MFMA, *_SMFMAC)
"""The supported matrix operations of gfx942, without those of f64."""
