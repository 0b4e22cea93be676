"""Several sums in one kernel, some over values that depend on a part of the axes alone, as expanded tensors.

A sum over an axis on which the value does not depend is a product, and needs no loop over it; what is left
must have loops of its own beside a sum that needs both.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from frontend import Tensor
from frontend.nn import functional


@pytest.mark.sampled(9)
@pytest.mark.parametrize("device", ["cpu", "amd-emu", "amd-emu:gfx942", "nv-emu"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (5, 7), (2, 2)])
def test_each_sum_has_its_own_loops(shape: tuple[int, int], device: str):
    rng, (n, m) = np.random.default_rng(0), shape
    a, x = rng.random((2, n, m))
    row, column, number = rng.random((1, m)), rng.random((n, 1)), rng.random((1, 1))
    whole, start, rows, columns = (Tensor(v, device=device) for v in (a, x, row, column))
    corner = functional.pad(Tensor(number, device=device).expand(1, m), (0, 0, 0, n - 1))
    padded = np.pad(np.full((1, m), number.item()), ((0, n - 1), (0, 0)))
    ours = [whole * 0.5 + corner, corner * 1.0, columns.expand(n, m), whole + columns, rows.expand(n, m)]
    theirs = [a * 0.5 + padded, padded, column + 0 * a, a + column, row + 0 * a]
    for count in (2, 3) if device == "cpu" else (2,):
        for order in permutations(range(5), count):
            got, want = start, x
            for k in order:
                got, want = got + ours[k].sum() * (k + 1), want + theirs[k].sum() * (k + 1)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, err_msg=str(order))
            got, want = start, x
            for k in order:
                got, want = got * ours[k].amax(), want * theirs[k].max()
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, err_msg=f"maxima {order}")
