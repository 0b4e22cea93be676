"""Every pending tensor can be rebuilt: its recipe leads to the tensors that it was computed from.

A result without one would compute all that is behind it again whenever a value is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from frontend.methods import METHODS


def leads_to(t: Any, wanted: Tensor) -> bool:
    stack, seen = [t], set()
    while stack:
        t = stack.pop()
        if t is wanted:
            return True
        if id(t) not in seen and t.recipe.__class__ is tuple:
            stack += [p for p in t.recipe[1:] if isinstance(p, Tensor)]
        seen.add(id(t))
    return False


@pytest.mark.sampled(300)
@pytest.mark.parametrize("name", [row.plain[0] for row in METHODS if row.kind == "method" and row.plain])
def test_what_a_method_computes_leads_to_its_tensor(name: str):
    low, high = next(row.domain for row in METHODS if name in row.plain)
    rng = np.random.default_rng(1)
    for shape in ((3, 3), (5,)):
        a, b = low + (high - low) * rng.random((2, *shape))
        for dtype in ("float32", "int64", "bool"):
            for args in ((), (b,), (0,), (1,), ((0,),), (0, 1), (b, b), (2,)):
                x = Tensor(a).cast(dtype).clone().where(Tensor(b) < high, Tensor(b).cast(dtype))
                try:
                    got = getattr(x, name)(*[Tensor(v).cast(dtype) if v is b else v for v in args])
                except Exception:  # noqa: BLE001 - not a call of this method
                    continue
                for y in got if isinstance(got, (tuple, list)) else [got]:
                    if isinstance(y, Tensor) and set(y.leaves) & set(x.leaves) and y.expr.op != "PARAM":
                        assert leads_to(y, x), (dtype, args)
