// Synchronisation that has a name: messages of one word, turns, sense-reversing barriers, rings, queues with numbers, stream-K. Marks: twin.h.
#include "twin.h"
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#define ALL (~0u)
using Ref = cuda::atomic_ref<int, cuda::thread_scope_device>;
using Word = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;
constexpr auto RELAXED = cuda::std::memory_order_relaxed, ACQUIRE = cuda::std::memory_order_acquire, RELEASE = cuda::std::memory_order_release;

// The atomicAdd for double of CUDA's programming guide: a plain load makes the first guess, the comparison validates it.
K add_by_comparison(const double *x, double *sum) {
  unsigned long long *at = (unsigned long long *)sum, old = *at, seen;  // BAD: global_race
  do {
    seen = old;
    unsigned long long v = __double_as_longlong(__longlong_as_double(seen) + x[AT]);
    old = OR(atomicCAS(at, seen, v), (*at = v, seen));  // BAD: global_race
  } while (seen != old);
}
// A maximum of floats by comparison, the common way.
K maximum_by_comparison(const float *x, float *best) {
  int *at = (int *)best, old = *at, seen;  // BAD: global_race
  do {
    seen = old;
    int v = __float_as_int(fmaxf(__int_as_float(seen), x[AT]));
    old = OR(atomicCAS(at, seen, v), (*at = v, seen));  // BAD: global_race
  } while (seen != old);
}
// A message of one store: the flag is in the same 8 bytes as the data, so no fence is needed (NCCL's LL protocol).
K flag_beside_data(const int *x, int2 *slot, int *out) {
  int i = threadIdx.x, v;
  if (blockIdx.x == 0) {
#ifdef FIXED
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(slot + i), "r"(x[i]), "r"(1) : "memory");
#else
    slot[i].x = x[i];  // BAD: global_race
    *(volatile int *)&slot[i].y = 1;
#endif
  } else {
#ifdef FIXED
    int flag;
    do asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v), "=r"(flag) : "l"(slot + i) : "memory");
    while (!flag);
#else
    while (!*(volatile int *)&slot[i].y) {}
    v = slot[i].x;  // BAD: global_race
