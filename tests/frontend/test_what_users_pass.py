"""Arguments of programs written for PyTorch and NumPy: scalars, dtype names, masks, unusual numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, dtypes, nn, tensor
from hcq.errors import UsageError

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


class Half(float):
    """A number of a class of its own, as libraries of units have."""


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ([np.float64(1.5), np.float64(2.25)], np.float64),
        ([1.0, np.float64(2.25)], np.float64),
        ([1, np.float64(2.25)], np.float64),
        ([[np.float32(1.5)], [2]], np.float32),
        ([np.float16(1), 2.5], np.float32),
        ([np.int32(3), np.uint8(4)], np.int32),
        ([np.int8(1), 2], np.int64),
        ([np.int64(1 << 40), 1], np.int64),
        ([np.bool_(True), False], np.bool_),
        ([np.array(1.5), np.float16(2)], np.float64),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], np.float64),
        ([np.array([1, 2], dtype=np.int32), [3, 4]], np.int64),
        (([np.array([1, 2]), np.array([1.5, 2])],), np.float64),
        ([np.array([])], np.float64),
        ([Half(1.5)], np.float32),
        ([Half(1.5), 2], np.float32),
    ],
    ids=str,
)
def test_numbers_and_arrays_of_numpy_in_lists_keep_their_dtype(data: Any, want: Any):
    got = Tensor(data).numpy()
    assert got.dtype == want
    np.testing.assert_array_equal(got, np.array(data, want))


@pytest.mark.parametrize(
    "data", [[1, None], ["1"], [1.0, 1j], [1, np.array([1, 2])], [np.complex64(1)]], ids=str
)
def test_lists_of_anything_else_are_refused(data: Any):
    with pytest.raises(UsageError, match="a tensor is made of numbers, saw"):
        Tensor(data)


def test_a_list_of_tensors_is_refused_with_what_joins_them():
    with pytest.raises(UsageError, match=r"of type Tensor\nhint: Tensor.stack joins tensors"):
        Tensor([Tensor([1.0]), Tensor([2.0])])


def test_a_list_of_tensors_of_shape_nothing_is_read():
    found = Tensor([[tensor(1), Tensor(2.5)], [3, Tensor(4.0, dtype="float16")]])
    assert (found.tolist(), found.dtype) == ([[1.0, 2.5], [3.0, 4.0]], dtypes.float32)
    assert Tensor([Tensor(7, dtype="uint8")]).dtype is dtypes.uint8
    assert Tensor((Tensor(True), False)).dtype is dtypes.bool


def test_dtypes_by_name_wherever_one_is_wanted():
    assert Tensor(X).cast("int16").dtype is dtypes.int16
    assert Tensor(X).bitcast("int32").dtype is dtypes.int32
    assert Tensor(X).to(dtypes.float16).dtype is dtypes.float16
    with pytest.raises(UsageError, match="no element type is called 'floaty'"):
        Tensor(X).cast("floaty")
    for wrong in (3, list, None):
        for convert in (Tensor(X).cast, Tensor(X).bitcast):
            with pytest.raises(UsageError, match="wanted a dtype such as"):
                convert(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "want"),
    [(float, "float64"), (int, "int64"), (bool, "bool"), (np.float32, "float32"),
     (np.dtype("uint8"), "uint8"), (np.bool_, "bool"), ("half", "float16"), ("float", "float32"),
     ("double", "float64"), ("long", "int64")],
    ids=str,
)  # fmt: skip
def test_dtypes_by_the_types_of_python_and_numpy_and_by_pytorch_s_names(given: Any, want: str):
    assert Tensor.zeros(2, dtype=given).dtype.name == want
    assert Tensor(X).cast(given).dtype.name == want


@pytest.mark.parametrize(
    ("name", "hint"),
    [("zero", "did you mean zeros"), ("sigmod", "did you mean sigmoid"), ("TinyJIT", "mean TinyJit")],
)
def test_a_missing_name_of_the_package_is_answered_with_the_nearest(name: str, hint: str):
    import frontend

    with pytest.raises(AttributeError, match=hint):
        getattr(frontend, name)


def test_names_that_others_give_to_gpus_are_answered_with_the_driver():
    with pytest.raises(UsageError, match="GPUs are called nv or amd\nhint: this machine has"):
        Tensor(X).to("cuda:1")


def test_a_device_is_a_name():
    for wrong in (0, ("cpu",)):
        with pytest.raises(UsageError, match="a device is named"):
            Tensor(X).to(wrong)  # type: ignore[arg-type]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("number", [-1, 255, 256, 300, -(10**30), 10**30])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "uint64"])
def test_comparing_with_an_unrepresentable_number(dtype: str, number: int, name: str):
    x = np.array([0, 1, 127], dtype)
    want = [getattr(operator, name)(int(v), number) for v in x]
    assert getattr(operator, name)(Tensor(x), number).tolist() == want


def test_writing_where_a_mask_of_numpy_or_a_list_holds():
    x = Tensor(X.copy())
    x[X > 0] = -1
    np.testing.assert_array_equal(x.numpy(), np.where(X > 0, -1, X))
    y = Tensor([1.0, 2.0, 3.0])
    y[[True, False, True]] = 0
    assert y.tolist() == [0.0, 2.0, 0.0]


def test_a_gradient_is_a_tensor_like_its_own():
    x = Tensor(X, requires_grad=True)
    for wrong in (3.0, Tensor([1.0]), Tensor(X, dtype="float64")):
        with pytest.raises(UsageError, match=r"the gradient of .* is a float32 tensor of its shape, saw"):
            x.grad = wrong  # type: ignore[assignment]
    x.grad = Tensor(X)
    assert x.grad is not None
    x.grad = None
    assert x.grad is None


def test_the_maximum_of_two_tensors_is_max_as_well():
    np.testing.assert_array_equal(Tensor(X).max(Tensor(-X)).numpy(), np.maximum(X, -X))
    np.testing.assert_array_equal(Tensor(X).min(Tensor(-X)).numpy(), np.minimum(X, -X))


def test_arguments_that_changed_are_named_plainly():
    @TinyJit
    def scaled(x: Tensor, k: int) -> Tensor:
        return (x * k).realize()

    x = Tensor(X).realize()
    for _ in range(3):
        scaled(x, 2)
    with pytest.raises(
        UsageError, match=r"with arguments \(\(<tensor 0>, 2\).*called with \(\(<tensor 0>, 3\)"
    ):
        scaled(x, 3)


def test_names_that_users_do_not_call_are_not_listed():
    x = Tensor(X)
    for listed in (dir(x), dir(Tensor)):
        assert {"sum", "grad", "requires_grad", "shape", "backward"} <= {*listed}
        assert {"epoch", "expr", "leaves", "link", "recipe", "state", "training", "used"}.isdisjoint(listed)
    for module in (nn, nn.optim, nn.state):
        assert {"TYPE_CHECKING", "annotations", "import_module"}.isdisjoint(dir(module))
    assert {"Adam", "lr_scheduler"} <= {*dir(nn.optim)}


def test_the_text_of_a_tensor_tells_whether_gradients_flow_through_it():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert [repr(y), repr(y)] == ["tensor([2., 4.], grad_fn=<Backward>)"] * 2
    for apart in (y.detach(), x.argmax() + 1, Tensor([2.0, 4.0])):
        assert "grad" not in repr(apart)
    with Tensor.no_grad():
        assert repr(x + 0) == "tensor([1., 2.])"


def test_the_text_of_an_optimiser_is_its_settings_by_group():
    a, b = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    text = repr(nn.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1, momentum=0.9))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0.0\n    lr: 0.1\n")
    assert "Parameter Group 1\n    dampening: 0.0\n    lr: 0.5\n" in text
    assert text.endswith("    momentum: 0.9\n    nesterov: False\n    weight_decay: 0.0\n)")


def test_a_tensor_is_made_under_pytorch_s_name():
    import frontend

    assert frontend.tensor([1.0, 2.0], dtype="float64").tolist() == [1.0, 2.0]
