"""Kernels of others: endless ones are ended, relocations on upload, idle lanes of shared accesses."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
import interop
from compiler.llvm import Machine, emit_object
from hcq.config import override, read
from hcq.errors import UsageError

PTX = """.version 8.5
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 .ptr .global p) {
  .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred %p;
  ld.param.u64 %rd0, [p];
L: atom.global.add.u32 %r0, [%rd0], 2; and.b32 %r1, %r0, 1; setp.eq.u32 %p, %r1, 0; @%p bra L;
  ret;
}
"""
IR = """
define amdgpu_kernel void @spin(ptr addrspace(1) %p) #0 {
  br label %loop
loop:
  %old = atomicrmw add ptr addrspace(1) %p, i32 2 syncscope("agent") monotonic
  %odd = and i32 %old, 1
  %again = icmp eq i32 %odd, 0
  br i1 %again, label %loop, label %end
end:
  ret void
}
attributes #0 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-ptr" "amdgpu-no-dispatch-id" }
"""


@pytest.mark.parametrize("name", ["nv-emu:sm_80", pytest.param("amd-emu:gfx1201", marks=pytest.mark.slow)])
def test_a_loop_of_atomics_is_ended_after_the_time_of_the_setting(name: str):
    with override(emu_timeout_s=1), hcq.open(name) as device:
        amd = device.info.arch.startswith("gfx")
        code = emit_object(IR, Machine("amdgcn-amd-amdhsa", device.info.arch, "")) if amd else PTX
        data = interop.array(device, np.zeros(1, np.int32))
        with pytest.raises(hcq.DeviceFault, match=r"kernel did not end in time.*ended after 1 s of CPU time"):
            interop.load(device, code).launch(data, groups=1, threads=32).wait()


def test_the_time_is_at_least_a_second():
    with pytest.raises(UsageError, match="HCQ_EMU_TIMEOUT must be at least 1, it is '0'"):
        read({"HCQ_EMU_TIMEOUT": "0"})
    assert read({"HCQ_EMU_TIMEOUT": "7"}).emu_timeout_s == 7


HEAD = ".version 8.5\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 .ptr .global p) {\n"
DIVIDE = """
  .reg .b64 %rd<2>; .reg .f64 %f<3>;
  ld.param.u64 %rd0, [p]; ld.global.f64 %f0, [%rd0]; ld.global.f64 %f1, [%rd0+8];
  div.rn.f64 %f2, %f0, %f1; st.global.f64 [%rd0], %f2; ret;
}
"""
TABLE = """
  .reg .b64 %rd<4>; .reg .b32 %r<3>;
  ld.param.u64 %rd0, [p]; ld.global.u32 %r0, [%rd0];
  mov.u64 %rd1, table; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r1, [%rd3]; st.global.u32 [%rd0], %r1; ret;
}
"""


@pytest.fixture(scope="module", params=["nv-emu:sm_80", "nv-emu:sm_90"])
def device(request: pytest.FixtureRequest):
    with hcq.open(request.param) as opened:
        yield opened


def test_division_of_doubles_calls_the_function_in_the_image(device: hcq.Device):
    values = interop.array(device, np.array([1.0, 3.0]))
    interop.load(device, HEAD + DIVIDE).launch(values, groups=1, threads=1)
    assert values.numpy()[0] == 1.0 / 3.0


def test_tables_of_the_module_are_found(device: hcq.Device):
    text = HEAD.replace(".visible", ".global .align 4 .b32 table[4] = {10, 20, 30, 40};\n.visible") + TABLE
    values = interop.array(device, np.array([2], np.uint32))
    interop.load(device, text).launch(values, groups=1, threads=1)
    assert values.numpy()[0] == 30


IDLE = """.version 8.5
.target sm_80
.address_size 64
.visible .entry k(.param .u64 .ptr .global p) {
 .reg .b64 %rd<4>; .reg .b32 %r<9>; .reg .pred %p;
 .shared .align 4 .b8 s[512];
 ld.param.u64 %rd0, [p]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;
 st.shared.u32 [%r3], %r0; bar.sync 0;
 mov.u32 %r5, 0; setp.ge.u32 %p, %r0, 3;
 @%p ACCESS;
 bar.sync 0; ld.shared.u32 %r6, [%r3]; add.u32 %r5, %r5, %r6;
 mul.wide.u32 %rd1, %r0, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r5; ret;
}
"""
T = np.arange(128)
LOADED = T + np.where(T >= 3, T - 3, 0)
STORED = np.where(T <= 124, T + 3, T)


@pytest.mark.parametrize(
    ("access", "wanted"),
    [("ld.shared.u32 %r5, [%r3+-12]", LOADED), ("st.shared.u32 [%r3+-12], %r0", STORED)],
    ids=["load", "store"],
)
def test_idle_lanes_before_shared_memory_are_not_accessed(access: str, wanted: np.ndarray):
    with hcq.open("nv-emu:sm_80") as device:
        out = interop.empty(device, 128, np.uint32)
        interop.load(device, IDLE.replace("ACCESS", access)).launch(out, groups=1, threads=128)
        assert out.numpy().tolist() == wanted.tolist()
