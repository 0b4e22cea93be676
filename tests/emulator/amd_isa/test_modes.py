"""Subnormals: flushed as the float mode says, by functions of f32 always; modes followed through a kernel."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emulator.amd.isa import modes, programs
from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.translate import cut, read_kernel
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench, compiled
from tests.emulator.amd_isa.single import QUICK

Array = np.ndarray
TARGETS = ["gfx1100", "gfx1201", "gfx942"]
FLUSHING = '"denormal-fp-math-f32"="preserve-sign,preserve-sign"'
HALVES = '"denormal-fp-math"="preserve-sign,preserve-sign" "denormal-fp-math-f32"="ieee,ieee"'
TINY = {"f4": 2.0**-126, "f2": 2.0**-14}
FUNCTIONS = "".join(
    f"declare float @llvm.amdgcn.{one}.f32(float)\n" for one in ("rcp", "rsq", "sqrt", "exp2", "log")
)


def flushed(values: Array) -> Array:
    """Return values with zeros of the same sign for subnormals."""
    return np.where(np.abs(values) < TINY[values.dtype.str[1:]], np.copysign(values * 0, values), values)


def sources(dtype: str) -> list[Array]:
    """Return x, y, z: 256 values around the smallest normal number, zeros and others among them."""
    rng = np.random.default_rng(11)
    width = 3 if dtype == "f4" else 2
    scale = {"f4": 2.0**-126, "f2": 2.0**-14}[dtype]
    found = []
    for _ in range(3):
        values = rng.standard_normal(256) * scale * 2.0 ** rng.integers(-width, width, 256)
        values[:8] = [0.0, -0.0, scale, -scale, scale / 2, -scale / 4, 1.0, -3.0]
        found.append(rng.permuted(values.astype(dtype)))
    found[1][::3] = rng.standard_normal(86).astype(dtype)
    return found


def ran(processor: str, text: str, values: list[Array], dtype: str) -> Array:
    bench = Bench(processor)
    out = bench.new(np.zeros(256), dtype)
    done = bench.run(text, 1, 256, out, *(bench.new(v, dtype) for v in values), options=QUICK)
    assert done.fault is None, done.fault
    return out


def kernel(type_: str, code: str, attributes: str, extra: str = "") -> str:
    return ir.elementwise(type_, code, extra=extra).replace("%zs) {", f"%zs) {attributes} {{")


@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize(("dtype", "attributes", "mode"), [("f4", FLUSHING, 0xC0), ("f2", HALVES, 0x30)])
def test_subnormals_are_zeros_where_the_mode_says_so(processor: str, dtype: str, attributes: str, mode: int) -> None:
    type_ = {"f4": "float", "f2": "half"}[dtype]
    code = f"""  %m = fmul {type_} %x, %y
  %a = fadd {type_} %m, %z
  %c = fcmp une {type_} %x, {'0.0' if dtype == 'f4' else '0xH0000'}
  %r = select i1 %c, {type_} %a, {type_} %m
"""
    values = sources(dtype)
    text = kernel(type_, code, attributes)
    assert programs.kernels(compiled(text, processor), processor)["k"].entry.modes & ~modes.IEEE == mode
    x, y, z = map(flushed, values)
    product = flushed(x * y)
    wanted = np.where(x != 0, flushed(product + z), product)
    assert np.array_equal(ran(processor, text, values, dtype), wanted)
    kept = np.where(values[0] != 0, values[0] * values[1] + values[2], values[0] * values[1])
    assert np.array_equal(ran(processor, kernel(type_, code, ""), values, dtype), kept)


@pytest.mark.parametrize("processor", TARGETS)
def test_a_quotient_is_computed_with_subnormals_and_delivered_without(processor: str) -> None:
    """LLVM changes the mode in the middle of a division."""
    values = sources("f4")
    text = kernel("float", "  %r = fdiv float %x, %y\n", FLUSHING)
    found = programs.kernels(compiled(text, processor), processor)["k"]
    code = read_kernel(found.code, found.target, lanes=found.lanes, kernel="k")
    assert any(one.stem in ("s_denorm_mode", "s_setreg_imm32_b32") for one in code)
    with np.errstate(all="ignore"):
        wanted = flushed(flushed(values[0]) / flushed(values[1]))
    got = ran(processor, text, values, "f4")
    normal = np.isfinite(wanted) & (np.abs(wanted) > TINY["f4"]) & (np.abs(wanted) < 2.0**120)
    assert normal.sum() > 30
    assert np.array_equal(got[normal], wanted[normal])


@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("rcp", 2.0**-127, np.inf), ("rcp", 2.0**127, 0.0), ("rsq", 2.0**-130, np.inf), ("sqrt", 2.0**-140, 0.0),
        ("exp2", -127.0, 0.0), ("exp2", -126.0, 2.0**-126), ("log", 2.0**-127, -np.inf), ("log", 2.0**-126, -126.0),
    ],
)  # fmt: skip
def test_functions_of_f32_flush_in_every_mode(processor: str, name: str, x: float, wanted: float) -> None:
    """AMD's ISA documents say of each: 1ULP accuracy, denormals are flushed."""
    text = kernel("float", f"  %r = call float @llvm.amdgcn.{name}.f32(float %x)\n", "", FUNCTIONS)
    values = [np.full(256, v, "f4") for v in (x, 0, 0)]
    assert set(ran(processor, text, values, "f4")) == {np.float32(wanted)}


