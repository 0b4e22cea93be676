// Protocols that people write by hand: look-back scans, queues, locks, flags, split and named barriers. Marks: twin.h.
#include "twin.h"
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#define ALL (~0u)
using Ref = cuda::atomic_ref<int, cuda::thread_scope_device>;
constexpr auto RELAXED = cuda::std::memory_order_relaxed, ACQUIRE = cuda::std::memory_order_acquire, RELEASE = cuda::std::memory_order_release;

// A scan in one pass: a tile publishes its sum, then its prefix, and looks back over the tiles before it.
K scan_look_back(const int *x, unsigned *ticket, int *sums, int *prefix, int *state, int *out) {
  __shared__ unsigned tile;
  __shared__ int before;
  if (!threadIdx.x) tile = atomicAdd(ticket, 1);
  __syncthreads();
  int v = x[tile * 32 + threadIdx.x];
  for (int d = 1; d < 32; d <<= 1) {
    int u = __shfl_up_sync(ALL, v, d);
    if (threadIdx.x >= d) v += u;
  }
  if (threadIdx.x == 31) {
    int sum = 0;
    sums[tile] = v;
    __threadfence();
    atomicExch(state + tile, 1);
    for (int i = tile - 1; i >= 0; i--) {
      int s;
      while (!(s = atomicAdd(state + i, 0))) {}
      __threadfence();
      sum += s == 2 ? prefix[i] : sums[i];  // BAD: global_race
      if (s == 2) break;
    }
    prefix[tile] = sum + v;  // BAD: global_race
    FIX(__threadfence();)
    atomicExch(state + tile, 2);
    before = sum;
  }
  __syncthreads();
  out[tile * 32 + threadIdx.x] = v + before;
}
// All blocks of a grid meet, twice.
__device__ void meet(int *count, int blocks) {
  __syncthreads();
  if (!threadIdx.x) {
    FIX(__threadfence();)
    atomicAdd(count, 1);
    while (atomicAdd(count, 0) < blocks) {}
    __threadfence();
  }
  __syncthreads();
}
K grid_barrier(const int *x, int *count, int *part, int *out) {
  part[AT] = 2 * x[AT];  // BAD: global_race
  meet(count, gridDim.x);
  int other = part[(AT + blockDim.x) % (gridDim.x * blockDim.x)];  // BAD: global_race
  meet(count, 2 * gridDim.x);
  out[AT] = other;
}
// Blocks 0 and 1 put values into slots of a queue, blocks 2 and 3 take them.
K queue_of_slots(const int *x, int *head, int *tail, int *slot, int *full, int *out) {
  if (threadIdx.x) return;
  bool puts = blockIdx.x < 2;
  for (int i = 0; i < 4; i++) {
    int at = atomicAdd(puts ? head : tail, 1);
    Ref f(full[at]);
    if (puts) {
      slot[at] = x[blockIdx.x * 4 + i];  // BAD: global_race
      f.store(1, OR(RELEASE, RELAXED));
    } else {
      while (!f.load(ACQUIRE)) {}
      out[at] = slot[at];  // BAD: global_race
    }
  }
}
// A list without a lock: every thread pushes a node, then one thread walks it.
K stack_of_nodes(const int *x, int *head, int *next, int *out) {
  int me = threadIdx.x + 1, old = *(volatile int *)head;
#ifdef FIXED
  for (;;) {
    next[me - 1] = old;
    int seen = atomicCAS(head, old, me);
    if (seen == old) break;
    old = seen;
  }
#else
  next[me - 1] = old;
  *head = me;  // BAD: global_race
#endif
  __syncthreads();
  if (!threadIdx.x) {
    int sum = 0;
    for (int i = *head; i; i = next[i - 1]) sum += x[i - 1];
    *out = sum;
  }
}
// Warp 0 fills two buffers in turn, warp 1 empties them; barriers 1 and 2 say full, 3 and 4 empty.
K named_barriers(const int *x, int *out) {
  __shared__ int s[2][32];
  int lane = threadIdx.x % 32, total = 0;
  for (int i = 0; i < 6; i++) {
    int b = i % 2;
    if (threadIdx.x < 32) {
      if (OR(i >= 2, false)) asm volatile("bar.sync %0, 64;" ::"r"(3 + b) : "memory");
      s[b][lane] = x[i * 32 + lane];  // BAD: shared_race
      asm volatile("bar.arrive %0, 64;" ::"r"(1 + b) : "memory");
    } else {
      asm volatile("bar.sync %0, 64;" ::"r"(1 + b) : "memory");  // BAD: barrier_deadlock
      total += s[b][31 - lane];  // BAD: shared_race
      if (OR(i < 4, false)) asm volatile("bar.arrive %0, 64;" ::"r"(3 + b) : "memory");
    }
  }
  if (threadIdx.x >= 32) out[lane] = total;
}
// The threads arrive, do work of their own, and wait.
K split_barrier(const int *x, int *out) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[64];
  if (!threadIdx.x) init(&bar, 64);
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];  // BAD: shared_race
  auto token = bar.arrive();
  int mine = x[threadIdx.x] * 3;
