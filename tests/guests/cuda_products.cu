// Products in the manner of CUTLASS: its own kernel, CuTe's tiles, rings of bulk copies with wgmma, work shared out by
// stream-K, and the synchronisation that such kernels use. Each entry has a case in cuda_products_cases.py.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/kernel/default_gemm.h>
#include <cutlass/gemm/threadblock/threadblock_swizzle.h>
#include <cute/tensor.hpp>
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/semaphore>
#include <cuda/std/atomic>
namespace cg = cooperative_groups;
#define K extern "C" __global__ void
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// ---- CUTLASS: c = a b^T, three stages of cp.async; two workgroups share k where SPLIT ----
template <class Class, class Tile, class Warp, class Step, int ALIGN, class Element, int STAGES, bool SPLIT>
using Product = typename cutlass::gemm::kernel::DefaultGemm<
    Element, cutlass::layout::RowMajor, ALIGN, Element, cutlass::layout::ColumnMajor, ALIGN, float, cutlass::layout::RowMajor,
    float, Class, cutlass::arch::Sm80, Tile, Warp, Step,
    cutlass::epilogue::thread::LinearCombination<float, 16 / sizeof(float) / (ALIGN == 1 ? 4 : 1), float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, STAGES, SPLIT, cutlass::arch::OpMultiplyAdd>::GemmKernel;
template <class Kernel, class Element>
__device__ void cutlass_product(int m, int n, int k, int slices, const Element *a, const Element *b, float *c, int *locks) {
  using Tile = typename Kernel::Mma::Shape;
  cutlass::gemm::GemmCoord size(m, n, k), grid((m + Tile::kM - 1) / Tile::kM, (n + Tile::kN - 1) / Tile::kN, slices);
  typename Kernel::Params params(size, grid, {const_cast<Element *>(a), k}, {const_cast<Element *>(b), k}, {c, n}, {c, n},
                                 {1.0f, 0.0f}, locks);
  extern __shared__ __align__(16) unsigned char memory[];
  Kernel()(params, *reinterpret_cast<typename Kernel::SharedStorage *>(memory));
}
using cutlass::gemm::GemmShape;
K cutlass_f16(int m, int n, int k, int slices, const cutlass::half_t *a, const cutlass::half_t *b, float *c, int *locks) {
  cutlass_product<Product<cutlass::arch::OpClassTensorOp, GemmShape<64, 64, 32>, GemmShape<32, 32, 32>, GemmShape<16, 8, 16>, 8,
                          cutlass::half_t, 3, true>>(m, n, k, slices, a, b, c, locks);
}
K cutlass_simt(int m, int n, int k, int slices, const float *a, const float *b, float *c, int *locks) {
  cutlass_product<Product<cutlass::arch::OpClassSimt, GemmShape<32, 64, 8>, GemmShape<32, 32, 8>, GemmShape<1, 1, 1>, 1,
                          float, 2, false>>(m, n, k, slices, a, b, c, locks);
}

// ---- CuTe: one tile of 64 x 64, swizzled, cp.async in, ldmatrix to registers, mma ----
K cute_f16(int k, const cute::half_t *a, const cute::half_t *b, float *c) {
  using namespace cute;
  using T = cute::half_t;
  auto in = [&](const T *p) { return make_tensor(make_gmem_ptr(p), make_shape(_64{}, k), make_stride(k, _1{})); };
  auto layout = composition(Swizzle<2, 3, 3>{}, Layout<Shape<_64, _32>, Stride<_32, _1>>{});
  __shared__ alignas(128) T x[64 * 32], y[64 * 32];
  auto sa = make_tensor(make_smem_ptr(x), layout), sb = make_tensor(make_smem_ptr(y), layout);
  auto mma = make_tiled_mma(SM80_16x8x16_F32F16F16F32_TN{}, Layout<Shape<_2, _2>>{}, Tile<_32, _32, _16>{});
  auto copy_in = make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEALWAYS<uint128_t>, T>{}, Layout<Shape<_32, _4>, Stride<_4, _1>>{},
                                 Layout<Shape<_1, _8>>{});
  auto mine = mma.get_slice(threadIdx.x);
  auto gc = make_tensor(make_gmem_ptr(c), Layout<Shape<_64, _64>, Stride<_64, _1>>{});
  auto out = mine.partition_C(gc);
  auto sum = mine.make_fragment_C(out);
  clear(sum);
  auto ra = mine.partition_fragment_A(sa);
  auto rb = mine.partition_fragment_B(sb);
  auto load_a = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, T>{}, mma);
  auto load_b = make_tiled_copy_B(Copy_Atom<SM75_U32x4_LDSM_N, T>{}, mma);
  auto from_a = load_a.get_slice(threadIdx.x);
  auto from_b = load_b.get_slice(threadIdx.x);
  for (int at = 0; at < k / 32; at++) {
    auto ga = local_tile(in(a), Shape<_64, _32>{}, make_coord(0, at)), gb = local_tile(in(b), Shape<_64, _32>{}, make_coord(0, at));
    auto part = copy_in.get_slice(threadIdx.x);
    copy(copy_in, part.partition_S(ga), part.partition_D(sa));
    copy(copy_in, part.partition_S(gb), part.partition_D(sb));
    cp_async_fence();
    cp_async_wait<0>();
    __syncthreads();
    copy(load_a, from_a.partition_S(sa), from_a.retile_D(ra));
    copy(load_b, from_b.partition_S(sb), from_b.retile_D(rb));
    gemm(mma, ra, rb, sum);
    __syncthreads();
  }
  copy(sum, out);
}

