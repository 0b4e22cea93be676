"""`torch.backends.mps` and `.mkldnn`: GPUs of Apple, which have no driver here, and a library of the host."""


def is_available() -> bool:
    """Return False."""
    return False


is_built = is_available
