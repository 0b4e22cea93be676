"""Indices out of range raise IndexError: immediately if the host knows them, else under validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from frontend import Tensor, TinyJit, nn, stats, tensor
from hcq.config import override
from hcq.errors import UsageIndexError, UsageZeroDivisionError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LOGITS = np.arange(6, dtype=np.float32).reshape(2, 3)

HOST: dict[str, Callable[[Tensor], Any]] = {
    "a whole number": lambda x: x[3],
    "a negative one": lambda x: x[-4],
    "too many": lambda x: x[0, 0, 0],
    "a list": lambda x: x[[0, 3]],
    "an array": lambda x: x[:, np.array([0, -5])],
    "a tensor of a list": lambda x: x[Tensor([3])],
    "a tensor of a number": lambda x: x[tensor(3)],
    "a reshaped one": lambda x: x[Tensor([[0, 3]]).reshape(2)],
    "a wider one": lambda x: x[Tensor([3], dtype="uint8").cast("int64")],
    "a float": lambda x: x[1.5],
    "a tensor of floats": lambda x: x[Tensor([1.0])],
    "a string": lambda x: x["a"],
    "a dictionary": lambda x: x[{}],
    "shapes that differ": lambda x: x[[0, 1], [0, 1, 2]],
    "gather": lambda x: x.gather(1, [[0, 4]]),
    "take": lambda x: x.take([3], 0),
    "take of negative": lambda x: x.take(Tensor([-4]), 0),
    "index_select": lambda x: x.index_select(0, np.array([3])),
    "scatter": lambda x: x.scatter(0, [[3, 0, 0, 0]], 1.0),
    "scatter_add": lambda x: x.scatter_add(0, Tensor([[3, 0, 0, 0]]), Tensor(X)),
    "writing": lambda x: x.__setitem__([3], 1.0),
    "one_hot": lambda _: Tensor([0, 3]).one_hot(3),
    "one_hot of negative": lambda _: Tensor([-1]).one_hot(3),
    "an axis": lambda x: x.sum(2),
    "an axis of ()": lambda _: Tensor(3.0).cumsum(7),
    "an embedding": lambda _: nn.Embedding(10, 4)([12]),
    "an embedding of a tensor": lambda _: nn.Embedding(10, 4)(Tensor([12])),
    "a label": lambda _: Tensor(LOGITS).cross_entropy([0, 9]),
    "a negative label": lambda _: Tensor(LOGITS).cross_entropy(Tensor([0, -1])),
    "a label, classes last": lambda _: Tensor(LOGITS).sparse_categorical_crossentropy(Tensor([0, 3])),
    "a label of nll": lambda _: Tensor(LOGITS).nll_loss(np.array([0, 3])),
}


@pytest.mark.parametrize("name", HOST)
def test_invalid_indices_known_on_the_host_are_refused_immediately(name: str):
    x = Tensor(X)
    with override(validate=False), pytest.raises(IndexError) as caught:
        HOST[name](x)
    assert isinstance(caught.value, UsageIndexError)


def moved(values: Any) -> Tensor:
    """Return integers whose values only the device knows."""
    return Tensor(np.asarray(values) - 1) + 1


DEVICE: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "an index": (lambda x: x[moved([0, 3])], r"index, axis 0: index 3 is outside the 3 elements"),
    "one of two": (lambda x: x[moved([0]), moved([4])], r"index, axis 1: index 4 is outside the 4"),
    "one of shape ()": (lambda x: x[moved(5)], r"index, axis 0: index 5"),
    "gather": (lambda x: x.gather(1, moved([[-5]])), r"gather, axis 1: index -5 is outside the 4"),
    "nothing": (lambda _: Tensor.zeros(0)[moved([1]).cast("int16")], r"axis 0: index 1 is outside the 0"),
    "take": (lambda x: x.take(moved([3]), 0), r"take, axis 0: index 3 is outside the 3"),
    "scatter": (lambda x: x.scatter(0, moved([[3]]), 1.0), r"scatter, axis 0: index 3"),
    "scatter_add": (lambda x: x.scatter_add(0, moved([[3]]), Tensor(X)), r"scatter_add, axis 0: index 3"),
    "one_hot": (lambda _: moved([3]).one_hot(3), r"one_hot: index 3 is outside the 3"),
    "an embedding": (lambda _: nn.Embedding(10, 4)(moved([12])), r"Embedding: index 12 is outside the 10"),
    "a negative one of an embedding": (lambda _: nn.Embedding(10, 4)(moved([-1])), r"Embedding: index -1"),
    "a label": (
        lambda _: Tensor(LOGITS).cross_entropy(moved([0, -1])),
        r"classes: index -1 is outside the 3",
    ),
    "a label of nll": (lambda _: Tensor(LOGITS).nll_loss(moved([3, 0])), r"nll_loss, classes: index 3"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", DEVICE)
def test_invalid_indices_on_the_device_are_found_under_validation(name: str):
    make, message = DEVICE[name]
    pending = make(Tensor(X))
    with override(validate=True), pytest.raises(UsageIndexError, match=message):
        pending.realize()
    with override(validate=True), pytest.raises(UsageIndexError, match=message):
        Tensor(X).add(1).realize(pending)
    with override(validate=False):
        pending.realize()


def test_writes_out_of_range_are_found_under_validation():
    x = Tensor(X)
    x[moved([3])] = 1.0
    with override(validate=True), pytest.raises(UsageIndexError, match="index, axis 0: index 3"):
        x.numpy()
    with override(validate=False):
        np.testing.assert_array_equal(x.numpy(), X)


def test_indices_in_range_pass_the_check_without_a_launch():
    x, index = Tensor(X), moved([0, -3, 2])
    with override(validate=True):
        before = stats.launches
        np.testing.assert_array_equal(x[index].numpy(), X[[0, -3, 2]])
        assert stats.launches - before == 1
        loss = Tensor(LOGITS).cross_entropy(moved([2, -100])).item()
    assert loss == pytest.approx(Tensor(LOGITS).cross_entropy(Tensor([2, -100])).item())
    assert loss == pytest.approx(0.40760596)


def test_assigned_indices_are_not_checked_against_their_source_data():
    index = Tensor([7])
    index.assign(Tensor([1]))
    np.testing.assert_array_equal(Tensor(X)[index].numpy(), X[[1]])
    index += 1
    index.realize()
    np.testing.assert_array_equal(Tensor(X)[index].numpy(), X[[2]])


def test_an_invalid_label_gives_nan_without_validation(unchecked: None):
    loss = Tensor(LOGITS).cross_entropy(moved([0, 9]), reduction="none").tolist()
    assert loss[0] == pytest.approx(2.4076059)
    assert loss[1] != loss[1]
    assert np.isnan(Tensor(LOGITS).nll_loss(moved([0, -1])).item())
    assert Tensor(LOGITS).cross_entropy(moved([0, -100])).item() == pytest.approx(2.4076059)


def test_a_capture_checks_its_own_indices():
    x = Tensor(X).realize()

    @TinyJit
    def rows(index: Tensor) -> Tensor:
        return x.take(index + 0 * index, 0).realize()

    with override(validate=True):
        rows(Tensor([1]).realize())
        with pytest.raises(UsageIndexError, match="take, axis 0: index 3"):
            rows(Tensor([3]).realize())
        rows.reset()
        for _ in range(3):
            np.testing.assert_array_equal(rows(Tensor([2]).realize()).numpy(), X[[2]])


def test_error_classes_derive_from_pythons():
    assert issubclass(hcq.UsageIndexError, (hcq.UsageError, IndexError))
    assert issubclass(hcq.UsageTypeError, (hcq.UsageError, TypeError))
    assert issubclass(UsageZeroDivisionError, (hcq.UsageError, ZeroDivisionError))
    for call in (len, iter):
        with pytest.raises(TypeError):
            call(Tensor(1.0))


MIXED: list[tuple[Callable[[Tensor], Tensor], tuple[int, ...], list[float]]] = [
    (lambda x: x[0, :, [0, 1]], (3, 2), [0, 1, 4, 5, 8, 9]),
    (lambda x: x[tensor(0), :, [0, 1]], (3, 2), [0, 1, 4, 5, 8, 9]),
    (lambda x: x[[0, 1], :, tensor(1)], (2, 3), [1, 5, 9, 13, 17, 21]),
    (lambda x: x[tensor(1), [0, 2], tensor(3)], (2,), [15, 23]),
    (lambda x: x[[0, 1], tensor(2), [0, 1]], (2,), [8, 21]),
    (lambda x: x[:, tensor(1), None, [3]], (2, 1, 1), [7, 19]),
    (lambda x: x[tensor(1), None, [0], :2], (1, 1, 2), [12, 13]),
    (lambda x: x[[0], :, [1]], (1, 3), [1, 5, 9]),
    (lambda x: x[(0, 1), ..., (1, 2)], (2, 3), [1, 5, 9, 14, 18, 22]),
    (lambda x: x[tensor(1), tensor(2), tensor(3)], (), [23]),
    (lambda x: x[[]], (0, 3, 4), []),
]
"""Keys, and the results of PyTorch 2.13."""


@pytest.mark.parametrize("case", range(len(MIXED)))
def test_mixed_index_keys_match_pytorch(case: int):
    key, shape, values = MIXED[case]
    got = key(Tensor(np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)))
    assert got.shape == shape
    assert got.flatten().tolist() == values


def test_a_replay_checks_indices_in_its_arguments():
    table = Tensor([[1.0], [2.0], [3.0]])

    @TinyJit
    def picked(index: Tensor) -> Tensor:
        return (table[index] * 2).realize()

    for good in ([0, 1], [1, 2], [2, 0]):
        assert picked(Tensor(good) + 0).tolist() == [[2.0 * i + 2] for i in good]
    with pytest.raises(IndexError, match="index 3 is outside the 3 elements"):
        picked(Tensor([0, 2]) + 1)
    assert picked(Tensor([2, 2]) + 0).tolist() == [[6.0], [6.0]]


def test_a_replay_checks_outside_indices_that_it_does_not_assign():
    table, index, turn = Tensor([1.0, 2.0, 3.0]), Tensor([1, 2]) - 1, Tensor([1.0])
    index.realize()

    @TinyJit
    def picked(x: Tensor) -> Tensor:
        turn.assign(turn + 1)
        return (table[index] * x + turn).realize()

    for i in range(3):
        assert picked(Tensor([1.0])).tolist() == [3.0 + i, 4.0 + i]
    index.assign(index + 2).realize()
    with pytest.raises(IndexError, match="index 3 is outside"):
        picked(Tensor([1.0]))
