"""Second derivatives of samples of PyTorch's operator database, in float64, here and in PyTorch.

The gradient of the weighted results is weighted and differentiated again.

Not here: results and first derivatives (`judge`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import frontend
from compiler.dtype import dtypes
from hcq.errors import HcqError
from tests.oracles.opdb.call import Dtype, Given, mapped
from tests.oracles.opdb.decisions import INVARIANT, is_random
from tests.oracles.opdb.forms import flat, weights_of
from tests.oracles.opdb.ours import function

if TYPE_CHECKING:
    from tests.oracles.opdb.call import Call

TOLERANCE: Final = 1e-6


def compared(torch: Any, op: Any, call: Call) -> tuple[str, str]:
    """Return "same", "second" or "refused" for a call, "left out" without second derivatives, and a text."""
    if is_random(call) or call.name in INVARIANT:
        return "left out", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = _slopes(torch, torch.Tensor, op.op, call)
        except Exception:  # noqa: BLE001 - PyTorch has no second derivative
            return "left out", ""
    if want is None:
        return "left out", ""
    try:
        found = _slopes(frontend, frontend.Tensor, function(call.entry), call)
    except HcqError as error:
        return "refused", str(error)
    for n, pair in enumerate(zip(want, found or [None] * len(want), strict=True)):
        a, b = (np.zeros(()) if v is None else v for v in pair)
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= TOLERANCE * (1 + np.nanmax(np.abs(a), initial=0))
            same = near | (a == b) | (np.isnan(a) & np.isnan(b))
        if not same.all():
            return "second", f"of input {n}: {np.where(same, 0, b).ravel()[:5]}, PyTorch {a.ravel()[:5]}"
    return "same", ""


def _slopes(library: Any, kind: type[Any], fn: Any, call: Call) -> list[Any] | None:
    made: list[Any] = []

    def change(v: Any) -> Any:
        if isinstance(v, Dtype):
            name = "float64" if v.name == "float32" else v.name
            return getattr(dtypes if library is frontend else library, name)
        if isinstance(v, Given):
            t = library.tensor(v.array.astype("float64") if v.dtype == "float32" else v.array)
            made.append(t.requires_grad_(v.grad))
            return made[-1]
        return v

    result = fn(*mapped(call.args, change), **{k: mapped(v, change) for k, v in call.names.items()})
    at = [t for t in made if t.requires_grad]
    weigh = lambda t: (t * library.tensor(weights_of(tuple(t.shape)))).sum()  # noqa: E731 - of one line
    values = [t for t in flat(result, kind)[1] if t.is_floating_point() and t.requires_grad]
    if not values or not at:
        return None
    first = library.autograd.grad(sum(map(weigh, values)), at, create_graph=True, allow_unused=True)
    flowing = [g for g in first if g is not None and g.requires_grad]
    if not flowing:
        return None
    second = library.autograd.grad(sum(map(weigh, flowing)), at, allow_unused=True)
    return [None if g is None else g.detach().numpy() for g in second]
