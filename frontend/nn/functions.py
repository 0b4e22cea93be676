"""Layers without parameters: activations, flattening, distances, losses.

A layer calls the method of `Tensor` that its docstring names, with its settings as arguments, and raises what
the method raises. An input may also be an array or lists. A layer raises `UsageTypeError` for an unknown
setting.

Not here: dropout and layers with weights (`layers`), pools and padding (`pools`). Next: `module`.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import promote
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import broadcast, sizes, whole
from frontend.arguments.conversion import number, shown, switch
from frontend.nn.checks import layer_input, reduced_as_before
from frontend.nn.module import Module, raised, wide
from frontend.nn.state.models import BUFFERS
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


class Loss(Module):
    """Base of losses, also of those of programs: it sets `reduction`."""

    def __init__(self, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> None:
        super().__init__()
        old = {"size_average": size_average, "reduce": reduce, "reduction": reduction}
        self.reduction = reduced_as_before(type(self).__name__, old)["reduction"]


class WeightedLoss(Loss):
    """Base of losses with the buffer `weight`, one number for each class."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *old: Any, **settings: Any) -> None:
        super().__init__(*old, **settings)
        self.register_buffer("weight", weight)


class _Method(Module):
    """A layer that calls one method of its input, or a function, with settings."""

    method: Any = ""
    names: tuple[str, ...] = ()
    """The settings, in PyTorch's order."""
    order: tuple[str, ...] = ()
    """The names of arguments by position, where old ones are among them."""
    defaults: tuple[Any, ...] = ()
    unused: tuple[str, ...] = ()
    """Settings that the method does not have: `inplace`, which is accepted and has no effect."""
    shown_as = "{name}={value!r}"
    """The text of a setting in `repr`; "" for a loss, which shows no settings."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        order = self.order or self.names
        if len(args) > len(order):
            raise UsageTypeError(f"{type(self).__name__} has {len(order)} settings, saw {len(args)}")
        given = dict(zip(order, args, strict=False)) | settings
        twice = len(given) < len(args) + len(settings)
        if "reduction" in self.names:
            given = reduced_as_before(type(self).__name__, given)
        unknown = [name for name in given if name not in self.names]
        if unknown or twice:
            raise UsageTypeError(
                f"{type(self).__name__} has the settings {self.names}, saw {unknown or settings}"
            )
        for name, default in zip(self.names, self.defaults, strict=True):
            value = given.get(name, default)
            if value is Parameter.empty:
                raise UsageTypeError(f"{type(self).__name__}: missing its argument {name}")
            if name in self.unused:
                value = switch(value, f"{type(self).__name__}, {name}")
            if name in {"weight", "pos_weight"}:
                self.__dict__.setdefault(BUFFERS, set())
                self.register_buffer(name, None if value is None else layer_input(self, value))
            else:
                setattr(self, name, value)

    def settings(self) -> dict[str, Any]:
        """Return the named arguments with which the method is called."""
        return {name: getattr(self, name) for name in self.names if name not in self.unused}

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Return the method of x, or the function, with `others` as its positional arguments."""
        if not isinstance(self.method, str):
            result: Tensor = self.method(x, *others, **self.settings())
            return result
        x = layer_input(self, x)
        if not self.shown_as:  # losses
            x = raised(x)
        found: Tensor = getattr(x, self.method)(*others, **self.settings())
        return found

    def extra_repr(self) -> str:
        """Return the settings as PyTorch prints them; `inplace` only if it is True."""
        every = [name for name in self.names if name not in self.unused or getattr(self, name)]
        shown = [self.shown_as.format(name=name, value=getattr(self, name)) for name in every]
        return ", ".join([text for text in shown if text])


