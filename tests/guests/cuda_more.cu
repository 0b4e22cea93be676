// More CUDA C++ kernels: printed text, clusters, products by inline PTX. Each entry has a case in cuda_more_cases.py.
#include <cooperative_groups.h>
#include <cuda_fp8.h>
namespace cg = cooperative_groups;
#define K extern "C" __global__ void
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// ---- printf ----
K printf_rows(int n, const float *x) {
  if (AT < n) printf("row %3u of %d: %+.3f %s\n", AT, n, x[AT], x[AT] < 0 ? "below" : "above");
}
K printf_kinds(const int *x, double factor) {
  if (!threadIdx.x) printf("%5d|%-6u|%08x|%c|%lld|%.4e|%g|%5.1f%%|%s\n", x[0], 7u, x[1], 'a' + x[2], 1ll << 40, factor, factor * 2, 99.5, "end");
}

#if __CUDA_ARCH__ >= 900
// ---- clusters ----
K __cluster_dims__(4, 1, 1) cluster_histogram(int n, const unsigned *data, unsigned *out) {
  __shared__ unsigned bins[64];  // a quarter of the 256 bins in each workgroup
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
  cluster.sync();
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) {
    unsigned bin = data[i] & 255;
    atomicAdd(cluster.map_shared_rank(bins, bin / 64) + bin % 64, 1u);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(out + cluster.block_rank() * 64 + i, bins[i]);
}
K cluster_ring(const float *in, float *out) {
  extern __shared__ float row[];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
  row[threadIdx.x] = in[AT];
  cluster.sync();
  float sum = 0;
  for (unsigned k = 0; k < size; k++) sum += cluster.map_shared_rank(row, (rank + k) % size)[threadIdx.x];
  out[AT] = sum;
  cluster.sync();
}
K cluster_halo(int n, const float *x, float *out) {
  __shared__ float s[32];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), last = cluster.num_blocks() - 1;
  int t = threadIdx.x;
  s[t] = x[AT];
  cluster.sync();
  float left = t ? s[t - 1] : rank ? cluster.map_shared_rank(s, rank - 1)[31] : 0;
  float right = t < 31 ? s[t + 1] : rank < last ? cluster.map_shared_rank(s, rank + 1)[0] : 0;
  out[AT] = left + s[t] + right;
  cluster.sync();
}
#endif

// ---- 8-bit floats ----
K fp8_round_trip(const unsigned *x, float4 *out) {
  __nv_fp8x4_e4m3 v;
  v.__x = x[AT];
  out[AT] = float4(v);
}

// ---- products: each row of a and b has 8 words, of 16 halves or 32 bytes ----
#define MMA(NAME, SHAPE, TYPE)                                                                              \
  K NAME(const unsigned *a, const unsigned *b, float *c) {                                                  \
    int row = threadIdx.x / 4, part = threadIdx.x % 4;                                                      \
    unsigned p[4] = {a[row * 8 + part], a[row * 8 + 64 + part], a[row * 8 + part + 4], a[row * 8 + 68 + part]}; \
    float d[4] = {0, 0, 0, 0};                                                                              \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                    \
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(b[row * 8 + part]), "r"(b[row * 8 + part + 4]));  \
    float *to = c + row * 8 + part * 2;                                                                     \
    to[0] = d[0], to[1] = d[1], to[64] = d[2], to[65] = d[3];                                               \
  }
MMA(mma_inline, "m16n8k16", "f16")
#if __CUDA_ARCH__ >= 890
MMA(mma_e4m3, "m16n8k32", "e4m3")
MMA(mma_e5m2, "m16n8k32", "e5m2")
#endif
#if __CUDA_ARCH_FEAT_SM90_ALL
// 64 and 8 rows, in cores of 8 rows of 16 bytes. PRODUCT: the instruction; MORE: what it takes behind the signs.
#define WGMMA(NAME, PRODUCT, MORE)                                                                          \
  K NAME(const unsigned *a, const unsigned *b, float *c) {                                                  \
    __shared__ alignas(128) unsigned x[64 * 8], y[8 * 8];                                                   \
    int t = threadIdx.x, w = t / 32, l = t % 32;                                                            \
    for (int i = t; i < 64 * 8; i += 128) {                                                                 \
      int r = i / 8, k = i % 8;                                                                             \
      x[r / 8 * 64 + k / 4 * 32 + r % 8 * 4 + k % 4] = a[i];                                                \
      if (r < 8) y[k / 4 * 32 + r * 4 + k % 4] = b[i];                                                      \
    }                                                                                                       \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                            \
    __syncthreads();                                                                                        \
    float d[4] = {0, 0, 0, 0};                                                                              \
    unsigned long long layout = 8ull << 16 | 16ull << 32;                                                   \
    unsigned long long p = layout | (__cvta_generic_to_shared(x) >> 4), q = layout | (__cvta_generic_to_shared(y) >> 4); \
    asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");                            \
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                 \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." PRODUCT " {%0, %1, %2, %3}, %4, %5, p, 1, 1" MORE "; }" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(p), "l"(q));                                 \
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");                                          \
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");                                          \
    asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");                            \
    int r = 16 * w + l / 4, n = l % 4 * 2;                                                                  \
    c[r * 8 + n] = d[0], c[r * 8 + n + 1] = d[1], c[(r + 8) * 8 + n] = d[2], c[(r + 8) * 8 + n + 1] = d[3]; \
  }
WGMMA(gemm_wgmma, "m64n8k16.f32.f16.f16", ", 0, 0")  // neither operand is transposed
WGMMA(wgmma_e4m3, "m64n8k32.f32.e4m3.e4m3", "")
#endif
