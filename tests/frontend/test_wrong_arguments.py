"""Every public method and layer, called with invalid arguments, raises an error of hcq.errors.

The methods come from the product: a new one is judged as soon as it has a name.
"""

from __future__ import annotations

import inspect
import itertools
import math
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, nn, tensor
from frontend.later import loaded
from frontend.members import Methods
from frontend.methods import METHODS as ROWS
from hcq.errors import HcqError, UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SKIPPED = {"train", "manual_seed"}
"""No operations: the constructor from parts, a context, the seed of all later numbers, names of devices."""


SHARE = 4
"""The quick part makes one call in this number; the slow part makes all."""
IN_PLACE = {name for row in ROWS for name in row.plain + row.changing if name[-1] == "_"}
CHANGING = {"assign", "replace", "realize", "requires_grad_"}
"""Methods that change the tensor itself."""
OPERATORS = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
    *("lshift", "rshift", "lt", "ge", "eq", "getitem"),
]


def function_of(member: Any) -> Any:
    return inspect.unwrap(getattr(member, "__func__", member))


METHODS = {
    name: function_of(member)
    for name, member in loaded((Methods, Tensor)).items()
    if not name.startswith("_") and name not in SKIPPED | IN_PLACE and inspect.isfunction(function_of(member))
}
CONTAINERS = {nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict}
LAYERS = {
    name: member
    for name, member in vars(nn).items()
    if inspect.isclass(member)
    and issubclass(member, nn.Module)
    and member not in CONTAINERS
    and not name.endswith("Loss")
}
"""Layers of one tensor; losses have two, and their methods are tested."""
SETTINGS: dict[str, tuple[Any, ...]] = {"Embedding": (2, 2), "Unflatten": (0, (1, 2))}
"""Settings of layers that do not work with 2 for each."""
STACKS: dict[str, Callable[[], nn.Module]] = {
    "TransformerEncoder": lambda: nn.TransformerEncoderLayer(2, 2),
    "TransformerDecoder": lambda: nn.TransformerDecoderLayer(2, 2),
}
"""Layers that stacks copy."""
OPTIMISERS = {
    name: member
    for name, member in vars(nn.optim).items()
    if inspect.isclass(member) and issubclass(member, nn.optim.Optimizer) and member is not nn.optim.Optimizer
}


def wrong() -> tuple[Any, ...]:
    """Return values of every kind, most of which a parameter refuses."""
    return (
        None, "text", b"bytes", {}, {1, 2}, object(), 1j, True, -1, 0, 7, 1 << 70, 2.5, math.nan, [],
        [None], ["a"], (1, "a"), (0, 0), [[1], [2, 3]], np.zeros((2, 2), dtype=complex), np.array(["a"]),
        slice(0, 1), len, Tensor([[True, False]]), Tensor([0.5, 1.5, 2.5, 3.5, 4.5]), Tensor([3, -3]),
        tensor(1),
    )  # fmt: skip


def selves() -> tuple[Tensor, ...]:
    """Return tensors of several dtypes and ranks, one of no elements."""
    return (
        Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        Tensor([2, 3]),
        Tensor([True]),
        Tensor(1.5),
        Tensor.zeros(0, 3),
    )


def good(annotation: str) -> Any:
    """Return a valid argument, so that the others are checked."""
    fitting: dict[str, Any] = {
        "Tensor": Tensor([[1, 0, 1], [0, 1, 1]]),
        "int": 1,
        "float": 0.5,
        "str": "text",
        "Sequence[Any]": (1, 1),
        "Sizes": 1,
        "Axes": 0,
    }
    return next((value for name, value in fitting.items() if name in annotation), 1)


