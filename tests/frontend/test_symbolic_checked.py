"""Tensors with symbolic sizes on a device that reports reads of unwritten memory: it reports none of them.

Kernels write no element beyond a size, and load such elements to discard them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from frontend import Device, Tensor, TinyJit, Variable
from frontend.device import TensorDevice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME, CAPACITY = "amd-emu:8", 7
N = Variable("n", 1, CAPACITY)
X = np.arange(2.0 * CAPACITY * 3, dtype=np.float32).reshape(2, CAPACITY, 3)


@pytest.fixture(scope="module", autouse=True)
def opened() -> Iterator[TensorDevice]:
    made = TensorDevice(NAME, hcq.open("amd-emu:gfx1100+checked"))
    Device._open[NAME] = made
    yield made
    made.close()


def part(k: int) -> Any:
    return Tensor(X, device=NAME)[:, : N.bind(k, device=NAME)]


def check_sum(found: Any, want: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(found.sum(1).numpy(), want.sum(1))


def test_one_result():
    check_sum((part(1) * 2).realize(), X[:, :1] * 2)


def test_temporary_memory(opened: TensorDevice):
    assert opened._scratch is None
    q = Tensor(np.ones((2, 2, 3), np.float32), device=NAME)
    found = q.scaled_dot_product_attention(part(1), part(1))
    np.testing.assert_array_equal(found.numpy(), X[:, [0, 0]])
    assert opened._scratch is not None


def test_several_results():
    x = part(2)
    a, b = x * 2, x + 1
    Tensor.realize(a.whole, b.whole)
    check_sum(a, X[:, :2] * 2)
    check_sum(b, X[:, :2] + 1)


def test_results_in_memory_of_another_tensor():
    x = part(2)
    a, b = x * 2, x + 1
    a.whole.assign(b.whole)
    Tensor.realize(a.whole)
    check_sum(a, X[:, :2] + 1)


def test_results_of_captured_functions(tmp_path: Path):
    f = TinyJit(lambda x: x * 2 + 1)
    for k in (3, 2, 1):
        check_sum(f(part(k)), X[:, :k] * 2 + 1)
    f.save(tmp_path / "f")
    check_sum(TinyJit.load(tmp_path / "f", device=NAME)(part(1)), X[:, :1] * 2 + 1)
