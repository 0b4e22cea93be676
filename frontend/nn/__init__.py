"""Networks: layers as plain classes whose parameters are attributes.

`nn.optim` and `nn.state` work on any object.

Not here: the operations (`frontend.ops.nnops`). Next: `layers`, `normalisation`, `optim`, `state`;
docs/nn-and-tinyjit.md.
"""

from frontend.nn import optim, state
from frontend.nn.layers import Conv2d, ConvTranspose2d, Dropout, Embedding, Linear
from frontend.nn.normalisation import BatchNorm, GroupNorm, LayerNorm, RMSNorm

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
