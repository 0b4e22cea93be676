"""Kernels that never end: they are ended after the CPU time of the setting, and their loop is named."""

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
    with pytest.raises(UsageError, match="HCQ_EMU_TIMEOUT must be at least 1 second, it is '0'"):
        read({"HCQ_EMU_TIMEOUT": "0"})
    assert read({"HCQ_EMU_TIMEOUT": "7"}).emu_timeout_s == 7
