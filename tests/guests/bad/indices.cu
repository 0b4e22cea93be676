// Indices, masks, strides, sizes and alignment. What the marks mean: twin.h.
#include "twin.h"
#include <cuda_pipeline.h>

K saxpy_off_by_one(int n, float a, const float *x, float *y) {
  if (OR(AT < n, AT <= n))
    y[AT] = a * x[AT] + y[AT];  // BAD: out_of_bounds
}
K saxpy_no_mask(int n, float a, const float *x, float *y) {
  FIX(if (AT < n))
    y[AT] = a * x[AT] + y[AT];  // BAD: out_of_bounds
}
K transpose_wrong_stride(int rows, int columns, const float *x, float *out) {
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (r < rows && c < columns)
    out[c * OR(rows, columns) + r] = x[r * columns + c];  // BAD: out_of_bounds
}
K stencil_no_left_edge(int n, const float *x, float *out) {
  int i = AT;
  float left = OR(i ? x[i - 1] : 0, x[i - 1]);  // BAD: out_of_bounds
  if (i < n) out[i] = x[i] - left;
}
K stencil_no_right_edge(int n, const float *x, float *out) {
  int i = AT;
  if (i < n - OR(1, 0))
    out[i] = x[i] - x[i + 1];  // BAD: out_of_bounds
}
K spmv_one_too_many(int rows, const int *start, const float *value, float *out) {
  if (AT < rows) {
    float total = 0;
    for (int i = start[AT]; OR(i < start[AT + 1], i <= start[AT + 1]); i++)
      total += value[i];  // BAD: out_of_bounds
    out[AT] = total;
  }
}
K spmv_no_last_row(int rows, const int *start, const float *value, float *out) {
  if (AT < rows) {
    float total = 0;
    int end = OR(AT + 1 < rows ? start[AT + 1] : start[0] + 2 * rows, start[AT + 1]);  // BAD: out_of_bounds
    for (int i = start[AT]; i < end; i++) total += value[i];
    out[AT] = total;
  }
}
K gemm_no_edge(int n, const float *a, const float *b, float *c) {
  __shared__ float x[16][16], y[16][16];
  int r = threadIdx.y, q = threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += 16) {
    x[r][q] = OR(r < n && k + q < n ? a[r * n + k + q] : 0, a[r * n + k + q]);  // BAD: out_of_bounds
    y[r][q] = OR(q < n && k + r < n ? b[(k + r) * n + q] : 0, b[(k + r) * n + q]);  // BAD: out_of_bounds
    __syncthreads();
    for (int i = 0; i < 16; i++) total += x[r][i] * y[i][q];
    __syncthreads();
  }
  if (r < n && q < n) c[r * n + q] = total;
}
K vectors_no_tail(int n, const float4 *x, float4 *out) {
  if (AT < OR(n / 4, (n + 3) / 4)) {
    float4 v = x[AT];  // BAD: out_of_bounds
    out[AT] = make_float4(v.w, v.z, v.y, v.x);
  }
}
K gather_unchecked(int n, const int *index, const float *table, float *out) {
  int i = index[AT];
  FIX(i = i < n ? i : n - 1;)
  out[AT] = table[i];  // BAD: out_of_bounds
}
K bytes_for_elements(int n, const int *x, int *out) {
  int i = AT * OR(1, sizeof(int));
  out[AT] = x[i];  // BAD: out_of_bounds
}
K row_of_wrong_axis(int rows, int columns, const float *x, float *out) {
  int r = blockIdx.x;
  for (int c = threadIdx.x; c < OR(columns, columns + 1); c += 32)
    out[r * columns + c] = x[r * columns + c];  // BAD: out_of_bounds, global_race
}
K shared_too_small(int n, const float *x, float *out) {
  extern __shared__ float dynamic[];
  dynamic[threadIdx.x] = x[threadIdx.x];  // BAD: shared_out_of_bounds
  __syncthreads();
  out[threadIdx.x] = dynamic[n - 1 - threadIdx.x];
}
K shared_one_too_many(const float *x, float *out) {
  __shared__ float s[64];
  s[threadIdx.x + OR(0, 1)] = x[threadIdx.x];  // BAD: shared_out_of_bounds
  __syncthreads();
  if (threadIdx.x) out[threadIdx.x] = s[threadIdx.x];
}
K shared_no_halo(const float *x, float *out) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  out[t] = s[t] - s[OR(t < 63 ? t + 1 : t, t + 1)];  // BAD: shared_out_of_bounds
}
K local_one_too_many(const int *x, int *out) {
  int a[16];
  for (int i = 0; i < 16; i++) a[i] = x[i] * (threadIdx.x + 1);
  out[threadIdx.x] = a[threadIdx.x % OR(16, 17)];  // BAD: local_out_of_bounds
}
K misaligned_vector(const float *x, float4 *out) {
  out[AT] = *(const float4 *)(x + 4 * AT + OR(0, 1));  // BAD: misaligned
}
K misaligned_shared(const unsigned char *x, int *out) {
  __shared__ unsigned char s[140];
  for (int i = threadIdx.x; i < 140; i += 32) s[i] = x[i];
  __syncthreads();
  out[threadIdx.x] = *(int *)(s + 4 * threadIdx.x + OR(4, 3));  // BAD: misaligned
}
K misaligned_copy(const float *x, float *out) {
  __shared__ alignas(16) float s[132];
  __pipeline_memcpy_async(s + 4 * threadIdx.x, x + OR(4, 2) + 4 * threadIdx.x, 16);  // BAD: misaligned
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = s[4 * threadIdx.x];
}
