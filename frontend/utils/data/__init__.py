"""PyTorch's name for data sets and the loader: `from frontend.utils.data import DataLoader, Dataset`.

Not here: the data sets and the loader themselves (`frontend.nn.data`, `frontend.torch.data`).
"""

# ruff: noqa: I001, F401 - lists of names stand in rows; PyTorch's names

from sys import modules as _modules

from frontend.nn.data import (
    ArrayDataset, BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler, Subset,
    TensorDataset, default_collate, default_convert, get_worker_info, random_split,
)  # fmt: skip
from frontend.torch.data import (
    ChainDataset, ConcatDataset, IterableDataset, StackDataset, SubsetRandomSampler, WeightedRandomSampler,
)  # fmt: skip
from hcq.names import lazy as _lazy

__all__ = [n for n in globals() if not n.startswith("_")]

__getattr__, __dir__ = _lazy(
    __name__, [*__all__, "DistributedSampler"], {"DistributedSampler": f"{__name__}.distributed"}
)
for _name in ("dataloader", "dataset", "sampler"):  # PyTorch's modules, all of whose names are here
    _modules[f"{__name__}.{_name}"] = globals()[_name] = _modules[__name__]
