"""Regression tests of defects that random programs found."""

from __future__ import annotations

import numpy as np

from compiler.dtype import dtypes
from frontend import Tensor


def test_broadcast_float16_under_a_lane_mask_is_padded():
    """One float16 element read under a mask that varies along the lanes."""
    x = Tensor([[1.5]], dtype=dtypes.float16)
    found = (x.pad(((0, 0), (0, 3))).expand(2, 4) + 0.0).numpy()
    assert found.tolist() == [[1.5, 0, 0, 0]] * 2
    column = Tensor(np.arange(3, dtype=np.float16).reshape(3, 1))
    assert column.pad(((1, 1), (0, 0))).expand(5, 3).sum(1).tolist() == [0, 0, 3, 6, 0]
