"""Sanitizers of emulated kernels: races, uninitialised reads, divergent barriers.

Not here: races between queues (`emulator.shared.races`). Next: `sanitize`, the entry point; `shadow_shared`
and `shadow_global`, the records of accesses to shared and global memory.
"""
