"""The emulated AMD GPUs, below the ioctl (design §5).

Not here: the neutral parts (`drivers.emu`), the driver (`drivers.amd`). Next: `isa`, machine code.
"""
