"""Host time of the GPU drivers on emulated kernels: `python -m tests.support.host_time`.

Next: `nv`, `amd`, devices that execute nothing; `finished`, what both share.
"""