def layer_of(name: str, method: Any, *, shown_as: str = "{name}={value!r}", **settings: Any) -> type[_Method]:
    """Return the layer of a method of `Tensor`, or of a function, with settings and their defaults."""
    called = f"The method `Tensor.{method}`" if isinstance(method, str) else f"`functional.{method.__name__}`"
    text = f"{called} as a layer."
    if "inplace" in settings:
        text += " `inplace` is accepted; the input is never changed."
    kind = Parameter.POSITIONAL_OR_KEYWORD
    names = {n: v for n, v in settings.items() if n not in {"size_average", "reduce"}}
    fields: dict[str, Any] = {
        "method": staticmethod(accepts_aliases(method)) if callable(method) else method, "shown_as": shown_as,
        "names": tuple(names), "defaults": tuple(names.values()), "order": tuple(settings),
        "unused": tuple({"inplace"} & {*settings}),
        "__signature__": Signature([Parameter(n, kind, default=d) for n, d in settings.items()]),
    }  # fmt: skip
    bases = (_Method, *((WeightedLoss if "weight" in settings else Loss,) if not shown_as else ()))
    return type(name, bases, {**fields, "__doc__": text, "__module__": __name__})


def _over_classes(name: str) -> Callable[..., Tensor]:
    """Return a method as a function whose axis may be None: 0 for 0, 1 or 3 axes, else 1, as in PyTorch."""

    def function(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
        x = layer_input(name, input)
        axis = (0 if x.ndim in {0, 1, 3} else 1) if dim is None else dim
        found: Tensor = getattr(x, name)(axis, dtype=dtype)
        return found

    function.__name__, function.__doc__ = name, f"Return `Tensor.{name}`; without `dim` over PyTorch's axis."
    return accepts_aliases(function)


ReLU = layer_of("ReLU", "relu", inplace=False)
ReLU6 = layer_of("ReLU6", "relu6", inplace=False)
LeakyReLU = layer_of("LeakyReLU", "leaky_relu", negative_slope=0.01, inplace=False)
ELU = layer_of("ELU", "elu", alpha=1.0, inplace=False)
CELU = layer_of("CELU", "celu", alpha=1.0, inplace=False)
SELU = layer_of("SELU", "selu", inplace=False)
GELU = layer_of("GELU", "gelu", approximate="none")
SiLU = layer_of("SiLU", "silu", inplace=False)
Mish = layer_of("Mish", "mish", inplace=False)
Sigmoid = layer_of("Sigmoid", "sigmoid")
LogSigmoid = layer_of("LogSigmoid", "logsigmoid")
Tanh = layer_of("Tanh", "tanh")
Softsign = layer_of("Softsign", "softsign")
Hardsigmoid = layer_of("Hardsigmoid", "hardsigmoid", inplace=False)
Hardswish = layer_of("Hardswish", "hardswish", inplace=False)
Hardshrink = layer_of("Hardshrink", "hardshrink", shown_as="{value!r}", lambd=0.5)
Softshrink = layer_of("Softshrink", "softshrink", shown_as="{value!r}", lambd=0.5)
Threshold = layer_of(
    "Threshold", "threshold", threshold=Parameter.empty, value=Parameter.empty, inplace=False
)
Softplus = layer_of("Softplus", "softplus", beta=1.0, threshold=20.0)
Tanhshrink = layer_of("Tanhshrink", "tanhshrink")
GLU = layer_of("GLU", "glu", dim=-1)
softmax, softmin, log_softmax = [_over_classes(name) for name in ("softmax", "softmin", "log_softmax")]
Softmax = layer_of("Softmax", softmax, dim=None)
Softmin = layer_of("Softmin", softmin, dim=None)
LogSoftmax = layer_of("LogSoftmax", log_softmax, dim=None)
Flatten = layer_of("Flatten", "flatten", start_dim=1, end_dim=-1)
OLD: Final[dict[str, Any]] = {"size_average": None, "reduce": None, "reduction": "mean"}
"""Settings of most losses, in PyTorch's order; see `reduced_as_before`."""
MSELoss = layer_of("MSELoss", "mse_loss", shown_as="", **OLD)
L1Loss = layer_of("L1Loss", "l1_loss", shown_as="", **OLD)
SmoothL1Loss = layer_of("SmoothL1Loss", "smooth_l1_loss", shown_as="", **OLD, beta=1.0)
HuberLoss = layer_of("HuberLoss", "huber_loss", shown_as="", reduction="mean", delta=1.0)
KLDivLoss = layer_of("KLDivLoss", "kl_div", shown_as="", **OLD, log_target=False)
NLLLoss = layer_of(
    "NLLLoss", "nll_loss", shown_as="", weight=None, size_average=None, ignore_index=-100, reduce=None,
    reduction="mean",
)  # fmt: skip
BCELoss = layer_of("BCELoss", "binary_crossentropy", shown_as="", weight=None, **OLD)
BCEWithLogitsLoss = layer_of(
    "BCEWithLogitsLoss", "binary_crossentropy_logits", shown_as="", weight=None, **OLD, pos_weight=None
)


class Hardtanh(Module):
    """The input limited to min_val..max_val; see `Tensor.hardtanh`. `inplace` has no effect.

    Raises `UsageError` unless min_val < max_val.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:  # noqa: FBT001, FBT002 - the field's signature
        self.min_val, self.max_val = number(min_val, "Hardtanh"), number(max_val, "Hardtanh")
        self.inplace = switch(inplace, "Hardtanh, inplace")
        if not min_val < max_val:
            raise UsageError(f"Hardtanh: wanted min_val below max_val, saw {min_val} and {max_val}")

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        return layer_input(self, x).hardtanh(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


class Softmax2d(Module):
    """The softmax over the channels of (batch, channels, height, width) or (channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the probabilities. Raises `UsageError` for another number of axes."""
        x = layer_input(self, x)
        if x.ndim not in {3, 4}:
            raise UsageError(f"Softmax2d: wanted 3 or 4 axes, saw the shape {x.shape}")
        return x.softmax(-3)


class Unflatten(Module):
    """One axis split into several; one size may be -1. Raises `UsageError` for sizes of another product."""

    _template = "dim={0.dim}, unflattened_size={0.unflattened_size}"

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        if not isinstance(unflattened_size, (tuple, list)):
            raise UsageTypeError(
                f"Unflatten, unflattened_size: wanted several sizes, saw {shown(unflattened_size)}"
            )
        self.dim = whole(dim, "Unflatten, dim")
        self.unflattened_size = sizes(unflattened_size, "Unflatten, unflattened_size")

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with more axes."""
        return layer_input(self, x).unflatten(self.dim, self.unflattened_size)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Return the cosine of the angle between two tensors along an axis, which the result lacks.

    Norms count as at least `eps`. Raises `UsageError` for shapes that do not broadcast, and for integers.
    """
    a, b = layer_input("cosine_similarity", x1), layer_input("cosine_similarity", x2)
    shape, kind = broadcast((a.shape, b.shape), "cosine_similarity"), promote(a.dtype, b.dtype)
    if not number(eps, "cosine_similarity, eps") >= 0:
        raise UsageError(f"cosine_similarity, eps: wanted at least 0, saw {eps}")
    x, y = [wide(t.cast(kind).expand(shape)) for t in (a, b)]
    sizes = [t.norm(2, dim, keepdim=True).maximum(eps) for t in (x, y)]
    return (x / sizes[0] * (y / sizes[1])).sum(dim).cast(kind)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False  # noqa: FBT001, FBT002 - the field's signature
) -> Tensor:  # fmt: skip
    """Return the p-norm of x1 - x2 + eps along the last axis: (...,) of (..., n), with `keepdim` (..., 1)."""
    apart = layer_input("pairwise_distance", x1) - layer_input("pairwise_distance", x2) + eps
    return apart.norm(number(p, "pairwise_distance, p"), -1, keepdim=keepdim)


_BARE: Any = {"shown_as": "{name:.0}"}
CosineSimilarity = layer_of("CosineSimilarity", cosine_similarity, **_BARE, dim=1, eps=1e-8)
PairwiseDistance = layer_of("PairwiseDistance", pairwise_distance, **_BARE, p=2.0, eps=1e-6, keepdim=False)


class Identity(Module):
    """The input, unchanged; arguments of the constructor are accepted and ignored."""

    def __init__(self, *_args: Any, **_settings: Any) -> None:
        """Make the layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x."""
        return x
