"""`torch.name(...)` and `F.name(...)` in the expressions: the method of that name, of the first tensor.

Next: `compare`, the use.
"""

from __future__ import annotations

from typing import Any

from frontend import Tensor, dtypes, linalg, tensor, where


class Namespace:
    """PyTorch's functions of tensors, as methods of `Tensor`."""

    def __getattr__(self, name: str) -> Any:
        if name == "linalg":
            return self
        if hasattr(dtypes, name) and not hasattr(Tensor, name):
            return getattr(dtypes, name)
        return getattr(Tensor if hasattr(Tensor, name) else linalg, name)

    tensor, where = staticmethod(tensor), staticmethod(where)


torch = Namespace()
functional = Namespace()
