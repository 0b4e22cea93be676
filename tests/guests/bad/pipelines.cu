// Pipelines of sm_90a with warps of different work: rings of mbarriers, bulk copies. What the marks mean: twin.h.
#include "twin.h"
#define S(p) ((unsigned)__cvta_generic_to_shared(p))
#define INIT(b, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(S(b)), "r"(n) : "memory")
#define EXPECT(b, n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(S(b)), "r"(n) : "memory")
#define ARRIVE(b) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(S(b)) : "memory")
#define WAIT(b, parity) asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(S(b)), "r"(parity) : "memory")
#define LOAD(to, from, n, b) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(S(to)), "l"(from), "r"(n), "r"(S(b)) : "memory")
__device__ bool elected() {
  unsigned yes;
  asm volatile("{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }" : "=r"(yes));
  return yes;
}

// Warp 0 loads tiles into a ring of two, warps 1 and 2 add them up.
K ring_of_tiles(int tiles, const int *x, int *out) {
  __shared__ alignas(16) int s[2][64];
  __shared__ alignas(8) unsigned long long full[2], empty[2];
  if (!threadIdx.x) for (int i = 0; i < 2; i++) { INIT(full + i, 1); INIT(empty + i, 64); }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (elected()) {
      for (int i = 0; i < tiles; i++) {
        int b = i % 2, round = i / 2;
        if (OR(round > 0, false)) WAIT(empty + b, (round + 1) & 1);
        EXPECT(full + b, 256);
        LOAD(s[b], x + 64 * i, 256, full + b);  // BAD: shared_race, copy_in_flight
      }
    }
  } else {
    int total = 0, t = threadIdx.x - 32;
    for (int i = 0; i < tiles; i++) {
      int b = i % 2, round = i / 2;
      WAIT(full + b, round & 1);  // BAD: barrier_deadlock
      total += s[b][63 - t];  // BAD: shared_race, copy_in_flight
      ARRIVE(empty + b);
    }
    out[t] = total;
  }
}
// The same, but the waits for full take the parity of the tile, not of the round.
K ring_of_wrong_parity(int tiles, const int *x, int *out) {
  __shared__ alignas(16) int s[2][64];
  __shared__ alignas(8) unsigned long long full[2], empty[2];
  if (!threadIdx.x) for (int i = 0; i < 2; i++) { INIT(full + i, 1); INIT(empty + i, 64); }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (elected()) {
      for (int i = 0; i < tiles; i++) {
        int b = i % 2, round = i / 2;
        if (round > 0) WAIT(empty + b, (round + 1) & 1);  // BAD: barrier_deadlock
        EXPECT(full + b, 256);
        LOAD(s[b], x + 64 * i, 256, full + b);
      }
    }
  } else {
    int total = 0, t = threadIdx.x - 32;
    for (int i = 0; i < tiles; i++) {
      int b = i % 2, round = i / 2;
      WAIT(full + b, OR(round, i) & 1);  // BAD: barrier_deadlock
      total += s[b][63 - t];  // BAD: copy_in_flight, uninitialised
      ARRIVE(empty + b);
    }
    out[t] = total;
  }
}
// Tiles come in by bulk copies, are scaled in place, and go out by bulk copies.
K scaled_in_place(int tiles, const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  __shared__ alignas(8) unsigned long long full;
  if (!threadIdx.x) INIT(&full, 1);
  __syncthreads();
  for (int i = 0; i < tiles; i++) {
    if (!threadIdx.x) {
      EXPECT(&full, 256);
      LOAD(s, x + 64 * i, 256, &full);  // BAD: async_read
    }
    WAIT(&full, i & 1);
    s[threadIdx.x] *= 3;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (!threadIdx.x) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out + 64 * i), "r"(S(s)) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      FIX(asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");)
    }
    __syncthreads();
  }
}
