"""Data sets, also of files, and a loader that prepares batches ahead.

A data set has a length and returns sample i: `len(data)`, `data[i]`. The loader draws an order, reads the
samples of a batch in worker threads or processes, joins them, and yields tensors. Arguments of other classes
raise `UsageTypeError`.

Not here: files of weights (`state`). Next: `frontend.optim`, training.
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag, shown
from frontend.arguments.settings import number_within
from frontend.later import later
from frontend.nn.checks import count
from frontend.ops.random import GENERATOR
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageIndexError, UsageTypeError

if TYPE_CHECKING:
    import numpy as np


_sets = later("frontend.torch.data")
Sample_co = TypeVar("Sample_co", covariant=True)


class Dataset(Protocol[Sample_co]):
    """The protocol of a data set: a length, and sample i. A plain list is a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Sample_co: ...

    if not TYPE_CHECKING:  # lists are data sets, too

        def __add__(self, other):  # noqa: ANN001, ANN204 - as above
            return _sets.ConcatDataset([self, other])


class ArrayDataset(Dataset[Any]):
    """Samples that are rows of arrays: `data[i]` is row i of the array, or a tuple of row i of each array.

    Arrays of NumPy files that are mapped into memory (`numpy.load(path, mmap_mode="r")`) are read row by row.
    Raises `UsageTypeError` for no arrays, `UsageError` for arrays of different lengths; reading a sample that
    does not exist raises `UsageIndexError`.
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays or any(not hasattr(a, "__getitem__") or not hasattr(a, "__len__") for a in arrays):
            raise UsageTypeError(f"ArrayDataset: wanted arrays, saw {', '.join([shown(a) for a in arrays])}")
        lengths = [len(a) for a in arrays]
        if len(set(lengths)) > 1:
            raise UsageError(f"ArrayDataset: wanted arrays of one length, saw {lengths}")
        self.arrays = self.tensors = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise UsageIndexError(f"sample {i} of {len(self)}")
        found = tuple([a[i] for a in self.arrays])
        return found if len(found) > 1 else found[0]


class TensorDataset(ArrayDataset):
    """Samples that are rows of tensors: `data[i]` is a tuple of row i of each, also of one tensor.

    See `ArrayDataset`. Raises `UsageIndexError` for a sample that does not exist; slices and lists give rows.
    """

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, int) and not -len(self) <= i < len(self):
            raise UsageIndexError(f"sample {i} of {len(self)}")
        return tuple([a[i] for a in self.arrays])


class FileDataset(Dataset[Any]):
    """The files of a folder, in the order of their paths: `data[i]` is the result of `read(path i)`.

        images = nn.data.FileDataset("digits", "*/*.npy", lambda path: (numpy.load(path), path.parent.name))

    `pattern` is a glob pattern of `pathlib`. With worker processes `read` must be a function of a module.
    Raises `UsageError` when no file matches. Reading a sample raises `UsageIndexError` if it does not exist,
    and as `read`.
    """

    def __init__(self, folder: str | Path, pattern: str, read: Callable[[Path], Any]) -> None:
        self.paths = sorted([p for p in Path(folder).glob(pattern) if p.is_file()])
        self.read = read
        if not self.paths:
            raise UsageError(f"FileDataset: no file of {folder} matches {pattern!r}")

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise UsageIndexError(f"file {i} of {len(self)}")
        return self.read(self.paths[i])


class Subset(Dataset[Any]):
    """Some samples of a data set: sample i is `dataset[indices[i]]`. Raises as the data set."""

    def __init__(self, dataset: Dataset[Any], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Any:
        return self.dataset[self.indices[i]]


class Sampler:
    """The base of samplers: a subclass defines `__iter__`, which yields numbers of samples.

    Without it, iterating raises `NotImplementedError`.
    """

    def __init__(self, data_source: Any = None) -> None:
        self.data_source = data_source

    def __class_getitem__(cls, kind: Any) -> Any:
        return cls

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """The numbers of the samples of a data set in order."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of a sampler; the last one may be shorter, or is left out.

    Raises `UsageError` for a size below 1, `UsageTypeError` for another class of an argument.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:  # noqa: FBT001, FBT002 - the field's signature
        self.sampler, self.batch_size = sampler, count("BatchSampler, batch_size", batch_size)
        self.drop_last = flag(drop_last, "BatchSampler, drop_last")

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while some := list(itertools.islice(numbers, self.batch_size)):
            if len(some) == self.batch_size or not self.drop_last:
                yield some

    def __len__(self) -> int:
        return _batches_of(self.sampler, self.batch_size, self.drop_last)


