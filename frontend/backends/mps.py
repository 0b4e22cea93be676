"""`torch.backends.mps`: GPUs of Apple, which have no driver here."""


def is_available() -> bool:
    """Return False."""
    return False


is_built = is_available
