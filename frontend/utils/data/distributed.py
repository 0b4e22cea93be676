"""The sampler of several processes, which each take their part of a data set.

Not here: the processes (`frontend.distributed.ranks.processes`). Next: `frontend.nn.data`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from frontend.arguments.checks import whole
from frontend.distributed.ranks.processes import joined
from frontend.nn.data import Sampler
from hcq.errors import UsageError

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler):
    """The numbers of the samples that this rank takes: of every `num_replicas`, one.

    With `shuffle` the order is drawn anew for each `set_epoch`, the same on all ranks, and that of PyTorch.
    All ranks get as many: the first samples are taken again at the end, or with `drop_last` the last ones are
    left out. `num_replicas` and `rank` are by default those of the process group. Raises `UsageError` for a
    rank that does not exist, and without a group.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        seed: int = 0,
        drop_last: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        super().__init__(dataset)
        self.num_replicas = joined().size if num_replicas is None else whole(num_replicas, "num_replicas")
        self.rank = joined().rank if rank is None else whole(rank, "rank")
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"rank: wanted 0 to {self.num_replicas - 1}, saw {self.rank}")
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        total = len(dataset)
        self.num_samples = total // self.num_replicas if drop_last else ceil(total / self.num_replicas)

    def set_epoch(self, epoch: int) -> None:
        """Draw another order for the next pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        import numpy as np  # noqa: PLC0415 - importing the frontend loads no NumPy

        order = list(range(len(self.data_source)))
        if self.shuffle:  # PyTorch's permutation: of a Mersenne twister, each number modulo those left
            twister = np.random.RandomState((self.seed + self.epoch) & 0xFFFFFFFF)
            drawn = twister.randint(0, 1 << 32, max(len(order) - 1, 0), "u4").tolist()
            for i, number in enumerate(drawn):
                other = i + number % (len(order) - i)
                order[i], order[other] = order[other], order[i]
        every = np.resize(np.array(order, "i8"), self.num_samples * self.num_replicas)
        return iter(every[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples
