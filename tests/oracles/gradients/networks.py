"""Cases of convolutions, pooling, losses and attention.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

# ruff: noqa: ARG005 - PyTorch's side gets its module, whether it needs it or not

from __future__ import annotations

from typing import Any, Final

from tests.oracles.gradients.case import INF, LEAST, NAN, Cases, given, pairs, special

CASES: Final = Cases()
_case = CASES.add


_PICTURE: Final = [
    [[[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 2.0], [0.0, 0.0, -1.0, 2.0], [0.0, 0.0, 2.0, 2.0]]]
]
_ODD: Final = [
    [[[NAN, 1.0, INF, 0.0], [1.0, 0.0, 1.0, INF], [-INF, -INF, -1.0, 2.0], [-INF, -INF, NAN, NAN]]]
]
_KERNEL: Final = [[[[1.0, -2.0], [0.0, 3.0]]]]
for _use, _data in (("ties", _PICTURE), ("special", _ODD)):
    _case(
        "max_pool2d",
        given(_data),
        lambda x: x.max_pool2d(),
        lambda t, x: t.nn.functional.max_pool2d(x, 2),
        _use,
    )
    _case(
        "max_pool2d",
        given(_data),
        lambda x: x.max_pool2d(3, 1, padding=1),
        lambda t, x: t.nn.functional.max_pool2d(x, 3, 1, 1),
        f"{_use} padded",
    )
    _case(
        "max_pool2d",
        given(_data),
        lambda x: x.max_pool2d(2, 1, 0, 2),
        lambda t, x: t.nn.functional.max_pool2d(x, 2, 1, 0, 2),
        f"{_use} dilated",
    )
    _case(
        "avg_pool2d",
        given(_data),
        lambda x: x.avg_pool2d(),
        lambda t, x: t.nn.functional.avg_pool2d(x, 2),
        _use,
    )
_case(
    "avg_pool2d",
    given(_PICTURE),
    lambda x: x.avg_pool2d(3, 1, padding=1, count_include_pad=False),
    lambda t, x: t.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "without padding",
)
_case(
    "conv2d",
    given(_PICTURE, _KERNEL, [0.5]),
    lambda x, w, b: x.conv2d(w, b),
    lambda t, x, w, b: t.nn.functional.conv2d(x, w, b),
)
_case(
    "conv_transpose2d",
    given(_PICTURE, _KERNEL, [0.5]),
    lambda x, w, b: x.conv_transpose2d(w, b, stride=2),
    lambda t, x, w, b: t.nn.functional.conv_transpose2d(x, w, b, stride=2),
)
_case(
    "batchnorm",
    given([[1.0, 2.0], [INF, 0.0]], [1.0, 0.0], [0.0, 1.0], [0.5, 2.0], [1.0, 4.0]),
    lambda x, w, b, m, v: x.batchnorm(w, b, m, v),
    lambda t, x, w, b, m, v: (x - m) * (v * w) + b,
)
_case(
    "sequential",
    given([1.0, 0.0, -1.0]),
    lambda x: x.sequential([lambda y: y.relu(), lambda y: y * 2]),
    lambda t, x: t.relu(x) * 2,
)
_case(
    "dropout",
    given([1.0, 0.0, NAN]),
    lambda x: x.dropout(0.0),
    lambda t, x: t.nn.functional.dropout(x, 0.0),
    "of none",
)


_CLASSES: Final = [0, 2, 1]
_LOGITS: Final[dict[str, Any]] = {
    "distinct": [[0.5, -1.0, 2.0], [3.0, 0.0, -3.0], [0.1, 0.2, 0.3]],
    "large": [[1000.0, -1000.0, 0.0], [0.0, 1e30, 0.0], [-1e30, 1e30, 0.0]],
    "inf": [[-INF, 0.0, 1.0], [0.0, 1.0, -INF], [-INF, 0.0, -INF]],
    "special": [[NAN, 0.0, 1.0], [INF, 0.0, 0.0], [-INF, -INF, -INF]],
}
_PROBABILITIES: Final = [[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
for _use, _data in _LOGITS.items():
    for _r in ("mean", "sum", "none"):
        _case(
            "cross_entropy",
            given(_data, _CLASSES),
            lambda x, y, r=_r: x.cross_entropy(y, r),
            lambda t, x, y, r=_r: t.nn.functional.cross_entropy(x, y, reduction=r),
            f"{_use} {_r}",
        )
    _case(
        "cross_entropy",
        given(_data, [0, -100, 1]),
        lambda x, y: x.cross_entropy(y),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y),
        f"{_use} ignored",
    )
    _case(
        "cross_entropy",
        given(_data, _CLASSES),
        lambda x, y: x.cross_entropy(y, label_smoothing=0.1),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y, label_smoothing=0.1),
        f"{_use} smoothed",
    )
    _case(
        "cross_entropy",
        given(_data, [0, -100, 1]),
        lambda x, y: x.cross_entropy(y, label_smoothing=0.1),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y, label_smoothing=0.1),
        f"{_use} smoothed, ignored",
    )
    _case(
        "cross_entropy",
        given(_data, _PROBABILITIES),
        lambda x, y: x.cross_entropy(y),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y),
        f"{_use} probabilities",
    )
    _case(
        "sparse_categorical_crossentropy",
        given(_data, [0, -1, 1]),
        lambda x, y: x.sparse_categorical_crossentropy(y),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y, ignore_index=-1),
        _use,
    )
    _case(
        "nll_loss",
        given(_data, _CLASSES),
        lambda x, y: x.nll_loss(y),
        lambda t, x, y: t.nn.functional.nll_loss(x, y),
        _use,
    )
_case(
    "cross_entropy",
    given(_LOGITS["distinct"], [-100, -100, -100]),
    lambda x, y: x.cross_entropy(y),
    lambda t, x, y: t.nn.functional.cross_entropy(x, y),
    "all ignored",
)


def _shares(dtype: str) -> list[Any]:
    values, targets = (0.0, 1.0, 0.5, 0.25, 1e-30, 1 - 2**-20, LEAST[dtype], 1e-13), (0.0, 1.0, 0.3)
    return [[v for v in values for _ in targets], [y for _ in values for y in targets]]


def _logits(dtype: str) -> list[Any]:
    values, targets = special(dtype), (0.0, 1.0, 0.3)
    return [[v for v in values for _ in targets], [y for _ in values for y in targets]]


for _r in ("none", "mean", "sum"):
    _case(
        "binary_crossentropy",
        _shares,
        lambda x, y, r=_r: x.binary_crossentropy(y, r),
        lambda t, x, y, r=_r: t.nn.functional.binary_cross_entropy(x, y, reduction=r),
        _r,
        tolerance={"float64": 1e-7},
    )
    _case(
        "binary_crossentropy_logits",
        _logits,
        lambda x, y, r=_r: x.binary_crossentropy_logits(y, r),
        lambda t, x, y, r=_r: t.nn.functional.binary_cross_entropy_with_logits(x, y, reduction=r),
        _r,
    )
    _case(
        "mse_loss",
        pairs,
        lambda x, y, r=_r: x.mse_loss(y, r),
        lambda t, x, y, r=_r: t.nn.functional.mse_loss(x, y, reduction=r),
        _r,
    )
_Q, _K, _V = [[1.0, 0.0], [2.0, -1.0]], [[0.5, 1.0], [-1.0, 2.0]], [[1.0, 2.0], [3.0, 5.0]]
_ATTENTION: Final = "scaled_dot_product_attention"
_case(
    _ATTENTION,
    given(_Q, _K, _V),
    lambda q, k, v: q.scaled_dot_product_attention(k, v),
    lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v),
)
_case(
    _ATTENTION,
    given(_Q, _K, _V),
    lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
    lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    "causal",
)
_case(
    _ATTENTION,
    given(_Q, _K, _V, [[True, False], [False, False]]),
    lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m),
    lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m),
    "nothing seen",
)
_case(
    _ATTENTION,
    given(_Q, _K, _V, [[0.5, -INF], [0.0, 1.0]]),
    lambda q, k, v, m: q.scaled_dot_product_attention(k, v, m),
    lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m),
    "added mask",
)
