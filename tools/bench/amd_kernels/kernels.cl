// The kernels of `tools.bench emu` for AMD GPUs, in OpenCL C: what tools/bench/emu.py has in PTX.
// `python -m tests.guests.build_amd opencl` compiles them.

#define ITEM __builtin_amdgcn_workitem_id_x()
#define ITEM_Y __builtin_amdgcn_workitem_id_y()
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()

static void sync(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__attribute__((reqd_work_group_size(256, 1, 1))) __kernel
void vadd(__global float *c, __global const float *a, __global const float *b, uint n) {
  uint i = GROUP * 256 + ITEM;
  if (i < n) c[i] = a[i] + b[i];
}

__attribute__((reqd_work_group_size(256, 1, 1))) __kernel
void reduce(__global float *out, __global const float *in) {
  __local float part[256];
  uint t = ITEM;
  __global const float *p = in + GROUP * 1024 + t;
  part[t] = p[0] + p[256] + p[512] + p[768];
  sync();
  for (uint k = 128; k; k >>= 1) {
    if (t < k) part[t] += part[t + k];
    sync();
  }
  if (!t) out[GROUP] = part[0];
}

// tiles of 64 x 64 x 16, 16 x 16 work-items, 4 x 4 results each
__attribute__((reqd_work_group_size(16, 16, 1))) __kernel
void matmul(__global float *c, __global const float *a, __global const float *b, uint n) {
  __local float left[16][65], right[16][64];
  uint x = ITEM, y = ITEM_Y, t = y * 16 + x, row = GROUP_Y * 64, column = GROUP * 64;
  float sum[4][4] = {{0}};
  for (uint k0 = 0; k0 < n; k0 += 16) {
#pragma unroll
    for (uint i = 0; i < 4; i++) {
      uint e = t + 256 * i;
      left[e & 15][e >> 4] = a[(row + (e >> 4)) * n + k0 + (e & 15)];
      right[e >> 6][e & 63] = b[(k0 + (e >> 6)) * n + column + (e & 63)];
    }
    sync();
#pragma unroll
    for (uint k = 0; k < 16; k++) {
      float p[4], q[4];
#pragma unroll
      for (uint i = 0; i < 4; i++) { p[i] = left[k][y + 16 * i]; q[i] = right[k][x + 16 * i]; }
#pragma unroll
      for (uint i = 0; i < 4; i++)
#pragma unroll
        for (uint j = 0; j < 4; j++) sum[i][j] = __builtin_fmaf(p[i], q[j], sum[i][j]);
    }
    sync();
  }
#pragma unroll
  for (uint i = 0; i < 4; i++)
#pragma unroll
    for (uint j = 0; j < 4; j++) c[(row + y + 16 * i) * n + column + x + 16 * j] = sum[i][j];
}

__attribute__((reqd_work_group_size(256, 1, 1))) __kernel
void collatz(__global uint *steps, uint n) {
  uint i = GROUP * 256 + ITEM;
  if (i >= n) return;
  uint value = i + 1, count = 0;
  while (value != 1) {
    value = value & 1 ? 3 * value + 1 : value >> 1;
    count++;
  }
  steps[i] = count;
}
