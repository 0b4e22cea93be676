"""How a call of PyTorch's operator database is evaluated by this project.

Not here: the comparison (`judge`).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import frontend
from compiler.dtype import DType, dtypes
from frontend import Tensor, functions
from frontend import array_api as xp
from frontend.nn import functional
from hcq.errors import UsageError, UsageTypeError
from tests.oracles.opdb.call import Call, Dtype, Given, mapped
from tests.oracles.opdb.decisions import INVARIANT, is_random
from tests.oracles.opdb.forms import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable

SPELLED: Final[dict[str, Callable[..., Any]]] = {
    "einsum": lambda tensors, formula: Tensor.einsum(formula, tensors),
    "polygamma": lambda x, n: frontend.polygamma(n, x),
    "special.polygamma": lambda x, n: frontend.special.polygamma(n, x),
    "where": lambda x, condition, other: frontend.where(condition, x, other),
    "linalg.lstsq:grad_oriented": lambda *args, **names: frontend.linalg.lstsq(*args, **names)[:2],
    "linalg.pinv:singular": lambda a, b: xp.linalg.pinv(a @ b.mT),
    "nn.functional.embedding": lambda weight, i, **names: functional.embedding(i, weight, **names),
    "normal:in_place": lambda x, *args, **names: x.normal_(*args, **names),
    "uniform": lambda x, *args, **names: x.uniform_(*args, **names),
}
"""Entries whose function takes the arguments in another order, or computes more."""
OTHER: Final = frozenset({"gradient", "randint", "normal", "normal:number_mean", "rearrange"})
"""Entries that are other functions here, in arguments and meaning: see docs/coverage.md."""
_SPACES: Final = {
    "nn.functional": functional, "linalg": frontend.linalg, "fft": xp.fft, "special": frontend.special,
}  # fmt: skip


def function(entry: str) -> Callable[..., Any] | None:
    """Return the function of an entry, or None if there is none here."""
    base = entry.partition(":")[0]
    if entry in OTHER or entry in SPELLED or base in SPELLED:
        return SPELLED.get(entry, SPELLED.get(base))
    space, _, name = base.rpartition(".")
    if space and space not in _SPACES:
        return None
    found = getattr(_SPACES.get(space, frontend if name in functions.NAMES else Tensor), name, None)
    if isinstance(found, DType):
        found = getattr(Tensor, name)
    if found is None and space == "nn.functional":
        found = getattr(Tensor, name, None)
    if isinstance(found, property):
        return found.fget
    return found if callable(found) else None


def tensor(given: Given, *, seen: str = "plain") -> Tensor:
    """Return a tensor: "plain" memory, a "slice" with strides, a lazy "flip", or an own "copy"."""
    kind = getattr(dtypes, given.dtype)
    array = given.array
    if seen == "slice" and array.ndim:
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2 + 1), array.dtype)
        wide[..., 1::2] = array
        found = _made(wide, kind)[..., 1::2]
    elif seen == "flip" and array.ndim:
        found = _made(np.flip(array).copy(), kind).flip(*range(array.ndim))
    else:
        found = _made(array, kind)
    if given.grad:
        found = found if seen == "plain" else found.detach()
        found.requires_grad = True
    return found


def _made(array: Any, kind: Any) -> Tensor:
    t = Tensor(np.ascontiguousarray(array).reshape(array.shape))
    return t.cast(kind).realize() if t.dtype != kind else t.realize()


def evaluate(call: Call, *, seen: str = "plain", in_place: bool = False) -> tuple[Any, list[Tensor]]:
    """Return the result of a call and the tensors it was given. Raises what it raises."""
    made: list[Tensor] = []

    def change(v: Any) -> Any:
        if isinstance(v, Dtype):
            return getattr(dtypes, v.name)
        if isinstance(v, Given):
            made.append(tensor(v, seen=seen))
            return made[-1]
        return v

    args = mapped(call.args, change)
    names = {k: mapped(v, change) for k, v in call.names.items()}
    Tensor.manual_seed(0)
    if in_place:
        copy = args[0].detach().clone()
        getattr(copy, f"{call.name}_")(*args[1:], **names)
        return copy, made
    found = function(call.entry)
    if found is None:
        raise UsageError(f"no function {call.entry} here")
    creates = inspect.ismethod(getattr(Tensor, call.name, None))
    if not made and "." not in call.entry and not creates:
        raise UsageTypeError(f"{call.entry} is a method of tensors, there is none among the arguments")
    if args and isinstance(args[0], (int, float)) and not creates and "." not in call.entry:
        raise UsageTypeError(f"{call.entry} is a method of tensors, saw {args[0]!r}")
    return found(*args, **names), made


def gradients(call: Call, outs: list[Tensor]) -> None:
    """Differentiate the results, weighted, with respect to the tensors that a call was given."""
    flowing = [o for o in outs if o.dtype.is_float]
    if not flowing or is_random(call):
        return
    total = Tensor(0.0)
    for o in flowing:
        w = Tensor(weights_of(tuple(o.shape)), dtype="float64").cast(o.dtype)
        total = total + (o * w).sum().cast(total.dtype)
    try:
        total.backward()
    except UsageError as error:
        if "depends on no tensor with requires_grad" not in str(error):
            raise


def read(t: Tensor) -> Any:
    """Return the elements of a tensor, floats as float64."""
    return t.cast(dtypes.float64).numpy() if t.dtype.is_float else t.numpy()


def processed(call: Call, outs: list[Any]) -> list[Any]:
    """Return results in a form that is unique, where they are defined up to signs."""
    return INVARIANT[call.name](outs) if call.name in INVARIANT else outs
