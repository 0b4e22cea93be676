"""The operators: one row for each, with the opsets that it has and its function.

The meaning of each is that of the specification, https://onnx.ai/onnx/operators/.

Not here: how a row is called (`rows`).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from frontend.onnx import (
    attention,
    control,
    elementwise,
    images,
    layers,
    quantised,
    recurrent,
    reductions,
    shapes,
)
from frontend.onnx.elementwise import binary, method, variadic
from frontend.onnx.reductions import arg_extreme, cumulative, reduction, softmax, softmax_flat
from frontend.onnx.rows import OperatorRow
from frontend.onnx.values import where
from frontend.tensor import Tensor

OPSETS: Final = range(7, 29)
"""Opsets that a model may have."""
_UNARY: Final = {
    "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Cos": "cos", "Cosh": "cosh", "Det": "det", "Erf": "erf", "Exp": "exp",
    "Log": "log", "Mish": "mish", "Reciprocal": "reciprocal", "Relu": "relu", "Sigmoid": "sigmoid",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Tan": "tan",
    "Tanh": "tanh",
}  # fmt: skip
"""Operators that are a method of `Tensor` without arguments."""
_UNARY_BOTH: Final[dict[str, tuple[str, Any]]] = {
    "Abs": ("abs", np.abs), "Ceil": ("ceil", np.ceil), "Floor": ("floor", np.floor),
    "Round": ("round", np.round), "Sign": ("sign", np.sign), "Sqrt": ("sqrt", np.sqrt),
    "Not": ("logical_not", np.logical_not),
}  # fmt: skip
_BINARY_BOTH: Final = {
    "Add": ("add", np.add), "Sub": ("sub", np.subtract), "Mul": ("mul", np.multiply),
    "And": ("logical_and", np.logical_and), "Or": ("logical_or", np.logical_or),
    "Xor": ("logical_xor", np.logical_xor), "Equal": ("eq", np.equal), "Less": ("lt", np.less),
    "LessOrEqual": ("le", np.less_equal), "Greater": ("gt", np.greater),
    "GreaterOrEqual": ("ge", np.greater_equal), "BitwiseAnd": ("bitwise_and", np.bitwise_and),
    "BitwiseOr": ("bitwise_or", np.bitwise_or), "BitwiseXor": ("bitwise_xor", np.bitwise_xor),
}  # fmt: skip
_VARIADIC: Final = {"Max": ("maximum", np.maximum), "Min": ("minimum", np.minimum), "Sum": ("add", np.add)}
_REDUCTIONS: Final = {
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum", "ReduceLogSumExp": "log_sum_exp",
    "ReduceMax": "amax", "ReduceMean": "mean", "ReduceMin": "amin", "ReduceProd": "prod",
    "ReduceSumSquare": "sum_square",
}  # fmt: skip
_SOFTMAXES: Final = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, len(x.shape)))


TABLE: Final[tuple[OperatorRow, ...]] = (
    *[OperatorRow(name, 1, method(m)) for name, m in _UNARY.items()],
    *[OperatorRow(name, 1, method(*m), both=True) for name, m in _UNARY_BOTH.items()],
    *[OperatorRow(name, 7, binary(*m), both=True) for name, m in _BINARY_BOTH.items()],
    *[OperatorRow(name, 6, variadic(*m), both=True) for name, m in _VARIADIC.items()],
    *[
        OperatorRow(name, since, reduction(kind), until=until, host=(1,), both=True, moved=moved)
        for name, kind in {**_REDUCTIONS, "ReduceSum": "sum"}.items()
        for first in (13 if kind == "sum" else 18,)
        for since, until, moved in ((first, 1 << 30, ()), (1, first - 1, ("axes",)))
    ],
    *[OperatorRow(name, 13, softmax(kind)) for name, kind in _SOFTMAXES.items()],
    *[OperatorRow(name, 1, softmax_flat(kind), until=12) for name, kind in _SOFTMAXES.items()],
    OperatorRow("AffineGrid", 20, images.affine_grid, host=(1,)),
    OperatorRow("ArgMax", 1, arg_extreme("argmax")),
    OperatorRow("ArgMin", 1, arg_extreme("argmin")),
    OperatorRow("Attention", 23, attention.attention),
    OperatorRow("AveragePool", 7, layers.average_pool),
    OperatorRow("BatchNormalization", 7, reductions.batch_norm),
    OperatorRow("Bernoulli", 15, images.bernoulli, random=True),
    OperatorRow("BitCast", 26, elementwise.bit_cast),
    OperatorRow("BitShift", 11, elementwise.bit_shift),
    OperatorRow("BlackmanWindow", 17, images.window(0.42, 0.5, 0.08), host=(0,)),
    OperatorRow("Cast", 6, elementwise.cast_to, both=True),
    OperatorRow("CastLike", 15, elementwise.cast_like, both=True),
    OperatorRow("CausalConvWithState", 27, attention.causal_conv),
    OperatorRow("Celu", 12, lambda x, *, alpha=1.0: x.celu(alpha)),
    OperatorRow("CenterCropPad", 18, shapes.center_crop_pad, host=(1,)),
    OperatorRow("Clip", 11, elementwise.clip, both=True),
    OperatorRow("Clip", 6, elementwise.clip_fixed, until=10),
    OperatorRow("Col2Im", 18, images.col2im, host=(1, 2)),
    OperatorRow("Compress", 9, shapes.compress, host=(1,)),
    OperatorRow("Concat", 4, shapes.concat, both=True),
    OperatorRow("Constant", 1, shapes.constant, both=True),
    OperatorRow("ConstantOfShape", 9, shapes.filled, host=(0,)),
    OperatorRow("Conv", 1, layers.conv),
    OperatorRow("ConvInteger", 10, quantised.conv_integer),
    OperatorRow("ConvTranspose", 1, layers.conv_transpose),
    OperatorRow("CumProd", 26, cumulative("cumprod"), host=(1,)),
    OperatorRow("CumSum", 11, cumulative("cumsum"), host=(1,)),
    OperatorRow("DFT", 20, recurrent.dft, host=(1, 2)),
    OperatorRow("DFT", 17, recurrent.dft_fixed, until=19, host=(1,)),
    OperatorRow("DepthToSpace", 1, shapes.depth_to_space),
    OperatorRow("DequantizeLinear", 10, quantised.dequantize),
    OperatorRow("Div", 7, elementwise.divide, both=True),
    OperatorRow("Dropout", 12, layers.dropout, host=(1, 2), random=True),
    OperatorRow("Dropout", 7, layers.dropout, until=11, host=(1,), moved=("ratio",)),
    OperatorRow("DynamicQuantizeLinear", 11, quantised.dynamic_quantize),
    OperatorRow("Einsum", 12, lambda *xs, equation: Tensor.einsum(equation.replace(" ", ""), *xs)),
    OperatorRow("Elu", 6, lambda x, *, alpha=1.0: (x < 0).where((x.exp() - 1) * alpha, x)),
    OperatorRow("Expand", 8, shapes.expand, host=(1,), both=True),
    OperatorRow("EyeLike", 9, shapes.eye_like),
    OperatorRow("Flatten", 1, shapes.flatten, both=True),
    OperatorRow("GRU", 7, recurrent.recurrent("GRU")),
    OperatorRow("Gather", 1, shapes.gather, both=True),
    OperatorRow("GatherElements", 11, shapes.gather_elements),
    OperatorRow("GatherND", 11, shapes.gather_nd),
    OperatorRow(
        "Gelu", 20, lambda x, *, approximate="none": x.gelu("tanh" if approximate == "tanh" else "none")
    ),
    OperatorRow("Gemm", 7, layers.gemm),
    OperatorRow("GlobalAveragePool", 1, lambda x: x.mean(_spatial(x), keepdim=True)),
    OperatorRow(
        "GlobalLpPool", 2, lambda x, *, p=2: x.abs().pow(p).sum(_spatial(x), keepdim=True).pow(1 / p)
    ),
    OperatorRow("GlobalMaxPool", 1, lambda x: x.amax(_spatial(x), keepdim=True)),
    OperatorRow("GridSample", 16, images.grid_sample),
    OperatorRow("GroupNormalization", 18, reductions.group_norm),
    OperatorRow("HammingWindow", 17, images.window(25 / 46, 21 / 46), host=(0,)),
    OperatorRow("HannWindow", 17, images.window(0.5, 0.5), host=(0,)),
    OperatorRow("HardSigmoid", 6, lambda x, *, alpha=0.2, beta=0.5: (x * alpha + beta).clamp(0, 1)),
    OperatorRow("HardSwish", 14, lambda x: x * (x / 6 + 0.5).clamp(0, 1)),
    OperatorRow("Identity", 1, lambda x: x, both=True),
    OperatorRow("If", 1, control.branch, mixed=True),
    OperatorRow("InstanceNormalization", 6, reductions.instance_norm),
    OperatorRow("IsInf", 10, elementwise.is_inf),
    OperatorRow("IsNaN", 9, lambda x: (x if x.dtype.computes else x.cast("float32")).isnan()),
    OperatorRow("LRN", 1, reductions.lrn),
    OperatorRow("LSTM", 7, recurrent.recurrent("LSTM")),
    OperatorRow("LayerNormalization", 17, reductions.layer_norm),
    OperatorRow("LeakyRelu", 6, lambda x, *, alpha=0.01: x.leaky_relu(alpha)),
    OperatorRow("LinearAttention", 27, attention.linear_attention),
    OperatorRow("Loop", 1, control.loop, host=(0, 1), mixed=True),
    OperatorRow("LpNormalization", 1, reductions.lp_norm),
    OperatorRow("LpPool", 2, layers.lp_pool),
    OperatorRow("MatMul", 1, lambda a, b: (a @ b).cast(a.dtype)),
    OperatorRow("MatMulInteger", 10, quantised.matmul_integer),
    OperatorRow("MaxPool", 1, layers.max_pool),
    OperatorRow("MaxUnpool", 9, layers.max_unpool, host=(2,)),
    OperatorRow("Mean", 6, lambda x, *others: variadic("add", np.add)(x, *others) / (1 + len(others))),
    OperatorRow("MeanVarianceNormalization", 9, reductions.mean_variance_norm),
    OperatorRow("MelWeightMatrix", 17, images.mel_weights, host=(0, 1, 2, 3, 4)),
    OperatorRow("Mod", 10, elementwise.modulo, both=True),
    OperatorRow("Neg", 6, lambda x: -x, both=True),
    OperatorRow("NegativeLogLikelihoodLoss", 12, reductions.nll_loss),
    OperatorRow("NonMaxSuppression", 10, images.non_max_suppression, host=(0, 1, 2, 3, 4)),
    OperatorRow("NonZero", 9, shapes.non_zero, both=True),
    OperatorRow("OneHot", 9, shapes.one_hot, host=(1,)),
    OperatorRow("OptionalGetElement", 18, lambda x: x, both=True),
    OperatorRow("OptionalHasElement", 18, lambda x=None: np.array(x is not None), both=True),
    OperatorRow("PRelu", 7, lambda x, slope: (x < 0).where(x * slope, x)),
    OperatorRow("Pad", 11, shapes.pad, host=(1, 2, 3)),
    OperatorRow("Pad", 2, shapes.pad, until=10, host=(1, 2, 3), moved=("pads", "value")),
    OperatorRow("Pow", 7, elementwise.power, both=True),
    OperatorRow("QLinearConv", 10, quantised.qlinear_conv),
    OperatorRow("QLinearMatMul", 10, quantised.qlinear_matmul),
    OperatorRow("QuantizeLinear", 10, quantised.quantize),
    OperatorRow("RNN", 7, recurrent.recurrent("RNN")),
    OperatorRow("RMSNormalization", 23, reductions.rms_norm),
    *[
        OperatorRow(f"Random{kind}{like}", 1, images.random(kind.lower(), like=bool(like)), random=True)
        for kind in ("Normal", "Uniform")
        for like in ("", "Like")
    ],
    OperatorRow("Range", 11, shapes.ranged, host=(0, 1, 2)),
    OperatorRow("Reshape", 5, shapes.reshape, host=(1,), both=True),
    OperatorRow("Resize", 11, images.resize, host=(1, 2, 3)),
    OperatorRow("Resize", 10, images.resize_early, until=10, host=(1,)),
    OperatorRow("ReverseSequence", 10, shapes.reverse_sequence),
    OperatorRow("RoiAlign", 10, images.roi_align, host=(1, 2)),
    OperatorRow("RotaryEmbedding", 23, attention.rotary),
    OperatorRow("STFT", 17, recurrent.stft, host=(1, 3)),
    OperatorRow("Scan", 9, control.scan, mixed=True),
    OperatorRow("Scan", 8, control.scan_batched, until=8),
    OperatorRow("Scatter", 9, shapes.scatter_elements),
    OperatorRow("ScatterElements", 11, shapes.scatter_elements),
    OperatorRow("ScatterND", 11, shapes.scatter_nd),
    OperatorRow(
        "Selu",
        6,
        lambda x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: (
            (x > 0).where(x, (x.exp() - 1) * alpha) * gamma
        ),
    ),
    OperatorRow(
        "Shape", 1, lambda x, *, start=0, end=None: np.array(x.shape[start:end], np.int64), both=True
    ),
    OperatorRow(
        "Shrink",
        9,
        lambda x, *, lambd=0.5, bias=0.0: (
            (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0)).cast(x.dtype)
        ),
    ),
    OperatorRow("Size", 1, lambda x: np.array(math.prod(x.shape), np.int64), both=True),
    OperatorRow("Slice", 10, shapes.slices, host=(1, 2, 3, 4), both=True),
    OperatorRow(
        "Slice", 1, shapes.slices, until=9, host=(1, 2, 3), both=True, moved=("starts", "ends", "axes")
    ),
    OperatorRow("SoftmaxCrossEntropyLoss", 12, reductions.cross_entropy),
    OperatorRow("SpaceToDepth", 1, shapes.space_to_depth),
    OperatorRow("Split", 13, shapes.split, host=(1,), both=True),
    OperatorRow("Split", 2, shapes.split, until=12, host=(1,), both=True, moved=("split",)),
    OperatorRow("Squeeze", 13, shapes.squeeze, host=(1,), both=True),
    OperatorRow("Squeeze", 1, shapes.squeeze, until=12, host=(1,), both=True, moved=("axes",)),
    OperatorRow("SwiGLU", 27, lambda gate, value, *, alpha=1.0: gate * (gate * alpha).sigmoid() * value),
    OperatorRow("Swish", 24, lambda x, *, alpha=1.0: x * (x * alpha).sigmoid()),
    OperatorRow("TensorScatter", 24, attention.tensor_scatter),
    OperatorRow("ThresholdedRelu", 10, lambda x, *, alpha=1.0: (x > alpha).where(x, 0)),
    OperatorRow("Tile", 6, shapes.tile, host=(1,), both=True),
    OperatorRow("TopK", 10, reductions.top_k, host=(1,)),
    OperatorRow("TopK", 1, reductions.top_k, until=9, host=(1,), moved=("k",)),
    OperatorRow("Transpose", 1, shapes.transpose, both=True),
    OperatorRow("Trilu", 14, shapes.trilu, host=(1,)),
    OperatorRow("Unique", 11, shapes.unique, host=(0,)),
    OperatorRow("Unsqueeze", 13, shapes.unsqueeze, host=(1,), both=True),
    OperatorRow("Unsqueeze", 1, shapes.unsqueeze, until=12, host=(1,), both=True, moved=("axes",)),
    OperatorRow("Upsample", 9, images.resize_early, host=(1,)),
    OperatorRow("Upsample", 7, images.resize_early, until=8, host=(1,), moved=("scales",)),
    OperatorRow("Where", 9, where, both=True),
)
DOMAINS: Final = {
    domain: tuple(sorted({row.name for row in TABLE if row.domain == domain}))
    for domain in dict.fromkeys([row.domain for row in TABLE])
}
"""Domain -> the operators that it has."""
MOVES: Final = frozenset((
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
))  # fmt: skip
"""Operators whose result has the element type of the first input."""
_ROWS: Final = {
    (row.domain, row.name): [r for r in TABLE if (r.domain, r.name) == (row.domain, row.name)]
    for row in TABLE
}


def find(domain: str, name: str, version: int) -> OperatorRow | None:
    """Return the row of an operator in an opset, None if there is none."""
    return next((r for r in _ROWS.get((domain, name), ()) if r.since <= version <= r.until), None)
