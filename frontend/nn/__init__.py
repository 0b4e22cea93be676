"""Layers as plain classes: parameters are attributes, calling a layer applies it.

`nn.optim` and `nn.state` work on any object.
"""

from frontend.nn import optim, state
from frontend.nn.layers import (
    BatchNorm,
    Conv2d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    RMSNorm,
)

BatchNorm2d = BatchNorm

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "optim",
    "state",
]
