"""Record what PyTorch prints and computes for layers.

    python -m tests.oracles.layers      # in an environment with PyTorch

Writes `tests/frontend/data/layers.json`: for each layer of `LAYERS` its text, the names and shapes of its
state, and its results in evaluation mode for parameters and inputs that `filled` and `given` make.

Not here: the comparison (`tests/frontend/test_layers_of_pytorch.py`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "layers.json"

LAYERS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "Conv1d(2, 4, 3, padding=1, groups=2)": ((2, 2, 5),),
    "Conv1d(2, 4, 2, stride=2, bias=False)": ((2, 5),),
    "Conv2d(2, 3, 3, padding='same', padding_mode='reflect')": ((1, 2, 4, 5),),
    "Conv2d(2, 3, (2, 3), dilation=(1, 2), padding='valid')": ((1, 2, 4, 6),),
    "Conv1d(2, 3, 3, padding=2, padding_mode='circular')": ((1, 2, 5),),
    "Conv3d(1, 2, 2)": ((1, 1, 3, 3, 3),),
    "ConvTranspose1d(2, 4, 3, stride=2, padding=1, output_padding=1)": ((2, 2, 4),),
    "ConvTranspose2d(2, 2, 3, 1, (1, 2), 0, 2, False, 2)": ((2, 4, 4),),
    "ConvTranspose3d(1, 2, 2, stride=2)": ((1, 1, 2, 2, 2),),
    "GRUCell(2, 3)": ((2, 2), (2, 3)),
    "GRUCell(2, 3, bias=False)": ((2,),),
    "LSTMCell(2, 3, False)": ((2, 2),),
    "RNNCell(2, 3, nonlinearity='relu')": ((2, 2),),
    "RNN(2, 3, 2, dropout=0.1)": ((4, 2, 2),),
    "RNN(2, 3, nonlinearity='relu', batch_first=True)": ((2, 4, 2),),
    "LSTM(2, 3, 2, batch_first=True, bidirectional=True)": ((2, 3, 2),),
    "GRU(2, 3, 1, False, bidirectional=True)": ((3, 2),),
    "MaxPool1d(2)": ((2, 5),),
    "MaxPool2d(3, 2, 1, ceil_mode=True)": ((1, 6, 6),),
    "MaxPool3d(2)": (),
    "AvgPool1d(2)": ((1, 2, 5),),
    "AvgPool2d((2, 3), 2, count_include_pad=False)": ((1, 1, 5, 6),),
    "AvgPool3d(2)": (),
    "AdaptiveAvgPool1d(3)": ((1, 7),),
    "AdaptiveAvgPool2d(1)": ((1, 2, 3, 4),),
    "AdaptiveMaxPool2d((2, None))": ((1, 5, 3),),
    "ZeroPad2d((1, 2, 0, 1))": (),
    "ReflectionPad1d((1, 2))": ((1, 4),),
    "ReplicationPad2d(1)": ((1, 2, 2),),
    "CircularPad1d(1)": ((1, 3),),
    "ConstantPad2d(1, 2.5)": ((1, 1, 2),),
    "Upsample(scale_factor=2, mode='nearest')": ((1, 1, 2, 3),),
    "Upsample(size=(3, 5), mode='bilinear', align_corners=True)": ((1, 1, 2, 3),),
    "PixelShuffle(2)": ((1, 4, 2, 3),),
    "PixelUnshuffle(2)": ((1, 2, 4),),
    "ReLU(inplace=True)": (),
    "LeakyReLU(0.2)": ((5,),),
    "ELU(0.5)": (),
    "GELU('tanh')": ((5,),),
    "Softplus(2.0, 1.0)": ((9,),),
    "Hardtanh(-0.5, 0.25)": ((9,),),
    "Hardshrink()": ((9,),),
    "Softshrink(0.25)": ((9,),),
    "Tanhshrink()": (),
    "Threshold(0.1, 20)": ((9,),),
    "GLU()": ((2, 4),),
    "PReLU()": ((2, 3),),
    "PReLU(3)": ((2, 3),),
    "Softmax(1)": (),
    "Softmax2d()": ((1, 3, 2, 2),),
    "Flatten()": (),
    "Unflatten(1, (2, -1))": ((2, 6),),
    "Dropout(0.3)": (),
    "Dropout2d(0.3)": ((1, 2, 2, 2),),
    "Embedding(3, 4, padding_idx=0)": (),
    "BatchNorm1d(3)": ((2, 3, 2),),
    "BatchNorm2d(3, 1e-3, 0.2, False)": ((2, 3, 2, 2),),
    "LayerNorm(3)": (),
    "LayerNorm((2, 3), bias=False)": ((2, 2, 3),),
    "GroupNorm(2, 4)": (),
    "InstanceNorm2d(3)": ((2, 3, 2, 2),),
    "RMSNorm(3)": (),
    "RMSNorm((2, 3), 1e-3)": ((2, 2, 3),),
    "LocalResponseNorm(2, alpha=0.5)": ((1, 5, 3),),
    "Bilinear(2, 3, 4)": ((5, 2), (5, 3)),
    "MultiheadAttention(4, 2)": ((3, 2, 4), (3, 2, 4), (3, 2, 4)),
    "MultiheadAttention(4, 2, batch_first=True, bias=False)": ((2, 3, 4), (2, 5, 4), (2, 5, 4)),
    "TransformerEncoderLayer(4, 2, 8)": ((3, 2, 4),),
    "TransformerEncoderLayer(4, 2, 8, activation='gelu', batch_first=True, norm_first=True)": ((2, 3, 4),),
    "TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2)": ((3, 2, 4),),
    "TransformerDecoderLayer(4, 2, 8)": ((3, 2, 4), (5, 2, 4)),
    "TransformerDecoderLayer(4, 2, 8, activation='gelu', norm_first=True)": ((3, 2, 4), (5, 2, 4)),
    "TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 2, nn.LayerNorm(4))": (
        (2, 3, 4),
        (2, 5, 4),
    ),
    "CosineSimilarity(0)": ((4, 2), (4, 2)),
    "Transformer(4, 2, 1, 2, 8)": ((3, 2, 4), (5, 2, 4)),
    "ChannelShuffle(2)": ((1, 4, 2, 2),),
    "UpsamplingBilinear2d(scale_factor=2)": ((1, 1, 2, 3),),
    "UpsamplingNearest2d((3, 5))": ((1, 1, 2, 3),),
    "TripletMarginLoss(0.5, 1, reduction='sum')": ((2, 4), (2, 4), (2, 4)),
    "GaussianNLLLoss(full=True)": (),
    "PoissonNLLLoss()": ((2, 4), (2, 4)),
    "MarginRankingLoss(0.1)": ((4,), (4,), (4,)),
    "SoftMarginLoss()": ((4,), (4,)),
    "MultiLabelSoftMarginLoss()": ((2, 4), (2, 4)),
    "PairwiseDistance(1)": ((2, 4), (2, 4)),
    "Unfold(2)": ((1, 2, 3, 4),),
    "Unfold((2, 3), (2, 1), 1, (1, 2))": ((2, 1, 4, 5),),
    "Fold((3, 4), 2)": ((1, 8, 6),),
    "Fold((4, 5), (2, 3), (2, 1), 1, (1, 2))": ((2, 6, 12),),
    "MaxPool2d(2, return_indices=True)": ((1, 1, 4, 4),),
    "MSELoss()": (),
    "SmoothL1Loss(beta=0.5)": ((7,), (7,)),
    "HuberLoss('sum')": ((7,), (7,)),
    "KLDivLoss(log_target=True)": ((2, 3), (2, 3)),
    "ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])": (),
    "Sequential(nn.Linear(2, 3), nn.ModuleDict({'a': nn.Sigmoid()}))": (),
}
"""Layer -> shapes of its inputs; none: it is only printed."""


def given(shape: tuple[int, ...], n: int) -> np.ndarray[Any, Any]:
    """Return input n of a shape."""
    found: np.ndarray[Any, Any] = np.cos(np.arange(np.prod(shape)) * 0.9 + n).astype(np.float32)
    return found.reshape(shape)


def filled(shape: tuple[int, ...], n: int) -> np.ndarray[Any, Any]:
    """Return parameter n, in the order of names, of a shape."""
    found: np.ndarray[Any, Any] = np.sin(np.arange(np.prod(shape)) * 0.7 + n) * 0.6 + 0.1
    return found.reshape(shape).astype(np.float32)


def flat(value: Any) -> list[Any]:
    """Return the tensors of nested tuples, without None."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    return [] if value is None else [value]


def record(torch: Any, text: str, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """Return the text, state and results of a layer."""
    layer = eval(f"nn.{text}", {"nn": torch.nn}).eval()  # noqa: S307 - this tool's own text
    with torch.no_grad():
        for n, (_, p) in enumerate(sorted(layer.named_parameters())):
            p.copy_(torch.tensor(filled(tuple(p.shape), n)))
        outs = flat(layer(*[torch.tensor(given(s, n)) for n, s in enumerate(shapes)])) if shapes else []
    return {
        "text": repr(layer),
        "state": {name: list(t.shape) for name, t in layer.state_dict().items()},
        "shapes": [list(t.shape) for t in outs],
        "values": [[float(f"{v:.6g}") for v in t.reshape(-1).tolist()] for t in outs],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the records; return 0."""
    command("tests.oracles.layers", __doc__).parse_args(argv)
    torch = pytorch()
    lines = [f"{json.dumps(k)}: {json.dumps(record(torch, k, v))}" for k, v in LAYERS.items()]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(lines)} layers of PyTorch {torch.__version__} in {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
