"""An infinite or NaN tap of a padded convolution, in plans that compute products with the border or not.

At each place the result is one of two: the sum of all products, also those with the padding, or the sum of
those inside the picture. Winograd's algorithm, which spreads a NaN over its tile, is off.
"""

from __future__ import annotations

import numpy as np
import pytest

from frontend import Tensor
from hcq.config import override

SIZES = [(1, 3, 7, 9), (8, 8, 16, 16), (16, 8, 7, 9), (3, 4, 5, 8), (1, 1, 1, 1), (2, 1, 2, 3)]
"""Channels, outputs, height and width."""


def windows(x: np.ndarray, taps: int, stride: int) -> np.ndarray:
    pad = taps // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (2, 3))
    return view[:, :, ::stride, ::stride]


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (3, 2), (5, 1)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_with_the_padding_are_all_computed_or_left_out(
    size: tuple[int, ...], taps: int, stride: int, value: float
) -> None:
    channels, outputs, height, width = size
    rng = np.random.default_rng(0)
    x = rng.integers(1, 4, (1, channels, height, width)).astype("f")
    w = rng.integers(-2, 3, (outputs, channels, taps, taps)).astype("f")
    w[outputs - 1, 0, 0, 0] = value
    with override(winograd=False):
        found = Tensor(x).conv2d(Tensor(w), padding=taps // 2, stride=stride).numpy()
    inside = windows(np.ones_like(x), taps, stride)[:, None]
    with np.errstate(invalid="ignore"):
        products = windows(x, taps, stride)[:, None] * w[None, :, :, None, None]
    axes = (2, 5, 6)
    whole, within = products.sum(axes), np.where(inside > 0, products, 0).sum(axes)
    same = [(found == one) | (np.isnan(found) & np.isnan(one)) for one in (whole, within)]
    assert (same[0] | same[1]).all()
    assert np.isfinite(found[:, : outputs - 1]).all()
