"""Networks: layers whose parameters are attributes, models of layers, losses, initial values, data and files.

`nn.optim` is `frontend.optim`, and `nn.schedules` its module of schedules. `nn.state` works on any object
with tensors, not only on modules.

Not here: the operations (`frontend.ops`), optimisers (`frontend.optim`).
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.nn import amp, state
from frontend import optim
from frontend.optim import schedules
from frontend.nn.attention import (
    MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer,
)  # fmt: skip
from frontend.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from frontend.nn.convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from frontend.nn.functions import (
    CELU, ELU, GELU, GLU, SELU, BCELoss, BCEWithLogitsLoss, CosineSimilarity, Flatten, Hardshrink,
    Hardsigmoid, Hardswish, Hardtanh, HuberLoss, Identity, KLDivLoss, L1Loss, LeakyReLU, LogSigmoid,
    LogSoftmax, Mish, MSELoss, NLLLoss, PairwiseDistance, ReLU, ReLU6, Sigmoid, SiLU, SmoothL1Loss, Softmax,
    Softmax2d, Softmin, Softplus, Softshrink, Softsign, Tanh, Tanhshrink, Threshold, Unflatten,
)  # fmt: skip
from frontend.nn.layers import (
    Bilinear, Dropout, Dropout1d, Dropout2d, Dropout3d, Embedding, EmbeddingBag, Linear, PReLU,
)  # fmt: skip
from frontend.nn.loss_layers import (
    CosineEmbeddingLoss, CrossEntropyLoss, GaussianNLLLoss, HingeEmbeddingLoss, MarginRankingLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, PoissonNLLLoss, SoftMarginLoss, TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)  # fmt: skip
from frontend.nn.module import Module
from frontend.nn.parameter import Parameter
from frontend.nn.parameter import ModuleBuffer as Buffer
from frontend.nn.normalisation import (
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm, InstanceNorm1d, InstanceNorm2d,
    InstanceNorm3d, LayerNorm, LayerNorm2d, LocalResponseNorm, RMSNorm,
)  # fmt: skip
from frontend.nn.pools import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, ChannelShuffle, CircularPad1d, CircularPad2d,
    CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d, Fold, MaxPool1d, MaxPool2d, MaxPool3d,
    PixelShuffle, PixelUnshuffle, ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d,
    ReplicationPad2d, ReplicationPad3d, Unfold, Upsample, UpsamplingBilinear2d, UpsamplingNearest2d,
    ZeroPad1d, ZeroPad2d, ZeroPad3d,
)  # fmt: skip
from frontend.nn.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from frontend.optim.clipping import clip_grad_norm_, clip_grad_value_
from hcq.names import lazy

if TYPE_CHECKING:
    from frontend.nn import data, functional, init, microscaling, utils

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GRU", "LSTM", "RNN", "SELU", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d",
    "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "Bilinear", "Buffer", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "ConvTranspose3d", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss",
    "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding", "EmbeddingBag", "Flatten", "Fold",
    "GRUCell", "GaussianNLLLoss", "GroupNorm", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "HingeEmbeddingLoss", "HuberLoss", "Identity", "InstanceNorm", "InstanceNorm1d", "InstanceNorm2d",
    "InstanceNorm3d", "KLDivLoss", "L1Loss", "LSTMCell", "LayerNorm", "LayerNorm2d", "LeakyReLU", "Linear",
    "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "Mish", "Module", "ModuleDict", "ModuleList", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "MultiheadAttention", "NLLLoss", "PReLU", "PairwiseDistance", "Parameter", "ParameterDict",
    "ParameterList", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RMSNorm", "RNNCell", "ReLU",
    "ReLU6", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "Sequential", "SiLU", "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax",
    "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unflatten", "Unfold",
    "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "amp",
    "clip_grad_norm_", "clip_grad_value_", "data", "functional", "init", "microscaling", "optim", "schedules",
    "state", "utils",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names
    _LATER = ("data", "functional", "init", "microscaling", "modules", "parallel", "utils")
    _ROWS = "AlphaDropout LPPool1d LPPool2d LPPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d RReLU"
    _ROWS += " FeatureAlphaDropout CTCLoss MultiLabelMarginLoss"
    _LAZY = ["LazyLinear", "UninitializedBuffer", "UninitializedParameter", "parameter"]
    _SIZED = ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
    _LAZY += [f"Lazy{kind}{n}d" for kind in _SIZED for n in (1, 2, 3)]
    _HOMES = {n: f"{__name__}.{n}" for n in _LATER} | dict.fromkeys(_ROWS.split(), "frontend.torch.layers")
    _HOMES |= dict.fromkeys(_LAZY, f"{__name__}.lazy") | {"parameter": f"{__name__}.parameter"}
    _HOMES["DataParallel"] = f"{__name__}.parallel"
    __getattr__, __dir__ = lazy(__name__, [*__all__, *_ROWS.split(), *_LAZY, "DataParallel"], _HOMES)
