"""The emulated AMD GPUs, below the ioctl.

Not here: the neutral parts (`drivers.emu`), the driver (`drivers.amd`). Next: `isa`, machine code.
"""
