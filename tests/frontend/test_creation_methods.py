"""Creation of tensors, and reading their values."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from frontend import Device, Tensor, dtypes, tensor
from frontend.evaluation.printing import described
from hcq.errors import UsageError


def test_adding_is_lazy_until_realized():
    t = Tensor([2]) + Tensor([3])
    assert not t.is_realized
    assert "pending ADD" in described(t)
    t.realize()
    assert t.is_realized
    assert "realized" in described(t)
    assert t.tolist() == [5]


def test_tensors_are_made_from_many_kinds_of_data():
    assert tensor(3).tolist() == 3
    assert Tensor(2.5).dtype is dtypes.float32
    assert Tensor(True).dtype is dtypes.bool
    assert Tensor([[1, 2], [3, 4]]).shape == (2, 2)
    assert Tensor([1, 2.5]).dtype is dtypes.float32
    assert Tensor([1 << 40]).dtype is dtypes.int64
    assert Tensor(range(4)).tolist() == [0, 1, 2, 3]
    assert Tensor(b"\x01\xff").tolist() == [1, 255]
    assert Tensor(b"\0\0\x80\x3f", dtype=dtypes.float32).tolist() == [1.0]
    assert Tensor(np.float64(2.5)).item() == 2.5
    assert Tensor(np.arange(3, dtype=np.int16)).dtype is dtypes.int16
    assert Tensor(np.arange(6).reshape(2, 3)[:, ::-1]).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert Tensor([1, 2], dtype="float64").dtype is dtypes.float64
    assert Tensor(Tensor([1, 2])).tolist() == [1, 2]


def test_data_without_numbers_is_refused():
    with pytest.raises(UsageError, match="depth 1"):
        Tensor([[1, 2], [3]])
    with pytest.raises(UsageError, match="'x'"):
        Tensor([1, "x"])
    with pytest.raises(UsageError, match="str"):
        Tensor("text")
    with pytest.raises(UsageError, match="complex64"):
        Tensor(np.zeros(2, np.complex64))
    with pytest.raises(UsageError, match="uint8"):
        Tensor([300], dtype=dtypes.uint8)


def test_the_data_is_copied():
    data = np.zeros(3, np.float32)
    t = Tensor(data)
    data[:] = 7
    assert t.tolist() == [0, 0, 0]
    got = t.numpy()
    got[:] = 9
    assert t.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", list(dtypes.all()), ids=repr)
def test_every_dtype_is_written_and_read(dtype: object):
    assert Tensor([0, 1, 1], dtype=dtype).tolist() == [0, 1, 1]  # type: ignore[arg-type]
    assert Tensor([0, 1, 1], dtype=dtype)[:2].numpy().tolist() == [0, 1]  # type: ignore[arg-type]


def test_constants():
    assert Tensor.zeros(2, 3).numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert Tensor.ones((2,), dtype=dtypes.int8).dtype is dtypes.int8
    assert Tensor.full((2, 1), 7).tolist() == [[7], [7]]
    assert Tensor.full((), 2.5).item() == 2.5
    assert Tensor.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert Tensor.empty(3, 2).shape == (3, 2)
    assert Tensor([1.5]).ones_like().dtype is dtypes.float32
    assert Tensor([1.5]).full_like(2).tolist() == [2.0]
    assert Tensor([1, 2]).zeros_like().tolist() == [0, 0]


def test_scalars_convert_and_others_refuse():
    assert float(Tensor(2.5)) == 2.5
    assert int(Tensor([3])) == 3
    with pytest.raises(UsageError, match=r"\(2,\)"):
        Tensor([1, 2]).item()
    assert Tensor([1]) == 1
    assert not Tensor([[0.0]])
    assert 1 in Tensor([1, 2])
    with pytest.raises(UsageError, match="any"):
        bool(Tensor([1, 2]) == 1)
    assert [10, 20, 30][tensor(1)] == 20
    assert list(range(Tensor([2]))) == [0, 1]
    for wrong in (Tensor(1.0), Tensor([1, 2]), Tensor(True)):
        with pytest.raises(TypeError, match="whole number"):
            operator.index(wrong)


def test_properties():
    t = Tensor.zeros(2, 3)
    assert (t.ndim, t.numel(), t.nbytes, t.size(1), t.size()) == (2, 6, 24, 3, (2, 3))
    assert t.is_floating_point()
    assert t.device == Device.DEFAULT


def test_numpy_functions_leave_operators_to_tensors():
    got = np.ones(2, np.float32) + Tensor([1.0, 2.0])
    assert isinstance(got, Tensor)
    assert got.tolist() == [2.0, 3.0]
    assert np.asarray(Tensor([1, 2])).tolist() == [1, 2]


def test_unknown_devices_are_named_with_what_exists():
    with pytest.raises(UsageError, match=r"(?s)no device is called 'abacus'.*this machine has .*cpu"):
        Tensor([1], device="abacus")


def test_names_of_one_device_are_one():
    assert Tensor([1], device="cpu:0").device == "cpu"
    t = Tensor([1], device="cpu")
    assert t.to("cpu:0") is t


@pytest.mark.parametrize(
    "make",
    [
        lambda **names: Tensor.full((2, 3), 1.5, **names),
        lambda **names: Tensor.zeros(2, 3, **names),
        lambda **names: Tensor.ones(2, 3, **names),
        lambda **names: Tensor.empty(2, 3, **names),
        lambda **names: Tensor.arange(2.0, **names),
        lambda **names: Tensor.linspace(0, 1, 3, **names),
        lambda **names: Tensor.eye(2, **names),
        lambda **names: Tensor.rand(2, 3, **names),
        lambda **names: Tensor.randn(2, 3, **names),
    ],
    ids=["full", "zeros", "ones", "empty", "arange", "linspace", "eye", "rand", "randn"],
)
def test_creation_takes_dtype_names_and_requires_grad(make: Any):
    t = make(dtype="float64", requires_grad=True)
    assert t.dtype is dtypes.float64
    (t * 3).sum().backward()
    assert t.grad is not None
    assert t.grad.shape == t.shape
    assert np.all(t.grad.numpy() == 3)
    assert make().requires_grad is False
    with pytest.raises(UsageError, match="float33"):
        make(dtype="float33")


def test_a_dtype_that_is_none_is_refused():
    with pytest.raises(UsageError, match="wanted a dtype"):
        Tensor([1], dtype=np.array)  # type: ignore[arg-type] # no type of numbers
    with pytest.raises(UsageError, match="no element type is called 'complex64'"):
        Tensor.ones(1, dtype=np.complex64)  # type: ignore[arg-type] # a type that tensors do not have


@pytest.mark.parametrize(
    ("start", "stop", "steps"),
    [(0, 1, 11), (-1, 2, 7), (5, -5, 4), (-3.25, 7.75, 9), (0, 3, 1000), (3, 5, 1), (0, 1, 0)],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_evenly_spaced_numbers_are_rounded_once(start: float, stop: float, steps: int, dtype: str):
    gaps = max(1, steps - 1)
    exact = [Fraction(start) + (Fraction(stop) - Fraction(start)) * i / gaps for i in range(steps)]
    got = Tensor.linspace(start, stop, steps, dtype=dtype).numpy()
    want = np.array([float(n) for n in exact], np.float64)
    np.testing.assert_allclose(got, want.astype(dtype), rtol=0 if dtype != "float64" else 4e-16, atol=1e-16)
    if steps > 1:
        assert (got[0], got[-1]) == (np.array(start, dtype), np.array(stop, dtype))
