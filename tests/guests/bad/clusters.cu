// Synchronisation of sm_90a that has a name: stages with phases, rings of stores, mailboxes and barriers of clusters. Marks: twin.h.
#include "twin.h"
#define S(p) ((unsigned)__cvta_generic_to_shared(p))
#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(S(b)), "r"(n) : "memory")
#define EXPECT(b, n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(S(b)), "r"(n) : "memory")
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(S(b)) : "memory")
#define WAIT(b, parity) asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(S(b)), "r"(parity) : "memory")
#define LOAD(to, from, n, b) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(S(to)), "l"(from), "r"(n), "r"(S(b)) : "memory")
#define MEET asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory")
__device__ unsigned at_peer(const void *p, unsigned rank) {
  unsigned at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(S(p)), "r"(rank));
  return at;
}
__device__ unsigned rank() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

// Stage and phase of a ring of three go on together; the phase turns over at its end.
K stage_and_phase(int tiles, const int *x, int *out) {
  __shared__ alignas(16) int s[3][64];
  __shared__ alignas(8) unsigned long long full[3], empty[3];
  if (!threadIdx.x) for (int i = 0; i < 3; i++) { INIT(full + i, 1); INIT(empty + i, 2); }
  __syncthreads();
  int stage = 0, phase = 0;
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < tiles; i++) {
        WAIT(empty + stage, phase ^ 1);  // BAD: barrier_deadlock
        EXPECT(full + stage, 256);
        LOAD(s[stage], x + 64 * i, 256, full + stage);  // BAD: shared_race, copy_in_flight
        if (++stage == 3) stage = 0, phase ^= 1;
      }
    }
  } else {
    int total = 0, t = threadIdx.x - 32;
    for (int i = 0; i < tiles; i++) {
      WAIT(full + stage, phase);  // BAD: barrier_deadlock
      total += s[stage][63 - t];  // BAD: shared_race, copy_in_flight
      __syncwarp();
      if (t % 32 == 0) ARRIVE(empty + stage);
      if (++stage == 3) {
        stage = 0;
        FIX(phase ^= 1;)
      }
    }
    out[t] = total;
  }
}
// Tiles go out by bulk copies from two buffers in turn: the one before the last must have been read.
K ring_of_stores(int tiles, const int *x, int *out) {
  __shared__ alignas(16) int s[2][64];
  for (int i = 0; i < tiles; i++) {
    if (!threadIdx.x) asm volatile("cp.async.bulk.wait_group.read " OR("1", "2") ";" ::: "memory");
    __syncthreads();
    s[i % 2][threadIdx.x] = 3 * x[64 * i + threadIdx.x];  // BAD: async_read, shared_race
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (!threadIdx.x) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out + 64 * i), "r"(S(s[i % 2])) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (!threadIdx.x) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// The rest runs in clusters of two.
#undef K
#define K extern "C" __global__ __cluster_dims__(2) void
// Block 0 of a cluster puts values into the memory of block 1 and arrives at its mbarrier.
K mailbox_of_a_neighbour(const int *x, int *out) {
  __shared__ int s[32];
  __shared__ alignas(8) unsigned long long full;
  if (!threadIdx.x) {
    INIT(&full, 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  MEET;
  if (rank() == 0) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at_peer(s + threadIdx.x, 1)), "r"(x[threadIdx.x]) : "memory");  // BAD: shared_race
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(at_peer(&full, 1)) : "memory");
  } else {
    FIX(asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @p bra D; bra W; D: }" ::"r"(S(&full)) : "memory");)
    out[threadIdx.x] = s[31 - threadIdx.x];  // BAD: shared_race, uninitialised
  }
  MEET;
}
// Blocks of a cluster arrive, do work of their own, and wait.
K split_barrier_of_a_cluster(const int *x, int *out) {
  __shared__ int s[32];
  s[threadIdx.x] = x[AT];  // BAD: shared_race
  asm volatile("barrier.cluster.arrive." OR("release", "relaxed") ".aligned;" ::: "memory");
  int v = 2 * x[AT], u;
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(u) : "r"(at_peer(s + 31 - threadIdx.x, rank() ^ 1)) : "memory");  // BAD: shared_race
  out[AT] = v + u;
  MEET;
}
// All clusters of a grid meet: one block of each counts for it.
K clusters_that_meet(const int *x, int *count, int *part, int *out) {
  part[AT] = 2 * x[AT];  // BAD: global_race
  MEET;
  if (rank() == 0 && !threadIdx.x) {
    __threadfence();
    atomicAdd(count, 1);
    while (atomicAdd(count, 0) < OR(gridDim.x / 2, 1)) {}
    __threadfence();
  }
  MEET;
  out[AT] = part[(AT + 2 * blockDim.x) % (gridDim.x * blockDim.x)];  // BAD: global_race, uninitialised
}
// Each block adds its counts to those of block 0 of its cluster, by atomics in that one's shared memory.
K histogram_of_a_cluster(int n, const unsigned char *x, int *out) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  MEET;
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) {
    unsigned at = at_peer(bins + (x[i] & 15), 0);
#ifdef FIXED
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(at) : "memory");
#else
    asm volatile("{ .reg .u32 r; ld.shared::cluster.u32 r, [%0]; add.u32 r, r, 1; st.shared::cluster.u32 [%0], r; }" ::"r"(at) : "memory");  // BAD: shared_race
#endif
  }
  MEET;
  if (rank() == 0 && threadIdx.x < 16) atomicAdd(out + threadIdx.x, bins[threadIdx.x]);
}
