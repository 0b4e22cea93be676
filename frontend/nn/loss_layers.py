"""Losses of several tensors as layers; each calls the function of `nn.functional` that its docstring names.

Not here: losses that are methods of `Tensor` (`functions`). Next: `losses`, the functions.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from frontend.nn import losses
from frontend.nn.checks import reduced_as_before
from frontend.nn.module import Module
from hcq.errors import UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.tensor import Tensor


class _Loss(Module):
    """A layer that calls a loss with settings. Raises `UsageTypeError` for a setting that the loss lacks."""

    function: Any = None
    defaults: tuple[tuple[str, Any], ...] = ()
    """The settings, in PyTorch's order, with their defaults."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        own = dict(self.defaults)
        given = reduced_as_before(type(self).__name__, dict(zip(own, args, strict=False)) | settings)
        unknown = [name for name in given if name not in own]
        if unknown or len(args) > len(own):
            raise UsageTypeError(
                f"{type(self).__name__} has the settings {', '.join(own)}, saw {', '.join(unknown) or args}"
            )
        for name, default in self.defaults:
            setattr(self, name, given.get(name, default))

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return the loss of tensors, which are the arguments of the function; raises as the function."""
        settings = {name: getattr(self, name) for name, _ in self.defaults}
        found: Tensor = type(self).function(*tensors, **settings)
        return found


def _loss(name: str, function: Callable[..., Tensor], **settings: Any) -> type[_Loss]:
    settings["reduction"] = "mean"
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([Parameter(n, kind, default=d) for n, d in settings.items()])
    text = f"The function `nn.functional.{function.__name__}` as a layer."
    fields = {"function": staticmethod(function), "defaults": tuple(settings.items())}
    return type(
        name, (_Loss,), {**fields, "__signature__": signature, "__doc__": text, "__module__": __name__}
    )


CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", losses.cosine_embedding_loss, margin=0.0)
GaussianNLLLoss = _loss("GaussianNLLLoss", losses.gaussian_nll_loss, full=False, eps=1e-6)
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", losses.hinge_embedding_loss, margin=1.0)
MarginRankingLoss = _loss("MarginRankingLoss", losses.margin_ranking_loss, margin=0.0)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", losses.multilabel_soft_margin_loss, weight=None)
MultiMarginLoss = _loss("MultiMarginLoss", losses.multi_margin_loss, p=1, margin=1.0, weight=None)
PoissonNLLLoss = _loss("PoissonNLLLoss", losses.poisson_nll_loss, log_input=True, full=False, eps=1e-8)
SoftMarginLoss = _loss("SoftMarginLoss", losses.soft_margin_loss)
TripletMarginLoss = _loss(
    "TripletMarginLoss", losses.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False
)
