"""Sanitizers of emulated kernels: races, uninitialised reads, divergent barriers."""
