"""What chips change in an older one's instructions: gfx1151, gfx1200 and gfx950."""

from __future__ import annotations

from typing import TYPE_CHECKING

import llvmlite.binding as llvm
import numpy as np
import pytest

from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import read_kernel
from tests.emulator.amd_isa.conftest import Bench
from tests.emulator.amd_isa.ir import HEAD, elementwise

if TYPE_CHECKING:
    from collections.abc import Sequence

CDNA4 = pytest.mark.skipif(llvm.llvm_version_info < (20, 0, 0), reason="LLVM knows gfx950 since version 20")
WORDS = np.arange(256, dtype="u4") * np.uint32(0x9E37_79B9)


def run(bench: Bench, ir: str, out: np.ndarray, *sources: Sequence[object] | np.ndarray) -> np.ndarray:
    """Run an `elementwise` kernel of 256 work-items; absent sources are zeros."""
    result = bench.new(out, str(out.dtype))
    arrays = [bench.new(one, str(np.asarray(one).dtype)) for one in sources]
    arrays += [bench.new(np.zeros(256, "u4"), "u4")] * (3 - len(arrays))
    bench.run(ir, 256, 256, result, *arrays)
    return result


def stems(bench: Bench, ir: str) -> set[str]:
    """The instructions that LLVM makes of a kernel."""
    _, kernel = bench.kernel(ir)
    return {one.stem for one in read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel="k")}


def test_gfx1200_has_the_instructions_of_gfx1201() -> None:
    assert target("gfx1200").opcodes == target("gfx1201").opcodes


def test_gfx1151_computes_floats_in_scalar_registers() -> None:
    ir = (
        HEAD
        + "define amdgpu_kernel void @k(ptr addrspace(1) %o, float %x, float %y) {\n"
        + "  %s = fadd float %x, %y\n  %m = fmul float %s, %x\n  %c = fcmp olt float %m, %y\n"
        + "  %r = select i1 %c, float %m, float %s\n  store float %r, ptr addrspace(1) %o\n  ret void\n}\n"
    )
    bench = Bench("gfx1151")
    assert {"s_add_f32", "s_mul_f32"} <= stems(bench, ir)
    out = bench.new([0], "f4")
    bench.run(ir, 1, 1, out, *(int(np.float32(one).view("u4")) for one in (1.5, -0.25)))
    assert out[0] == 1.25
    assert ("SOP2", 64) not in target("gfx1100").opcodes


@CDNA4
@pytest.mark.parametrize("bits", [16, 32])
def test_gfx950_has_any_function_of_three_bits(bits: int) -> None:
    code = f"  %n = xor i{bits} %y, -1\n  %s = and i{bits} %x, %n\n  %r = xor i{bits} %s, %z"
    bench, x = Bench("gfx950"), WORDS.astype(f"u{bits // 8}")
    y, z = x[::-1].copy(), np.roll(x, 7)
    ir = elementwise(f"i{bits}", code)
    assert f"v_bitop3_b{bits}" in stems(bench, ir)
    assert (run(bench, ir, np.zeros_like(x), x, y, z) == (x & ~y) ^ z).all()


@CDNA4
def test_gfx950_packs_two_bfloats() -> None:
    code = """  %v0 = insertelement <2 x float> poison, float %x, i32 0
  %v = insertelement <2 x float> %v0, float %y, i32 1
  %h = fptrunc <2 x float> %v to <2 x bfloat>
  %r = bitcast <2 x bfloat> %h to i32"""
    bench = Bench("gfx950")
    ir = elementwise("float", code, "i32")
    assert "v_cvt_pk_bf16_f32" in stems(bench, ir)
    x, y = np.linspace(-3, 3, 256, dtype="f4"), np.geomspace(1e-30, 1e30, 256, dtype="f4")
    got = run(bench, ir, np.zeros(256, "u4"), x, y)
    for at, value in enumerate((x, y)):
        bits = value.view("u4").astype("u8")
        rounded = bits + (bits >> 16 & 1) + 0x7FFF >> 16
        assert (got >> 16 * at & 0xFFFF == rounded).all()


@CDNA4
@pytest.mark.parametrize(("processor", "one"), [("gfx942", 0x40), ("gfx950", 0x38)])
def test_small_floats_of_gfx950_are_those_of_ocp(processor: str, one: int) -> None:
    code = "  %r = call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float %x, float %y, i32 0, i1 false)"
    declare = "declare i32 @llvm.amdgcn.cvt.pk.fp8.f32(float, float, i32, i1)\n"
    ir = elementwise("float", code, "i32", declare)
    ones = np.ones(256, "f4")
    got = run(Bench(processor), ir, np.zeros(256, "u4"), ones, -ones)
    assert (got & 0xFFFF == one | (one | 0x80) << 8).all()


@CDNA4
@pytest.mark.parametrize(
    ("name", "code", "declare"),
    [
        ("v_prng_b32", "  %r = call i32 @llvm.amdgcn.prng.b32(i32 %x)", "i32 @llvm.amdgcn.prng.b32(i32)"),
        (
            "v_permlane32_swap_b32",
            """  %s = call {i32, i32} @llvm.amdgcn.permlane32.swap(i32 %x, i32 %y, i1 false, i1 false)
  %r = extractvalue {i32, i32} %s, 1""",
            "{i32, i32} @llvm.amdgcn.permlane32.swap(i32, i32, i1, i1)",
        ),
    ],
)
def test_an_instruction_of_gfx950_that_is_not_emulated_is_named(name: str, code: str, declare: str) -> None:
    with pytest.raises(IsaError, match=f"{name}.*not supported"):
        Bench("gfx950").kernel(elementwise("i32", code, extra=f"declare {declare}\n"))


def test_gfx950_has_no_products_of_shortened_floats() -> None:
    names = {
        processor: {one.stem for one in target(processor).opcodes.values()}
        for processor in ("gfx942", "gfx950")
    }
    gone = names["gfx942"] - names["gfx950"]
    assert gone == {"v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"}
