"""Whole code objects, run with the registers that a launch sets: Triton's of three targets, and what descriptors ask for."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emulator.amd.isa import programs
from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import KernelEntry, read_kernel, translate
from emulator.simt.engine import engine
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench

TRITON = Path(__file__).parents[2] / "drivers/amd/triton"
QUICK = LaunchOptions(tier="quick", threads=1)
WARPS, SHARED = 4, 16
"""Of each of Triton's kernels, as its README says."""


@pytest.mark.sampled(7)
@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize("columns", [1024, 700])
def test_a_code_object_of_triton_sums_rows(processor: str, columns: int) -> None:
    bench = Bench(processor)
    kernel = programs.kernels((TRITON / f"rowsum_{processor}.hsaco").read_bytes(), processor)["rowsum"]
    x = bench.new(np.random.default_rng(8).standard_normal((3, columns)), "f4")
    out = bench.new(np.zeros(3), "f4")
    arguments = bench.new(
        np.frombuffer(struct.pack("<QQi", x.ctypes.data, out.ctypes.data, columns).ljust(64, b"\0"), "u1"),
        "u1",
    )
    done = programs.run(
        programs.program(kernel, bench.settings), kernel, (3, 1, 1), (WARPS * kernel.lanes, 1, 1),
        arguments.ctypes.data, bench.memory, QUICK, shared_bytes=SHARED,
    )  # fmt: skip
    assert done.fault is None, done.fault
    size = np.abs(x.astype("f8")).sum(axis=1)
    assert np.all(np.abs(out - x.astype("f8").sum(axis=1)) <= size * 2.0**-20)


GROUP_Y = (
    ir.HEAD
    + """declare i32 @llvm.amdgcn.workgroup.id.y()
define amdgpu_kernel void @k(ptr addrspace(1) %o) {
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %first = mul i32 %group, 96
  %i = add i32 %first, %thread
  %p = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %y, ptr addrspace(1) %p
  ret void
}
"""
)


def test_a_wave_is_told_of_its_workgroup_behind_the_ids() -> None:
    """The register of the second id holds the workgroup's waves and which is the first where that is asked for instead."""
    bench = Bench("gfx1100")
    _, kernel = bench.kernel(GROUP_Y)
    kernel = replace(kernel, entry=replace(kernel.entry, group_ids=(True, False, False), group_info=True))
    out = bench.new(np.zeros(192), "u4")
    done = bench.launch(programs.program(kernel, bench.settings), kernel, 2, 96, out, options=QUICK)
    assert done.fault is None, done.fault
    wanted = np.full((2, 3, 32), 3, "u4")
    wanted[:, 0] |= 1 << 31
    assert np.array_equal(out, wanted.ravel())


def test_a_kernel_reads_data_behind_its_code() -> None:
    """s_getpc_b64 s[2:3]; s_load_b32 s4, s[2:3], 0x28; wait; each lane stores it; the data are 0x2c bytes from the start."""
    words = "BE824700 F4000101 F8000028 BF890000 7E020204 30000082 DC6A0000 00000100 BFB00000 BF800000 BF800000 12345678"
    bench = Bench("gfx1100")
    code = bench.new(np.array([int(w, 16) for w in words.split()]), "u4")
    kernel = programs.KernelCode(
        name="k", code=code.tobytes(), target=target("gfx1100"), lanes=32, entry=KernelEntry(user_sgprs=2, code_address=True),
        shared_bytes=0, scratch_bytes=0, kernarg_bytes=0, kernarg_at=0,
    )  # fmt: skip
    out = bench.new(np.zeros(32), "u4")
    done = programs.run(
        programs.program(kernel, bench.settings), kernel, (1, 1, 1), (32, 1, 1), out.ctypes.data, bench.memory, QUICK,
        code=code.ctypes.data,
    )  # fmt: skip
    assert done.fault is None, done.fault
    assert np.array_equal(out, np.full(32, 0x12345678))


def test_the_scalar_reciprocal_of_gfx12() -> None:
    code = """target triple = "amdgcn-amd-amdhsa"
declare float @llvm.amdgcn.rcp.f32(float)
declare half @llvm.amdgcn.sqrt.f16(half)
define amdgpu_kernel void @k(ptr addrspace(1) %o, float %a, float %b) {
  %r = call float @llvm.amdgcn.rcp.f32(float %a)
  %h = fptrunc float %b to half
  %s = call half @llvm.amdgcn.sqrt.f16(half %h)
  %t = fpext half %s to float
  %q = getelementptr float, ptr addrspace(1) %o, i32 1
  store float %r, ptr addrspace(1) %o
  store float %t, ptr addrspace(1) %q
  ret void
}
"""
    bench = Bench("gfx1201")
    _, kernel = bench.kernel(code)
    names = {i.name for i in read_kernel(kernel.code, kernel.target, lanes=32, kernel="k")}
    assert {"v_s_rcp_f32", "v_s_sqrt_f16"} <= names
    out = bench.new(np.zeros(2), "f4")
    values = np.array([-8.0, 2.25], "f4").view("u4").tolist()
    done = bench.run(code, 1, 32, out, *values, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == [-0.125, 1.5]


def test_a_float_mode_that_is_not_followed_is_refused() -> None:
    bench = Bench("gfx1100")
    kernel = bench.kernel(GROUP_Y)[1]
    flushing = replace(kernel, entry=replace(kernel.entry, modes=0xC1))
    with pytest.raises(IsaError, match=r"^k\+0x0: float mode 0xc1"):
        programs.program(flushing, bench.settings)


@pytest.mark.parametrize(
    ("name", "words"), [("gfx1201", "BE800076 BFB00000"), ("gfx1100", "BE800075 BFB00000")]
)
def test_a_trap_register_that_no_one_describes_is_refused(name: str, words: str) -> None:
    code = b"".join(int(w, 16).to_bytes(4, "little") for w in words.split())
    with pytest.raises(IsaError, match="ttmp"):
        translate(engine(Bench(name).settings).library, "probe", code, target(name), KernelEntry(user_sgprs=2))
