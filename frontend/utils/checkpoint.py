"""PyTorch's name for activation checkpoints: `from frontend.utils.checkpoint import checkpoint`.

Not here: the functions themselves (`frontend.autograd.checkpoint`).
"""

from __future__ import annotations

from typing import Any

from frontend.autograd.checkpoint import checkpoint, checkpoint_sequential

__all__ = ["checkpoint", "checkpoint_sequential", "get_device_states", "set_device_states"]


def get_device_states(*_args: Any) -> tuple[list[int], list[Any]]:
    """Return no devices and no states: one generator, that of `get_rng_state`, draws for all devices."""
    return [], []


def set_device_states(devices: Any, states: Any, **_names: Any) -> None:
    """Do nothing, as there is nothing of a device alone to restore."""
