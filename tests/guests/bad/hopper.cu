// The asynchronous proxy of sm_90a: mbarriers, bulk copies, wgmma. What the marks mean: twin.h.
#include "twin.h"

#define S(p) ((unsigned)__cvta_generic_to_shared(p))
#define BAR __shared__ alignas(8) unsigned long long bar
#define INIT(n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(S(&bar)), "r"(n) : "memory")
#define EXPECT(n) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(S(&bar)), "r"(n) : "memory")
#define ARRIVE() asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(S(&bar)) : "memory")
#define WAIT(parity) asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(S(&bar)), "r"(parity) : "memory")
#define LOAD(to, from, n) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(S(to)), "l"(from), "r"(n), "r"(S(&bar)) : "memory")
#define STORE(to, from, n) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(S(from)), "r"(n) : "memory")
#define COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define WAIT_READ() asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#define WAIT_ALL() asm volatile("cp.async.bulk.wait_group 0;" ::: "memory")
#define PROXY() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define HOLD(d) asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory")
#define WFENCE() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define WCOMMIT() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WWAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")
#define TILE(p) ((unsigned long long)(S(p) >> 4) | 8ull << 16 | 16ull << 32)
#define WGMMA(d) asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0; }" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(TILE(a)), "l"(TILE(b)))
#define FILL() for (int i = threadIdx.x; i < 512; i += 128) a[i] = x[i]; b[threadIdx.x % 64] = x[threadIdx.x % 64]

// ---- bulk copies ----
K bulk_no_wait(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) { EXPECT(256); LOAD(s, x, 256); }
  OR(WAIT(0), __syncthreads());
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: copy_in_flight
}
K bulk_wrong_parity(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) { EXPECT(256); LOAD(s, x, 256); }
  WAIT(OR(0, 1));
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: copy_in_flight
}
K bulk_parity_not_flipped(const int *x, int *out) {
  __shared__ alignas(16) int s[2][64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  int total = 0;
  for (int i = 0; i < 2; i++) {
    if (!threadIdx.x) { EXPECT(256); LOAD(s[i], x + 64 * i, 256); }
    WAIT(OR(i, 0));
    total += s[i][63 - threadIdx.x];  // BAD: copy_in_flight
    __syncthreads();
  }
  out[threadIdx.x] = total;
}
K bulk_one_waits_for_all(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) { EXPECT(256); LOAD(s, x, 256); }  // BAD: shared_race
  if (OR(true, threadIdx.x == 0)) WAIT(0);
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: copy_in_flight, shared_race
}
K bulk_too_few_bytes_expected(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) {
    EXPECT(OR(256, 128));
    LOAD(s, x, 128);
    LOAD(s + 32, x + 32, 128);  // BAD: bad_mbarrier
  }
  WAIT(0);  // BAD: hang, bad_mbarrier, barrier_deadlock
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: copy_in_flight
}
K bulk_too_many_bytes_expected(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) { EXPECT(OR(256, 512)); LOAD(s, x, 256); }
  WAIT(0);  // BAD: hang, barrier_deadlock
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K mbarrier_counts_too_many(const int *x, int *out) {
  __shared__ int s[64];
  BAR;
  if (!threadIdx.x) { INIT(OR(64, 65)); }
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];
  ARRIVE();
  WAIT(0);  // BAD: hang, barrier_deadlock
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K mbarrier_counts_too_few(const int *x, int *out) {
  __shared__ int s[64];
  BAR;
  if (!threadIdx.x) { INIT(OR(64, 32)); }
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];  // BAD: shared_race
  ARRIVE();  // BAD: bad_mbarrier
  WAIT(0);
  out[threadIdx.x] = s[63 - threadIdx.x];  // BAD: shared_race, uninitialised
}
K mbarrier_no_init_barrier(const int *x, int *out) {
  __shared__ int s[64];
  BAR;
  if (!threadIdx.x) { INIT(64); }  // BAD: shared_race
  FIX(__syncthreads();)
  s[threadIdx.x] = x[threadIdx.x];
  ARRIVE();  // BAD: bad_mbarrier, shared_race, uninitialised
  WAIT(0);
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K mbarrier_not_initialised(const int *x, int *out) {
  __shared__ int s[64];
  BAR;
  FIX(if (!threadIdx.x) { INIT(64); })
  __syncthreads();
  s[threadIdx.x] = x[threadIdx.x];
  ARRIVE();  // BAD: bad_mbarrier, uninitialised
  WAIT(0);
  out[threadIdx.x] = s[63 - threadIdx.x];
}
K bulk_buffer_reused(int n, const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  int total = 0;
  for (int i = 0; i < n; i++) {
    if (!threadIdx.x) {
      EXPECT(256);
      LOAD(s, x + 64 * i, 256);  // BAD: shared_race
    }
    WAIT(i & 1);  // BAD: barrier_deadlock
    total += s[63 - threadIdx.x];  // BAD: shared_race, copy_in_flight
    FIX(__syncthreads();)
  }
  out[threadIdx.x] = total;
}
K bulk_store_no_proxy_fence(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];
  FIX(PROXY();)
  __syncthreads();
  if (!threadIdx.x) {
    STORE(out, s, 256);  // BAD: missing_proxy_fence
    COMMIT();
    WAIT_ALL();
  }
}
K bulk_store_no_barrier(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];  // BAD: shared_race
  PROXY();
  FIX(__syncthreads();)
  if (!threadIdx.x) {
    STORE(out, s, 256);  // BAD: shared_race, missing_proxy_fence
    COMMIT();
    WAIT_ALL();
  }
}
K bulk_store_overwritten(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  for (int i = 0; i < 2; i++) {
    s[threadIdx.x] = 2 * x[64 * i + threadIdx.x];  // BAD: async_read, shared_race
    PROXY();
    __syncthreads();
    if (!threadIdx.x) { STORE(out + 64 * i, s, 256); COMMIT(); FIX(WAIT_READ();) }
    __syncthreads();
  }
  if (!threadIdx.x) WAIT_ALL();
}
K bulk_store_read_back(const int *x, int *out, int *again) {
  __shared__ alignas(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];
  PROXY();
  __syncthreads();
  if (!threadIdx.x) {
    STORE(out, s, 256);
    COMMIT();
    OR(WAIT_ALL(), WAIT_READ());
    again[0] = out[5];  // BAD: copy_in_flight, uninitialised
  }
}
K bulk_misaligned(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) {
    EXPECT(128);
    LOAD(s, x + OR(4, 2), 128);  // BAD: misaligned
  }
  WAIT(0);
  out[threadIdx.x] = s[threadIdx.x];
}
K bulk_past_the_end(const int *x, int *out) {
  __shared__ alignas(16) int s[64];
  BAR;
  if (!threadIdx.x) { INIT(1); }
  __syncthreads();
  if (!threadIdx.x) {
    EXPECT(256);
    LOAD(s, x + OR(64, 68), 256);  // BAD: out_of_bounds
  }
  WAIT(0);
  out[threadIdx.x] = s[threadIdx.x];
}

