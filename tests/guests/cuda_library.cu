// Kernels made of CUB's parts: warps, blocks, and device-wide algorithms by decoupled look-back. Each entry has a case in
// cuda_library_cases.py.
#define CCCL_DISABLE_PDL  // NVRTC has no such functions of the runtime
#include <cub/block/block_load.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/agent/agent_reduce.cuh>
#include <cub/agent/agent_scan.cuh>
#include <cub/agent/single_pass_scan_operators.cuh>
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_run_length_decode.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#define K extern "C" __global__ void
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

struct Less {
  template <class T> __device__ bool operator()(const T &a, const T &b) const { return a < b; }
};
struct Add {
  template <class T> __device__ T operator()(const T &a, const T &b) const { return a + b; }
};

// ---- warps ----
K cub_warp_reduce(const int *x, int *sums, int *heads) {
  using Whole = cub::WarpReduce<int>;
  using Part = cub::WarpReduce<int, 8>;
  __shared__ union { Whole::TempStorage whole[4]; Part::TempStorage part[16]; } s;
  int w = threadIdx.x / 32, v = x[AT];
  int total = Whole(s.whole[w]).Sum(v);
  if (threadIdx.x % 32 == 0) sums[AT / 32] = total;
  __syncthreads();
  int segment = Part(s.part[threadIdx.x / 8]).HeadSegmentedSum(v, threadIdx.x % 8 == 0 || threadIdx.x % 8 == 3);
  heads[AT] = threadIdx.x % 8 == 0 || threadIdx.x % 8 == 3 ? segment : -1;
}
K cub_warp_scan(const int *x, int *inclusive, int *exclusive) {
  using Scan = cub::WarpScan<int>;
  __shared__ Scan::TempStorage s[4];
  int in, ex;
  Scan(s[threadIdx.x / 32]).Scan(x[AT], in, ex, 5, Add());
  inclusive[AT] = in, exclusive[AT] = ex;
}
K cub_warp_merge_sort(const int *x, int *out) {
  using Sort = cub::WarpMergeSort<int, 4, 16>;
  __shared__ Sort::TempStorage s[4];
  int v[4];
  for (int i = 0; i < 4; i++) v[i] = x[AT * 4 + i];
  Sort(s[threadIdx.x / 16]).Sort(v, Less());
  for (int i = 0; i < 4; i++) out[AT * 4 + i] = v[i];
}

// ---- blocks ----
K cub_block_reduce(const float *x, float *warps, float *raked) {
  using Warps = cub::BlockReduce<float, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;
  using Raked = cub::BlockReduce<float, 128, cub::BLOCK_REDUCE_RAKING>;
  __shared__ union { Warps::TempStorage warps; Raked::TempStorage raked; } s;
  float a = Warps(s.warps).Sum(x[AT], 100);
  __syncthreads();
  float b = Raked(s.raked).Reduce(x[AT], cuda::maximum<>());
  if (!threadIdx.x) warps[blockIdx.x] = a, raked[blockIdx.x] = b;
}
K cub_block_scan(const int *x, int *out, int *totals) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 128, cub::BLOCK_SCAN_WARP_SCANS>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
  __shared__ union { Load::TempStorage load; Scan::TempStorage scan; Store::TempStorage store; } s;
  int v[4], total;
  Load(s.load).Load(x + blockIdx.x * 512, v);
  __syncthreads();
  Scan(s.scan).ExclusiveSum(v, v, total);
  __syncthreads();
  Store(s.store).Store(out + blockIdx.x * 512, v);
  if (!threadIdx.x) totals[blockIdx.x] = total;
}
K cub_block_radix_sort(const float *keys, const int *values, float *sorted, int *moved) {
  using Sort = cub::BlockRadixSort<float, 64, 3, int>;
  __shared__ Sort::TempStorage s;
  float k[3];
  int v[3];
  for (int i = 0; i < 3; i++) k[i] = keys[threadIdx.x * 3 + i], v[i] = values[threadIdx.x * 3 + i];
  Sort(s).SortDescending(k, v);
  for (int i = 0; i < 3; i++) sorted[threadIdx.x * 3 + i] = k[i], moved[threadIdx.x * 3 + i] = v[i];
}
K cub_block_merge_sort(int n, const int *x, int *out) {
  using Sort = cub::BlockMergeSort<int, 64, 3>;
  __shared__ Sort::TempStorage s;
  int v[3];
  for (int i = 0; i < 3; i++) v[i] = threadIdx.x * 3 + i < n ? x[threadIdx.x * 3 + i] : 0;
  Sort(s).Sort(v, Less(), n, 0x7fffffff);
  for (int i = 0; i < 3; i++)
    if (threadIdx.x * 3 + i < n) out[threadIdx.x * 3 + i] = v[i];
}
K cub_block_histogram(const unsigned char *x, int *sorting, int *counting) {
  using Sorting = cub::BlockHistogram<unsigned char, 64, 4, 32, cub::BLOCK_HISTO_SORT>;
  using Counting = cub::BlockHistogram<unsigned char, 64, 4, 32, cub::BLOCK_HISTO_ATOMIC>;
  __shared__ union { Sorting::TempStorage sorting; Counting::TempStorage counting; } s;
  __shared__ int bins[32];
  unsigned char v[4];
  for (int i = 0; i < 4; i++) v[i] = x[threadIdx.x * 4 + i] & 31;
  Counting(s.counting).Histogram(v, bins);
  __syncthreads();
  if (threadIdx.x < 32) counting[threadIdx.x] = bins[threadIdx.x];
  __syncthreads();
  Sorting(s.sorting).Histogram(v, bins);
  __syncthreads();
  if (threadIdx.x < 32) sorting[threadIdx.x] = bins[threadIdx.x];
}
K cub_block_neighbours(const int *x, int *heads, int *difference, int *striped) {
  using Head = cub::BlockDiscontinuity<int, 64>;
  using Minus = cub::BlockAdjacentDifference<int, 64>;
  using Move = cub::BlockExchange<int, 64, 2>;
  __shared__ union { Head::TempStorage head; Minus::TempStorage minus; Move::TempStorage move; } s;
  int v[2] = {x[threadIdx.x * 2], x[threadIdx.x * 2 + 1]}, h[2], d[2];
  Head(s.head).FlagHeads(h, v, cuda::std::not_equal_to<>());
  __syncthreads();
  Minus(s.minus).SubtractLeft(v, d, cuda::std::minus<>());
  __syncthreads();
  Move(s.move).BlockedToStriped(v, v);
  for (int i = 0; i < 2; i++) {
    heads[threadIdx.x * 2 + i] = h[i], difference[threadIdx.x * 2 + i] = d[i], striped[threadIdx.x * 2 + i] = v[i];
  }
}
K cub_run_length_decode(const int *values, const int *lengths, int *out) {
  using Decode = cub::BlockRunLengthDecode<int, 32, 2, 4>;
  __shared__ Decode::TempStorage s;
  int v[2], n[2], total = 0;
  for (int i = 0; i < 2; i++) v[i] = values[threadIdx.x * 2 + i], n[i] = lengths[threadIdx.x * 2 + i];
  Decode decode(s, v, n, total);
  for (int done = 0; done < total; done += 128) {
    int d[4];
    decode.RunLengthDecode(d, done);
    for (int i = 0; i < 4; i++)
      if (done + threadIdx.x * 4 + i < total) out[done + threadIdx.x * 4 + i] = d[i];
  }
}