def _batches_of(samples: Any, size: int, drop_last: bool) -> int:  # noqa: FBT001 - as in the classes
    whole_batches, rest = divmod(len(samples), size)
    return whole_batches + (rest > 0 and not drop_last)


def drawn_with(generator: Any) -> np.random.Generator:
    """Return NumPy's numbers of the next draw of a `frontend.Generator`; None: of the process's draws."""
    import numpy as np  # noqa: PLC0415 - only where data is loaded

    with contextlib.nullcontext() if generator is None else generator.drawing():
        return np.random.default_rng([*GENERATOR.next()])


class RandomSampler(Sampler):
    """The numbers of the samples in another order in each epoch; `num_samples` of them, None: all.

    With `replacement` each is drawn of all numbers; without it more are further orders. See
    `WeightedRandomSampler`. Raises `UsageError` for a number of samples below 1, `UsageTypeError` for none.
    """

    def __init__(
        self,
        data_source: Dataset[Any],
        replacement: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        num_samples: int | None = None,
        generator: Any = None,
    ) -> None:
        super().__init__(data_source)
        self.replacement, self.generator = flag(replacement, "RandomSampler, replacement"), generator
        self.num_samples = num_samples and count("RandomSampler, num_samples", num_samples)

    def __len__(self) -> int:
        return len(self.data_source) if self.num_samples is None else self.num_samples

    def __iter__(self) -> Iterator[int]:
        size, many, rng = len(self.data_source), len(self), drawn_with(self.generator)
        if self.replacement:
            return iter(rng.integers(size, size=many).tolist())
        orders = (rng.permutation(size).tolist() for _ in range(many))
        return itertools.islice(itertools.chain.from_iterable(orders), many)


def random_split(
    dataset: Dataset[Any], lengths: Sequence[float], generator: Any = None, *, seed: int | None = None
) -> list[Subset]:
    """Return parts of a data set, drawn without overlap; lengths are counts, or shares whose sum is 1.

    The order is a draw of `generator`, a `frontend.Generator`; None: of the process (`manual_seed`), or that
    of a `seed`. The parts are not PyTorch's. Shares are rounded down, and samples that are left go to the
    first parts. Raises `UsageError` unless the counts add up to the length of the data set, or the shares to
    1, and for a negative one.
    """
    import numpy as np  # noqa: PLC0415 - only where data is loaded

    total = len(dataset)
    counts = [int(n) for n in lengths]
    if any(isinstance(n, float) for n in lengths):
        if abs(sum(lengths) - 1) > 1e-6:
            raise UsageError(f"random_split, lengths: wanted shares whose sum is 1, saw {list(lengths)}")
        counts = [int(total * number_within("random_split, lengths", n, 0.0, 1.1)) for n in lengths]
        for i in range(min(total - sum(counts), len(counts))):
            counts[i] += 1
    if sum(counts) != total or any(n < 0 for n in counts):
        raise UsageError(f"random_split: {counts} samples are not the {total} of the data set")
    rng = drawn_with(generator) if seed is None else np.random.default_rng(seed)
    order = rng.permutation(total).tolist()
    ends = [0, *itertools.accumulate(counts)]
    return [Subset(dataset, order[a:b]) for a, b in itertools.pairwise(ends)]


