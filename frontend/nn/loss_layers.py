"""Losses of several tensors as layers; each calls the function of `nn.functional` that its docstring names.

Not here: losses that are methods of `Tensor` (`functions`). Next: `losses`, the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend.nn import losses
from frontend.nn.functions import OLD, layer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.nn.module import Module
    from frontend.tensor import Tensor


def _loss(name: str, function: Callable[..., Tensor], **settings: Any) -> type[Module]:
    return layer_of(name, function, shown_as="", **(settings if "reduction" in settings else settings | OLD))


CrossEntropyLoss = _loss(
    "CrossEntropyLoss", losses.cross_entropy, weight=None, size_average=None, ignore_index=-100, reduce=None,
    reduction="mean", label_smoothing=0.0,
)  # fmt: skip
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", losses.cosine_embedding_loss, margin=0.0)
GaussianNLLLoss = _loss("GaussianNLLLoss", losses.gaussian_nll_loss, full=False, eps=1e-6, reduction="mean")
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", losses.hinge_embedding_loss, margin=1.0)
MarginRankingLoss = _loss("MarginRankingLoss", losses.margin_ranking_loss, margin=0.0)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", losses.multilabel_soft_margin_loss, weight=None)
MultiMarginLoss = _loss("MultiMarginLoss", losses.multi_margin_loss, p=1, margin=1.0, weight=None)
PoissonNLLLoss = _loss(
    "PoissonNLLLoss", losses.poisson_nll_loss, log_input=True, full=False, size_average=None, eps=1e-8,
    reduce=None, reduction="mean",
)  # fmt: skip
SoftMarginLoss = _loss("SoftMarginLoss", losses.soft_margin_loss)
TripletMarginWithDistanceLoss = _loss(
    "TripletMarginWithDistanceLoss", losses.triplet_margin_with_distance_loss, distance_function=None,
    margin=1.0, swap=False, reduction="mean",
)  # fmt: skip
TripletMarginLoss = _loss(
    "TripletMarginLoss", losses.triplet_margin_loss, margin=1.0, p=2.0, eps=1e-6, swap=False
)
