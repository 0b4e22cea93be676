// Clusters by cooperative groups. `interop.cuda.to_ptx(source, "sm_90a")` and "sm_120a" gave the PTX files beside this one (xz -9e).
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// A histogram of 256 bins, a quarter in the shared memory of each workgroup.
extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const unsigned* data, unsigned* out, int n) {
  __shared__ unsigned bins[64];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned bin = data[i] & 255;
    atomicAdd(cluster.map_shared_rank(bins, bin / 64) + bin % 64, 1u);
  }
  cluster.sync();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(out + cluster.block_rank() * 64 + i, bins[i]);
}

// Every workgroup adds the rows of all; the cluster's shape comes from the launch.
extern "C" __global__ void ring(const float* in, float* out) {
  extern __shared__ float row[];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
  row[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.sync();
  float sum = 0;
  for (unsigned k = 0; k < size; k++) sum += cluster.map_shared_rank(row, (rank + k) % size)[threadIdx.x];
  bool found = cluster.query_shared_rank(cluster.map_shared_rank(row, size - 1)) == size - 1;
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum + cluster.dim_blocks().x * 1000 + (found ? 0.5f : 0.0f);
  cluster.sync();
}

// The same without the last barrier: a workgroup may exit while another reads its row.
extern "C" __global__ void leaving(const float* in, float* out) {
  extern __shared__ float row[];
  cg::cluster_group cluster = cg::this_cluster();
  row[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.sync();
  unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  out[blockIdx.x * blockDim.x + threadIdx.x] = cluster.map_shared_rank(row, next)[threadIdx.x];
}

// A split barrier: what is stored between arrival and wait is not ordered by it.
extern "C" __global__ void early(const float* in, float* out) {
  extern __shared__ float row[];
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  auto token = cluster.barrier_arrive();
  row[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.barrier_wait(static_cast<decltype(token)&&>(token));
  unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  out[blockIdx.x * blockDim.x + threadIdx.x] = cluster.map_shared_rank(row, next)[threadIdx.x];
  cluster.sync();
}
