// CUDA C++ kernels of the corpus. Inputs and expected results: tests/guests/cuda_cases.py.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>
namespace cg = cooperative_groups;
#define AT (blockIdx.x * blockDim.x + threadIdx.x)
#define K extern "C" __global__ void

K saxpy(int n, float a, const float *x, float *y) { if (AT < n) y[AT] = a * x[AT] + y[AT]; }
K grid_stride(int n, const int *x, int *out) { for (int i = AT; i < n; i += gridDim.x * blockDim.x) out[i] = 3 * x[i] + 1; }

K reduce_shared(int n, const float *x, float *out) {
  __shared__ float part[256];
  part[threadIdx.x] = AT < n ? x[AT] : 0;
  __syncthreads();
  for (int step = 128; step; step >>= 1) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (!threadIdx.x) out[blockIdx.x] = part[0];
}
K reduce_shuffle(int n, const int *x, int *out) {
  int v = AT < n ? x[AT] : 0;
  for (int d = 16; d; d >>= 1) v += __shfl_down_sync(~0u, v, d);
  if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
K reduce_groups(int n, const int *x, int *out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int v = cg::reduce(warp, AT < n ? x[AT] : 0, cg::plus<int>());
  if (!warp.thread_rank()) atomicAdd(out, v);
}
K reduce_redux(const unsigned *x, unsigned *out) {
  unsigned v = x[AT];
  if (threadIdx.x % 32 == 0) {}
  unsigned lo = __reduce_min_sync(~0u, v), hi = __reduce_max_sync(~0u, v), s = __reduce_xor_sync(~0u, v);
  if (threadIdx.x == 0) { out[0] = lo; out[1] = hi; out[2] = s; }
}
K scan_block(const int *x, int *out) {
  __shared__ int a[2][256];
  int t = threadIdx.x, in = 0;
  a[0][t] = x[AT];
  __syncthreads();
  for (int d = 1; d < 256; d *= 2, in ^= 1) {
    a[in ^ 1][t] = a[in][t] + (t >= d ? a[in][t - d] : 0);
    __syncthreads();
  }
  out[AT] = a[in][t];
}
K scan_groups(const int *x, int *out) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  out[AT] = cg::exclusive_scan(tile, x[AT], cg::plus<int>());
}
K bitonic_sort(const float *x, float *out) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[AT];
  __syncthreads();
  for (int k = 2; k <= 128; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int o = t ^ j;
      if (o > t && (s[t] > s[o]) == !(t & k)) { float m = s[t]; s[t] = s[o]; s[o] = m; }
      __syncthreads();
    }
  out[AT] = s[t];
}
K histogram_shared(int n, const unsigned char *x, int *out) {
  __shared__ int bins[64];
  if (threadIdx.x < 64) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = AT; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[x[i] & 63], 1);
  __syncthreads();
  if (threadIdx.x < 64) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}
