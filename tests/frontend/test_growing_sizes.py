"""Sizes that change from call to call: one kernel and one captured graph for every value of a `Variable`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, Variable
from frontend.stats import stats

if TYPE_CHECKING:
    from collections.abc import Callable

CAPACITY, WIDTH = 12, 8


def random(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mean": (lambda x, seen, n: seen.where(x, 0.0).sum(0) / n, lambda x: x.mean(0)),
    "max": (lambda x, seen, _: seen.where(x, -float("inf")).amax(0), lambda x: x.max(0)),
    "softmax": (
        lambda x, seen, _: seen.where(x, -float("inf")).softmax(0).square().sum(0),
        lambda x: np.square(np.exp(x) / np.exp(x).sum(0)).sum(0),
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_the_first_rows_is_one_capture_for_every_number(name: str) -> None:
    ours, numpys = REDUCTIONS[name]
    rows = Variable("rows", 1, CAPACITY)
    data = random(CAPACITY, WIDTH)
    x = Tensor(data).realize()

    @TinyJit
    def reduced(x: Tensor, n: Any) -> Tensor:
        seen = (Tensor.arange(CAPACITY) < n).reshape(CAPACITY, 1)
        return ours(x, seen, n)

    compiled = []
    for n in range(1, CAPACITY + 1):
        np.testing.assert_allclose(reduced(x, rows.bind(n)).numpy(), numpys(data[:n]), rtol=2e-5, atol=1e-6)
        compiled.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(compiled[1:])) == 1  # from the capture on nothing is scheduled, compiled or looked up


def test_a_growing_cache_of_keys_and_values_is_one_captured_graph() -> None:
    position = Variable("position", 0, CAPACITY - 1)
    keys, values = (Tensor.zeros(CAPACITY, WIDTH).contiguous().realize() for _ in range(2))
    queries, new_keys, new_values = (
        random(CAPACITY, WIDTH),
        random(1, CAPACITY, WIDTH)[0],
        random(1, 1, CAPACITY, WIDTH)[0, 0],
    )

    @TinyJit
    def attend(q: Tensor, k: Tensor, v: Tensor, at: Any) -> Tensor:
        keys[at] = k
        values[at] = v
        seen = Tensor.arange(CAPACITY) < at + 1
        scores = seen.where(keys @ q, -float("inf"))
        return scores.softmax(0) @ values

    compiled = []
    for n in range(CAPACITY):
        given = [Tensor(a[n]).realize() for a in (queries, new_keys, new_values)]
        found = attend(*given, position.bind(n)).numpy()
        scores = np.exp(new_keys[: n + 1] @ queries[n])
        np.testing.assert_allclose(found, scores @ new_values[: n + 1] / scores.sum(), rtol=1e-4, atol=1e-5)
        compiled.append((stats.plans, stats.lowered + stats.hits))
    assert len(set(compiled[1:])) == 1
    np.testing.assert_array_equal(keys.numpy(), new_keys)
