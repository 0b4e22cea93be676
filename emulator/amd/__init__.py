"""The emulated AMD GPUs, below the ioctl: kernel driver (`kfd`), queues (`engines`), machine code (`isa`).

Not here: the parts for all vendors (`emulator.shared`), the driver (`drivers.amd`). Next: `machine`.
"""
