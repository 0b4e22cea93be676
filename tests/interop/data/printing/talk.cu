extern "C" __global__ void talk(const int *x, double *out) {
  int i = threadIdx.x;
  if (!blockIdx.x && i < 2) {
    printf("%d|%5d|%-5d|%+d|%05d|%.3d|%i\n", x[i], x[i], x[i], x[i], x[i], x[i], -x[i]);
    printf("%u %x %X %#x %o %#o %c%c %%\n", 4000000000u, 255, 255, 255, 8, 8, 'A' + i, 'z');
    printf("%lld %llu %lx %hd %hhd %*d %.*f\n", -5000000000ll, 18000000000000000000ull, 0x123456789aul, 70000, 300, 6, 42, 2, 3.14159);
    printf("%f %e %g %G %a %A %10.3f|%-10.2e|%+g\n", 1.5, 12345.678, 1e-7, 1e20, 1.0, 0.1, 2.5, 2.5, 2.5);
    printf("[%s] [%10s] [%-6s] [%.2s] %p\n", "text", "right", "left", "cut", (void *)0);
    printf("nothing\n");
  }
  out[blockIdx.x * blockDim.x + i] = x[i];
}
