"""Tensors with symbolic sizes: `x[:n]` for a bound `Variable` n, against NumPy for every value of n."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, Variable
from frontend.stats import stats
from hcq.errors import UnsupportedError, UsageError, UsageIndexError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY, WIDTH = 7, 5
N = Variable("n", 1, CAPACITY)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed + len(shape)).standard_normal(shape, dtype=np.float32)


X, Y, W = random(CAPACITY, WIDTH), random(CAPACITY, WIDTH, seed=5), random(WIDTH, 4)


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "slice": (lambda x, _: x, lambda x, _: x),
    "add a number": (lambda x, _: 1 + x * 2, lambda x, _: 1 + x * 2),
    "two tensors": (lambda x, y: x * y - y, lambda x, y: x * y - y),
    "a row": (lambda x, _: Tensor(Y[0]) - x, lambda x, _: Y[0] - x),
    "a column": (lambda x, y: x / (y[:, :1].exp() + 1), lambda x, y: x / (np.exp(y[:, :1]) + 1)),
    "a scalar tensor": (lambda x, _: x.half() * Tensor(0.5),
                        lambda x, _: x.astype(np.float16) * np.float16(0.5)),
    "functions": (lambda x, _: x.exp().log1p().relu(), lambda x, _: np.log1p(np.exp(x)).clip(0)),
    "where": (lambda x, y: (x > 0).where(y, 3.0), lambda x, y: np.where(x > 0, y, np.float32(3))),
    "an array": (lambda x, _: x + Y[0], lambda x, _: x + Y[0]),
    "sum": (lambda x, _: x.sum(), lambda x, _: x.sum()),
    "sum of columns": (lambda x, _: x.sum(0), lambda x, _: x.sum(0)),
    "sum of rows": (lambda x, _: x.sum(dim=1, keepdim=True), lambda x, _: x.sum(1, keepdims=True)),
    "prod": (lambda x, _: x.prod(0), lambda x, _: x.prod(0)),
    "mean": (lambda x, _: x.mean(0), lambda x, _: x.mean(0)),
    "mean of all": (lambda x, _: x.mean(), lambda x, _: x.mean()),
    "mean of integers": (lambda x, _: (x * 9).int().mean(0), lambda x, _: (x * 9).astype(int).mean(0)),
    "var": (lambda x, _: x.var(0, correction=0), lambda x, _: x.var(0)),
    "var and mean": (lambda x, _: x.var_mean(1)[0], lambda x, _: x.var(1, ddof=1)),
    "std": (lambda x, _: x.std(0, correction=0), lambda x, _: x.std(0)),
    "amax": (lambda x, _: x.amax(0), lambda x, _: x.max(0)),
    "max": (lambda x, _: x.max(0).values, lambda x, _: x.max(0)),
    "place of max": (lambda x, _: x.max(0).indices, lambda x, _: x.argmax(0)),
    "min of integers": (lambda x, _: (x * 9 + 50).int().min(), lambda x, _: (x * 9 + 50).astype(int).min()),
    "argmin": (lambda x, _: x.argmin(0), lambda x, _: x.argmin(0)),
    "any": (lambda x, _: (x < -1).any(0), lambda x, _: (x < -1).any(0)),
    "all": (lambda x, _: (x < 0.5).all(0), lambda x, _: (x < 0.5).all(0)),
    "count": (lambda x, _: (x < 0).count_nonzero(0), lambda x, _: (x < 0).sum(0)),
    "logsumexp": (lambda x, _: x.logsumexp(0), lambda x, _: np.log(np.exp(x).sum(0))),
    "softmax": (lambda x, _: x.softmax(0), lambda x, _: softmax(x, 0)),
    "softmax of rows": (lambda x, _: x.softmax(), lambda x, _: softmax(x, 1)),
    "log_softmax": (lambda x, _: x.log_softmax(0), lambda x, _: np.log(softmax(x, 0))),
    "layernorm": (
        lambda x, _: x.layernorm(),
        lambda x, _: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5),
    ),
    "cumsum": (lambda x, _: x.cumsum(0), lambda x, _: x.cumsum(0)),
    "sort of rows": (lambda x, _: x.argsort(1), lambda x, _: x.argsort(1)),
    "transpose": (lambda x, _: x.T, lambda x, _: x.T),
    "permute": (lambda x, _: x.unsqueeze(1).permute(2, 0, 1), lambda x, _: x[:, None].transpose(2, 0, 1)),
    "reshape": (lambda x, _: x.reshape(-1), lambda x, _: x.reshape(-1)),
    "reshape and back": (lambda x, _: x.flatten().reshape(-1, WIDTH), lambda x, _: x),
    "reshape to its shape": (lambda x, y: y.reshape(x.shape), lambda _, y: y),
    "expand": (lambda x, _: x.unsqueeze(0).expand(3, -1, -1).sum(1),
               lambda x, _: x.sum(0)[None].repeat(3, 0)),
    "squeeze": (lambda x, _: x[:, :1].squeeze(), lambda x, _: x[:, 0]),
    "pad": (lambda x, _: x.pad((1, 2)), lambda x, _: np.pad(x, ((0, 0), (1, 2)))),
    "rows of a product": (lambda x, _: x @ Tensor(W), lambda x, _: x @ W),
    "columns of a product": (lambda x, _: Tensor(W.T.copy()) @ x.T, lambda x, _: W.T @ x.T),
    "sum of a product": (lambda x, y: x.T @ y, lambda x, y: x.T @ y),
    "all of a product": (lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    "a vector": (lambda x, y: x[:, 0] @ y, lambda x, y: x[:, 0] @ y),
    "linear": (lambda x, _: x.linear(Tensor(W), Tensor(W[0])), lambda x, _: x @ W + W[0]),
    "cat behind": (lambda x, _: x.cat(Tensor(Y[:2])), lambda x, _: np.concatenate([x, Y[:2]])),
    "cat in front": (lambda x, _: Tensor(Y[:2]).cat(x), lambda x, _: np.concatenate([Y[:2], x])),
    "cat twice": (lambda x, y: Tensor.cat(x, y, axis=0), lambda x, y: np.concatenate([x, y])),
    "cat beside": (lambda x, y: Tensor.cat(x, y, axis=1), lambda x, y: np.concatenate([x, y], 1)),
    "stack": (lambda x, y: Tensor.stack((x, y)), lambda x, y: np.stack([x, y])),
    "the last row": (lambda x, _: x[-1], lambda x, _: x[-1]),
    "the first row": (lambda x, _: x[0], lambda x, _: x[0]),
    "a column by index": (lambda x, _: x[:, 2], lambda x, _: x[:, 2]),
    "rows from one on": (lambda x, _: x[1:], lambda x, _: x[1:]),
    "all but the last row": (lambda x, _: x[:-1].sum(0), lambda x, _: x[:-1].sum(0)),
    "rows of a table": (lambda x, _: Tensor(W)[(x.abs() * 2).int().clip(0, 4)[:, 0]],
                        lambda x, _: W[(np.abs(x) * 2).astype(int).clip(0, 4)[:, 0]]),
    "divided by the size": (lambda x, _: x.sum(0) / x.shape[0], lambda x, _: x.sum(0) / len(x)),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_a_method_agrees_with_numpy_for_every_size_in_one_kernel(name: str) -> None:
    ours, numpys = CASES[name]
    x, y = Tensor(X).realize(), Tensor(Y).realize()
    plans = []
    for k in (3, *range(1, CAPACITY + 1)):
        n = N.bind(k)
        found = ours(x[:n], y[:n]).numpy()
        want = numpys(X[:k], Y[:k])
        np.testing.assert_allclose(found, want, rtol=2e-3 if found.dtype == np.float16 else 2e-5, atol=2e-5)
        assert found.shape == np.shape(want)
        plans.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(plans)) == 1


def attention(q: Any, k: Any, v: Any, allowed: Any) -> Any:
    scores = np.where(allowed, q @ k.swapaxes(-2, -1) / np.sqrt(q.shape[-1]), -np.inf)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(softmax(scores, -1)) @ v


@pytest.mark.parametrize("kind", ["plain", "mask", "causal", "heads"])
def test_attention_over_a_symbolic_number_of_keys(kind: str) -> None:
    q, k = random(4, CAPACITY, 3), random(2, CAPACITY, 3, seed=4)
    seen = np.arange(CAPACITY) % 3 != 0
    for size in (1, 3, CAPACITY):
        n = N.bind(size)
        query, keys = Tensor(q[:2])[:, :2], Tensor(k)[:, :n]
        if kind == "plain":
            found = query.scaled_dot_product_attention(keys, keys)
            want = attention(q[:2, :2], k[:, :size], k[:, :size], True)
        elif kind == "mask":
            found = query.scaled_dot_product_attention(keys, keys, Tensor(seen)[:n])
            want = attention(q[:2, :2], k[:, :size], k[:, :size], seen[:size])
        elif kind == "causal":
            found = Tensor(q[:2])[:, :n].scaled_dot_product_attention(keys, keys, is_causal=True)
            allowed = np.tril(np.ones((size, size), bool))
            want = attention(q[:2, :size], k[:, :size], k[:, :size], allowed)
        else:
            found = Tensor(q).scaled_dot_product_attention(keys, keys, enable_gqa=True)
            repeated = k[:, :size].repeat(2, 0)
            want = attention(q, repeated, repeated, True)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


def test_the_shape_holds_the_variable() -> None:
    n = N.bind(3)
    x = Tensor(X)[:n]
    assert x.shape == (n, WIDTH)
    assert (x.ndim, x.dtype.name, str(x.shape)) == (2, "float32", "(n, 5)")
    assert x.device == Tensor(X).device
    assert x.cat(x, x).shape == (n * 3, WIDTH)
    assert x.numel() == n * WIDTH
    assert x.values() == (3, WIDTH)
    assert x[1:].tolist() == X[1:3].tolist()
    assert x[:, 0].sum().shape == ()


def test_starts_and_sizes_may_both_be_variables() -> None:
    a, plans = Variable("a", 0, 3), set()
    x = Tensor(X).realize()
    for i in range(4):
        for k in range(1, 5):
            start, n = a.bind(i), Variable("n", 1, 4).bind(k)
            np.testing.assert_array_equal(x[start : start + n].numpy(), X[i : i + k])
            np.testing.assert_array_equal(x[2 : n + 2, 1:3].numpy(), X[2 : 2 + k, 1:3])
            np.testing.assert_array_equal(x[start:].numpy(), X[i:])
            plans.add(stats.plans)
    assert len(plans) == 1


def test_new_tensors_have_symbolic_sizes() -> None:
    for k in (1, 4, CAPACITY):
        n = N.bind(k)
        np.testing.assert_array_equal(Tensor.arange(n).numpy(), np.arange(k))
        np.testing.assert_array_equal(Tensor.arange(1, n).numpy(), np.arange(1, k))
        np.testing.assert_array_equal(Tensor.zeros(n, 2).numpy(), np.zeros((k, 2)))
        np.testing.assert_array_equal(Tensor.full((2, n), 3.0).sum(1).numpy(), [3 * k] * 2)
        assert Tensor.ones((n, n)).sum().item() == k * k
        assert Tensor.rand(n).shape == (n,)
        assert Tensor(n).item() == k
        assert (Tensor(n * 2 + 1) + n).item() == 3 * k + 1


def test_writing_to_a_part_of_symbolic_size() -> None:
    for k in (1, 4, CAPACITY):
        x, want, n = Tensor(X).realize(), X.copy(), N.bind(k)
        x[:n] = Tensor(Y)[:n] * 2
        want[:k] = Y[:k] * 2
        x[:n, 1:2] = 0.0
        want[:k, 1] = 0
        x[:n, 3] = Tensor(7.0)
        want[:k, 3] = 7
        np.testing.assert_array_equal(x.numpy(), want)


def test_gradients_leave_out_what_is_beyond_the_size() -> None:
    data = X.copy()
    data[4:] = [[0.0, np.nan, np.inf, -1.0, 2.0]] * 3  # their logarithms are infinite or NaN
    data[:4] = np.abs(X[:4]) + 1
    for k in (1, 4):
        x, w, row, s = Tensor(data), Tensor(W), Tensor(Y[0]), Tensor(0.5)
        n = N.bind(k)
        y = (x[:n].log() * row * s) @ w
        gx, gw, gr, gs = y.square().mean().gradient(x, w, row, s)
        logs = np.log(data[:k])
        g = 2 * ((logs * Y[0] * 0.5) @ W) / (k * 4)
        inner = g @ W.T
        want = np.zeros_like(X)
        want[:k] = inner * Y[0] * 0.5 / data[:k]
        np.testing.assert_allclose(gx.numpy(), want, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(gw.numpy(), (logs * Y[0] * 0.5).T @ g, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(gr.numpy(), (inner * logs * 0.5).sum(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(gs.numpy(), (inner * logs * Y[0]).sum(), rtol=1e-4, atol=1e-6)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any, Any], Any]]] = {
    "another size": (UsageError, "slice the other tensor", lambda x, n, _: x[:n] + x),
    "a number of rows": (UsageError, "not equal for all values", lambda x, n, _: x[:n] + Tensor(X[:3])),
    "two variables": (UsageError, "not equal for all values", lambda x, n, m: x[:n] + x[:m]),
    "two values": (UsageError, "n is bound twice", lambda x, n, _: x[:n] + x[: N.bind(5)]),
    "sums of variables": (UnsupportedError, "size of two variables", lambda x, n, m: x[:n].cat(x[:m])),
    "a size beyond the axis": (UsageError, "greatest value", lambda _, n, __: Tensor(X[:3])[:n]),
    "a size below zero": (UsageError, "less than 0", lambda x, _, m: x[: m - 3]),
    "a step": (UnsupportedError, "step 1", lambda x, n, _: x[:n:2]),
    "a row that may be outside": (UsageIndexError, "may be outside", lambda x, n, _: x[:n][2]),
    "rows that may be outside": (UsageError, "may end behind", lambda x, n, _: x[:n][:3]),
    "windows": (UnsupportedError, "windows has no form", lambda x, n, _: x[:n].windows(0, 2)),
    "convolutions": (UnsupportedError, "conv2d has no form",
                     lambda x, n, _: x[:n].reshape(1, 1, n, WIDTH).conv2d(Tensor.ones(1, 1, 1, 1))),
    "flips": (UnsupportedError, "symbolic axis 0", lambda x, n, _: x[:n].flip(0)),
    "a merge of columns": (UsageError, "would move", lambda x, n, _: x[:n].T.reshape(-1)),
    "a number of elements": (UsageError, "not equal for all values", lambda x, n, _: x[:n].reshape(4, 5)),
    "a flat place": (UnsupportedError, "give an axis", lambda x, n, _: x[:n].T.argmax()),
    "a length": (UsageTypeError, "plain number", lambda x, n, _: len(x[:n])),
    "iteration": (UsageTypeError, "iterated", lambda x, n, _: list(x[:n])),
    "a truth value": (UsageError, "truth value", lambda x, n, _: bool(x[:n])),
    "writing": (UnsupportedError, "no view", lambda x, n, _: x[:n].__setitem__(0, 1.0)),
    "a value of symbolic size": (UsageTypeError, "fixed sizes", lambda x, n, _: x.assign(x[:n])),
    "an index tensor beside": (UnsupportedError, "index the tensor of fixed size",
                               lambda x, n, _: x[:n, Tensor([1])]),
    "a product": (UsageError, "not equal for all values", lambda x, n, _: x.T @ x[:n]),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(name: str) -> None:
    error, words, call = REFUSED[name]
    with pytest.raises(error, match=words):
        call(Tensor(X).realize(), N.bind(2), Variable("m", 1, 6).bind(2))


def test_a_captured_function_takes_and_returns_symbolic_sizes() -> None:
    @TinyJit
    def f(x: Any, y: Any) -> Any:
        z = x * y.sum(0) + x.shape[0]
        return z, z.mean(0), {"sizes": x.shape[0]}

    seen = []
    for k in (2, 5, 1, CAPACITY, 3):
        z, mean, rest = f(Tensor(X)[: N.bind(k)], Tensor(Y)[: N.bind(k)])
        want = X[:k] * Y[:k].sum(0) + k
        np.testing.assert_allclose(z.numpy(), want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mean.numpy(), want.mean(0), rtol=1e-5, atol=1e-5)
        assert rest["sizes"].value == k
        more = z + Tensor(X)[: rest["sizes"]]
        np.testing.assert_allclose(more.numpy(), want + X[:k], rtol=1e-5, atol=1e-5)
        seen.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(seen[2:])) == 1
    with pytest.raises(UsageError, match="captured with arguments"):
        f(Tensor(X)[: N.bind(2)], Tensor(Y)[: N.bind(3)])


def test_functions_of_two_variables_are_one_captured_graph() -> None:
    i, j = Variable("i", 1, CAPACITY), Variable("j", 1, WIDTH)

    @TinyJit
    def f(a: Any, b: Any, c: Tensor, rows: Any, columns: Any) -> Any:
        product = a @ b
        return {
            "plus one": a + 1,
            "two axes": c[:rows, :columns] + 1,
            "transposed": c.T[:columns, :rows] * rows,
            "product": product,
            "fixed sizes": c.sum(0),
            "cat": Tensor.cat(a, Tensor.ones(2, WIDTH)),
            "shrink": c.shrink(((0, rows), (1, 3))),
            "moving": c[columns - 1 : columns + 1].sum(0),
            "ones": Tensor.ones(rows, columns).sum(),
            "expand": c[:1, :2].expand(rows, 2).sum(0),
            "mean": c[:rows, :columns].mean(),
            "var": c[:rows, :columns].var(1, correction=0),
            "number": c[0] * columns,
        }

    seen = []
    for k, m in ((2, 3), (1, 5), (CAPACITY, 1), (4, 2)):
        n = i.bind(k)
        found = f(Tensor(X)[:n], Tensor(W), Tensor(Y).realize(), n, j.bind(m))
        part = Y[:k, :m]
        want = {
            "plus one": X[:k] + 1, "two axes": part + 1, "transposed": part.T * k, "product": X[:k] @ W,
            "fixed sizes": Y.sum(0), "cat": np.concatenate([X[:k], np.ones((2, WIDTH))]),
            "shrink": Y[:k, 1:3], "moving": Y[m - 1 : m + 1].sum(0), "ones": k * m,
            "expand": Y[0, :2] * k, "mean": part.mean(), "var": part.var(1), "number": Y[0] * m,
        }  # fmt: skip
        for name, value in want.items():
            np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-4, atol=1e-5, err_msg=name)
        seen.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(seen[2:])) == 1
