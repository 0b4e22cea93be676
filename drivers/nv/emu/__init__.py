"""Emulated NVIDIA GPUs: PTX on the SIMT engine, and the kernel driver's interface in front of it.

Not here: the neutral parts (`drivers.emu`), the real driver (`drivers.nv`), which runs on this unchanged.
Next: `machine`, which opens one; `rm` (ioctls), `engines` (channels), `ptx` (kernels).
"""
