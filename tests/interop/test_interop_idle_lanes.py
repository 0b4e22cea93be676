"""Shared-memory accesses of which the first lanes take no part, and would lie before the memory."""

import numpy as np
import pytest

import hcq
import interop

PTX = """.version 8.5
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
        interop.load(device, PTX.replace("ACCESS", access)).launch(out, groups=1, threads=128)
        assert out.numpy().tolist() == wanted.tolist()
