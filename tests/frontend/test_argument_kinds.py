"""Arguments that are no tensors: lists and arrays are converted, others are refused by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)

TAKEN: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "mse_loss": (lambda x, a: x.mse_loss(a), X + 1),
    "matmul": (lambda x, a: x.matmul(a), X.T.copy()),
    "where": (lambda x, a: (x > 2).where(a, x), X * 2),
    "gather": (lambda x, a: x.gather(1, a), np.array([[0, 2], [1, 1]])),
    "take": (lambda x, a: x.take(a), np.array([1, 0, 1])),
    "take by name": (lambda x, a: x.take(index=a, axis=1), np.array([1, 0, 1])),
    "cross_entropy": (lambda x, a: x.cross_entropy(a), np.array([0, 2])),
    "masked_fill": (lambda x, a: x.masked_fill(a, 0.0), X > 2),
    "linear": (lambda x, a: x.linear(a), X.T.copy()),
    "lerp": (lambda x, a: x.lerp(a, 0.5), X * 3),
    "clip": (lambda x, a: x.clip(a, 5.0), X * 0.7),
    "scatter": (lambda x, a: x.scatter(1, [[0], [1]], a), X * 2),
    "binary_crossentropy_logits": (lambda x, a: x.binary_crossentropy_logits(a), X / 10),
    "layernorm": (lambda x, a: x.layernorm(a), [0, 1]),
    "pad": (lambda x, a: x.pad(a), [[1, 0], [0, 1]]),
    "isclose": (lambda x, a: x.isclose(a), X * 1.0000001),
    "attention": (lambda x, a: x.scaled_dot_product_attention(a, a), X / 5),
}


@pytest.mark.parametrize("name", TAKEN)
def test_arrays_and_lists_stand_for_tensors(name: str):
    call, given = TAKEN[name]
    x = Tensor(X)
    plain = isinstance(given, list)
    want = call(
        x, tuple(map(tuple, given)) if plain and name == "pad" else tuple(given) if plain else Tensor(given)
    )
    for value in (given, given if plain else given.tolist()):
        np.testing.assert_array_equal(call(x, value).numpy(), want.numpy())


@pytest.mark.parametrize("join", [Tensor.cat, Tensor.stack])
def test_arrays_are_joined_with_tensors(join: Any):
    x = Tensor(X)
    np.testing.assert_array_equal(join(x, X).numpy(), join(x, x).numpy())
    np.testing.assert_array_equal(join([X, x], axis=1).numpy(), join(x, x, axis=1).numpy())


def test_numbers_of_numpy_are_numbers():
    x = Tensor(X)
    assert x.leaky_relu(np.float32(0.5)).tolist() == X.tolist()
    assert x.sum(np.int64(1)).tolist() == [6.0, 15.0]
    assert (x * np.float32(2)).tolist() == (X * 2).tolist()
    assert x.sum(1, np.bool_(True)).shape == (2, 1)


def test_a_list_that_changes_later_does_not_change_the_result():
    x = Tensor(X) * 2
    axes = [0]
    total = x.sum(axes)
    axes[0] = 1
    x.realize()
    assert total.tolist() == [10.0, 14.0, 18.0]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a string as axis": (lambda x: x.sum("a"), "sum: axis .* an axis"),
    "None as axis": (lambda x: x.softmax(None), "softmax: axis .* a whole number, saw None"),
    "a float as axis": (lambda x: x.unsqueeze(1.5), "unsqueeze: axis .* a whole number, saw 1.5"),
    "a dictionary as tensor": (lambda x: x.matmul({}), "matmul: other .* a tensor"),
    "an object": (lambda x: x.mse_loss(object()), "mse_loss: target .* a tensor"),
    "an object among operands": (lambda x: x + object(), "wanted a tensor, a number, lists or an array"),
    "a mask of text": (lambda x: x.masked_fill("mask", 0), "masked_fill: mask .* a tensor"),
    "a list as number": (lambda x: x.leaky_relu([0.1]), "leaky_relu: slope .* a number"),
    "a number as flag": (lambda x: x.sum(0, 1), "sum: keepdim .* True or False, saw 1"),
    "a formula": (lambda x: Tensor.einsum(3, x), "einsum .* a formula"),
    "a set in einsum": (lambda x: Tensor.einsum("ij,jk->ik", x, {1}), "a tensor"),
    "None as value": (lambda x: x.full_like(None), "wanted a number, saw None"),
    "None as weight": (lambda x: x.lerp(x, None), "lerp: weight"),
    "a list as classes": (lambda _: Tensor([1]).one_hot([]), "one_hot, classes: wanted a whole number"),
    "None as share": (lambda x: x.dropout(None), "dropout: wanted a number"),
    "None as layers": (lambda x: x.sequential(None), "sequential .* a list of layers"),
    "an array as axis": (lambda x: x.sum(np.zeros(2)), "sum: axis .* an axis"),
    "numbers as bounds": (lambda x: x.shrink((0, 0)), "shrink"),
    "a number in cat": (lambda x: x.cat("3"), "cat: wanted tensors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_types_raise_a_type_error_that_names_the_parameter(name: str):
    call, message = REFUSED[name]
    with pytest.raises(TypeError, match=message) as caught:
        call(Tensor(X))
    assert isinstance(caught.value, UsageTypeError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.mse_loss(x, reduction="average"), "reduction .* 'mean' or 'sum' or 'none'"),
        (lambda x: x.roll(1, (0, 1)), "a shift for each axis"),
        (lambda x: x.roll((1, 2)), "wanted one shift"),
        (lambda _: Tensor.linspace(0, 1, 3, dtype="bool"), "saw bool"),
        (lambda _: Tensor.arange(2, dtype="bool"), "saw bool"),
        (lambda _: Tensor.arange(math.nan), "finite numbers"),
        (lambda _: Tensor.normal(3, std=-1), "not negative, saw -1"),
        (lambda _: Tensor.uniform(3, low=5, high=3), "saw 5 and 3"),
        (lambda _: Tensor([1]).one_hot(-2), "no negative sizes"),
        (lambda x: x.masked_fill(x > 2, "a"), "value .* a tensor, .* or a number"),
        (lambda _: Tensor([1, 2]).masked_fill(Tensor([True, False]), math.nan), "does not fit int64"),
        (lambda _: Tensor([1, 2]).full_like(1 << 63), "does not fit int64"),
    ],
)
def test_invalid_choice_values_are_refused(call: Callable[[Any], Any], message: str):
    with pytest.raises(UsageError, match=message):
        call(Tensor(X))


def test_einsum_takes_its_operands_as_one_list():
    a, b = Tensor(X), X.T.copy()
    np.testing.assert_allclose(Tensor.einsum("ij,jk->ik", [a, b]).numpy(), X @ b)
    np.testing.assert_allclose(Tensor.einsum("ij,jk->ik", a, b).numpy(), X @ b)


@pytest.mark.parametrize(
    ("p", "want"),
    [(0, [1.5, 0.0, 2.0]), (math.inf, [0.75, 0.0, 1.0]), (-1, [3e12, 0.0, 4e12]), (1, [3 / 7, 0.0, 4 / 7])],
)
def test_normalize_by_any_norm(p: float, want: list[float]):
    np.testing.assert_allclose(Tensor([[3.0, 0.0, 4.0]]).normalize(p=p).numpy(), [want], rtol=1e-6)
