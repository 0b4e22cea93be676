"""Tools of the AMD driver: a scripted kernel.

Next: `scripted`, the kernel; `tests.support.nv`, the same for NVIDIA.
"""
