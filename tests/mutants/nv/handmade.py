"""Hand-written PTX with features that the compiler does not use: asynchronous copies, mbarriers, fences.

Next: `tests.mutants.corpus`, which removes their barriers.
"""

from __future__ import annotations

from typing import Final

_HEAD: Final = ".version 8.0\n.target sm_90a\n.address_size 64\n"

PIPELINE: Final = (
    _HEAD
    + """
.visible .entry pipeline(.param .u64 out, .param .u64 in) {
 .shared .align 16 .b8 room[2048];
 .shared .align 8 .b64 ready;
 .reg .b64 %rd<8>;
 .reg .b32 %r<12>;
 .reg .f32 %f<4>;
 .reg .pred %p<4>;
 ld.param.u64 %rd0, [out];
 ld.param.u64 %rd1, [in];
 mov.u32 %r0, %tid.x;
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, room;
 mov.u32 %r9, ready;
 setp.ne.u32 %p0, %r0, 0;
 @%p0 bra START;
 mbarrier.init.shared.b64 [%r9], 64;
START:
 bar.sync 0;
 shl.b32 %r3, %r1, 9;
 shl.b32 %r4, %r0, 2;
 add.u32 %r5, %r3, %r4;
 mul.wide.u32 %rd2, %r5, 4;
 add.u64 %rd1, %rd1, %rd2;
 shl.b32 %r6, %r0, 4;
 add.u32 %r6, %r6, %r2;
 cp.async.ca.shared.global [%r6], [%rd1], 16;
 cp.async.commit_group;
 cp.async.ca.shared.global [%r6+1024], [%rd1+1024], 16;
 cp.async.commit_group;
 cp.async.wait_group 1;
 mbarrier.arrive.shared.b64 %rd4, [%r9];
FIRST:
 mbarrier.test_wait.shared.b64 %p1, [%r9], %rd4;
 @!%p1 bra FIRST;
 sub.u32 %r7, 63, %r0;
 shl.b32 %r7, %r7, 4;
 add.u32 %r7, %r7, %r2;
 ld.shared.f32 %f0, [%r7];
 cp.async.wait_group 0;
 bar.sync 0;
 ld.shared.f32 %f1, [%r7+1024];
 add.rn.f32 %f0, %f0, %f1;
 mad.lo.u32 %r8, %r1, 64, %r0;
 mul.wide.u32 %rd3, %r8, 4;
 add.u64 %rd0, %rd0, %rd3;
 st.global.f32 [%rd0], %f0;
 ret;
}
"""
)
"""Two asynchronous copies into shared memory; other threads than the issuing ones read the data."""

LAST_BLOCK: Final = (
    _HEAD
    + """
.visible .entry last(.param .u64 out, .param .u64 parts, .param .u64 done, .param .u64 in) {
 .shared .align 4 .b8 sums[256];
 .reg .b64 %rd<8>;
 .reg .b32 %r<12>;
 .reg .f32 %f<4>;
 .reg .pred %p<4>;
 ld.param.u64 %rd0, [out];
 ld.param.u64 %rd1, [parts];
 ld.param.u64 %rd2, [done];
 ld.param.u64 %rd3, [in];
 mov.u32 %r0, %tid.x;
 mov.u32 %r1, %ctaid.x;
 mad.lo.u32 %r2, %r1, 64, %r0;
 mul.wide.u32 %rd4, %r2, 4;
 add.u64 %rd3, %rd3, %rd4;
 ld.global.f32 %f0, [%rd3];
 mov.u32 %r3, sums;
 shl.b32 %r4, %r0, 2;
 add.u32 %r3, %r3, %r4;
 st.shared.f32 [%r3], %f0;
 bar.sync 0;
 setp.ne.u32 %p0, %r0, 0;
 @%p0 bra END;
 mov.f32 %f1, 0f00000000;
 mov.u32 %r5, 0;
SUM:
 add.u32 %r6, %r3, %r5;
 ld.shared.f32 %f2, [%r6];
 add.rn.f32 %f1, %f1, %f2;
 add.u32 %r5, %r5, 4;
 setp.lt.u32 %p1, %r5, 256;
 @%p1 bra SUM;
 mul.wide.u32 %rd5, %r1, 4;
 add.u64 %rd5, %rd1, %rd5;
 st.volatile.global.f32 [%rd5], %f1;
 fence.acq_rel.gpu;
 atom.global.add.u32 %r7, [%rd2], 1;
 fence.acq_rel.gpu;
 setp.ne.u32 %p2, %r7, 7;
 @%p2 bra END;
 mov.f32 %f1, 0f00000000;
 mov.u32 %r5, 0;
ALL:
 cvt.u64.u32 %rd6, %r5;
 add.u64 %rd6, %rd1, %rd6;
 ld.volatile.global.f32 %f2, [%rd6];
 add.rn.f32 %f1, %f1, %f2;
 add.u32 %r5, %r5, 4;
 setp.lt.u32 %p1, %r5, 32;
 @%p1 bra ALL;
 st.global.f32 [%rd0], %f1;
END:
 ret;
}
"""
)
"""The workgroup that finishes last adds the partial sums of all workgroups."""