def collate(samples: Sequence[Any]) -> Any:
    """Return samples joined along a new first axis, as NumPy arrays.

    Tuples, lists and mappings are joined part by part, of tuples to a list, as in PyTorch; texts and bytes
    stay apart. Python's floats become float64, ints int64. Raises `UsageError` for arrays of different shapes
    and for tuples and mappings of different lengths or keys, `UsageTypeError` for what is no sample and for
    samples of several kinds, `IndexError` for no samples.
    """
    import numpy as np  # noqa: PLC0415 - only where data is loaded

    if not hasattr(samples, "__getitem__") or isinstance(samples, Mapping):
        raise UsageTypeError(f"collate: wanted a list of samples, saw {shown(samples)}")
    first = samples[0]
    kind: Any = next((k for k in (Mapping, (tuple, list)) if isinstance(first, k)), object)
    other = [s for s in samples if not isinstance(s, kind) or (kind is Mapping and first.keys() - s.keys())]
    if other:
        raise UsageTypeError(f"collate: wanted samples of one kind, saw {shown(first)} and {shown(other[0])}")
    if isinstance(first, Mapping):
        return {key: collate([s[key] for s in samples]) for key in first}
    if isinstance(first, (tuple, list)):
        if len({len(s) for s in samples}) > 1:
            raise UsageError("collate: samples have different numbers of parts")
        parts = [collate(part) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else parts
    if isinstance(first, (str, bytes)):
        return samples
    arrays = [np.asarray(s) for s in samples]
    strange = [s for s, a in zip(samples, arrays, strict=True) if a.dtype.kind not in "biufV"]
    if strange:
        raise UsageTypeError(
            f"collate: wanted numbers, arrays, texts or containers of them, saw {shown(strange[0])}\n"
            "hint: pass collate_fn="
        )
    shapes = {a.shape for a in arrays}
    if len(shapes) > 1:
        raise UsageError(
            f"collate: samples of the shapes {', '.join(map(str, sorted(shapes)))} do not join\n"
            "hint: pass collate_fn=, which pads or lists them"
        )
    return np.stack(arrays)


def default_collate(batch: Sequence[Any]) -> Any:
    """Return samples joined along a new first axis, as tensors. Raises as `collate`."""
    return default_convert(collate(batch))


def default_convert(value: Any) -> Any:
    """Return a sample with its arrays as tensors."""
    return _tensors(value, None)


class _Single:
    """The function that joins batches of one sample: another function of that sample."""

    def __init__(self, join: Callable[[Any], Any]) -> None:
        self.join = join

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the result for the only sample."""
        return self.join(samples[0])


def get_worker_info() -> None:
    """Return None: data sets are read by index, so that workers need not divide them."""


def _tensors(value: Any, device: str | None) -> Any:
    """Return arrays in nested containers as tensors."""
    if isinstance(value, Mapping):
        return {key: _tensors(v, device) for key, v in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_tensors(v, device) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return (
        Tensor(value, device=device)
        if hasattr(value, "__array__") and not isinstance(value, Tensor)
        else value
    )


def _batch(dataset: Dataset[Any], indices: Sequence[int], join: Callable[[Sequence[Any]], Any]) -> Any:
    """Return the joined samples of a batch; an error names the sample that it comes from."""
    if hasattr(dataset, "__getitems__"):
        return join(dataset.__getitems__(indices))
    samples = []
    for i in indices:
        try:
            samples.append(dataset[i])
        except Exception as error:
            error.add_note(f"while reading sample {i} of the data set")
            raise
    return join(samples)


class _Source:
    """The state of a worker process: the data set and the function that joins samples.

    The pool passes them to `_start`, which runs once in each process.
    """

    now: _Source | None = None
    """The state of this process; None in the caller's process."""

    def __init__(self, dataset: Dataset[Any], join: Callable[[Sequence[Any]], Any]) -> None:
        self.dataset, self.join = dataset, join


def _start(dataset: Dataset[Any], join: Callable[[Sequence[Any]], Any]) -> None:
    _Source.now = _Source(dataset, join)


def _batch_of_process(indices: Sequence[int]) -> Any:
    assert _Source.now is not None  # the pool starts each process with `_start`
    return _batch(_Source.now.dataset, indices, _Source.now.join)


class DataLoader:
    """Batches of a data set as tensors; each iteration is an epoch.

        for images, labels in nn.data.DataLoader(data, 64, shuffle=True, seed=1, num_workers=2):
            step(images, labels)

    With `num_workers`, that many threads read up to `prefetch` batches ahead, by default twice as many as
    there are workers. With `workers="process"` they are processes, started by spawn: the data set and
    `collate_fn` must be picklable. Batches come in the order of the epoch. Each epoch is another draw of
    `generator`, a `frontend.Generator`, or of the process, which `manual_seed` seeds. With a `seed` its order
    is that of the seed and the number of the epoch (`set_epoch` chooses one). `drop_last` leaves out a last
    batch with fewer samples, which a captured step would not accept. The caller's thread makes the tensors on
    `device`; None: the default device.

    `sampler` gives the numbers of an epoch's samples, `batch_sampler` the numbers of each batch, as they are
    needed. `prefetch_factor` batches are read ahead for each worker. `pin_memory`, `pin_memory_device`,
    `persistent_workers`, `timeout`, `in_order` and `multiprocessing_context` change nothing. `batch_size`
    None yields samples. A data set that only iterates is read in order, by the caller's thread.

    An error of a worker is raised when its batch is due, with the number of its sample in a note; the other
    batches are cancelled. Raises `UsageTypeError` for no data set, `UsageError` for settings out of range.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = False,  # noqa: FBT001, FBT002 - the field's signature
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002 - as above
        drop_last: bool = False,  # noqa: FBT001, FBT002 - as above
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        seed: int | None = None,
        prefetch: int | None = None,
        workers: Literal["thread", "process"] = "thread",
        device: str | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        del multiprocessing_context, pin_memory_device, in_order
        self.iterable = hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")
        if num_workers and (worker_init_fn is not None or self.iterable):
            raise UsageError("DataLoader: worker_init_fn and data sets without [i] need num_workers=0")
        if not self.iterable and not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise UsageTypeError(f"DataLoader: wanted a data set with len() and [i], saw {shown(dataset)}")
        if workers not in {"thread", "process"}:
            raise UsageError(f"DataLoader, workers: wanted 'thread' or 'process', saw {workers!r}")
        self.dataset, self.alone = dataset, batch_size is None
        self.batch_size = count("DataLoader, batch_size", 1 if batch_size is None else batch_size)
        number_within("DataLoader, timeout", timeout, 0)
        self.num_workers = int(number_within("DataLoader, num_workers", whole(num_workers, "num_workers"), 0))
        given = prefetch if prefetch_factor is None else prefetch_factor * max(1, num_workers)
        ahead = 2 * max(1, num_workers) if given is None else given
        self.prefetch = count("DataLoader, prefetch", ahead)
        self.shuffle = flag(shuffle is not None and shuffle, "shuffle")
        self.drop_last = flag(drop_last, "drop_last")
        join = collate_fn or (default_convert if self.alone else collate)
        self.collate_fn = _Single(join) if self.alone else join
        self.workers, self.device = workers, device
        self.seed, self.generator = seed, generator
        if (shuffle and sampler is not None) or (
            batch_sampler is not None and (shuffle or sampler or drop_last)
        ):
            raise UsageError("DataLoader: a sampler draws the order itself; leave out shuffle and drop_last")
        if sampler is None and not self.iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and sampler is not None and not self.alone:
            batch_sampler = BatchSampler(sampler, self.batch_size, self.drop_last)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.timeout, self.prefetch_factor = timeout, prefetch_factor
        self.pin_memory = flag(pin_memory, "pin_memory")
        self.persistent_workers = flag(persistent_workers, "persistent_workers")
        self.epoch = 0

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]  # those without a length raise
        samples = self.dataset if self.sampler is None else self.sampler
        return _batches_of(samples, self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next iteration's epoch, which determines its order; the first is 0."""
        self.epoch = epoch

    def batches(self, epoch: int) -> list[list[int]]:
        """Return the numbers of the samples of each batch of an epoch, without a seed of a new draw."""
        return list(self._numbers(epoch))

    def _numbers(self, epoch: int) -> Iterable[list[int]]:
        import numpy as np  # noqa: PLC0415 - only where data is loaded

        if self.seed is None or not self.shuffle:
            every = self.batch_sampler
            return map(list, BatchSampler(self.sampler or (), 1) if every is None else every)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.dataset)).tolist()
        return BatchSampler(order, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        if self.iterable:
            return self._made(map(self.collate_fn, self._streamed()))
        every, self.epoch = self._numbers(self.epoch), self.epoch + 1
        if not self.num_workers:
            return self._made(_batch(self.dataset, some, self.collate_fn) for some in every)
        return self._made(self._ahead(every))

    def _streamed(self) -> Iterator[list[Any]]:
        """Yield lists of `batch_size` samples of an iterable data set."""
        samples: Iterator[Any] = iter(self.dataset)
        while len(some := list(itertools.islice(samples, self.batch_size))) == self.batch_size:
            yield some
        if some and not self.drop_last:
            yield some

    def _made(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield _tensors(batch, self.device)

    def _pool(self) -> Executor:
        if self.workers == "thread":
            return ThreadPoolExecutor(self.num_workers, thread_name_prefix="hcq-data")
        context = multiprocessing.get_context("spawn")  # no device is shared with a child
        given = (self.dataset, self.collate_fn)
        return ProcessPoolExecutor(self.num_workers, context, initializer=_start, initargs=given)

    def _ahead(self, every: Iterable[list[int]]) -> Iterator[Any]:
        """Yield the batches in order, while the next ones are read; stop the workers at the end."""
        pool, waiting, left = self._pool(), deque[Future[Any]](), iter(every)
        try:
            while True:
                for some in itertools.islice(left, self.prefetch - len(waiting)):
                    if self.workers == "thread":
                        waiting.append(pool.submit(_batch, self.dataset, some, self.collate_fn))
                    else:
                        waiting.append(pool.submit(_batch_of_process, some))
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
