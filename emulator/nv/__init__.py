"""Emulated NVIDIA GPUs: PTX on the SIMT engine, with the interface of NVIDIA's kernel driver.

Not here: the neutral parts (`emulator.shared`), the driver (`drivers.nv`), which runs on an emulated GPU
unchanged. Next: `machine`, which opens one; `rm` (ioctls), `engines` (channels), `ptx` (kernels).
"""
