"""The names of the module `frontend`: PyTorch's functions, dtypes, devices and modes of gradients."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

import frontend as torch
from compiler.dtype import dtypes
from frontend.functions import DTYPE_NAMES, NAMES
from frontend.methods import METHODS
from hcq.errors import UsageError, UsageTypeError

X = [[1.0, 2.0], [3.0, 4.0]]


def test_every_method_of_the_table_is_a_function_of_the_module():
    for row in METHODS:
        for name in [*row.plain, *row.changing]:
            member = None if name.startswith("_") else getattr(torch, name)
            assert member is None or callable(member) or name in {*DTYPE_NAMES, "cuda"}, name


def test_every_name_that_the_module_lists_exists():
    for name in sorted(NAMES):
        assert getattr(torch, name, None) is not None or name in {"nan", "newaxis"}, name


@pytest.mark.parametrize("place", [{"count": 5}, {"offset": 20}, {"offset": -4}, {"offset": 2}])
def test_frombuffer_refuses_elements_outside_the_buffer(place: dict[str, int]):
    assert torch.frombuffer(bytes(16), dtype=torch.float32, count=2, offset=8).tolist() == [0.0, 0.0]
    with pytest.raises(UsageError, match="frombuffer"):
        torch.frombuffer(bytes(16), dtype=torch.float32, **place)


def test_names_of_builtins_leave_the_module_s_own_functions_as_they_are():
    """`torch.int` becomes a global of the module when it is first used."""
    assert torch.int is dtypes.int32
    assert torch.tensor(3).tolist() == 3
    assert torch.as_tensor(3).tolist() == 3


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: torch.pow(2.0, torch.tensor(X)), [[2, 4], [8, 16]]),
        (lambda: torch.relu(input=torch.tensor(X) - 2), [[0, 0], [1, 2]]),
        (lambda: torch.hstack([torch.tensor(X), torch.tensor(X)]), [[1, 2, 1, 2], [3, 4, 3, 4]]),
        (lambda: torch.vstack([torch.tensor([1]), torch.tensor([2])]), [[1], [2]]),
        (lambda: torch.dstack([torch.tensor([1, 2]), torch.tensor([3, 4])]), [[[1, 3], [2, 4]]]),
        (lambda: torch.column_stack([torch.tensor([1, 2]), torch.tensor([3, 4])]), [[1, 3], [2, 4]]),
        (lambda: torch.block_diag(torch.tensor([[1]]), torch.tensor([[2, 3]])), [[1, 0, 0], [0, 2, 3]]),
        (lambda: torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3])), [[1, 3], [2, 3]]),
        (lambda: torch.cdist(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])), [[5]]),
        (lambda: torch.tril_indices(2, 2), [[0, 1, 1], [0, 0, 1]]),
        (lambda: torch.triu_indices(2, 2, 1), [[0], [1]]),
        (lambda: torch.trapezoid(torch.tensor(X), dim=0), [2, 3]),
        (lambda: torch.trapezoid(torch.tensor(X), torch.tensor([1.0, 3.0]), dim=0), [4, 6]),
        (lambda: torch.atleast_3d(torch.tensor([1, 2])), [[[1], [2]]]),
        (lambda: torch.from_numpy(torch.tensor(X).numpy()), X),
        (lambda: torch.layer_norm(torch.tensor([[1.0, 3.0]]), (2,)).round(), [[-1, 1]]),
    ],
)
def test_functions_have_pytorch_s_answers(call: Any, want: Any):
    assert call().tolist() == want


def test_random_functions_take_pytorch_s_arguments():
    drawn = torch.randint(3, 5, (100,))
    assert (drawn.dtype, set(drawn.tolist())) == (dtypes.int64, {3, 4})
    assert torch.randint(2, (4, 1)).shape == (4, 1)
    assert torch.normal(torch.tensor([5.0, 6.0]), 0.0).tolist() == [5, 6]
    assert torch.normal(0.0, 1.0, (2, 3)).shape == (2, 3)


def test_dtypes_are_names_of_the_module():
    assert (torch.float, torch.long, torch.half, torch.bool) == (
        dtypes.float32, dtypes.int64, dtypes.float16, dtypes.bool,
    )  # fmt: skip
    assert torch.zeros(2, dtype=torch.double).dtype is torch.float64
    assert torch.promote_types(torch.int8, torch.float16) is torch.float16
    assert torch.result_type(torch.tensor([1, 2]), 1.5) is torch.float32


def test_shapes_broadcast_or_are_refused():
    assert torch.broadcast_shapes((2, 1), (3,), (1, 1, 1)) == (1, 2, 3)
    with pytest.raises(UsageError, match=r"\(2,\), \(3,\) do not broadcast"):
        torch.broadcast_shapes((2,), (3,))


def test_what_is_no_tensor_is_refused_with_what_to_try():
    with pytest.raises(
        UsageTypeError, match=r"exp: wanted a tensor first, saw .*\n?hint: make one by Tensor"
    ):
        torch.exp([1.0])


def test_a_device_is_a_string_with_type_and_index():
    cpu = torch.device("cpu")
    assert (cpu == "cpu", cpu.type, cpu.index) == (True, "cpu", None)
    assert torch.zeros(1, device=cpu).device == cpu
    emulated = torch.device("nv-emu", 1)
    assert (str(emulated), emulated.type, emulated.index) == ("nv-emu:1", "nv-emu", 1)
    for name, kind, index in (("cpu", "cpu", None), ("cpu:1", "cpu", 1), ("cpu,cpu:1", "cpu", None)):
        found = torch.zeros(1, device=name).device
        copied = pickle.loads(pickle.dumps(found))
        assert (found, found.type, found.index, copied.type) == (name, kind, index, kind)
    assert torch.zeros(2)[: torch.Variable("n", 1, 2).bind(1)].device.type == torch.zeros(2).device.type


def test_modes_of_gradients_nest_and_decorate():
    x = torch.tensor([1.0], requires_grad=True)

    @torch.no_grad()
    def without() -> Any:
        with torch.enable_grad():
            inside = x * 3
        return x * 2, inside

    cut, kept = without()
    kept.sum().backward()
    assert x.grad.tolist() == [3]
    with pytest.raises(UsageError):
        cut.sum().backward()
    with torch.inference_mode(), torch.inference_mode(mode=False):
        assert not torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    with torch.set_grad_enabled(True):
        assert torch.is_grad_enabled()
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert torch.no_grad(torch.is_grad_enabled)() is False


def test_an_error_ends_a_mode_of_gradients():
    def fail() -> None:
        with torch.no_grad():
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - raised above
        fail()
    assert torch.is_grad_enabled()


def test_special_functions_have_pytorch_s_names():
    special = torch.special
    x = torch.Tensor([-0.5, 0.0, 0.25, 1.0])
    pairs = {
        special.entr: [-math.inf, 0.0, 0.3465736, 0.0],
        special.expit: [0.3775407, 0.5, 0.5621765, 0.7310586],
        special.ndtr: [0.3085375, 0.5, 0.5987063, 0.8413447],
        special.ndtri: [math.nan, -math.inf, -0.6744898, math.inf],
        special.gammaln: [1.2655121, math.inf, 1.2880225, 0.0],
    }
    for function, wanted in pairs.items():
        assert function(x).tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True)
    found = special.xlog1py(x, torch.Tensor([0.5, -1.0, math.nan, 1.0])).tolist()
    assert found == pytest.approx([-0.2027326, 0.0, math.nan, 0.6931472], rel=1e-5, nan_ok=True)
    assert {"entr", "psi", "softmax"} < set(dir(special))


def test_every_package_of_the_module_is_there():
    for name in dir(torch):
        assert getattr(torch, name) is not None or name == "newaxis", name
