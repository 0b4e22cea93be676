"""Kernels as the text of tinygrad's renderers, for what its tensors cannot ask for: scratch, a wild store.

Not here: their compilers (`redirected`), their launches (`cases`).
"""

from __future__ import annotations

_STORE = {
    "amd": """
define amdgpu_kernel void @store(ptr addrspace(1) %out) #0 {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %lane
  store i32 %lane, ptr addrspace(1) %to
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,64" }
""",
    "nv": """.version VERSION
.target TARGET
.address_size 64
.visible .entry store(.param .u64 out) .maxntid 64 {
  .reg .b32 %r<2>; .reg .b64 %d<3>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %d1, %r0, 4;
  add.s64 %d2, %d0, %d1;
  st.global.u32 [%d2], %r0;
  ret;
}
""",
}
_SCRATCH = {
    "amd": """
define amdgpu_kernel void @scratch(ptr addrspace(1) %out) #0 {
  %own = alloca [COUNT x i32]
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  br label %fill
fill:
  %i = phi i32 [ 0, %0 ], [ %next, %fill ]
  %value = add i32 %i, %lane
  %slot = getelementptr [COUNT x i32], ptr %own, i32 0, i32 %i
  store volatile i32 %value, ptr %slot
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, COUNT
  br i1 %more, label %fill, label %pick
pick:
  %twice = mul i32 %lane, 7
  %which = urem i32 %twice, COUNT
  %from = getelementptr [COUNT x i32], ptr %own, i32 0, i32 %which
  %picked = load volatile i32, ptr %from
  %to = getelementptr i32, ptr addrspace(1) %out, i32 %lane
  store i32 %picked, ptr addrspace(1) %to
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="1,64" }
""",
    "nv": """.version VERSION
.target TARGET
.address_size 64
.visible .entry scratch(.param .u64 out) .maxntid 64 {
  .local .align 4 .b8 own[BYTES];
  .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<6>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  mov.u64 %d3, own;
  mov.u32 %r1, 0;
FILL:
  add.u32 %r2, %r1, %r0;
  mul.wide.u32 %d1, %r1, 4;
  add.s64 %d2, %d3, %d1;
  st.local.u32 [%d2], %r2;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, COUNT;
  @%p bra FILL;
  mul.lo.u32 %r3, %r0, 7;
  rem.u32 %r4, %r3, COUNT;
  mul.wide.u32 %d1, %r4, 4;
  add.s64 %d2, %d3, %d1;
  ld.local.u32 %r5, [%d2];
  mul.wide.u32 %d4, %r0, 4;
  add.s64 %d5, %d0, %d4;
  st.global.u32 [%d5], %r5;
  ret;
}
""",
}


def store(vendor: str) -> str:
    """Return a kernel of out: each of at most 64 work-items writes its number to out[number]."""
    return _STORE[vendor]


def scratch(vendor: str, words: int) -> str:
    """Return a kernel of out: 64 work-items fill `words` words of scratch each, and store one of them.

    Work-item i stores 7 i % words + i, its word number 7 i % words.
    """
    return _SCRATCH[vendor].replace("COUNT", str(words)).replace("BYTES", str(4 * words))
