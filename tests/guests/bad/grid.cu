// Blocks that share global memory: flags, fences, atomics, locks. What the marks mean: twin.h.
#include "twin.h"
#include <cuda/atomic>

K last_block_no_fence(const int *x, int *part, unsigned *count, int *out) {
  __shared__ bool last;
  int v = x[AT];
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (!threadIdx.x) {
    part[blockIdx.x] = v;  // BAD: global_race
    FIX(__threadfence();)
    last = atomicAdd(count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && !threadIdx.x) {
    int s = 0;
    FIX(__threadfence();)
    for (int i = 0; i < gridDim.x; i++)
      s += ((volatile int *)part)[i];  // BAD: global_race
    *out = s;
  }
}
K last_block_no_atomic(const int *x, int *part, unsigned *count, int *out) {
  if (!threadIdx.x) {
    part[blockIdx.x] = x[AT];
    __threadfence();
    unsigned seen = OR(atomicAdd(count, 1), (*count)++);  // BAD: global_race
    __threadfence();
    if (seen == gridDim.x - 1) *out = ((volatile int *)part)[0];
  }
}
K last_block_one_too_early(const int *x, int *part, unsigned *count, int *out) {
  if (!threadIdx.x) {
    part[blockIdx.x] = x[AT];  // BAD: global_race
    __threadfence();
    bool last = atomicAdd(count, 1) == gridDim.x - OR(1, 2);
    __threadfence();
    if (last) {
      int s = 0;
      for (int i = 0; i < gridDim.x; i++)
        s += ((volatile int *)part)[i];  // BAD: global_race, uninitialised
      *out = s;
    }
  }
}
K flag_no_release(int *flag, int *data, int *out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (blockIdx.x == 0) {
    *data = 42;  // BAD: global_race
    f.store(1, OR(cuda::std::memory_order_release, cuda::std::memory_order_relaxed));
  } else {
    while (!f.load(cuda::std::memory_order_acquire)) {}
    *out = *data + 1;  // BAD: global_race
  }
}
K flag_no_acquire(int *flag, int *data, int *out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (blockIdx.x == 0) {
    *data = 42;  // BAD: global_race
    f.store(1, cuda::std::memory_order_release);
  } else {
    while (!f.load(OR(cuda::std::memory_order_acquire, cuda::std::memory_order_relaxed))) {}
    *out = *data + 1;  // BAD: global_race
  }
}
K flag_of_block_scope(int *flag, int *data, int *out) {
  cuda::atomic_ref<int, OR(cuda::thread_scope_device, cuda::thread_scope_block)> f(*flag);
  if (blockIdx.x == 0) {
    *data = 42;  // BAD: global_race
    f.store(1, cuda::std::memory_order_release);  // BAD: global_race
  } else {
    while (!f.load(cuda::std::memory_order_acquire)) {}  // BAD: global_race
    *out = *data + 1;  // BAD: global_race
  }
}
K flag_volatile(volatile int *flag, int *data, int *out) {
  if (blockIdx.x == 0) {
    *data = 42;  // BAD: global_race
    FIX(__threadfence();)
    OR(atomicExch((int *)flag, 1), *flag = 1);  // BAD: global_race
  } else {
    while (!OR(atomicAdd((int *)flag, 0), *flag)) {}  // BAD: global_race
    FIX(__threadfence();)
    *out = *data + 1;  // BAD: global_race
  }
}
K fence_of_block_scope(int *flag, int *data, int *out) {
  if (blockIdx.x == 0) {
    *data = 42;  // BAD: global_race
    OR(__threadfence(), __threadfence_block());
    atomicExch(flag, 1);
  } else {
    while (!atomicAdd(flag, 0)) {}
    OR(__threadfence(), __threadfence_block());
    *out = *data + 1;  // BAD: global_race
  }
}
K atomics_of_block_scope(const int *x, int *out) {
  OR(atomicAdd(out, x[AT]), atomicAdd_block(out, x[AT]));  // BAD: global_race
}
K histogram_global_no_atomic(int n, const unsigned char *x, int *out) {
  if (AT < n)
    OR(atomicAdd(&out[x[AT] & 15], 1), out[x[AT] & 15]++);  // BAD: global_race
}
K total_no_atomic(const int *x, int *out) {
  int v = x[AT];
  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
  if (threadIdx.x == 0)
    OR(atomicAdd(out, v), *out += v);  // BAD: global_race
}
K maximum_no_atomic(const int *x, int *best) {
  if (threadIdx.x == 0)
    OR(atomicMax(best, x[AT]), if (x[AT] > *best) *best = x[AT]);  // BAD: global_race
}
K block_index_forgotten(const int *x, int *out) {
  out[OR(AT, threadIdx.x)] = 3 * x[AT];  // BAD: global_race
}
K rows_overlap(const float *x, float *out) {
  for (int i = threadIdx.x; i < OR(32, 33); i += 32)
    out[blockIdx.x * 32 + i] = 2 * x[blockIdx.x * 32 + i];  // BAD: global_race
}
K grid_without_sync(const int *x, int *part, int *out) {
  if (!threadIdx.x) part[blockIdx.x] = x[AT];  // BAD: global_race
  if (OR(false, blockIdx.x == 0 && !threadIdx.x))
    *out = part[0] + part[1];  // BAD: global_race, uninitialised
}
K stencil_in_place(float *x, float *out) {
  int left = AT ? AT - 1 : 0;
  float v = x[left];  // BAD: global_race
  OR(out, x)[AT] = 2 * v;  // BAD: global_race
}
K lock_without_fence(int *lock, const int *x, int *total) {
  if (!threadIdx.x) {
    while (atomicCAS(lock, 0, 1)) {}
    FIX(__threadfence();)
    *total += x[AT];  // BAD: global_race
    FIX(__threadfence();)
    atomicExch(lock, 0);
  }
}
K lock_not_taken(int *lock, const int *x, int *total) {
  if (!threadIdx.x) {
    while (OR(atomicCAS(lock, 0, 1), false)) {}
    __threadfence();
    *total += x[AT];  // BAD: global_race
    __threadfence();
    atomicExch(lock, 0);
  }
}
K lock_released_early(int *lock, const int *x, int *total) {
  if (!threadIdx.x) {
    while (atomicCAS(lock, 0, 1)) {}
    __threadfence();
    int v = *total + x[AT];  // BAD: global_race
    OR(, __threadfence(); atomicExch(lock, 0);)
    *total = v;  // BAD: global_race
    FIX(__threadfence(); atomicExch(lock, 0);)
  }
}
K plain_read_of_atomic(const int *x, int *count, int *out) {
  atomicAdd(count, x[AT]);  // BAD: global_race
  out[AT] = OR(atomicAdd(count, 0), *count);  // BAD: global_race
}
K block_global_no_barrier(const int *x, int *scratch, int *out) {
  scratch[threadIdx.x] = x[threadIdx.x];  // BAD: global_race
  FIX(__syncthreads();)
  out[threadIdx.x] = scratch[63 - threadIdx.x];  // BAD: global_race, uninitialised
}