K transpose_tile(int rows, int columns, const float *x, float *out) {
  __shared__ float tile[16][17];
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
  __syncthreads();
  c = blockIdx.y * 16 + threadIdx.x, r = blockIdx.x * 16 + threadIdx.y;
  if (r < columns && c < rows) out[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}
K stencil_halo(int n, const float *x, float *out) {
  extern __shared__ float s[];
  int t = threadIdx.x + 1;
  s[t] = AT < n ? x[AT] : 0;
  if (threadIdx.x == 0) s[0] = AT ? x[AT - 1] : 0;
  if (threadIdx.x == blockDim.x - 1) s[t + 1] = AT + 1 < n ? x[AT + 1] : 0;
  __syncthreads();
  if (AT < n) out[AT] = s[t - 1] - 2 * s[t] + s[t + 1];
}
K spmv(int rows, const int *start, const int *column, const float *value, const float *x, float *out) {
  if (AT < rows) {
    float total = 0;
    for (int i = start[AT]; i < start[AT + 1]; i++) total += value[i] * x[column[i]];
    out[AT] = total;
  }
}
K gemm_tiled(int n, const float *a, const float *b, float *c) {
  __shared__ float x[16][16], y[16][16];
  int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += 16) {
    x[threadIdx.y][threadIdx.x] = a[r * n + k + threadIdx.x];
    y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + q];
    __syncthreads();
    for (int i = 0; i < 16; i++) total += x[threadIdx.y][i] * y[i][threadIdx.x];
    __syncthreads();
  }
  c[r * n + q] = total;
}
K gemm_wmma(int n, const half *a, const half *b, float *c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> x;
  fragment<matrix_b, 16, 16, 16, half, row_major> y;
  fragment<accumulator, 16, 16, 16, float> total;
  fill_fragment(total, 0.0f);
  for (int k = 0; k < n; k += 16) {
    load_matrix_sync(x, a + blockIdx.y * 16 * n + k, n);
    load_matrix_sync(y, b + k * n + blockIdx.x * 16, n);
    mma_sync(total, x, y, total);
  }
  store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, total, n, mem_row_major);
}
K async_copy(const int *x, int *out) {
  __shared__ int s[128];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&bar, block.size());
  block.sync();
  cuda::memcpy_async(block, s, x + blockIdx.x * 128, sizeof(s), bar);
  bar.arrive_and_wait();
  out[AT] = s[127 - threadIdx.x];
}
K pipeline_copy(int n, const int *x, int *out) {
  __shared__ int s[2][64];
  auto pipe = cuda::make_pipeline();
  int tiles = n / 64, t = threadIdx.x, total = 0;
  for (int i = 0, next = 0; i < tiles; i++) {
    for (; next < tiles && next < i + 2; next++) {
      pipe.producer_acquire();
      cuda::memcpy_async(&s[next % 2][t], &x[next * 64 + t], sizeof(int), pipe);
      pipe.producer_commit();
    }
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    if (i == tiles - 1) cuda::pipeline_consumer_wait_prior<0>(pipe);
    __syncthreads();
    total += s[i % 2][63 - t];
    __syncthreads();
    pipe.consumer_release();
  }
  out[t] = total;
}
K libm_float(const float *x, float *out) {
  float v = x[AT];
  int n = gridDim.x * blockDim.x, i = AT;
  out[i] = sinf(v), out[n + i] = cosf(v), out[2 * n + i] = expf(v), out[3 * n + i] = logf(fabsf(v) + 1);
  out[4 * n + i] = tanhf(v), out[5 * n + i] = erff(v), out[6 * n + i] = atanf(v), out[7 * n + i] = cbrtf(v);
  out[8 * n + i] = sqrtf(fabsf(v)), out[9 * n + i] = log1pf(fabsf(v)), out[10 * n + i] = expm1f(v / 8);
  out[11 * n + i] = powf(fabsf(v) + 0.5f, 1.7f);
}
K libm_double(const double *x, double *out) {
  double v = x[AT];
  int n = gridDim.x * blockDim.x, i = AT;
  out[i] = sin(v), out[n + i] = exp(v), out[2 * n + i] = log(fabs(v) + 1), out[3 * n + i] = tanh(v);
  out[4 * n + i] = erf(v), out[5 * n + i] = sqrt(fabs(v)), out[6 * n + i] = v / 3.7, out[7 * n + i] = tgamma(fabs(v) + 1);
}
K integer_intrinsics(const unsigned *x, unsigned *out) {
  unsigned v = x[AT], n = gridDim.x * blockDim.x, i = AT;
  out[i] = __popc(v), out[n + i] = __clz(v), out[2 * n + i] = __brev(v), out[3 * n + i] = __ffs(v);
  out[4 * n + i] = __byte_perm(v, ~v, 0x2561), out[5 * n + i] = __umulhi(v, 2654435761u);
  out[6 * n + i] = __funnelshift_l(v, v, 7), out[7 * n + i] = __dp4a(v, 0x01020304u, 5u);
}
K votes(const int *x, unsigned *out) {
  int p = x[AT] > 0;
  unsigned b = __ballot_sync(~0u, p), m = __match_any_sync(~0u, x[AT]);
  out[AT] = __popc(m) + (b & 1) * 100 + __any_sync(~0u, p) * 1000 + __all_sync(~0u, p) * 10000;
}
K barrier_votes(const int *x, int *out) {
  int p = x[AT] > 0;
  int c = __syncthreads_count(p), a = __syncthreads_and(p), o = __syncthreads_or(p);
  out[AT] = c + 1000 * a + 10000 * o;
}
K atomics_integer(int n, const int *x, int *out) {
  if (AT < n) {
    int v = x[AT];
    atomicAdd(out, v), atomicMin(out + 1, v), atomicMax(out + 2, v), atomicAnd(out + 3, ~(1 << (v & 15)));
    atomicOr(out + 4, 1 << (v & 15)), atomicXor(out + 5, v), atomicInc((unsigned *)out + 6, 1000), atomicSub(out + 7, 1);
  }
}
K atomics_float(const float *x, float *f, double *d, __half2 *h) {
  atomicAdd(f, x[AT]), atomicAdd(d, (double)x[AT]), atomicAdd(h, __floats2half2_rn(x[AT], 1.0f));
}
K compare_loop(const float *x, int *best) {
  int seen = *(volatile int *)best, mine = __float_as_int(x[AT]);
  while (__int_as_float(seen) < x[AT]) { int old = atomicCAS(best, seen, mine); if (old == seen) break; seen = old; }
}
K last_block(int n, const int *x, int *part, unsigned *count, int *out) {
  __shared__ bool last;
  int v = AT < n ? x[AT] : 0;
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  if (!threadIdx.x) { part[blockIdx.x] = v; __threadfence(); last = atomicAdd(count, 1) == gridDim.x - 1; }
  __syncthreads();
  if (last && !threadIdx.x) { int s = 0; __threadfence(); for (int i = 0; i < gridDim.x; i++) s += ((volatile int *)part)[i]; *out = s; }
}
K halves(const half *x, half *out) {
  half2 v = __halves2half2(x[AT], __float2half(2.0f));
  out[AT] = __hadd(__low2half(__hmul2(v, v)), hsqrt(__habs(x[AT])));
}
K bfloats(const __nv_bfloat16 *x, __nv_bfloat16 *out) { out[AT] = __hfma(x[AT], x[AT], __float2bfloat16(1.0f)); }
K to_fp8(const float *x, unsigned char *out) {
  int n = gridDim.x * blockDim.x;
  out[AT] = __nv_cvt_float_to_fp8(x[AT], __NV_SATFINITE, __NV_E4M3);
  out[n + AT] = __nv_cvt_float_to_fp8(x[AT], __NV_SATFINITE, __NV_E5M2);
}
struct Pair { float a; int b; double c; };
K by_value(Pair p, float *out) { out[AT] = p.a * p.b + (float)p.c + AT; }
__constant__ float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
K constant_filter(int n, const float *x, float *out) {
  float total = 0;
  for (int i = -2; i <= 2; i++) { int j = (int)AT + i; total += j >= 0 && j < n ? x[j] * weights[i + 2] : 0; }
  if (AT < n) out[AT] = total;
}
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
K recursion(int *out) { out[threadIdx.x] = fib(threadIdx.x); }
K local_array(const int *x, int *out) {
  int a[16];
  for (int i = 0; i < 16; i++) a[i] = x[i] * (threadIdx.x + 1);
  out[threadIdx.x] = a[(threadIdx.x * 7) % 16];
}
K switch_table(const int *x, int *out) {
  int v = x[AT];
  switch (v % 9) { case 0: v += 7; break; case 1: v *= 3; break; case 2: v = ~v; break; case 3: v >>= 2; break;
    case 4: v -= 100; break; case 5: v ^= 0x55; break; case 6: v = v * v; break; case 7: v = -v; break; default: v = 1; }
  out[AT] = v;
}
K vector_loads(const float4 *x, float4 *out) { float4 v = x[AT]; out[AT] = make_float4(v.w, v.z, v.y, v.x); }
K mandelbrot(int w, int *out) {
  float cr = (AT % w) * 3.0f / w - 2, ci = (AT / w) * 2.0f / w - 1, r = 0, i = 0;
  int n = 0;
  for (; n < 50 && r * r + i * i < 4; n++) { float t = __fadd_rn(__fsub_rn(__fmul_rn(r, r), __fmul_rn(i, i)), cr); i = __fadd_rn(__fmul_rn(2 * r, i), ci); r = t; }
  out[AT] = n;
}
K nbody(int n, const float4 *p, float3 *out) {
  __shared__ float4 s[64];
  float4 me = p[AT];
  float x = 0, y = 0, z = 0;
  for (int b = 0; b < n; b += 64) {
    s[threadIdx.x] = p[b + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; j++) {
      float dx = s[j].x - me.x, dy = s[j].y - me.y, dz = s[j].z - me.z;
      float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), f = s[j].w * inv * inv * inv;
      x += dx * f, y += dy * f, z += dz * f;
    }
    __syncthreads();
  }
  out[AT] = make_float3(x, y, z);
}
K softmax_row(int n, const float *x, float *out) {
  __shared__ float s[32];
  const float *row = x + blockIdx.x * n;
  float top = -1e30f, total = 0;
  for (int i = threadIdx.x; i < n; i += 32) top = fmaxf(top, row[i]);
  for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int i = threadIdx.x; i < n; i += 32) total += expf(row[i] - top);
  s[threadIdx.x] = total;
  __syncwarp();
  total = 0;
  for (int i = 0; i < 32; i++) total += s[i];
  for (int i = threadIdx.x; i < n; i += 32) out[blockIdx.x * n + i] = expf(row[i] - top) / total;
}
K scoped_atomics(int *flag, int *data, int *out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> f(*flag);
  if (blockIdx.x == 0) { if (!threadIdx.x) { *data = 42; f.store(1, cuda::std::memory_order_release); } }
  else if (!threadIdx.x) { while (!f.load(cuda::std::memory_order_acquire)) {} *out = *data + 1; }
}
