"""Settings that PyTorch refuses are refused, not computed with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frontend import Tensor
from frontend import array_api as xp
from frontend.nn import functional as F  # noqa: N812 - the field's name
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

X = [[1.0, -2.0, 0.5, 3.0]]
WRONG: dict[str, Callable[[Tensor], object]] = {
    "huber_loss, delta 0": lambda x: F.huber_loss(x, x, delta=0),
    "huber_loss, delta below 0": lambda x: F.huber_loss(x, x, delta=-1),
    "hardtanh, low above high": lambda x: F.hardtanh(x, 0.5, -0.5),
    "softshrink, lambd below 0": lambda x: F.softshrink(x, -0.5),
    "triplet_margin_loss, margin 0": lambda x: F.triplet_margin_loss(x, x, x, 0),
    "triplet_margin_loss, margin below 0": lambda x: F.triplet_margin_loss(x, x, x, -1.0),
    "isclose, rtol below 0": lambda x: x.isclose(x, rtol=-0.4),
    "allclose, atol below 0": lambda x: x.allclose(x, atol=-0.4),
    "max_pool1d, padding below 0": lambda x: F.max_pool1d(x, 2, padding=-1),
    "max_pool1d, padding above half the window": lambda x: F.max_pool1d(x, 2, padding=2),
    "max_pool1d, padding above half the dilated window": lambda x: F.max_pool1d(x, 3, 1, 3, 2),
    "avg_pool1d, padding below 0": lambda x: F.avg_pool1d(x, 2, padding=-1),
    "avg_pool2d, padding above half of one axis": lambda x: F.avg_pool2d(
        x.reshape(2, 2), (3, 2), padding=(1, 2)
    ),
    "conv1d, padding below 0": lambda x: F.conv1d(x.reshape(1, 1, 4), x.reshape(1, 1, 4), padding=-1),
    "cross along an axis that is not there": lambda x: xp.linalg.cross(x, x, axis=2),
    "cross of an axis of 1": lambda _: xp.linalg.cross(Tensor.ones(5, 3), Tensor.ones(5, 1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_refused(name: str):
    with pytest.raises(UsageError, match=r"wanted|there is no axis"):
        WRONG[name](Tensor(X))


def test_the_greatest_padding_is_half_of_the_window():
    x = Tensor(X)
    assert F.max_pool1d(x, 3, 1, 2, 2).tolist() == [[1.0, 3.0, 1.0, 3.0]]
    assert F.avg_pool1d(x, 2, padding=1).tolist() == [[0.5, -0.75, 1.5]]


def test_means_of_integers_in_windows_are_cut_off():
    x = Tensor([[-1, -2, -4, 5, 7]])
    assert F.avg_pool1d(x, 3, 1).tolist() == [[-2, 0, 2]]
    assert F.avg_pool1d(x, 2, padding=1).tolist() == [[0, -3, 6]]
    assert F.avg_pool1d(x, 2, padding=1, ceil_mode=True, count_include_pad=False).tolist() == [[-1, -3, 6]]
    assert F.avg_pool2d(x.reshape(1, 1, 5), (1, 2), divisor_override=3).tolist() == [[[-1, 0]]]
    assert F.avg_pool1d(x, 3, 1).dtype.name == "int64"
