"""A call with an argument that does not exist, with too many or too few, raises `UsageTypeError`.

All methods, functions, layers and optimisers of the product are called: a new one is judged at once.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import frontend.nn.functional as F  # noqa: N812 - as programs write it
from frontend import Tensor, nn
from frontend import array_api as xp
from hcq.errors import UsageTypeError

LEFT_OUT = {"Identity", "Module", "ModuleDict", "ModuleList", "Optimizer", "Softmax2d", "Tensor"}
"""What ignores any argument, and classes without a constructor of their own."""
VARIADIC = inspect.Parameter.VAR_POSITIONAL


@pytest.fixture(scope="module")
def calls() -> dict[str, Any]:
    """Return all public methods, functions, layers and optimisers by name."""
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device="cpu")
    found = {f"Tensor.{name}": getattr(x, name, None) for name in dir(Tensor) if not name.startswith("_")}
    own = {name for name, fn in vars(F).items() if getattr(fn, "__module__", "").startswith("frontend.nn.")}
    names = {name for name in own if name[0].islower()} | F.METHODS | F.LAYERS.keys()
    found |= {f"F.{name}": getattr(F, name) for name in names - {"flag", "layer_input"}}
    found |= {f"xp.{name}": getattr(xp, name) for name in xp.__all__ if inspect.isfunction(getattr(xp, name))}
    for module in (nn.init, nn.utils, nn.utils.rnn, xp.linalg, xp.fft):
        own = {name for name, fn in vars(module).items() if getattr(fn, "__module__", "") == module.__name__}
        functions = {name: getattr(module, name) for name in own if name[0].islower()}
        found |= {f"{module.__name__}.{name}": fn for name, fn in functions.items()}
    for module in (nn, nn.optim, nn.schedules):
        members = {name: member for name, member in vars(module).items() if inspect.isclass(member)}
        found |= {
            f"{module.__name__}.{name}": member
            for name, member in members.items()
            if member.__module__.startswith(("frontend.nn.", "frontend.optim."))
            and name not in {*LEFT_OUT, "Group", "Schedule"}
            and name[0] != "_"
        }
    return {name: member for name, member in sorted(found.items()) if callable(member)}


def test_all_kinds_of_calls_are_judged(calls: dict[str, Any]):
    for prefix, least in {"Tensor.": 550, "F.": 60, "frontend.nn.": 120, "frontend.optim.": 15}.items():
        assert len([name for name in calls if name.startswith(prefix)]) >= least, prefix


def untyped(call: Any, *args: Any, **names: Any) -> str:
    """Return what a call that fits no signature does instead of raising `UsageTypeError`."""
    try:
        return f"returns {call(*args, **names)!r}"
    except UsageTypeError as error:
        text = str(error)
        return (
            "" if not names or any(word in text for word in (*names, "missing", "wanted", "needs")) else text
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises is shown
        return repr(error)


def test_an_argument_that_does_not_exist_is_named(calls: dict[str, Any]):
    found = {name: untyped(call, no_such_argument=1) for name, call in calls.items()}
    assert {name: text for name, text in found.items() if text} == {}


def test_too_many_arguments_are_refused(calls: dict[str, Any]):
    every = {name: inspect.signature(call).parameters.values() for name, call in calls.items()}
    fixed = [name for name, parameters in every.items() if all(p.kind is not VARIADIC for p in parameters)]
    found = {name: untyped(calls[name], *[None] * 30) for name in fixed}
    assert {name: text for name, text in found.items() if text} == {}


def test_the_arguments_that_there_are_are_listed():
    x = Tensor([1.0, 2.0])
    with pytest.raises(
        UsageTypeError, match=r"sum: .*'dimension'; its arguments are axis=None, keepdim=False"
    ):
        x.sum(dimension=1)
    with pytest.raises(
        UsageTypeError, match=r"Linear: missing .*'out_features'; its arguments are in_features"
    ):
        nn.Linear(3)  # type: ignore[call-arg]
    with pytest.raises(UsageTypeError, match=r"AdaptiveAvgPool2d: .*; its arguments are output_size$"):
        F.adaptive_avg_pool2d(x, 2, foo=1)
    with pytest.raises(UsageTypeError, match=r"Linear: too many .*; its arguments are x$"):
        nn.Linear(2, 2)(x, x)
    with pytest.raises(
        UsageTypeError, match=r"Tensor: .*'grad'; its arguments are data=\(\), \*sizes, dtype="
    ):
        Tensor([1.0], grad=True)  # type: ignore[call-arg]
    with pytest.raises(UsageTypeError, match=r"eye: .*; its arguments are rows, columns=None"):
        Tensor.eye(rws=3)


def test_operators_take_their_operand_by_name():
    x = Tensor([1.0, 2.0])
    assert x.lt(other=2).tolist() == [True, False]
    assert x.pow(exponent=2).tolist() == [1.0, 4.0]
    assert x.clone().mul_(other=x).tolist() == [1.0, 4.0]


def test_an_error_inside_a_function_of_the_program_stays_as_it_is():
    class Mine(nn.Module):
        def __init__(self, size: int) -> None:
            self.size = len(size)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len") as caught:
        Mine(3)
    assert not isinstance(caught.value, UsageTypeError)