def test_smaller_and_larger_follow_the_mode_of_sources_alone() -> None:
    """FLOAT_MODE 0xD0: sources of f32 are kept, results flushed."""
    text = kernel("float", "  %r = call float @llvm.minnum.f32(float %x, float %y)\n", "", "declare float @llvm.minnum.f32(float, float)\n")
    bench = Bench("gfx1100")
    found = programs.kernels(compiled(text, "gfx1100"), "gfx1100")["k"]
    values = sources("f4")
    changed = replace(found, entry=replace(found.entry, modes=0xD0))
    out = bench.new(np.zeros(256), "f4")
    done = bench.launch(
        programs.program(changed, bench.settings), changed, 1, 256, out, *(bench.new(v, "f4") for v in values), options=QUICK
    )
    assert done.fault is None
    least = np.fmin(values[0], values[1])
    tiny = (np.abs(least) < TINY["f4"]) & (least != 0)
    assert tiny.any()
    assert np.all(np.isin(out[tiny], [*least[tiny], 0.0]))


def overflowing(processor: str, type_: str, code: str, values: list[Array], extra: str = "") -> list[Array]:
    """Return what a kernel computes of x, y and z in the usual mode, and with FP16_OVFL."""
    text, bench = kernel(type_, code, "", extra), Bench(processor)
    found = programs.kernels(compiled(text, processor), processor)["k"]
    outs = []
    for mode in (modes.KEEP_ALL, modes.KEEP_ALL | modes.SATURATES):
        changed = replace(found, entry=replace(found.entry, modes=mode))
        outs.append(bench.new(np.zeros(256), values[0].dtype.str[1:]))
        ready = programs.program(changed, bench.settings)
        sent = [outs[-1], *(bench.new(v, v.dtype.str[1:]) for v in values)]
        assert bench.launch(ready, changed, 1, 256, *sent, options=QUICK).fault is None
    return outs


@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize("operation", ["scalar", "packed", "mixed"])
def test_halves_that_overflow_are_the_largest_where_the_mode_says_so(processor: str, operation: str) -> None:
    """An infinity of a source stays; so does a NaN."""
    x = np.resize(np.array([60000, -60000, 3, np.inf, -np.inf, np.nan, 255, 65504], "f2"), 256)
    y = np.repeat(np.array([1, -2, 300, 0.5, np.inf, 256, 0, 1.5], "f2"), 32)
    with np.errstate(all="ignore"):
        wanted = x * y
    over = np.isinf(wanted) & np.isfinite(x) & np.isfinite(y)
    largest = np.where(over, np.copysign(np.float16(65504), wanted), wanted)
    assert over.sum() > 40
    type_, code = {
        "scalar": ("half", "  %r = fmul half %x, %y\n"),
        "packed": ("<2 x half>", "  %r = fmul <2 x half> %x, %y\n"),
        "mixed": ("half", """  %a = fpext half %x to float
  %b = fpext half %y to float
  %m = fmul float %a, %b
  %r = fptrunc float %m to half
"""),
    }[operation]  # fmt: skip
    if type_ == "half":
        usual, saturated = overflowing(processor, type_, code, [x, y, y])
    else:
        pairs = [np.repeat(v, 2).view("u4") for v in (x, y, y)]
        usual, saturated = (out.view("f2")[::2] for out in overflowing(processor, type_, code, pairs))
    assert np.array_equal(usual, wanted, equal_nan=True)
    assert np.array_equal(saturated, largest, equal_nan=True)


