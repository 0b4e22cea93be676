"""Layers without parameters: activations, pools, flattening, losses.

Each calls the method of `Tensor` whose name its docstring gives.

Not here: dropout and layers with weights (`layers`).
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from frontend.nn.checks import layer_input
from frontend.nn.module import Module
from hcq.errors import UsageTypeError

if TYPE_CHECKING:
    from frontend.tensor import Tensor


class _Method(Module):
    """A layer that calls one method of its input with settings."""

    method = ""
    names: tuple[str, ...] = ()
    """The settings, in PyTorch's order."""
    defaults: tuple[Any, ...] = ()

    def __init__(self, *args: Any, **settings: Any) -> None:
        if len(args) > len(self.names):
            raise UsageTypeError(f"{type(self).__name__} has {len(self.names)} settings, saw {len(args)}")
        given = dict(zip(self.names, args, strict=False)) | settings
        unknown = [name for name in given if name not in self.names]
        if unknown or len(given) < len(args) + len(settings):
            raise UsageTypeError(
                f"{type(self).__name__} has the settings {self.names}, saw {unknown or settings}"
            )
        for name, default in zip(self.names, self.defaults, strict=True):
            setattr(self, name, given.get(name, default))

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Return the method of the input, an array or lists included."""
        settings = {name: getattr(self, name) for name in self.names}
        found: Tensor = getattr(layer_input(self, x), self.method)(*others, **settings)
        return found

    def extra_repr(self) -> str:
        """Return the settings."""
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in self.names])


def _layer(name: str, method: str, **settings: Any) -> type[_Method]:
    text = f"The method `Tensor.{method}` as a layer."
    names, defaults = tuple(settings), tuple(settings.values())
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter(n, kind, default=d) for n, d in settings.items()])
    fields = {"method": method, "names": names, "defaults": defaults, "__signature__": signature}
    return type(name, (_Method,), {**fields, "__doc__": text, "__module__": __name__})


ReLU = _layer("ReLU", "relu")
ReLU6 = _layer("ReLU6", "relu6")
LeakyReLU = _layer("LeakyReLU", "leaky_relu", negative_slope=0.01)
ELU = _layer("ELU", "elu", alpha=1.0)
CELU = _layer("CELU", "celu", alpha=1.0)
SELU = _layer("SELU", "selu")
GELU = _layer("GELU", "gelu", approximate="none")
SiLU = _layer("SiLU", "silu")
Mish = _layer("Mish", "mish")
Sigmoid = _layer("Sigmoid", "sigmoid")
LogSigmoid = _layer("LogSigmoid", "logsigmoid")
Tanh = _layer("Tanh", "tanh")
Softplus = _layer("Softplus", "softplus", beta=1.0)
Softsign = _layer("Softsign", "softsign")
Hardsigmoid = _layer("Hardsigmoid", "hardsigmoid")
Hardswish = _layer("Hardswish", "hardswish")
Softmax = _layer("Softmax", "softmax", dim=-1)
LogSoftmax = _layer("LogSoftmax", "log_softmax", dim=-1)
Flatten = _layer("Flatten", "flatten", start_dim=1, end_dim=-1)
MaxPool2d = _layer(
    "MaxPool2d", "max_pool2d", kernel_size=2, stride=None, padding=0, dilation=1, ceil_mode=False
)
AvgPool2d = _layer(
    "AvgPool2d", "avg_pool2d", kernel_size=2, stride=None, padding=0, ceil_mode=False, count_include_pad=True
)
MSELoss = _layer("MSELoss", "mse_loss", reduction="mean")
L1Loss = _layer("L1Loss", "l1_loss", reduction="mean")
CrossEntropyLoss = _layer(
    "CrossEntropyLoss", "cross_entropy", ignore_index=-100, reduction="mean", label_smoothing=0.0
)
NLLLoss = _layer("NLLLoss", "nll_loss", weight=None, ignore_index=-100, reduction="mean")
BCELoss = _layer("BCELoss", "binary_crossentropy", reduction="mean")
BCEWithLogitsLoss = _layer(
    "BCEWithLogitsLoss", "binary_crossentropy_logits", weight=None, reduction="mean", pos_weight=None
)


class Identity(Module):
    """The input, unchanged; arguments are accepted and ignored, as in PyTorch."""

    def __init__(self, *_args: Any, **_settings: Any) -> None:
        """Make the layer."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x."""
        return x
