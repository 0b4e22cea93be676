"""Temporary buffers of rounded values on GPUs: they hold 16 bits, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.schedule.item import TempRef
from frontend import Tensor
from tests.compiler.test_online_product import leaf, scheduled


def used_twice(x: Tensor, y: Tensor) -> Tensor:
    z = (x @ y).clone().cast("float32").clone()
    return (z @ z.transpose()).sum(1) + z.sum(1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounded_values_are_stored_in_16_bits(dtype: str) -> None:
    items = scheduled(used_twice(leaf(48, 40, dtype=dtype), leaf(40, 64, dtype=dtype)))
    stores = [store for item in items for store in item.ast.src]
    assert not any(s.src[2].op is Ops.CAST and s.src[2].src[0].dtype.name == dtype for s in stores)
    kinds = [ref.dtype.name for item in items for ref in item.writes if isinstance(ref, TempRef)]
    assert set(kinds) == {dtype, "float32"}


@pytest.mark.landing
def test_narrow_buffers_change_no_value() -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s, dtype=np.float32) / 8 for s in ((37, 40), (40, 33))]
    found = [
        used_twice(*(Tensor(x, device=device).cast("float16").realize() for x in values)).numpy()
        for device in ("cpu", "nv-emu:sm_80")
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=2e-5, atol=1e-6)
