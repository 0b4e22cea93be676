// Barriers and warp operations in divergent code. What the marks mean: twin.h.
#include "twin.h"

K barrier_in_branch(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  FIX(__syncthreads();)
  if (threadIdx.x < 32) {
    OR(, __syncthreads();)  // BAD: barrier_deadlock
    out[threadIdx.x] = s[threadIdx.x] + s[63 - threadIdx.x];  // BAD: shared_race
  }
}
K barrier_in_part_of_warp(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  FIX(__syncthreads();)
  if (x[threadIdx.x] % 2) {
    OR(, __syncthreads();)  // BAD: barrier_deadlock, partial_barrier
    out[threadIdx.x] = s[63 - threadIdx.x];
  } else
    out[threadIdx.x] = 0;
}
K barrier_after_return(int n, const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0;
  OR(, if (threadIdx.x >= n) return;)
  __syncthreads();  // BAD: barrier_deadlock, partial_barrier
  if (threadIdx.x < n) out[threadIdx.x] = s[63 - threadIdx.x];
}
K barrier_in_uneven_loop(int n, const int *x, int *out) {
  __shared__ int s[64];
  int total = 0;
  for (int base = 0; base < n; base += 64) {
    int i = base + threadIdx.x;
    OR(, if (i >= n) break;)
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();  // BAD: barrier_deadlock, partial_barrier
    total += s[threadIdx.x ^ 1];
    __syncthreads();
  }
  out[threadIdx.x] = total;
}
K barriers_of_two_branches(const int *x, int *out) {
  __shared__ int s[64];
  if (threadIdx.x % 2) {
    s[threadIdx.x] = x[threadIdx.x];
    OR(, __syncthreads();)  // BAD: divergent_barriers, partial_barrier
  } else {
    s[threadIdx.x] = -x[threadIdx.x];
    OR(, __syncthreads();)  // BAD: divergent_barriers, partial_barrier
  }
  FIX(__syncthreads();)
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K barrier_of_too_many(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  asm volatile("bar.sync 1, %0;" ::"r"(OR(64, 96)) : "memory");  // BAD: barrier_deadlock
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K barrier_of_part_of_warp(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  asm volatile("bar.sync 1, %0;" ::"r"(OR(64, 48)) : "memory");  // BAD: bad_barrier
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K shuffle_in_branch(int n, const int *x, int *out) {
  int v = x[threadIdx.x];
  if (threadIdx.x < OR(32, n))
    v += __shfl_down_sync(~0u, v, 1);  // BAD: absent_lane
  out[threadIdx.x] = v;
}
K shuffle_mask_too_small(const int *x, int *out) {
  int v = x[threadIdx.x];
  for (int d = 16; d; d >>= 1)
    v += __shfl_xor_sync(OR(~0u, 0xffffu), v, d);  // BAD: absent_lane
  out[threadIdx.x] = v;
}
K ballot_in_branch(int n, const int *x, unsigned *out) {
  unsigned mask = OR(__ballot_sync(~0u, threadIdx.x < n), ~0u);
  if (threadIdx.x < n)
    out[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] > 0);  // BAD: absent_lane
}
K redux_wrong_mask(const unsigned *x, unsigned *out) {
  unsigned v = x[threadIdx.x];
  if (threadIdx.x < 16)
    out[threadIdx.x] = __reduce_max_sync(OR(0xffffu, 0x1ffffu), v);  // BAD: absent_lane
}
K syncwarp_in_branch(const int *x, int *out) {
  __shared__ int s[32];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  if (threadIdx.x < 8) {
    s[threadIdx.x] += 1;
    __syncwarp(OR(0xffu, ~0u));  // BAD: absent_lane
    out[threadIdx.x] = s[7 - threadIdx.x];
  }
}