// ---- stream-K: each workgroup takes as many steps of 16 of the tiles' k as the others; a tile's last one adds up ----
K stream_k(int n, int k, const float *a, const float *b, float *c, float *parts, int *arrived) {
  __shared__ float x[16][17], y[16][17];
  __shared__ int last;
  int side = n / 16, steps = k / 16, all = side * side * steps, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  int begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
  while (begin < end) {
    int tile = begin / steps, until = min(end, (tile + 1) * steps), row = tile / side * 16, column = tile % side * 16;
    float sum = 0;
    for (int step = begin % steps; step < until - tile * steps; step++) {
      x[ty][tx] = a[(row + ty) * k + step * 16 + tx], y[ty][tx] = b[(step * 16 + ty) * n + column + tx];
      __syncthreads();
      for (int i = 0; i < 16; i++) sum += x[ty][i] * y[i][tx];
      __syncthreads();
    }
    atomicAdd(&parts[(row + ty) * n + column + tx], sum);
    __threadfence();
    __syncthreads();
    if (!threadIdx.x) last = atomicAdd(&arrived[tile], until - begin) + until - begin == steps;
    __syncthreads();
    if (last) {
      __threadfence();
      c[(row + ty) * n + column + tx] = __ldcg(&parts[(row + ty) * n + column + tx]);
    }
    begin = until;
  }
}

// ---- libcu++ ----
K semaphores(int *out) {
  using Room = cuda::counting_semaphore<cuda::thread_scope_block, 4>;
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(Room) char room_at[sizeof(Room)];
  __shared__ alignas(Latch) char latch_at[sizeof(Latch)];
  __shared__ int inside, most;
  Room &room = *reinterpret_cast<Room *>(room_at);
  Latch &done = *reinterpret_cast<Latch *>(latch_at);
  if (!threadIdx.x) new (&room) Room(4), new (&done) Latch(64), inside = most = 0;
  __syncthreads();
  room.acquire();
  atomicMax(&most, atomicAdd(&inside, 1) + 1);
  atomicSub(&inside, 1);
  room.release();
  done.arrive_and_wait();
  if (!threadIdx.x) out[0] = most >= 1 && most <= 4, out[1] = inside;
}
K atomic_turns(int *turn, int *out) {
  cuda::atomic_ref<int, cuda::thread_scope_device> at(*turn);
  if (!threadIdx.x) {
    for (int now = at.load(cuda::memory_order_acquire); now != (int)blockIdx.x; now = at.load(cuda::memory_order_acquire))
      at.wait(now, cuda::memory_order_acquire);
    out[blockIdx.x] = blockIdx.x ? out[blockIdx.x - 1] * 3 + 1 : 1;
    at.store(blockIdx.x + 1, cuda::memory_order_release);
    at.notify_all();
  }
}

// ---- a whole grid ----
K grid_jacobi(int n, int rounds, float *x, float *y) {
  auto grid = cg::this_grid();
  for (int round = 0; round < rounds; round++) {
    for (int i = AT; i < n; i += grid.size()) y[i] = (x[(i + n - 1) % n] + 2 * x[i] + x[(i + 1) % n]) / 4;
    grid.sync();
    float *old = x;
    x = y, y = old;
  }
}

#if __CUDA_ARCH__ >= 900
K stmatrix_turned(const unsigned *x, unsigned *out) {
  __shared__ alignas(16) unsigned s[8 * 4 * 4];
  unsigned v[4], to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x * 4);
  for (int i = 0; i < 4; i++) v[i] = x[i * 32 + threadIdx.x];
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
  __syncwarp();
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = s[threadIdx.x * 4 + i];
}
#endif
