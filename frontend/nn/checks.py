"""Checks of the settings of layers, and of their inputs.

`what` names a setting, as "Linear, bias", and starts the message of an error. A setting that is no number
where one is wanted raises `UsageTypeError`.

Not here: settings of optimisers (`frontend.arguments.settings`). Next: `layers`, `normalisation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from frontend.arguments.checks import repeated, representable, whole
from frontend.arguments.conversion import flag, shown
from frontend.evaluation.gradient_state import decided, is_parameter, listed
from frontend.evaluation.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.ops.convolutions import Sizes


MOST_LAYERS: Final = 1000
"""The most layers of a model. A larger number is taken for a mistake: it would need hours and all memory."""


def count(what: str, value: int, least: int = 1) -> int:
    """Return a whole number of at least 1, or `least`. Raises `UsageError` for a smaller number."""
    if representable(whole(value, what)) < least:
        raise UsageError(f"{what}: wanted at least {least}, saw {value}")
    return value


def count_of_layers(what: str, value: int) -> int:
    """Return a number of layers. Raises `UsageError` below 1 and above `MOST_LAYERS`."""
    if count(what, value) > MOST_LAYERS:
        raise UsageError(f"{what}: wanted at most {MOST_LAYERS}, saw {value}")
    return value


def counts(what: str, value: Sizes, number: int) -> tuple[int, ...]:
    """Return `number` whole numbers of at least 1; one number means that many equal ones.

    Raises `UsageError` for a number below 1 and for another number of numbers.
    """
    return tuple([count(what, n) for n in repeated(value, number, what)])


def reduced_as_before(what: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a loss with `reduction` in place of PyTorch's old `size_average` and `reduce`.

    `reduce` False means "none", `size_average` False "sum", other bools "mean". Both are removed from
    `given`.
    """
    average, reduce = (given.pop(name, None) for name in ("size_average", "reduce"))
    if average is None and reduce is None:
        return given
    each = [True if v is None else flag(v, f"{what}, size_average and reduce") for v in (reduce, average)]
    return {**given, "reduction": ("mean" if each[1] else "sum") if each[0] else "none"}


def placed(layer: Any, device: Any, dtype: Any) -> None:
    """Move a new layer to a device, and give it a float dtype; None: the default. Raises as `Module.to`.

    Its tensors are parameters, as if it was listed, unless their requires_grad is False. A `reset_parameters`
    of a program's class is called, as in PyTorch.
    """
    for value in vars(layer).values():
        if isinstance(value, Tensor) and decided(value) is None and value.dtype.is_float:
            listed(value)
    if device is not None or dtype is not None:
        layer.to(device, dtype)
    if not type(layer).__module__.startswith("frontend."):
        own = getattr(type(layer), "reset_parameters", None)
        if own is not None and not own.__module__.startswith("frontend."):
            layer.reset_parameters()


def redraw(layer: Any, bound: float) -> None:
    """Assign numbers uniform in ±bound to the parameters of a layer."""
    own = [t for t in vars(layer).values() if isinstance(t, Tensor) and is_parameter(t)]
    for t in own:
        t.assign(Tensor.uniform(t.shape, low=-bound, high=bound, dtype=t.dtype, device=t.device))
    realize_many(own)


def fill(layer: Any, **values: float) -> None:
    """Assign one number to each of some tensors of a layer, unless it is None or absent."""
    own = [(t, value) for name, value in values.items() if (t := getattr(layer, name, None)) is not None]
    realize_many([t.assign(t.full_like(value)) for t, value in own])


def layer_input(layer: object, x: Any, like: Tensor | None = None) -> Tensor:
    """Return the input of a layer, or of a function whose name is `layer`, as a tensor.

    Arrays and lists become a tensor on the device of `like`, a weight; None: on the default device. Raises
    `UsageTypeError` for anything else.
    """
    if isinstance(x, Tensor):
        return x
    if hasattr(x, "dispatch"):  # a tensor with symbolic sizes has the methods of a tensor
        return cast("Tensor", x)
    if isinstance(x, (list, tuple)) or hasattr(x, "__array__"):
        return Tensor(x, device=None if like is None else like.device)
    name = layer if isinstance(layer, str) else type(layer).__name__
    raise UsageTypeError(f"{name} needs a tensor, an array or lists of numbers, saw {shown(x)}")


def check_values(layer: object, x: Tensor, groups: int) -> None:
    """Raise `UsageError` where each of the `groups` normalised by its own statistics has one value alone."""
    if x.numel() == groups > 0:
        raise UsageError(
            f"{type(layer).__name__}: wanted more than one value for each mean and variance, saw one value "
            f"in the input {x.shape}\nhint: eval() lets a batch norm use its running statistics"
        )


def check_channels(layer: object, x: Tensor, channels: int) -> None:
    """Raise `UsageError` for an input of fewer than two axes, or whose axis 1 is not of size `channels`."""
    if x.ndim < 2:
        raise UsageError(f"{type(layer).__name__} needs at least 2 axes, saw the shape {x.shape}")
    if x.shape[1] != channels:
        raise UsageError(
            f"{type(layer).__name__} has {channels} channels, axis 1 of the input {x.shape} has {x.shape[1]}"
        )
