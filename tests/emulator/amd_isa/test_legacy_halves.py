"""16-bit operations of gfx9 that clear the upper half of their destination, beside those that keep it.

The ISA document of gfx9 gives both: `v_mad_legacy_u16` writes zeros to bits 16 to 31, `v_mad_u16` leaves them.
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa.conftest import Bench, compiled
from tests.emulator.amd_isa.ir import elementwise

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_isa.conftest import Array

PERM = 493
QUICK = LaunchOptions(tier="quick", threads=1)
COUNT = 256
GARBAGE = 0xABCD0000
CALL = "  %r = call i32 @llvm.amdgcn.perm(i32 %x, i32 %y, i32 %z)"


def values(code: str, *sources: Array, operation: int = PERM) -> Array:
    """Return what a kernel for gfx942 makes of 32-bit values, with another opcode for its `v_perm_b32`."""
    bench = Bench("gfx942")
    out = bench.new(np.zeros(COUNT), "u4")
    ir = elementwise("i32", code, extra="declare i32 @llvm.amdgcn.perm(i32, i32, i32)\n")
    found = changed(compiled(ir, "gfx942"), operation)
    kernel = programs.kernels(found, "gfx942")["k"]
    program = programs.program(kernel, bench.settings)
    done = bench.launch(program, kernel, 1, COUNT, out, *(bench.new(v, "u4") for v in sources), options=QUICK)
    assert done.fault is None, done.fault
    return out


def changed(code: bytes, operation: int) -> bytes:
    """Return an object with another opcode in place of that of `v_perm_b32`, which must write one of its sources."""
    if operation == PERM:
        return code
    words = np.frombuffer(code[: len(code) // 4 * 4], "u4").copy()
    (at,) = np.flatnonzero(words >> 16 == 0xD000 | PERM)
    fields = [int(words[at + 1]) >> shift & 511 for shift in (0, 9, 18)]
    assert 256 + (int(words[at]) & 255) in fields
    words[at] = words[at] & 0xFFFF | (0xD000 | operation) << 16
    return words.tobytes() + code[len(words) * 4 :]


def product(x: Array, y: Array, z: Array) -> Array:
    return x * y + z


def halves(x: Array) -> Array:
    return x.astype("u2").view("f2")


def fused(x: Array, y: Array, z: Array) -> Array:
    total = halves(x).astype("f8") * halves(y).astype("f8") + halves(z).astype("f8")
    return total.astype("f2").view("u2").astype("u4")


def quotient(x: Array, y: Array, z: Array) -> Array:
    """Where nothing is special the quotient passes, with the sign of the operands' quotient."""
    sign = (halves(y).view("u2") ^ halves(z).view("u2")) & 0x8000
    return ((halves(x).view("u2") & 0x7FFF) | sign).astype("u4")


@pytest.mark.parametrize(
    ("legacy", "other", "wanted", "floats"),
    [
        pytest.param(491, 516, product, False, id="v_mad_u16"),
        pytest.param(492, 517, product, False, id="v_mad_i16"),
        pytest.param(494, 518, fused, True, id="v_fma_f16"),
        pytest.param(495, 519, quotient, True, id="v_div_fixup_f16"),
    ],
)
def test_legacy_operations_clear_the_upper_half_and_others_keep_it(
    legacy: int, other: int, wanted: Callable[[Array, Array, Array], Array], *, floats: bool
) -> None:
    rng = np.random.default_rng(7)
    if floats:  # small whole numbers: every sum of their products is exact
        bits = [
            (rng.integers(1, 30, COUNT) * rng.choice((-1, 1), COUNT)).astype("f2").view("u2").astype("u4")
            for _ in range(3)
        ]
    else:
        bits = [rng.integers(0, 1 << 16, COUNT).astype("u4") for _ in range(3)]
    x, y, z = (v | np.uint32(GARBAGE) for v in bits)
    low = wanted(x, y, z) & 0xFFFF
    assert values(CALL, x, y, z, operation=legacy).tolist() == low.tolist()
    assert values(CALL, x, y, z, operation=other).tolist() == (low | GARBAGE).tolist()


def test_a_product_and_sum_of_16_bits_is_widened_without_a_mask() -> None:
    """LLVM selects `v_mad_legacy_u16` and takes its zeros for granted."""
    rng = np.random.default_rng(8)
    bench = Bench("gfx942")
    x, y, z = (bench.new(rng.integers(0, 1 << 16, COUNT), "u2") for _ in range(3))
    out = bench.new(np.zeros(COUNT), "u4")
    code = "  %p = mul i16 %x, %y\n  %m = add i16 %p, %z\n  %r = zext i16 %m to i32"
    done = bench.run(elementwise("i16", code, "i32"), 1, COUNT, out, x, y, z, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == (product(*(v.astype("u4") for v in (x, y, z))) & 0xFFFF).tolist()
