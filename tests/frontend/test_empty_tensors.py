"""Tensors without elements: movements, sums and sorts against NumPy and PyTorch."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError


def sizes(choose: random.Random, total: int) -> tuple[int, ...]:
    """Return a random shape with a number of elements; for 0 elements with any other sizes."""
    if total == 0:
        shape = [choose.choice([0, 1, 2, 3]) for _ in range(choose.randint(1, 4))]
        shape[choose.randrange(len(shape))] = 0
        return tuple(shape)
    shape = []
    for divisor in (2, 3, 5):
        while total % divisor == 0 and choose.random() < 0.7:
            shape.append(divisor)
            total //= divisor
    return (*shape, total)


def step(choose: random.Random, shape: tuple[int, ...]) -> Any:
    """Return a step for a shape: (its text, for a tensor, for an array)."""
    rank = len(shape)
    axis = choose.randrange(rank) if rank else 0
    kinds = ["reshape", "pad", "unsqueeze", "exp"]
    if rank:
        kinds += ["pad", "pad", "permute", "flip", "shrink", "sum", "prod", "any", "cat", "expand", "cumsum"]
        kinds += ["sort", "gather", "take"] + ["max"] * (shape[axis] > 0)
    kind = choose.choice(kinds)
    pairs = tuple((choose.randint(0, 2), choose.randint(0, 1)) for _ in shape)
    bounds = tuple(slice(a := choose.randint(0, n), choose.randint(a, n)) for n in shape)
    order = tuple(choose.sample(range(rank), rank))
    new = sizes(choose, math.prod(shape))
    wide = tuple(choose.randint(0, 3) if n == 1 else n for n in shape)
    index = np.array(
        [choose.randrange(shape[axis]) for _ in range(choose.randint(0, 3))] if rank and shape[axis] else [],
        int,
    )
    keep = choose.random() < 0.5
    table: dict[str, Any] = {
        "reshape": (lambda t: t.reshape(new), lambda a: a.reshape(new)),
        "pad": (lambda t: t.pad(pairs), lambda a: np.pad(a, pairs) if rank else a),
        "unsqueeze": (lambda t: t.unsqueeze(0), lambda a: a[None]),
        "exp": (lambda t: t * 2 + 1, lambda a: a * 2 + 1),
        "permute": (lambda t: t.permute(*order), lambda a: a.transpose(order)),
        "flip": (lambda t: t.flip(axis), lambda a: np.flip(a, axis)),
        "shrink": (lambda t: t[bounds], lambda a: a[bounds]),
        "sum": (lambda t: t.sum(axis, keepdim=keep), lambda a: a.sum(axis, keepdims=keep)),
        "prod": (lambda t: t.prod(axis, keepdim=keep), lambda a: a.prod(axis, keepdims=keep)),
        "max": (lambda t: t.amax(axis, keepdim=keep), lambda a: a.max(axis, keepdims=keep)),
        "any": (lambda t: t.any(axis).cast("int32"), lambda a: a.any(axis).astype(np.int32)),
        "cat": (lambda t: t.cat(t, axis=axis), lambda a: np.concatenate([a, a], axis)),
        "expand": (lambda t: t.expand(*wide), lambda a: np.broadcast_to(a, wide)),
        "cumsum": (lambda t: t.cumsum(axis), lambda a: a.cumsum(axis)),
        "sort": (lambda t: t.sort(axis)[0], lambda a: np.sort(a, axis)),
        "gather": (
            lambda t: t[(slice(None),) * axis + (Tensor(index.astype("int32")),)],
            lambda a: a.take(index, axis),
        ),
        "take": (lambda t: t.roll(1, axis), lambda a: np.roll(a, 1, axis)),
    }
    return kind, *table[kind]


@pytest.mark.sampled(41)
@pytest.mark.parametrize("seed", range(40))
def test_chains_of_operations_on_shapes_with_zeros_match_numpy(seed: int):
    choose = random.Random(seed)
    for _ in range(6):
        shape = tuple(choose.choice([0, 1, 2, 3]) for _ in range(choose.randint(1, 3)))
        a: Any = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        t, told = Tensor(a), [f"zeros{shape}"]
        for _ in range(choose.randint(1, 5)):
            kind, for_tensor, for_array = step(choose, a.shape)
            t, a = for_tensor(t), np.asarray(for_array(a)).astype(np.int32)
            told.append(f"{kind}{a.shape}")
            if choose.random() < 0.2:
                t = t.realize()
            if a.size > 200:
                break
        assert t.shape == a.shape, told
        np.testing.assert_array_equal(t.cast("int32").numpy(), a, " ".join(told))


@pytest.mark.parametrize("shape", [(2, 0, 3), (0, 2), (2, 0), (0,), (1, 2, 0), (2, 3)])
def test_lists_of_empty_tensors_have_their_shape(shape: tuple[int, ...]):
    assert Tensor.ones(*shape).tolist() == np.ones(shape).tolist()
    assert Tensor(np.ones(shape, np.float32)).tolist() == np.ones(shape).tolist()


def test_functions_over_an_empty_axis_match_pytorch():
    x = Tensor(np.zeros((2, 0), np.float32))
    assert x.softmax(1).shape == x.log_softmax(1).shape == x.softmax(0).shape == (2, 0)
    assert x.logsumexp(1).tolist() == [-math.inf, -math.inf]
    assert x.logsumexp(0).tolist() == []
    assert x.sum(1).tolist() == [0.0, 0.0]
    assert x.prod(1).tolist() == [1.0, 1.0]
    assert x.any(1).tolist() == [False, False]
    assert x.all(1).tolist() == [True, True]
    for got in (x.mean(1), x.var(1), x.std(1)):
        assert all(math.isnan(n) for n in got.tolist())
    for name in ("max", "min", "argmax", "argmin", "amax", "amin"):
        with pytest.raises((UsageError, IndexError), match="no element"):
            getattr(x, name)(1)


def test_attention_over_no_keys_is_zero_and_of_no_queries_is_empty():
    some, none = Tensor(np.ones((1, 2, 3, 4), np.float32)), Tensor(np.zeros((1, 2, 0, 4), np.float32))
    assert none.scaled_dot_product_attention(none, none).shape == (1, 2, 0, 4)
    assert none.scaled_dot_product_attention(some, some).shape == (1, 2, 0, 4)
    assert some.scaled_dot_product_attention(none, none).tolist() == np.zeros((1, 2, 3, 4)).tolist()


def test_gradients_through_empty_tensors_are_zero():
    x = Tensor(np.ones((2, 3), np.float32))
    (g,) = (x[:, :0].sum(1).pad(((1, 1),)) + x.sum() * 2).sum().gradient(x)
    assert g.tolist() == np.full((2, 3), 8.0).tolist()
