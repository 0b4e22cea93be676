"""Structures of deleted tensors are kept up to the table's limit, and keep no leaf alive."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from frontend import Tensor
from frontend.evaluation import expr


def alive() -> int:
    gc.collect()
    return sum(isinstance(one, expr.TensorExpr) for one in gc.get_objects())


@pytest.mark.slow
def test_scalar_operands_keep_no_evicted_structure_alive(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(expr, "TABLE_LIMIT", 50)
    counts = []
    for batch in range(3):
        for size in range(3 + 30 * batch, 33 + 30 * batch):
            (Tensor(np.ones(size, "f")) * 3.25 + 7.5).sqrt()
        counts.append(alive())
    assert max(counts) < counts[0] + 100


@pytest.mark.slow
def test_leaves_of_unused_shapes_are_collected():
    gc.collect()
    before = len(expr.LEAVES)
    for size in range(20_001, 20_021):
        Tensor(np.ones(size, "b"))
    gc.collect()
    assert len(expr.LEAVES) <= before
    kept = Tensor(np.ones(20_001, "b"))
    gc.collect()
    assert Tensor(np.zeros(20_001, "b")).expr is kept.expr
