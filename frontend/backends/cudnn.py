"""The settings of `torch.backends.cudnn`; see `frontend.backends`."""

from __future__ import annotations

enabled = True
benchmark = False
deterministic = True
allow_tf32 = False


def is_available() -> bool:
    """Return False: cuDNN is not used."""
    return False


def version() -> None:
    """Return None: cuDNN is not used."""
