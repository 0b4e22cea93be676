"""Sums of products of bytes with something else done to one product: LLVM for AMD GPUs forgets what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FORMS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "difference": lambda x, y, z, w, t: x * y + (z * w - t),
    "from a number": lambda x, y, z, w, t: x * y + (t - z * w),
    "bits": lambda x, y, z, w, t: x * y + ((z * w) ^ t),
    "shift": lambda x, y, z, w, _: x * y + ((z * w) >> 4),
    "three factors": lambda x, y, z, w, t: x * y + (z * w) * t,
}


@pytest.mark.parametrize("device", ["cpu", "nv-emu", "amd-emu:gfx1100", "amd-emu:gfx942"])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_what_is_done_to_a_product_of_bytes_is_kept(device: str, kind: str):
    rng = np.random.default_rng(1)
    low = 0 if kind == "uint8" else -100
    data = [rng.integers(low, 100, 40).astype(kind) for _ in range(4)]
    t = rng.integers(-50, 50, 40).astype(np.int32)
    given = [Tensor(a, device=device).cast("int32") for a in data]
    for name, form in FORMS.items():
        got = form(*given, Tensor(t, device=device)).numpy()
        want = form(*[a.astype(np.int32) for a in data], t)
        np.testing.assert_array_equal(got, want, name)


@pytest.mark.parametrize("device", ["cpu", "nv-emu", "amd-emu:gfx1100", "amd-emu:gfx942"])
def test_a_product_of_bytes_may_be_masked(device: str):
    rng = np.random.default_rng(2)
    data = [rng.integers(0, 100, 40).astype(np.uint8) for _ in range(4)]
    x, y, z, w = [Tensor(a, device=device).cast("int32") for a in data]
    a, b, c, d = [v.astype(np.int32) for v in data]
    got = (x * y + (x > 50).where(z * w, 0)).numpy()
    np.testing.assert_array_equal(got, a * b + np.where(a > 50, c * d, 0))
