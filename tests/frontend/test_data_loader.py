"""Data sets and the loader: order, workers, prefetch, errors."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, dtypes, nn
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from pathlib import Path

DataLoader = nn.data.DataLoader


class Squares:
    """Sample i is i * i; sample `bad` raises."""

    def __init__(self, length: int, bad: int = -1) -> None:
        self.length, self.bad = length, bad

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> int:
        if i == self.bad:
            raise LookupError(f"no sample {i}")
        return i * i


def listed(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def test_batches_are_tensors_in_order():
    assert listed(DataLoader(Squares(5), 2)) == [[0, 1], [4, 9], [16]]
    loader = DataLoader(Squares(5), 2, drop_last=True)
    assert (len(loader), listed(loader)) == (2, [[0, 1], [4, 9]])
    assert listed(DataLoader([], 2)) == []
    assert next(iter(DataLoader([1.5, 2.5], 2))).dtype is dtypes.float64


def test_a_seed_gives_the_same_orders_whatever_reads_them():
    plain = DataLoader(Squares(20), 3, shuffle=True, seed=7)
    threads = DataLoader(Squares(20), 3, shuffle=True, seed=7, num_workers=3, prefetch=2)
    epochs = [listed(plain), listed(plain)]
    assert [listed(threads), listed(threads)] == epochs
    assert epochs[0] != epochs[1]
    assert sorted([n for batch in epochs[0] for n in batch]) == [i * i for i in range(20)]
    plain.set_epoch(0)
    assert listed(plain) == epochs[0]
    assert listed(DataLoader(Squares(20), 3, shuffle=True, seed=8)) != epochs[0]


def test_samples_of_several_parts_are_joined_by_part():
    data = nn.data.ArrayDataset(np.arange(6.0, dtype=np.float32).reshape(3, 2), np.array([5, 6, 7]))
    (x, y), last = DataLoader(data, 2)
    assert (x.tolist(), y.tolist(), last[1].tolist()) == ([[0.0, 1.0], [2.0, 3.0]], [5, 6], [7])
    (found,) = DataLoader([{"a": 1, "name": "x"}, {"a": 2, "name": "y"}], 2)
    assert (found["a"].tolist(), found["name"]) == ([1, 2], ["x", "y"])
    with pytest.raises(UsageError, match="shapes"):
        list(DataLoader([np.zeros(2), np.zeros(3)], 2))
    (joined,) = DataLoader(
        [np.zeros(2), np.zeros(3)], 2, collate_fn=lambda samples: [len(s) for s in samples]
    )
    assert joined == [2, 3]


def test_files_are_samples_in_the_order_of_their_names(tmp_path: Path):
    for name in ("b", "a", "c"):
        np.save(tmp_path / f"{name}.npy", np.full(2, ord(name), np.float32))
    (tmp_path / "other.txt").write_text("")
    data = nn.data.FileDataset(tmp_path, "*.npy", np.load)
    (batch,) = DataLoader(data, 3, num_workers=2)
    assert batch.tolist() == [[97.0, 97.0], [98.0, 98.0], [99.0, 99.0]]
    with pytest.raises(UsageError, match="no file"):
        nn.data.FileDataset(tmp_path, "*.png", np.load)
    rows = nn.data.ArrayDataset(np.load(tmp_path / "a.npy", mmap_mode="r"))
    assert listed(DataLoader(rows, 2)) == [[97.0, 97.0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_sample_reaches_the_user_where_it_is_due(workers: int):
    batches = iter(DataLoader(Squares(40, bad=5), 2, num_workers=workers))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [4, 9]]
    with pytest.raises(LookupError, match="no sample 5") as caught:
        next(batches)
    assert any("sample 5" in note for note in caught.value.__notes__)


def test_workers_read_ahead_and_no_further():
    read, enough = [], threading.Event()

    class Watched(Squares):
        def __getitem__(self, i: int) -> int:
            read.append(i)
            if len(read) == 5:
                enough.set()
            return i

    batches = iter(DataLoader(Watched(50), 1, num_workers=1, prefetch=4))
    assert next(batches).tolist() == [0]
    assert sorted(read)[:1] == [0]
    assert len(read) <= 4
    next(batches)
    assert enough.wait(60)
    assert len(read) <= 5
    batches.close()  # type: ignore[attr-defined]
    assert len(read) <= 5


@pytest.mark.slow
def test_processes_give_the_batches_of_threads_and_their_errors():
    plain = DataLoader(Squares(9), 2, shuffle=True, seed=1)
    processes = DataLoader(Squares(9), 2, shuffle=True, seed=1, num_workers=1, workers="process")
    assert listed(processes) == listed(plain)
    with pytest.raises(LookupError, match="no sample 3"):
        listed(DataLoader(Squares(9, bad=3), 2, num_workers=1, workers="process"))


def test_splits_have_all_samples_once():
    parts = nn.data.random_split(Squares(10), [0.7, 0.3], seed=3)
    assert [len(p) for p in parts] == [7, 3]
    assert sorted([p[i] for p in parts for i in range(len(p))]) == [i * i for i in range(10)]
    assert [len(p) for p in nn.data.random_split(Squares(5), [2, 3])] == [2, 3]
    with pytest.raises(UsageError, match="are not"):
        nn.data.random_split(Squares(5), [2, 2])
    with pytest.raises(UsageError, match="shares whose sum is 1"):
        nn.data.random_split(Squares(5), [0.5, 0.4])


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 0}, {"num_workers": -1}, {"prefetch": 0}, {"workers": "typo"}, {"shuffle": 2}],
    ids=str,
)
def test_settings_that_a_loader_cannot_have_are_refused(settings: dict[str, Any]):
    with pytest.raises(UsageError):
        DataLoader(Squares(3), **settings)


def test_what_is_no_data_set_is_refused():
    with pytest.raises(UsageTypeError, match="len"):
        DataLoader(3)
    with pytest.raises(UsageError, match="one length"):
        nn.data.ArrayDataset([1, 2], [1])
    with pytest.raises(IndexError):
        nn.data.ArrayDataset([1, 2])[2]


def test_a_loader_feeds_training():
    x = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    layer = nn.Linear(1, 1)
    optimiser = nn.optim.SGD(layer.parameters(), 0.5)
    loader = DataLoader(nn.data.ArrayDataset(x, 2 * x), 4, shuffle=True, num_workers=1, seed=1)
    losses = []
    for _ in range(3):
        for given, wanted in loader:
            loss = layer(given).mse_loss(wanted).backward()
            optimiser.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert isinstance(given, Tensor)
