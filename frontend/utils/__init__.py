"""PyTorch's name for what lies beside layers: `frontend.utils.data`.

Not here: the data sets and the loader themselves (`frontend.nn.data`).
"""

from __future__ import annotations

from frontend.utils import data

__all__ = ["data"]
