"""Host time of the GPU drivers on emulated kernels: `python -m tests.support.host_time`.

Next: `nv`, `amd`, the cases; `finished`, what both share.
"""
