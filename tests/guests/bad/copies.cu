// Asynchronous copies of sm_80: waits, groups, stages. What the marks mean: twin.h.
#include "twin.h"
#include <cuda_pipeline.h>

K copy_no_wait(const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);
  __pipeline_commit();
  FIX(__pipeline_wait_prior(0);)
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x].x;  // BAD: copy_in_flight
}
K copy_wrong_group(const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[2][64];
  __pipeline_memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_memcpy_async(&s[1][threadIdx.x], &x[64 + threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_wait_prior(OR(0, 1));
  __syncthreads();
  out[threadIdx.x] = s[0][63 - threadIdx.x].x;
  out[64 + threadIdx.x] = s[1][63 - threadIdx.x].x;  // BAD: copy_in_flight
}
K copy_no_commit(const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[64];
  FIX(__pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);)
  __pipeline_commit();
  OR(, __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);)
  __pipeline_wait_prior(OR(0, 1));
  __syncthreads();
  out[threadIdx.x] = s[63 - threadIdx.x].x;  // BAD: copy_in_flight
}
K copy_no_barrier(const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);  // BAD: shared_race
  __pipeline_commit();
  __pipeline_wait_prior(0);
  FIX(__syncthreads();)
  out[threadIdx.x] = s[63 - threadIdx.x].x;  // BAD: shared_race, copy_in_flight
}
K pipeline_no_reuse_barrier(int n, const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[64];
  float total = 0;
  for (int i = 0; i < n; i++) {
    __pipeline_memcpy_async(&s[threadIdx.x], &x[64 * i + threadIdx.x], 16);  // BAD: shared_race
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    total += s[63 - threadIdx.x].x;  // BAD: shared_race
    FIX(__syncthreads();)
  }
  out[threadIdx.x] = total;
}
K pipeline_wrong_stage(int n, const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[2][64];
  float total = 0;
  __pipeline_memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], 16);
  __pipeline_commit();
  for (int i = 0; i < n; i++) {
    if (i + 1 < n) __pipeline_memcpy_async(&s[(i + 1) % 2][threadIdx.x], &x[64 * (i + 1) + threadIdx.x], 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    total += s[(i + OR(0, 1)) % 2][63 - threadIdx.x].x;  // BAD: copy_in_flight, uninitialised
    __syncthreads();
  }
  out[threadIdx.x] = total;
}
K pipeline_one_stage_short(int n, const float4 *x, float *out) {
  __shared__ alignas(16) float4 s[3][64];
  float total = 0;
  for (int i = 0; i < 2; i++) {
    __pipeline_memcpy_async(&s[i][threadIdx.x], &x[64 * i + threadIdx.x], 16);
    __pipeline_commit();
  }
  for (int i = 0; i < n; i++) {
    __pipeline_wait_prior(OR(1, 2));
    __syncthreads();
    total += s[i % 3][63 - threadIdx.x].x;  // BAD: copy_in_flight
    if (i + 2 < n) __pipeline_memcpy_async(&s[(i + 2) % 3][threadIdx.x], &x[64 * (i + 2) + threadIdx.x], 16);
    __pipeline_commit();
  }
  out[threadIdx.x] = total;
}
