"""The emulated AMD GPUs, below the ioctl.

Not here: the neutral parts (`emulator.shared`), the driver (`drivers.amd`). Next: `isa`, machine code.
"""
