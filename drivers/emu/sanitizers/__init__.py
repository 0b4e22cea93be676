"""Sanitizers of emulated kernels: races, uninitialised reads, divergent barriers.

Not here: races between queues (`drivers.emu.races`). Next: `sanitize`, the entry; `shadow_shared` and
`shadow_global`, what is kept for each byte.
"""
