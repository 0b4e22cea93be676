"""Data sets made of others, data sets that only iterate, and samplers that draw: `torch.utils.data`.

Not here: the loader and plain samplers (`frontend.nn.data`).
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from frontend.arguments.conversion import flag
from frontend.nn.checks import count
from frontend.nn.data import ArrayDataset, Dataset, RandomSampler, Sampler, drawn_with
from hcq.errors import UsageError, UsageIndexError


class ConcatDataset(Dataset[Any]):
    """The samples of several data sets, one after the other; one too far raises `UsageIndexError`."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1] if self.datasets else 0

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise UsageIndexError(f"sample {i} of {len(self)}")
        part = bisect_right(self.cumulative_sizes, i % len(self))
        return self.datasets[part][i % len(self) - ([0, *self.cumulative_sizes][part])]


class StackDataset(ArrayDataset):
    """Samples of several data sets of one length: tuples, or by the names of the arguments dictionaries."""

    def __init__(self, *datasets: Dataset[Any], **named: Dataset[Any]) -> None:
        super().__init__(*(datasets or named.values()))
        self.datasets, self.names = datasets or named, list(named)

    def __getitem__(self, i: int) -> Any:
        found = [d[i] for d in self.arrays]
        return dict(zip(self.names, found, strict=True)) if self.names else tuple(found)


class IterableDataset:
    """The base of data sets that only yield samples in order: a subclass defines `__iter__`."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return cls

    def __add__(self, other: IterableDataset) -> ChainDataset:
        return ChainDataset([self, other])


class ChainDataset(IterableDataset):
    """The samples of several iterable data sets, one after the other."""

    def __init__(self, datasets: Iterable[IterableDataset]) -> None:
        self.datasets = list(datasets)

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)  # type: ignore[arg-type]  # a subclass iterates


class WeightedRandomSampler(Sampler):
    """`num_samples` numbers drawn in each epoch with probabilities in proportion to `weights`.

    Each epoch is a draw of a `frontend.Generator`, or of the process; the numbers are not PyTorch's. Without
    `replacement` each number is drawn once at most. Raises `UsageError` for more numbers than weights then.
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        self.weights = weights.tolist() if hasattr(weights, "tolist") else list(weights)
        self.num_samples = count(f"{type(self).__name__}, num_samples", num_samples)
        self.replacement = flag(replacement, f"{type(self).__name__}, replacement")
        if not replacement and self.num_samples > sum(w > 0 for w in self.weights):
            raise UsageError(f"{type(self).__name__}: {num_samples} numbers of {len(self.weights)} samples")
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        total, many = math.fsum(self.weights), len(self.weights)
        shares, rng = [w / total for w in self.weights], drawn_with(self.generator)
        return iter(rng.choice(many, self.num_samples, self.replacement, shares).tolist())

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(RandomSampler):
    """The given numbers in another order in each epoch."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        super().__init__(indices, generator=generator)

    def __iter__(self) -> Iterator[int]:
        return iter([self.data_source[i] for i in super().__iter__()])