// ---- wgmma ----
K wgmma_no_wait(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  FILL();
  PROXY();
  __syncthreads();
  float d[4] = {0, 0, 0, 0};
  HOLD(d);
  WFENCE();
  WGMMA(d);
  WCOMMIT();
  FIX(WWAIT(0); HOLD(d);)
  out[threadIdx.x] = d[0] + d[3];  // BAD: unwaited_wgmma
}
K wgmma_wrong_group(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  FILL();
  PROXY();
  __syncthreads();
  float c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};
  HOLD(c);
  HOLD(d);
  WFENCE();
  WGMMA(c);
  WCOMMIT();
  WGMMA(d);
  WCOMMIT();
  OR(WWAIT(0); HOLD(d), WWAIT(1));
  HOLD(c);
  out[threadIdx.x] = c[0] + c[3];
  out[threadIdx.x + 128] = d[0] + d[3];  // BAD: unwaited_wgmma
}
K wgmma_no_fence(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  FILL();
  PROXY();
  __syncthreads();
  float d[4] = {1.0f * threadIdx.x, 2, 3, 4};
  FIX(HOLD(d); WFENCE();)
  WGMMA(d);  // BAD: missing_wgmma_fence
  WCOMMIT();
  WWAIT(0);
  HOLD(d);
  out[threadIdx.x] = d[0] + d[3];
}
K wgmma_no_proxy_fence(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  FILL();
  FIX(PROXY();)
  __syncthreads();
  float d[4] = {0, 0, 0, 0};
  HOLD(d);
  WFENCE();
  WGMMA(d);  // BAD: missing_proxy_fence
  WCOMMIT();
  WWAIT(0);
  HOLD(d);
  out[threadIdx.x] = d[0] + d[3];
}
K wgmma_no_barrier(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  FILL();  // BAD: shared_race
  PROXY();
  FIX(__syncthreads();)
  float d[4] = {0, 0, 0, 0};
  HOLD(d);
  WFENCE();
  WGMMA(d);  // BAD: shared_race, missing_proxy_fence, uninitialised
  WCOMMIT();
  WWAIT(0);
  HOLD(d);
  out[threadIdx.x] = d[0] + d[3];
}
K wgmma_tile_overwritten(const unsigned *x, float *out) {
  __shared__ alignas(128) unsigned a[512], b[64];
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < 2; i++) {
    for (int j = threadIdx.x; j < 512; j += 128)
      a[j] = x[j + i];  // BAD: async_read, shared_race
    if (threadIdx.x < 64 && i == 0) b[threadIdx.x] = x[threadIdx.x];
    PROXY();
    __syncthreads();
    HOLD(d);
    WFENCE();
    WGMMA(d);
    WCOMMIT();
    FIX(WWAIT(0); HOLD(d);)
    __syncthreads();
  }
  WWAIT(0);
  HOLD(d);
  out[threadIdx.x] = d[0] + d[3];
}
