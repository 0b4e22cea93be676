"""Layers of functions of `frontend.torch.functions`, with their arguments as settings and with their errors.

Not here: other layers (`frontend.nn`). Next: `functions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.nn.functions import layer_of
from frontend.nn.layers import FunctionDropout
from frontend.nn.module import Module, in_training
from frontend.torch import functions
from frontend.torch.alignment import ctc_loss

if TYPE_CHECKING:
    from frontend.tensor import Tensor

_POOL: Any = {"norm_type": 2.0, "kernel_size": 2, "stride": None, "ceil_mode": False}
_UNPOOL: Any = {"kernel_size": 2, "stride": None, "padding": 0}
LPPool1d, LPPool2d, LPPool3d = (
    layer_of(f"LPPool{n}d", functions.FUNCTIONS[f"lp_pool{n}d"], **_POOL) for n in (1, 2, 3)
)
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = (
    layer_of(f"MaxUnpool{n}d", functions.FUNCTIONS[f"max_unpool{n}d"], **_UNPOOL) for n in (1, 2, 3)
)
CTCLoss = layer_of("CTCLoss", ctc_loss, shown_as="", blank=0, reduction="mean", zero_infinity=False)
MultiLabelMarginLoss = layer_of(
    "MultiLabelMarginLoss", functions.multilabel_margin_loss, shown_as="", reduction="mean"
)


class RReLU(Module):
    """Negative elements times a random slope, in evaluation mode times the mean of the slopes."""

    _template = "lower={0.lower}, upper={0.upper}"

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:  # noqa: FBT001, FBT002 - PyTorch's signature
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation."""
        return functions.rrelu(input, self.lower, self.upper, in_training(self))


class AlphaDropout(FunctionDropout):
    """Dropout to the least value of SELU, which keeps mean 0 and variance 1; in training mode alone."""

    _function = staticmethod(functions.alpha_dropout)


class FeatureAlphaDropout(FunctionDropout):
    """`AlphaDropout` of whole channels of (batch, channels, ...)."""

    _function = staticmethod(functions.feature_alpha_dropout)
