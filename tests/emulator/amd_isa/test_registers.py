"""Registers: elements that a number at run time selects, upper halves of gfx9, inline constants of halves."""

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


QUICK = LaunchOptions(tier="quick", threads=1)
INDEXED = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, i32 %at, i32 %from) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr <8 x i32>, ptr addrspace(1) %a, i32 %i
  %po = getelementptr <8 x i32>, ptr addrspace(1) %o, i32 %i
  %v = load <8 x i32>, ptr addrspace(1) %pa
  %x = extractelement <8 x i32> %v, i32 %from
  %w = insertelement <8 x i32> %v, i32 %x, i32 %at
  store <8 x i32> %w, ptr addrspace(1) %po
  ret void
}
"""
TARGETS = ["gfx1100", "gfx1201", "gfx942"]


@pytest.mark.parametrize("processor", TARGETS)
def test_an_element_of_registers_is_read_and_written_by_its_number(processor: str) -> None:
    bench = Bench(processor)
    a = bench.new(np.arange(8 * 64).reshape(64, 8), "u4")
    for at, start in ((0, 7), (5, 2), (7, 7)):
        out = bench.new(np.zeros((64, 8)), "u4")
        done = bench.run(INDEXED, 1, 64, out, a, at, start, options=QUICK)
        assert done.fault is None, done.fault
        wanted = a.copy()
        wanted[:, at] = a[:, start]
        assert np.array_equal(out, wanted)


PERM = 493
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


CODE = """  %a = bitcast i32 %x to <2 x half>
  %b = fadd <2 x half> %a, <half LOW, half HIGH>
  %r = bitcast <2 x half> %b to i32"""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize(("low", "high"), [(-1.0, -1.0), (4.0, 0.0)])
def test_a_constant_of_packed_floats_is_an_f16(target: str, low: float, high: float) -> None:
    bench = Bench(target)
    halves = np.random.default_rng(1).standard_normal((COUNT, 2)).astype("f2")
    source, out = bench.new(halves.view("u4")[:, 0], "u4"), bench.new(np.zeros(COUNT), "u4")
    code = CODE.replace("LOW", str(low)).replace("HIGH", str(high))
    options = LaunchOptions(tier="quick", threads=1)
    done = bench.run(elementwise("i32", code), 1, COUNT, out, source, source, source, options=options)
    assert done.fault is None, done.fault
    np.testing.assert_array_equal(out.view("f2").reshape(COUNT, 2), halves + np.array([low, high], "f2"))
