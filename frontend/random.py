"""The generator of random numbers under the names of `torch.random`. There is one for all devices.

Not here: draws (`frontend.ops.random`), generators of their own (`frontend.Generator`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frontend.functions import get_rng_state, initial_seed, seed, set_rng_state
from frontend.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

manual_seed = Tensor.manual_seed


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002 - PyTorch's
    """Restore the state of the generator after a `with` block; devices have none of their own."""
    del devices
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)
