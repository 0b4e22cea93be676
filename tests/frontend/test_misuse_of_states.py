"""What programs hand to files, optimisers, `backward` and random numbers that none of them can use.

Not here: files that are malformed (`test_files_of_tensors`), other arguments (`test_wrong_arguments`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, nn
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    "made",
    [lambda _: {"a": np.ones(3)}, lambda t: {"a": {"b": t}}, lambda t: {1: t}, lambda t: [t], lambda t: t],
    ids=["array", "nested", "number as name", "list", "tensor"],
)
def test_a_file_is_of_tensors_by_name(made: Callable[[Tensor], Any], tmp_path: Path):
    with pytest.raises(UsageTypeError, match="safe_save: wanted"):
        nn.state.safe_save(made(Tensor([1.0])), tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_names_and_texts_that_a_file_would_lose_are_refused(tmp_path: Path):
    x = Tensor([1.0])
    with pytest.raises(UsageError, match="__metadata__ is the format's own name"):
        nn.state.safe_save({"__metadata__": x}, tmp_path / "file")
    with pytest.raises(UsageTypeError, match="wanted texts by name"):
        nn.state.safe_save({"a": x}, tmp_path / "file", {"epoch": 3})  # type: ignore[dict-item]
    nn.state.safe_save({"a": x}, tmp_path / "file", {"epoch": "3"})
    assert nn.state.safe_metadata(tmp_path / "file") == {"epoch": "3"}


def test_a_model_is_loaded_from_tensors():
    layer: Any = nn.Linear(2, 1)
    before = layer.bias.tolist()
    with pytest.raises(UsageTypeError, match=r"weight is .*, no tensor\nhint: Tensor\(value\)"):
        layer.load_state_dict({"bias": Tensor([5.0]), "weight": np.ones((1, 2))})
    assert layer.bias.tolist() == before


def test_a_step_calls_its_closure_first():
    w = Tensor([1.0, 2.0])
    sgd = nn.optim.SGD([w], lr=0.5)

    def closure() -> Tensor:
        sgd.zero_grad()
        return (w * w).sum().backward()

    loss = sgd.step(closure)
    assert loss is not None
    assert (loss.item(), w.tolist()) == (5.0, [0.0, 0.0])
    with pytest.raises(UsageTypeError, match="step: wanted a function"):
        sgd.step(3.0)  # type: ignore[arg-type]


def test_backward_keeps_its_graph_and_with_create_graph_that_of_gradients():
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4.0, 8.0]
    w.grad = None
    (w * w * w).sum().backward(create_graph=True)
    assert w.grad is not None
    slope = w.grad
    assert slope.tolist() == [3.0, 12.0]
    w.grad = None
    slope.square().sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [36.0, 288.0]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int8", 0, 129), ("int8", -129, 0), ("uint8", -1, 5), ("int16", 0, 40000), ("float16", 0, 70000)],
)
def test_random_whole_numbers_fit_their_dtype(dtype: str, low: int, high: int):
    with pytest.raises(UsageError, match=f"randint: {dtype} does not hold the numbers {low} to {high - 1}"):
        Tensor.randint(4, low=low, high=high, dtype=dtype)
    with pytest.raises(UsageError, match=f"random_: {dtype} does not hold"):
        Tensor.zeros(4, dtype=dtype).contiguous().random_(low, high)


def test_random_whole_numbers_reach_the_limits_of_their_dtype():
    found = Tensor.randint(4000, low=-128, high=128, dtype="int8").numpy()
    assert (found.min(), found.max()) == (-128, 127)
    assert set(Tensor.randint(100, low=0, high=2, dtype="bool").tolist()) == {True, False}


def test_images_of_float64_are_resized_in_float64():
    x = np.linspace(0.1, 0.9, 7)
    got = Tensor(x.reshape(1, 1, 7)).interpolate(size=5, mode="linear").numpy().reshape(-1)
    at = np.maximum((np.arange(5) + 0.5) * 7 / 5 - 0.5, 0)
    low = np.floor(at).astype(int)
    want = x[low] * (1 - (at - low)) + x[np.minimum(low + 1, 6)] * (at - low)
    np.testing.assert_allclose(got, want, rtol=1e-14)
