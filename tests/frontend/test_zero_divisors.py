"""An integer divisor of 0 raises: immediately if it is a constant, else under validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor, tensor
from hcq.config import override
from hcq.errors import UsageZeroDivisionError

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: x.div(y, rounding_mode="trunc"),
    lambda x, y: x.div(y, rounding_mode="floor"),
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "zero",
    [int, bool, lambda: tensor(0), lambda: Tensor.zeros(3, dtype="int32")],
    ids=["int", "bool", "scalar", "tensor"],
)
def test_a_constant_divisor_raises_at_once(call: Callable[[Any, Any], Any], zero: Callable[[], Any]):
    with pytest.raises(ZeroDivisionError) as caught:
        call(Tensor([1, 2, 3]), zero())
    assert isinstance(caught.value, UsageZeroDivisionError)


@pytest.mark.parametrize("call", CALLS)
def test_a_divisor_of_the_device_raises_under_validation(call: Callable[[Any, Any], Any]):
    x, y = Tensor([7, -7, 7]), Tensor([1, 0, 2])
    with override(validate=True), pytest.raises(UsageZeroDivisionError, match="an integer divisor is 0"):
        call(x, y).realize()
    with override(validate=True), pytest.raises(UsageZeroDivisionError):
        call(5, y).realize() if call is CALLS[0] else call(x, y).realize()
    with override(validate=False):
        assert call(x, y).tolist()[1] == 0