#ifdef FIXED
  bar.wait(static_cast<decltype(token) &&>(token));
#endif
  mine += s[63 - threadIdx.x];  // BAD: shared_race
  out[threadIdx.x] = mine;
}
// cp.async that arrives at an mbarrier when it has landed.
K async_arrives(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  __shared__ alignas(8) unsigned long long bar;
  unsigned b = (unsigned)__cvta_generic_to_shared(&bar), to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
  if (!threadIdx.x) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(b) : "memory");
  __syncthreads();
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
#ifdef FIXED
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(b) : "memory");
#else
  asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(b) : "memory");
#endif
  asm volatile("{ .reg .pred p; W: mbarrier.test_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(b) : "memory");
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: copy_in_flight
}
// The lanes whose value is odd take that of the first of them.
K shuffle_of_some(const int *x, int *out) {
  int v = x[threadIdx.x];
  bool odd = v & 1;
  unsigned mask = __ballot_sync(ALL, odd);
  if (odd) v = __shfl_sync(OR(mask, ALL), v, __ffs(mask) - 1);  // BAD: absent_lane
  out[threadIdx.x] = v;
}
// One warp polls a word in shared memory until another has written beside it.
K volatile_spin(const int *x, int *out) {
  __shared__ volatile int flag;
  __shared__ int data;
  if (!threadIdx.x) flag = 0;
  __syncthreads();
  if (threadIdx.x == 32) {
    data = x[0];  // BAD: shared_race
    FIX(__threadfence_block();)
    flag = 1;
  } else if (threadIdx.x == 0) {
    while (!flag) {}
    FIX(__threadfence_block();)
    *out = data;  // BAD: shared_race
  }
}
// Positive values move to the front: each warp counts by a vote, and adds up the counts before its own.
K compact_by_votes(const int *x, int *out, int *count) {
  __shared__ int counts[4];
  int v = x[threadIdx.x], warp = threadIdx.x / 32, at = 0;
  unsigned mask = __ballot_sync(ALL, v > 0);
  if (threadIdx.x % 32 == 0) counts[warp] = __popc(mask);  // BAD: shared_race
  FIX(__syncthreads();)
  for (int i = 0; i < warp; i++)
    at += counts[i];  // BAD: shared_race, uninitialised
  at += __popc(mask & ((1u << threadIdx.x % 32) - 1));
  if (v > 0) out[at] = v;
  if (threadIdx.x == 127) *count = at + (v > 0);
}
// A ring of two slots between a warp that fills and a warp that empties, with counters in shared memory.
K ring_of_flags(const int *x, int *out) {
  __shared__ int s[2][32], filled, emptied;
  if (!threadIdx.x) filled = emptied = 0;
  __syncthreads();
  int lane = threadIdx.x % 32, total = 0;
  for (int i = 0; i < 5; i++) {
    if (threadIdx.x < 32) {
      if (lane == 0) while (atomicAdd(&emptied, 0) < i - 1) {}
      __threadfence_block();
      __syncwarp();
      s[i % 2][lane] = x[i * 32 + lane];  // BAD: shared_race
      FIX(__threadfence_block();)
      __syncwarp();
      if (lane == 0) atomicAdd(&filled, 1);
    } else {
      if (lane == 0) while (atomicAdd(&filled, 0) <= i) {}
      __threadfence_block();
      __syncwarp();
      total += s[i % 2][31 - lane];  // BAD: shared_race
      __threadfence_block();
      __syncwarp();
      if (lane == 0) atomicAdd(&emptied, 1);
    }
  }
  if (threadIdx.x >= 32) out[lane] = total;
}
// A sequence lock: the reader tries again if the writer was at work, which waits until all readers have read once. That
// wait orders nothing, so the mistake is one in every order.
K sequence_lock(int *sequence, int *read, int *a, int *b, int *out) {
  Ref seq(*sequence), readers(*read), ra(*a), rb(*b);
  if (blockIdx.x == 0) {
    while (readers.load(RELAXED) != 3) {}
    seq.store(1, RELAXED);
    __threadfence();
#ifdef FIXED
    ra.store(5, RELAXED), rb.store(7, RELAXED);
#else
    *a = 5, *b = 7;  // BAD: global_race
#endif
    __threadfence();
    seq.store(2, RELAXED);
  } else {
    int before, after, sum;
    do {
      before = seq.load(ACQUIRE);
      sum = ra.load(RELAXED) + rb.load(RELAXED);  // BAD: global_race
      readers.fetch_or(blockIdx.x, RELAXED);
      __threadfence();
      after = seq.load(RELAXED);
    } while (before != after || before != 2);
    out[blockIdx.x - 1] = sum;
  }
}
// The first block prepares a table, the others wait until it is ready.
K prepared_once(int *state, int *table, int *out) {
  __shared__ int s;
  if (!threadIdx.x) {
    Ref ready(*state);
    if (atomicCAS(state, 0, 1) == 0) {
      for (int i = 0; i < 8; i++) table[i] = i * i;  // BAD: global_race
      ready.store(2, OR(RELEASE, RELAXED));
    }
    while (ready.load(ACQUIRE) != 2) {}
    s = table[blockIdx.x];  // BAD: global_race
  }
  __syncthreads();
  out[AT] = s;
}
// Lanes with the same key add once, through the first of them.
K one_for_all_alike(const int *key, int *bins) {
  int k = key[AT] & 7;
  unsigned alike = __match_any_sync(ALL, k);
  if (threadIdx.x % 32 == __ffs(alike) - 1) {
#ifdef FIXED
    atomicAdd(bins + k, __popc(alike));
#else
    bins[k] += __popc(alike);  // BAD: global_race
#endif
  }
}
// The warp that finishes last adds up what all have left in shared memory.
K last_warp(const int *x, int *out) {
  __shared__ int part[4], done;
  if (!threadIdx.x) done = 0;
  __syncthreads();
  int v = __reduce_add_sync(ALL, x[threadIdx.x]), last = 0;
  if (threadIdx.x % 32 == 0) {
    part[threadIdx.x / 32] = v;  // BAD: shared_race
    FIX(__threadfence_block();)
    last = atomicAdd(&done, 1) == 3;
    FIX(__threadfence_block();)
    if (last) *out = part[0] + part[1] + part[2] + part[3];  // BAD: shared_race
  }
}
// Each block works on a row once the block before it is two columns ahead.
K wavefront(int *table, int *progress) {
  int row = blockIdx.x;
  if (threadIdx.x) return;
  for (int j = 0; j < 8; j++) {
    if (row) while (Ref(progress[row - 1]).load(OR(ACQUIRE, RELAXED)) < j + 1) {}
    int above = row ? table[(row - 1) * 8 + j] : j;  // BAD: global_race
    table[row * 8 + j] = above + 1;  // BAD: global_race
    Ref(progress[row]).store(j + 1, RELEASE);
  }
}
// A lock that serves in the order of arrival.
K ticket_lock(int *next, int *serving, int *data) {
  if (threadIdx.x) return;
  int mine = atomicAdd(next, 1);
  while (Ref(*serving).load(ACQUIRE) != mine) {}
  *data = *data + blockIdx.x + 1;  // BAD: global_race
  Ref(*serving).store(mine + 1, OR(RELEASE, RELAXED));
}
// Threads that came to a branch form a group, and take places in the output together.
K group_of_those_here(const int *x, int *count, int *out) {
  int v = x[AT];
  if (v % 3 == 0) {
    auto here = cooperative_groups::coalesced_threads();
    int first = 0;
    if (here.thread_rank() == 0) first = atomicAdd(count, here.size());
    OR(first = here.shfl(first, 0), first = __shfl_sync(ALL, first, 0));  // BAD: absent_lane
    out[first + here.thread_rank()] = v;
  }
}
