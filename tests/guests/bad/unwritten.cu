// Memory that is read before anybody wrote it. What the marks mean: twin.h.
#include "twin.h"

K tail_not_written(int n, const float *x, float *out) {
  __shared__ float part[64];
  if (threadIdx.x < n) part[threadIdx.x] = x[threadIdx.x];
  FIX(else part[threadIdx.x] = 0;)
  __syncthreads();
  float total = 0;
  for (int i = 0; i < 64; i++) total += part[i];  // BAD: uninitialised
  out[threadIdx.x] = total;
}
K accumulates_into_new_memory(const float *x, float *out) {
  FIX(out[AT] = 0;)
  for (int i = 0; i < 3; i++)
    out[AT] += x[AT];  // BAD: uninitialised
}
K halo_not_written(int n, const float *x, float *out) {
  __shared__ float s[65];
  if (AT || OR(true, false)) s[threadIdx.x] = threadIdx.x ? x[AT - 1] : 0;
  if (threadIdx.x == 63) s[64] = x[AT];
  __syncthreads();
  out[AT] = s[threadIdx.x + 1] - s[threadIdx.x];  // BAD: uninitialised
}
K bins_not_cleared(int n, const unsigned char *x, int *out) {
  __shared__ int bins[64];
  FIX(bins[threadIdx.x] = 0; __syncthreads();)
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    atomicAdd(&bins[x[i] & 63], 1);  // BAD: uninitialised
  __syncthreads();
  out[threadIdx.x] = bins[threadIdx.x];
}
K counter_not_cleared(const int *x, unsigned *count, int *out) {
  FIX(if (AT == 0) *count = 0; __syncthreads();)
  if (x[AT] > 0)
    out[atomicAdd(count, 1) & 63] = x[AT];  // BAD: uninitialised
}
K sparse_output_read_back(const int *index, const float *x, float *scratch, float *out) {
  scratch[index[threadIdx.x]] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = scratch[OR(index[threadIdx.x], threadIdx.x)];  // BAD: uninitialised
}
K local_array_not_written(int n, const int *x, int *out) {
  int a[16];
  for (int i = 0; i < OR(16, n); i++) a[i] = x[i] * 3;
  out[threadIdx.x] = a[threadIdx.x % 16];  // BAD: uninitialised
}
