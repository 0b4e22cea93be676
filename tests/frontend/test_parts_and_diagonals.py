"""Parts of axes, grids and diagonals: what is refused. Values and gradients: `test_answers_of_pytorch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Tensor(1.0).unbind(), "unbind: there is no axis 0"),
        (lambda: Tensor(X).repeat_interleave(-1), "not negative, saw -1"),
        (lambda: Tensor.meshgrid(Tensor([1.0]), indexing="yx"), r"indexing .* saw 'yx'"),  # type: ignore[arg-type]
        (lambda: Tensor([1.0]).diagonal(), "at least two axes"),
        (lambda: Tensor([[1.0]]).diagonal(axis1=1, axis2=-1), "two different axes, saw 1 and -1"),
        (lambda: Tensor(X).diag(), "a vector or a matrix"),
    ],
)
def test_axes_that_are_not_there_are_named(call: Callable[[], object], text: str):
    with pytest.raises(UsageError, match=text):
        call()
