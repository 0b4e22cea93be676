// OpenCL C kernels whose code objects lie beside this file; `python -m tests.guests.build_amd opencl` compiles them.
//
// No device library is linked: work-item functions are clang's builtins, which read the dispatch packet or the
// hidden arguments, and barriers are fences around the instruction.

#define GROUP 256
#define WORKGROUP __attribute__((reqd_work_group_size(GROUP, 1, 1)))

static uint item(void) { return __builtin_amdgcn_workitem_id_x(); }
static uint group(void) { return __builtin_amdgcn_workgroup_id_x(); }
static uint global_item(void) { return group() * __builtin_amdgcn_workgroup_size_x() + item(); }

static void sync(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// y += a x; the workgroup's size is the launch's, and the last workgroup may be partial
__kernel void saxpy(__global float *y, __global const float *x, float a, uint n) {
  uint i = global_item();
  if (i < n) y[i] += a * x[i];
}

// the sum of each workgroup's numbers, by a tree in LDS
__kernel WORKGROUP void reduce(__global float *out, __global const float *x, uint n) {
  __local float part[GROUP];
  uint i = global_item(), total = GROUP * (__builtin_amdgcn_grid_size_x() / GROUP);
  float sum = 0;
  for (; i < n; i += total) sum += x[i];
  part[item()] = sum;
  for (uint upper = GROUP / 2; upper; upper /= 2) {
    sync();
    if (item() < upper) part[item()] += part[item() + upper];
  }
  if (!item()) out[group()] = part[0];
}

// running sums of each workgroup's integers, by doubling steps between two buffers of LDS
__kernel WORKGROUP void scan(__global uint *out, __global const uint *x) {
  __local uint part[2][GROUP];
  uint t = item(), side = 0;
  part[0][t] = x[global_item()];
  for (uint step = 1; step < GROUP; step *= 2) {
    sync();
    part[!side][t] = part[side][t] + (t >= step ? part[side][t - step] : 0);
    side = !side;
  }
  out[global_item()] = part[side][t];
}

// out[c][r] = x[r][c] by tiles of 16 x 16 in LDS; a workgroup is 16 x 16 work-items
__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void transpose(__global float *out, __global const float *x, uint rows, uint columns) {
  __local float tile[16][17];
  uint tx = __builtin_amdgcn_workitem_id_x(), ty = __builtin_amdgcn_workitem_id_y();
  uint gx = __builtin_amdgcn_workgroup_id_x() * 16, gy = __builtin_amdgcn_workgroup_id_y() * 16;
  if (gx + tx < columns && gy + ty < rows) tile[ty][tx] = x[(gy + ty) * columns + gx + tx];
  sync();
  if (gy + tx < rows && gx + ty < columns) out[(gx + ty) * rows + gy + tx] = tile[tx][ty];
}

// how often each byte occurs: atomics in LDS, then one addition to memory a bin
__kernel WORKGROUP void histogram(__global uint *counts, __global const uchar *x, uint n) {
  __local uint part[256];
  part[item()] = 0;
  sync();
  uint total = __builtin_amdgcn_grid_size_x();
  for (uint i = global_item(); i < n; i += total)
    __opencl_atomic_fetch_add((__local atomic_uint *)&part[x[i]], 1, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_WORK_GROUP);
  sync();
  __opencl_atomic_fetch_add((__global atomic_uint *)&counts[item()], part[item()], __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}

// (row * columns + column) of each place of a grid of three axes, from the launch's own numbers
__kernel void places(__global uint *out, uint columns, uint rows) {
  uint x = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
  uint y = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() + __builtin_amdgcn_workitem_id_y();
  uint z = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() + __builtin_amdgcn_workitem_id_z();
  if (x < columns && y < rows) {
    uint at = (z * rows + y) * columns + x;
    out[at] = at ^ (__builtin_amdgcn_grid_size_x() << 16);
  }
}

// the n-th Collatz length of each number, with private memory for the last eight values
__kernel void collatz(__global uint *steps, __global uint *last, uint n) {
  uint i = global_item();
  if (i >= n) return;
  ulong value = i + 1;
  ulong seen[8] = {0};
  uint count = 0;
  while (value != 1) {
    seen[count & 7] = value;
    value = value & 1 ? 3 * value + 1 : value / 2;
    count++;
  }
  steps[i] = count;
  last[i] = (uint)(seen[(count + 5) & 7] ^ seen[(count + 6) & 7]);
}

// a constant table, a switch, a division and double precision
__constant uint PRIMES[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};
__kernel void mix(__global ulong *out, __global const uint *x, uint n) {
  uint i = global_item();
  if (i >= n) return;
  uint value = x[i], prime = PRIMES[value & 15];
  ulong found;
  switch (value % 7) {
  case 0: found = value / prime; break;
  case 1: found = value % prime; break;
  case 2: found = (ulong)value * prime; break;
  case 3: found = as_ulong((double)value / (double)prime); break;
  case 4: found = as_uint((float)value / 3.0f); break;
  case 5: found = ((ulong)value << 20) / prime; break;
  default: found = __builtin_popcount(value) + (__builtin_clz(value | 1) << 8); break;
  }
  out[i] = found;
}
