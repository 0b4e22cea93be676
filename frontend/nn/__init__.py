"""Networks: layers whose parameters are attributes, models of layers, optimisers and schedules.

`nn.optim` and `nn.state` work on any object.

Not here: the operations (`frontend.ops.nnops`). Next: `module`, `layers`, `normalisation`, `optim`, `state`;
docs/nn-and-tinyjit.md.
"""

from frontend.nn import optim, schedules, state
from frontend.nn.functions import (
    CELU,
    ELU,
    GELU,
    SELU,
    AvgPool2d,
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Flatten,
    Hardsigmoid,
    Hardswish,
    Identity,
    L1Loss,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    MaxPool2d,
    Mish,
    MSELoss,
    NLLLoss,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softsign,
    Tanh,
)
from frontend.nn.layers import Conv2d, ConvTranspose2d, Dropout, Embedding, Linear
from frontend.nn.module import Module, ModuleDict, ModuleList, Sequential
from frontend.nn.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, RMSNorm
from frontend.nn.recurrent import GRU, LSTM, LSTMCell
from frontend.nn.schedules import clip_grad_norm_, clip_grad_value_

BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm
InstanceNorm1d = InstanceNorm2d = InstanceNorm3d = InstanceNorm

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GRU",
    "LSTM",
    "SELU",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv2d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardsigmoid",
    "Hardswish",
    "Identity",
    "InstanceNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "L1Loss",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softsign",
    "Tanh",
    "clip_grad_norm_",
    "clip_grad_value_",
    "optim",
    "schedules",
    "state",
]
