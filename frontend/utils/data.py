"""PyTorch's name for data sets and the loader: `from frontend.utils.data import DataLoader, Dataset`.

Not here: the data sets and the loader themselves (`frontend.nn.data`).
"""

from __future__ import annotations

from frontend.nn.data import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    random_split,
)
from frontend.nn.data import collate as default_collate

__all__ = [
    "ArrayDataset", "BatchSampler", "DataLoader", "Dataset", "RandomSampler", "SequentialSampler", "Subset",
    "TensorDataset", "default_collate", "random_split",
]  # fmt: skip
