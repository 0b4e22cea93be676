"""Tools of the AMD driver: a scripted kernel.

Next: `scripted`, the kernel; `tools.nv`, the same for NVIDIA.
"""
