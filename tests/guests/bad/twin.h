// Kernels with one mistake each, as people make them, and the same kernels without it: with -DFIXED.
// FIX(...) is what the broken kernel lacks, OR(right, wrong) where it differs.
// "BAD: kind, kind" in a comment marks a line that a finding must name, and its kinds in lower case
// (`emulator.ir.report.ReportKind`); a race has two such lines. Launches: tests/guests/bad_cases.py.
#define AT (blockIdx.x * blockDim.x + threadIdx.x)
#define K extern "C" __global__ void
#ifdef FIXED
#define FIX(...) __VA_ARGS__
#define OR(right, wrong) right
#else
#define FIX(...)
#define OR(right, wrong) wrong
#endif