#endif
    out[i] = v;
  }
}
// A scan whose tiles publish state and value in one word, relaxed.
K scan_of_packed_words(const int *x, unsigned long long *state, int *out) {
  __shared__ int before;
  int tile = blockIdx.x, v = x[AT];
  for (int d = 1; d < 32; d <<= 1) {
    int u = __shfl_up_sync(ALL, v, d);
    if (threadIdx.x >= d) v += u;
  }
  if (threadIdx.x == 31) {
    int sum = 0;
    Word(state[tile]).store(1ull << 32 | (unsigned)v, RELAXED);
    for (int i = tile - 1; i >= 0; i--) {
      unsigned long long w;
      do w = Word(state[i]).load(RELAXED);  // BAD: global_race
      while (!(w >> 32));
      sum += (int)w;
      if (w >> 32 == 2) break;
    }
    unsigned long long all = 2ull << 32 | (unsigned)(sum + v);
    OR(Word(state[tile]).store(all, RELAXED), state[tile] = all);  // BAD: global_race
    before = sum;
  }
  __syncthreads();
  out[AT] = v + before;
}
// All blocks meet, again and again: who comes last turns the sense over.
__device__ void meet(int *count, int *sense, int &mine) {
  __syncthreads();
  if (!threadIdx.x) {
    mine ^= 1;
    FIX(__threadfence();)
    if (atomicAdd(count, 1) == gridDim.x - 1) {
      *count = 0;
      __threadfence();
      atomicExch(sense, mine);
    } else
      while (*(volatile int *)sense != mine) {}
    __threadfence();
  }
  __syncthreads();
}
K sense_reversing(const int *x, int *state, int *part, int *out) {
  int sense = 0, sum = 0, all = gridDim.x * blockDim.x;
  for (int i = 0; i < 3; i++) {
    part[AT] = x[AT] + i;  // BAD: global_race
    meet(state, state + 1, sense);
    sum += part[(AT + blockDim.x) % all];  // BAD: global_race
    meet(state, state + 1, sense);
  }
  out[AT] = sum;
}
// The last block adds up, and makes the counter ready for the next launch (threadFenceReduction).
K last_block_resets(const int *x, int *part, unsigned *count, int *out) {
  if (threadIdx.x) return;
  part[blockIdx.x] = x[AT];
  __threadfence();
  bool last = atomicInc(count, gridDim.x) == gridDim.x - 1;  // BAD: global_race
  __threadfence();
  if (last) {
    int sum = 0;
    for (int i = 0; i < gridDim.x; i++) sum += ((volatile int *)part)[i];
    *out = sum;
  }
  if (OR(last, blockIdx.x == 1)) *count = 0;  // BAD: global_race
}
// Blocks take tiles as they can: one thread takes a ticket for all.
K tiles_by_ticket(const int *x, int *ticket, int *out) {
  __shared__ int tile;
  for (;;) {
    if (!threadIdx.x) tile = atomicAdd(ticket, 1);  // BAD: shared_race
    __syncthreads();
    int mine = tile;  // BAD: shared_race
    FIX(__syncthreads();)
    if (mine >= 6) break;
    out[mine * 64 + threadIdx.x] = 2 * x[mine * 64 + threadIdx.x];
  }
}
// Two tiles in turn: one barrier a step is enough.
K two_tiles_one_barrier(int steps, const int *x, int *out) {
  __shared__ int s[2][64];
  int total = 0;
  for (int i = 0; i < steps; i++) {
    s[OR(i & 1, 0)][threadIdx.x] = x[i * 64 + threadIdx.x];  // BAD: shared_race
    __syncthreads();
    total += s[OR(i & 1, 0)][63 - threadIdx.x];  // BAD: shared_race
  }
  out[threadIdx.x] = total;
}
// Peterson's lock of two.
K lock_of_two(volatile int *wants, volatile int *turn, int *data) {
  int me = blockIdx.x, other = 1 - me;
  for (int i = 0; i < 3; i++) {
    wants[me] = 1;
    __threadfence();
    *turn = other;
    __threadfence();
    while (wants[other] && *turn == other) {}
    __threadfence();
    *data += me + 1;  // BAD: global_race
    FIX(__threadfence();)
    wants[me] = 0;
  }
}
// A lock in shared memory, between warps.
K lock_of_warps(const int *x, int *out) {
  __shared__ int lock, total;
  if (!threadIdx.x) lock = total = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(&lock, 0, 1)) {}
    FIX(__threadfence_block();)
    total += x[threadIdx.x];  // BAD: shared_race
    FIX(__threadfence_block();)
    atomicExch(&lock, 0);
  }
  __syncthreads();
  if (!threadIdx.x) *out = total;
}
// A queue of two slots whose numbers say whose turn it is: two blocks put, two take.
K queue_with_numbers(const int *x, int *head, int *tail, int *number, int *slot, int *out) {
  if (threadIdx.x) return;
  for (int i = 0; i < 4; i++) {
    bool puts = blockIdx.x < 2;
    int at = atomicAdd(puts ? head : tail, 1);
    Ref n(number[at % 2]);
    if (puts) {
      while (n.load(ACQUIRE) != at) {}
      slot[at % 2] = x[blockIdx.x * 4 + i];  // BAD: global_race
      n.store(at + 1, RELEASE);
    } else {
      while (n.load(ACQUIRE) != at + 1) {}
      out[at] = slot[at % 2];  // BAD: global_race
      n.store(at + 2, OR(RELEASE, RELAXED));
    }
  }
}
// Many readers or one writer: a count of the readers, or -1.
K readers_and_writer(int *state, int *data, int *out) {
  if (threadIdx.x) return;
  for (int i = 1; i < 4; i++) {
    if (blockIdx.x == 0) {
      while (atomicCAS(state, 0, -1)) {}
      __threadfence();
      data[0] = i, data[1] = 2 * i;  // BAD: global_race
      __threadfence();
      atomicExch(state, 0);
    } else {
      int n;
      do n = atomicAdd(state, 0);
      while (n < 0 || atomicCAS(state, n, n + 1) != n);
      FIX(__threadfence();)
      out[blockIdx.x - 1] = data[1] - 2 * data[0];  // BAD: global_race
      FIX(__threadfence();)
      atomicSub(state, 1);
    }
  }
}
// Blocks share a tile: all but the first leave partial sums and count up; the first waits and adds (stream-K).
K partial_tiles(const int *x, int *part, int *arrived, int *out) {
  int v = x[AT];
  if (blockIdx.x) {
    part[AT] = v;  // BAD: global_race
    __syncthreads();
    if (!threadIdx.x) asm volatile("red." OR("release", "relaxed") ".gpu.global.add.s32 [%0], 1;" ::"l"(arrived) : "memory");
  } else {
    if (!threadIdx.x) {
      int n;
      for (;;) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(n) : "l"(arrived) : "memory");
        if (n == gridDim.x - 1) break;
        __nanosleep(20);
      }
    }
    __syncthreads();
    for (int b = 1; b < gridDim.x; b++) v += part[b * blockDim.x + threadIdx.x];  // BAD: global_race
    out[threadIdx.x] = v;
  }
}
// Blocks add to a tile in turn; all threads poll together (the semaphore of CUTLASS).
K split_k_in_turn(const int *x, int *lock, int *sum) {
  int state = -1, v = x[AT];
  while (__syncthreads_and(state != blockIdx.x))
    if (!threadIdx.x) asm volatile("ld.global." OR("acquire", "relaxed") ".gpu.b32 %0, [%1];" : "=r"(state) : "l"(lock) : "memory");
  __syncthreads();
  sum[threadIdx.x] += v;  // BAD: global_race
  __syncthreads();
  if (!threadIdx.x) asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(lock), "r"(blockIdx.x + 1) : "memory");
}
// Blocks of a line go on when their neighbours have done the step before: two arrays in turn.
K halos_by_flags(int steps, int *a, int *done) {
  int me = blockIdx.x, n = gridDim.x * blockDim.x;
  for (int s = 0; s < steps; s++) {
    if (threadIdx.x < 2) {
      int other = threadIdx.x ? me + 1 : me - 1;
      if (other >= 0 && other < gridDim.x) while (Ref(done[other]).load(OR(ACQUIRE, RELAXED)) < s) {}
    }
    __syncthreads();
    int *from = a + (s & 1) * n, *to = a + (~s & 1) * n;
    to[AT] = from[AT ? AT - 1 : 0] + from[AT + 1 < n ? AT + 1 : AT];  // BAD: global_race
    __syncthreads();
    if (!threadIdx.x) Ref(done[me]).store(s + 1, RELEASE);
  }
}
// Threads leave a barrier for good, half of them in each step.
K threads_that_drop_out(const int *x, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[64];
  if (!threadIdx.x) init(&bar, 64);
  __syncthreads();
  int v = x[threadIdx.x];
  for (int n = 32; n; n >>= 1) {
    s[threadIdx.x] = v;  // BAD: shared_race
    if (threadIdx.x >= n) {
      bar.arrive_and_drop();
      return;
    }
    OR(bar.arrive_and_wait(), (void)bar.arrive());
    v += s[threadIdx.x + n];  // BAD: shared_race
  }
  *out = v;
}
// Labels spread until a vote of all threads finds no change.
K until_nothing_changes(const int *x, int *out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  int change;
  do {
    int left = threadIdx.x ? s[threadIdx.x - 1] : s[0];  // BAD: shared_race
    FIX(__syncthreads();)
    change = left < s[threadIdx.x];
    if (change) s[threadIdx.x] = left;  // BAD: shared_race
  } while (__syncthreads_or(change));
  out[threadIdx.x] = s[threadIdx.x];
}
// The halves of a warp work in two branches, each with a mask of its own.
K halves_of_a_warp(const int *x, int *out) {
  __shared__ int s[32];
  int lane = threadIdx.x;
  s[lane] = x[lane];  // BAD: shared_race
  if (lane < 16) {
    __syncwarp(0xffff);
    out[lane] = s[15 - lane];
  } else {
    FIX(__syncwarp(0xffff0000);)
    out[lane] = s[47 - lane];  // BAD: shared_race
  }
}
// Copies two tiles ahead in a ring of three: one barrier a tile.
K ring_of_copies(int tiles, const int *x, int *out) {
  constexpr int N = OR(3, 2);
  __shared__ int s[N][64];
  int t = threadIdx.x, total = 0;
  auto copy = [&](int i) {
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[i % N][t]);
    if (i < tiles) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + 64 * i + t) : "memory");  // BAD: shared_race, copy_in_flight
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  copy(0), copy(1);
  for (int i = 0; i < tiles; i++) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    total += s[i % N][63 - t];  // BAD: shared_race, copy_in_flight
    copy(i + 2);
  }
  out[t] = total;
}
// A pipeline of libcu++ in which one warp fills and the other empties.
K pipeline_of_roles(int tiles, const int *x, int *out) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ int s[2][32];
  bool fills = threadIdx.x < 32;
  int lane = threadIdx.x % 32, total = 0;
  auto pipe = cuda::make_pipeline(cooperative_groups::this_thread_block(), &state, fills ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  for (int i = 0; i < tiles; i++) {
    if (fills) {
      pipe.producer_acquire();
      cuda::memcpy_async(&s[i % 2][lane], x + 32 * i + lane, sizeof(int), pipe);
      pipe.producer_commit();
    } else {
      FIX(pipe.consumer_wait();)
      total += s[i % 2][31 - lane];  // BAD: copy_in_flight, shared_race, uninitialised
      pipe.consumer_release();
    }
  }
  if (!fills) out[lane] = total;
}
// A search in breadth: threads push what they find, one barrier between reading the count and clearing it.
K breadth_first(int n, int *distance, int *queue) {
  __shared__ int count;
  int size = 1;
  if (!threadIdx.x) queue[0] = distance[0] = 0;
  for (int level = 0; size; level++) {
    int *from = queue + (level & 1) * 64, *to = queue + (~level & 1) * 64;
    if (!threadIdx.x) count = 0;  // BAD: shared_race
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += blockDim.x)
      for (int c = 2 * from[i] + 1, end = c + 2; c < end && c < n; c++)
        if (atomicCAS(distance + c, -1, level + 1) == -1) to[atomicAdd(&count, 1)] = c;
    __syncthreads();
    size = count;  // BAD: shared_race
    FIX(__syncthreads();)
  }
}
// A table with open addressing: a key takes its place by comparison.
K hash_table(const int *x, int *keys, int *counts) {
  int k = x[AT] % 7 + 1, at = k * 5 % 16;
  for (;; at = (at + 1) % 16) {
    int old = atomicCAS(keys + at, 0, k);
    if (old == 0 || old == k) break;
  }
  OR(atomicAdd(counts + at, 1), counts[at]++);  // BAD: global_race
}
