"""The emulated AMD GPUs, below the ioctl (design §5)."""