def calls(fn: Any, first: int) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield arguments of which one is wrong, and all of one wrong value."""
    parameters = list(inspect.signature(fn).parameters.values())[first:]
    needed = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    fitting = {p.name: good(str(p.annotation)) for p in needed}
    for p, value in itertools.product(parameters, wrong()):
        if p.kind is p.VAR_KEYWORD:
            continue
        args = [value if q is p else fitting[q.name] for q in needed]
        if p.kind is p.VAR_POSITIONAL:
            yield [*args, value], {}
        elif p in needed:
            yield args, {}
        else:
            yield args, {p.name: value}
    for value in wrong():
        yield [value] * len(needed), {}


def tensors_of(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result for t in tensors_of(part)] if isinstance(result, tuple) else []


def refused_or_right(call: Callable[[], Any], *shown: object) -> None:
    """Call, and compute the result; every exception must be an error of hcq.errors."""
    try:
        for t in tensors_of(call()):
            if t.numel() < 1 << 16:
                t.realize()
    except Exception as error:
        if not isinstance(error, HcqError) or not str(error) or "unhashable" in str(error):
            raise AssertionError(f"{shown}: {type(error).__name__}: {error}") from error


def cases(name: str) -> Iterator[tuple[int, list[Any], dict[str, Any]]]:
    """Yield numbered arguments for a method, as `calls` does."""
    member = inspect.getattr_static(Tensor, name)
    found = calls(METHODS[name], 0 if isinstance(member, staticmethod) else 1)
    return ((i, args, names) for i, (args, names) in enumerate(found))


def judge(own: Tensor, name: str, args: list[Any], names: dict[str, Any]) -> None:
    """Call a method of a tensor; those that change it are called on a copy."""
    method = getattr(own.clone() if name in CHANGING else own, name)
    refused_or_right(lambda: method(*args, **names), own, name, args, names)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", METHODS)
def test_methods_raise_hcq_errors(name: str):
    """A share of the calls of the test below, which begins at another place for each method."""
    every = selves()
    start = zlib.crc32(name.encode()) % (4 * SHARE)
    for i, args, names in itertools.islice(cases(name), start, None, 4 * SHARE):
        judge(every[i % len(every)], name, args, names)


@pytest.mark.sampled(36)
@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_all_tensors_raise_hcq_errors(name: str):
    """A share of all calls on all tensors that meets every call, since the two numbers have no divisor."""
    found = itertools.product(cases(name), selves())
    for (_, args, names), own in itertools.islice(found, 0, None, SHARE):
        judge(own, name, args, names)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_raise_hcq_errors(name: str):
    made = LAYERS[name]
    for args, names in calls(made, 0):
        refused_or_right(lambda a=args, n=names: made(*a, **n), name, args, names)
    every = inspect.signature(made).parameters.values()
    needed = [p for p in every if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    layer = made(STACKS[name](), 2) if name in STACKS else made(*SETTINGS.get(name, [2 for _ in needed]))
    for value in wrong():
        refused_or_right(lambda v=value: layer(v), name, value)


@pytest.mark.parametrize("name", STACKS)
def test_stacks_raise_hcq_errors(name: str):
    layer = STACKS[name]()
    for value in wrong():
        refused_or_right(lambda v=value: LAYERS[name](layer, v), name, value)
        refused_or_right(lambda v=value: LAYERS[name](layer, 2, v), name, value)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_raise_hcq_errors(name: str):
    made = OPTIMISERS[name]
    parameters = list(inspect.signature(made).parameters)
    for value in wrong():
        refused_or_right(lambda v=value: made(v), name, value)
        for other in parameters[1:]:
            t = Tensor([1.0], requires_grad=True)
            refused_or_right(lambda v=value, o=other, t=t: made([t], **{o: v}), name, other, value)


@pytest.mark.sampled(17)
@pytest.mark.parametrize("share", [SHARE, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_raise_hcq_errors(name: str, share: int):
    start = zlib.crc32(name.encode()) % share
    for value, own in itertools.islice(itertools.product(wrong(), selves()), start, None, share):
        for method in (f"__{name}__", f"__r{name}__"):
            fn = getattr(own, method, None)
            if fn is not None:
                refused_or_right(lambda f=fn, v=value: f(v), own, method, value)


@pytest.mark.parametrize("inputs", [(), (1,), (1, 2, 3)])
def test_a_wrong_number_of_inputs_is_refused(inputs: tuple[Any, ...]):
    with pytest.raises(UsageTypeError, match=r"Bilinear.*x1.*x2"):
        nn.Bilinear(2, 2, 2)(*inputs)


def test_an_error_of_forward_is_not_changed():
    class Wrong(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + None

    with pytest.raises(TypeError, match="unsupported operand") as raised:
        Wrong()(1)
    assert not isinstance(raised.value, HcqError)


def test_lists_of_parameters_refuse_other_values():
    with pytest.raises(UsageTypeError, match="ParameterList"):
        nn.ParameterList(7)
    with pytest.raises(UsageTypeError, match="ParameterDict"):
        nn.ParameterDict([1.0])
    assert nn.ParameterList([[1.0, 2.0]])[0].requires_grad
    assert nn.ParameterDict({"a": [1.0]})["a"].shape == (1,)
    nested = nn.ParameterList([nn.ParameterList([Tensor.ones(2)]), nn.ParameterDict({"a": nn.Tanh()})])
    assert [name for name, _ in nested.named_parameters()] == ["0.0"]


def test_stores_raise_hcq_errors():
    for value, own in itertools.product(wrong(), selves()):
        refused_or_right(lambda t=own, v=value: t.clone().__setitem__(v, 1), own, value, "= 1")
        refused_or_right(lambda t=own, v=value: t.clone().__setitem__(0, v), own, 0, "=", value)


def test_the_lists_are_not_empty():
    assert len(METHODS) > 150
    assert len(LAYERS) >= 9
    assert len(OPTIMISERS) >= 3


WRONG_TYPES = [
    ("device", lambda x: x.to({})),
    ("device", lambda _: Tensor.zeros(2, device=["cpu"])),
    ("device", lambda _: Device[{}]),
    ("dtype", lambda _: Tensor.zeros(2, dtype=np.zeros(2))),
    ("dtype", lambda _: Tensor.ones(2, dtype=0)),
    ("dtype", lambda x: x.rand_like(dtype=np.zeros(2))),
    ("bias", lambda _: nn.Linear(2, 2, bias=np.zeros(2))),
    ("affine", lambda _: nn.BatchNorm(2, affine=np.zeros(2))),
    ("track_running_stats", lambda _: nn.BatchNorm(2, track_running_stats=np.zeros(2))),
    ("elementwise_affine", lambda _: nn.LayerNorm(2, elementwise_affine="no")),
    ("inplace", lambda _: nn.ReLU(inplace="no")),
    ("nesterov", lambda x: nn.optim.SGD([x], momentum=0.9, nesterov=np.zeros(2))),
    ("is_causal", lambda x: x.scaled_dot_product_attention(x, x, is_causal=np.zeros(2))),
    ("requires_grad", lambda x: x.requires_grad_(np.zeros(2))),
    ("requires_grad", lambda _: Tensor.zeros(2, requires_grad="yes")),
    ("mode", lambda _: Tensor.train(np.zeros(2)).__enter__()),
    ("rounding_mode", lambda x: x.div(2, rounding_mode=np.zeros(2))),
    ("indexing", lambda x: x[0].meshgrid(x[1], indexing=np.zeros(2))),
    ("ignore_index", lambda x: x.cross_entropy([0, 1], ignore_index=np.zeros(2))),
    ("low", lambda _: Tensor.uniform(2, low=None)),
    ("high", lambda _: Tensor.uniform(2, high="a")),
    ("mean", lambda _: Tensor.normal(2, mean=None)),
    ("std", lambda _: Tensor.normal(2, std=None)),
    ("a:", lambda _: Tensor.kaiming_uniform(2, a=None)),
    ("a:", lambda _: Tensor.kaiming_normal(2, a=None)),
    ("full", lambda _: Tensor.full(None, 1)),
    ("realize", lambda x: x.realize(None)),
    ("replace", lambda x: x.replace(None)),
    ("gradient", lambda x: x.sum().gradient(x, gradient="text")),
    ("gradient", lambda x: x.sum().gradient(None)),
    ("gradient", lambda x: x.sum().backward(gradient="text")),
]


@pytest.mark.parametrize(
    ("named", "call"), WRONG_TYPES, ids=[f"{i} {n}" for i, (n, _) in enumerate(WRONG_TYPES)]
)
def test_a_wrong_type_is_named(named: str, call: Callable[[Tensor], Any]):
    with pytest.raises(UsageTypeError, match=named):
        call(Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True))


def test_a_refused_realize_computes_nothing():
    x = Tensor([1.0, 2.0]) + 1
    with pytest.raises(UsageTypeError, match="realize"):
        x.realize(None)
    assert not x.is_realized


def test_a_refused_mode_leaves_the_mode():
    before = Tensor.training
    with pytest.raises(UsageTypeError, match="mode"), Tensor.train("yes"):
        pass
    assert Tensor.training is before


def test_flags_of_numpy_are_flags():
    assert nn.Linear(2, 2, bias=np.False_).bias is None
    assert Tensor([1.0]).requires_grad_(np.True_).requires_grad is True


HUGE = 10**400
"""A whole number that no float represents."""
TOO_LARGE: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + HUGE,
    "lt": lambda x: x < HUGE,
    "pow": lambda x: x**HUGE,
    "clip": lambda x: x.clip(0, HUGE),
    "where": lambda x: (x > 1).where(x, HUGE),
    "store": lambda x: x.__setitem__(0, HUGE),
    "isclose": lambda x: x.isclose(x, rtol=HUGE),
    "tensor": lambda _: Tensor(HUGE, dtype="float32"),
    "full": lambda _: Tensor.full((2,), HUGE, dtype="float32"),
    "full_like": lambda x: x.full_like(HUGE),
    "arange": lambda _: Tensor.arange(HUGE),
    "linspace": lambda _: Tensor.linspace(0, HUGE, 3),
    "uniform": lambda _: Tensor.uniform(2, high=HUGE),
    "normal": lambda _: Tensor.normal(2, std=HUGE),
    "linear": lambda _: nn.Linear(HUGE, 2),
    "optimiser": lambda x: nn.optim.SGD([x], lr=HUGE),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TOO_LARGE)
def test_whole_numbers_beyond_floats_are_refused(name: str):
    with pytest.raises(UsageError, match="1024"):
        TOO_LARGE[name](Tensor([[1.0, 2.0], [3.0, 4.0]]))
