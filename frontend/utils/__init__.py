"""PyTorch's `utils`: data sets, activation checkpoints, nested containers, and weights by their address.

Not here: the code (`frontend.nn.data`, `frontend.autograd.checkpoint`, `frontend.hub`).
"""

from __future__ import annotations

from frontend import hub as model_zoo
from frontend.utils import _pytree, checkpoint, data

__all__ = ["_pytree", "checkpoint", "data", "model_zoo"]
