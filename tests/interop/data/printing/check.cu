#include <assert.h>
extern "C" __global__ void check(const int *x) {
  assert(x[threadIdx.x] < 5 && "bounds");
}