def test_a_kernel_begins_with_fp16_ovfl_of_its_descriptor_and_changes_it() -> None:
    assert modes.at_start(0xF0 << 12 | 1 << 21, "gfx11") == modes.KEEP_ALL
    assert modes.at_start(0xF0 << 12, "gfx9") == modes.KEEP_ALL | modes.KEEPS_NAN
    assert modes.at_start(0xF0 << 12 | 5 << 21, "gfx11") == modes.KEEP_ALL | modes.IEEE
    assert modes.at_start(0xF0 << 12 | 1 << 26 | 4 << 21, "gfx12") == modes.KEEP_ALL | modes.SATURATES
    text = ir.HEAD + "declare void @llvm.amdgcn.s.setreg(i32, i32)\n" + (
        "define amdgpu_kernel void @k(ptr addrspace(1) %o) {\n"
        "  call void @llvm.amdgcn.s.setreg(i32 1473, i32 1)\n"
        "  call void @llvm.amdgcn.s.setreg(i32 6401, i32 12)\n"
        "  store volatile i32 2, ptr addrspace(1) %o\n  ret void\n}\n"
    )  # fmt: skip
    for processor in TARGETS:
        found = programs.kernels(compiled(text, processor), processor)["k"]
        mode, seen = modes.KEEP_ALL, []
        for one in read_kernel(found.code, found.target, lanes=found.lanes, kernel="k"):
            mode = modes.changed(mode, one, "k")
            seen.append(mode)
        assert seen[-1] == 0xC0 | modes.SATURATES
    other = text.replace("i32 1473,", "i32 1025,")  # bit 16
    with pytest.raises(IsaError, match="FP16_OVFL"):
        Bench("gfx1100").kernel(other)


@pytest.mark.parametrize("stem", ["v_rcp_f16", "v_log_f16", "v_div_fixup_f16", "v_wmma_f16_16x16x16_f16", "v_s_exp_f16", "v_mad_f16"])
def test_overflow_that_no_source_documents_is_refused(stem: str) -> None:
    mode = modes.KEEP_ALL | modes.SATURATES
    assert modes.unknown(stem, mode)
    assert not modes.unknown(stem, modes.KEEP_ALL)
    for known in ("v_mul_f16", "v_max_f16", "v_cvt_f32_f16", "v_wmma_f32_16x16x16_f16", "v_dot2_f32_bf16", "v_cmp_lt_f16"):
        assert not modes.unknown(known, mode)


def test_a_rounding_without_a_source_is_refused_by_name() -> None:
    rounding = "define amdgpu_kernel void @k(ptr addrspace(1) %o) {\n  call void @llvm.amdgcn.s.setreg(i32 2049, i32 1)\n  store volatile i32 2, ptr addrspace(1) %o\n  ret void\n}\ndeclare void @llvm.amdgcn.s.setreg(i32, i32)\n"
    with pytest.raises(IsaError, match="rounding to nearest even"):
        Bench("gfx1100").kernel('target triple = "amdgcn-amd-amdhsa"\n' + rounding)


def test_paths_with_different_modes_that_meet_are_refused() -> None:
    text = 'target triple = "amdgcn-amd-amdhsa"\n' + """declare void @llvm.amdgcn.s.setreg(i32, i32)
define amdgpu_kernel void @k(i32 %n, ptr addrspace(1) %o) {
  %c = icmp eq i32 %n, 0
  br i1 %c, label %one, label %two
one:
  call void @llvm.amdgcn.s.setreg(i32 2305, i32 0)
  store volatile i32 1, ptr addrspace(1) %o
  br label %two
two:
  store volatile i32 2, ptr addrspace(1) %o
  ret void
}
"""
    with pytest.raises(IsaError, match="wanted one float mode on all paths"):
        Bench("gfx1100").kernel(text)


def test_modes_are_followed_round_a_loop() -> None:
    found = programs.kernels(compiled(ir.COLLATZ, "gfx1100"), "gfx1100")["k"]
    blocks = cut(read_kernel(found.code, found.target, lanes=32, kernel="k"))
    assert set(modes.at_blocks(blocks, 0xC0, "k").values()) == {0xC0}
    assert len(modes.at_blocks(blocks, 0xC0, "k")) == len(blocks)
