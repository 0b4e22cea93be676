// Barriers of a block and of a warp that shared memory needs. What the marks mean: twin.h.
#include "twin.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

K reduce_no_first_barrier(int n, const float *x, float *out) {
  __shared__ float part[128];
  part[threadIdx.x] = AT < n ? x[AT] : 0;  // BAD: shared_race
  FIX(__syncthreads();)
  for (int step = 64; step; step >>= 1) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];  // BAD: shared_race
    __syncthreads();
  }
  if (!threadIdx.x) out[blockIdx.x] = part[0];
}
K reduce_no_loop_barrier(int n, const float *x, float *out) {
  __shared__ float part[128];
  part[threadIdx.x] = AT < n ? x[AT] : 0;
  __syncthreads();
  for (int step = 64; step; step >>= 1) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];  // BAD: shared_race
    FIX(__syncthreads();)
  }
  if (!threadIdx.x) out[blockIdx.x] = part[0];
}
K reduce_no_last_barrier(const float *x, float *out) {
  __shared__ float part[4], total;
  float v = x[threadIdx.x];
  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) total = part[0] + part[1] + part[2] + part[3];  // BAD: shared_race
  FIX(__syncthreads();)
  out[threadIdx.x] = x[threadIdx.x] / total;  // BAD: shared_race
}
K reduce_warps_no_barrier(const int *x, int *out) {
  __shared__ int part[4];
  int v = x[threadIdx.x];
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;  // BAD: shared_race
  FIX(__syncthreads();)
  if (threadIdx.x < 4) atomicAdd(out, part[threadIdx.x]);  // BAD: shared_race
}
K scan_in_place(const int *x, int *out) {
  __shared__ int a[128];
  int t = threadIdx.x;
  a[t] = x[t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    int v = t >= d ? a[t - d] : 0;  // BAD: shared_race
    FIX(__syncthreads();)
    a[t] += v;  // BAD: shared_race
    __syncthreads();
  }
  out[t] = a[t];
}
K scan_no_second_barrier(const int *x, int *out) {
  __shared__ int a[128];
  int t = threadIdx.x;
  a[t] = x[t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    int v = t >= d ? a[t - d] : 0;  // BAD: shared_race
    __syncthreads();
    a[t] += v;  // BAD: shared_race
    FIX(__syncthreads();)
  }
  out[t] = a[t];
}
K scan_wrong_buffer(const int *x, int *out) {
  __shared__ int a[2][128];
  int t = threadIdx.x, in = 0;
  a[0][t] = x[t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2, in ^= 1) {
    a[OR(in ^ 1, in)][t] = a[in][t] + (t >= d ? a[in][t - d] : 0);  // BAD: shared_race
    __syncthreads();
    OR(, in ^= 1;)
  }
  out[t] = a[in][t];
}
K sort_no_barrier(const float *x, float *out) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int k = 2; k <= 128; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int o = t ^ j;
      if (o > t && (s[t] > s[o]) == !(t & k)) {  // BAD: shared_race
        float m = s[t];
        s[t] = s[o];  // BAD: shared_race
        s[o] = m;  // BAD: shared_race
      }
      FIX(__syncthreads();)
    }
  __syncthreads();
  out[t] = s[t];
}
K transpose_no_barrier(int n, const float *x, float *out) {
  __shared__ float tile[16][17];
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = x[r * n + c];  // BAD: shared_race
  FIX(__syncthreads();)
  c = blockIdx.y * 16 + threadIdx.x, r = blockIdx.x * 16 + threadIdx.y;
  out[r * n + c] = tile[threadIdx.x][threadIdx.y];  // BAD: shared_race
}
K stencil_no_barrier(int n, const float *x, float *out) {
  __shared__ float s[66];
  int t = threadIdx.x + 1;
  s[t] = AT < n ? x[AT] : 0;  // BAD: shared_race
  if (threadIdx.x == 0) s[0] = AT ? x[AT - 1] : 0;  // BAD: shared_race
  if (threadIdx.x == blockDim.x - 1) s[t + 1] = AT + 1 < n ? x[AT + 1] : 0;
  FIX(__syncthreads();)
  if (AT < n) out[AT] = s[t - 1] - 2 * s[t] + s[t + 1];  // BAD: shared_race
}
K stencil_loop_no_barrier(const float *x, float *out) {
  __shared__ float s[66];
  int t = threadIdx.x + 1;
  s[t] = x[threadIdx.x];
  if (t == 1) s[0] = s[65] = 0;
  __syncthreads();
  for (int i = 0; i < 3; i++) {
    float v = 0.5f * (s[t - 1] + s[t + 1]);  // BAD: shared_race
    FIX(__syncthreads();)
    s[t] = v;  // BAD: shared_race
    __syncthreads();
  }
  out[threadIdx.x] = s[t];
}
K gemm_no_first_barrier(int n, const float *a, const float *b, float *c) {
  __shared__ float x[16][16], y[16][16];
  int r = threadIdx.y, q = threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += 16) {
    x[r][q] = a[r * n + k + q];  // BAD: shared_race
    y[r][q] = b[(k + r) * 16 + q];  // BAD: shared_race
    FIX(__syncthreads();)
    for (int i = 0; i < 16; i++) total += x[r][i] * y[i][q];  // BAD: shared_race
    __syncthreads();
  }
  c[r * 16 + q] = total;
}
K gemm_no_second_barrier(int n, const float *a, const float *b, float *c) {
  __shared__ float x[16][16], y[16][16];
  int r = threadIdx.y, q = threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += 16) {
    x[r][q] = a[r * n + k + q];  // BAD: shared_race
    y[r][q] = b[(k + r) * 16 + q];  // BAD: shared_race
    __syncthreads();
    for (int i = 0; i < 16; i++) total += x[r][i] * y[i][q];  // BAD: shared_race
    FIX(__syncthreads();)
  }
  c[r * 16 + q] = total;
}
K nbody_no_second_barrier(int n, const float4 *p, float *out) {
  __shared__ float4 s[64];
  float4 me = p[AT];
  float total = 0;
  for (int b = 0; b < n; b += 64) {
    s[threadIdx.x] = p[b + threadIdx.x];  // BAD: shared_race
    __syncthreads();
    for (int j = 0; j < 64; j++) total += s[j].w * rsqrtf(fabsf(s[j].x - me.x) + 0.1f);  // BAD: shared_race
    FIX(__syncthreads();)
  }
  out[AT] = total;
}
K histogram_no_atomic(int n, const unsigned char *x, int *out) {
  __shared__ int bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    OR(atomicAdd(&bins[x[i] & 63], 1), bins[x[i] & 63]++);  // BAD: shared_race
  __syncthreads();
  if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];
}
K histogram_no_first_barrier(int n, const unsigned char *x, int *out) {
  __shared__ int bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;  // BAD: shared_race
  FIX(__syncthreads();)
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    atomicAdd(&bins[x[i] & 63], 1);  // BAD: shared_race
  __syncthreads();
  if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];
}
K histogram_no_last_barrier(int n, const unsigned char *x, int *out) {
  __shared__ int bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    atomicAdd(&bins[x[i] & 63], 1);  // BAD: shared_race
  FIX(__syncthreads();)
  if (threadIdx.x < 64) out[threadIdx.x] = bins[threadIdx.x];  // BAD: shared_race
}
K compaction_no_atomic(const int *x, int *out) {
  __shared__ int count;
  if (!threadIdx.x) count = 0;
  __syncthreads();
  if (x[threadIdx.x] > 0) {
    int at = OR(atomicAdd(&count, 1), count++);  // BAD: shared_race
    out[at] = x[threadIdx.x];
  }
}
K reduce_volatile_no_syncwarp(const int *x, int *out) {
  __shared__ volatile int s[64];
  int t = threadIdx.x;
  s[t] = x[t], s[t + 32] = x[t + 32];
  __syncwarp();
  for (int d = 32; d; d >>= 1) {
    int v = s[t + d < 64 ? t + d : t];  // BAD: shared_race
    FIX(__syncwarp();)
    if (t < d) s[t] += v;  // BAD: shared_race
    FIX(__syncwarp();)
  }
  if (!t) *out = s[0];
}
K softmax_no_syncwarp(int n, const float *x, float *out) {
  __shared__ float s[32];
  float total = 0;
  for (int i = threadIdx.x; i < n; i += 32) total += expf(x[i]);
  s[threadIdx.x] = total;  // BAD: shared_race
  FIX(__syncwarp();)
  total = 0;
  for (int i = 0; i < 32; i++) total += s[i];  // BAD: shared_race
  for (int i = threadIdx.x; i < n; i += 32) out[i] = expf(x[i]) / total;
}
K tiles_no_sync(const int *x, int *out) {
  __shared__ int s[64];
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  s[threadIdx.x] = x[threadIdx.x];  // BAD: shared_race
  FIX(tile.sync();)
  out[threadIdx.x] = s[threadIdx.x ^ 15];  // BAD: shared_race
}
K tiles_sync_too_small(const int *x, int *out) {
  __shared__ int s[64];
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<32>(block);
  s[threadIdx.x] = x[threadIdx.x];  // BAD: shared_race
  OR(block, tile).sync();
  out[threadIdx.x] = s[threadIdx.x ^ 63];  // BAD: shared_race
}
K named_barrier_wrong_number(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];  // BAD: shared_race
  asm volatile("bar.sync %0, %1;" ::"r"(OR(1, 1 + (int)threadIdx.x / 32)), "r"(OR(64, 32)) : "memory");
  out[threadIdx.x] = s[threadIdx.x ^ 63];  // BAD: shared_race
}
K producer_arrives_too_early(const int *x, int *out) {
  __shared__ int s[32];
  if (threadIdx.x < 32) {
    FIX(s[threadIdx.x] = x[threadIdx.x];)
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    OR(, s[threadIdx.x] = x[threadIdx.x];)  // BAD: shared_race
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x - 32] = s[63 - threadIdx.x];  // BAD: shared_race, uninitialised
  }
}
K flag_no_barrier(const int *x, int *out) {
  __shared__ bool any;
  if (!threadIdx.x) any = false;
  __syncthreads();
  if (x[threadIdx.x] == 77) any = true;  // BAD: shared_race
  FIX(__syncthreads();)
  out[threadIdx.x] = any ? 1 : 2;  // BAD: shared_race
}