// ---- the whole device ----
K cub_device_reduce(int n, const float *x, float *out) {
  using Policy = cub::detail::agent_reduce_policy<64, 4, float, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_LDG>;
  using Agent = cub::detail::reduce::AgentReduce<Policy, const float *, int, Add, float>;
  __shared__ typename Agent::TempStorage s;
  cub::GridEvenShare<int> share;
  share.DispatchInit(n, gridDim.x, Policy::BLOCK_THREADS * Policy::ITEMS_PER_THREAD);
  float total = Agent(s, x, Add()).ConsumeTiles(share);
  if (!threadIdx.x) out[blockIdx.x] = total;
}
// `states`: a word of status and a value for each tile, behind 32 that stand before the first.
K cub_device_scan(int n, const int *x, int *out, void *states) {
  using Policy = cub::detail::agent_scan_policy<64, 4, int, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                                cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS>;
  using Agent = cub::detail::scan::AgentScan<Policy, const int *, int *, Add, cub::NullType, int, int>;
  __shared__ typename Agent::TempStorage s;
  cub::ScanTileState<int> state;
  size_t bytes = 1 << 20;
  state.Init(gridDim.x, states, bytes);
  Agent(s, x, out, Add(), cub::NullType()).ConsumeRange(n, state, 0);
}
K cub_device_select(int n, const int *x, int *out, int *count, void *states) {
  using Scan = cub::BlockScan<int, 64>;
  using Prefix = cub::TilePrefixCallbackOp<int, Add, cub::ScanTileState<int>>;
  __shared__ Scan::TempStorage s;
  __shared__ Prefix::TempStorage p;
  cub::ScanTileState<int> state;
  size_t bytes = 1 << 20;
  state.Init(gridDim.x, states, bytes);
  int v = AT < n ? x[AT] : -1, keep = v > 0, place, total;
  if (!blockIdx.x) {
    Scan(s).ExclusiveSum(keep, place, total);
    if (!threadIdx.x) state.SetInclusive(0, total);
  } else {
    Prefix prefix(state, p, Add(), blockIdx.x);
    Scan(s).ExclusiveScan(keep, place, Add(), prefix);
    total = prefix.GetInclusivePrefix();
  }
  if (keep) out[place] = v;
  if (blockIdx.x == gridDim.x - 1 && !threadIdx.x) *count = total;
}
// One pass over 8 bits: `before` has how many keys have smaller digits, `states` 256 words a tile.
K cub_device_onesweep(int n, int *states, int *tile, int *after, const int *before, unsigned *out, const unsigned *keys,
                      int *moved, const int *values) {
  using Policy = cub::detail::agent_radix_sort_onesweep_policy<128, 8, unsigned, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
      cub::BLOCK_SCAN_WARP_SCANS, cub::RADIX_SORT_STORE_DIRECT, 8>;
  using Agent = cub::detail::radix_sort::AgentRadixSortOnesweep<Policy, false, unsigned, int, int, int>;
  __shared__ typename Agent::TempStorage s;
  Agent(s, states, tile, after, before, out, keys, moved, values, n, 8, 8).Process();
}
K cub_segmented_reduce(const int *start, const int *x, int *out) {
  using Reduce = cub::BlockReduce<int, 64>;
  __shared__ Reduce::TempStorage s;
  int v = -0x80000000;
  for (int i = start[blockIdx.x] + threadIdx.x; i < start[blockIdx.x + 1]; i += 64) v = max(v, x[i]);
  v = Reduce(s).Reduce(v, cuda::maximum<>());
  if (!threadIdx.x) out[blockIdx.x] = v;
}
