"""The class of a difference between what this project and what PyTorch gives to a call.

Floats are the same if they are within PyTorch's own tolerances of its results, or about as near to float64
as PyTorch's greatest error (`RATIO`), or correctly rounded.

Not here: evaluation (`ours`, `theirs`), the differences on purpose (`decisions`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from frontend import Tensor
from hcq.errors import HcqError
from tests.oracles.opdb import ours
from tests.oracles.opdb.call import Answer, Call, Result, leaves
from tests.oracles.opdb.decisions import TIES, is_random, reason
from tests.oracles.opdb.forms import flat

CLASSES: Final = (
    *("same", "near", "value", "gradient", "second", "shape", "dtype", "structure", "refused", "accident"),
    *("both raise", "only PyTorch raises", "decided", "left out"),
)
RTOL: Final = {"float64": 1e-7, "float32": 1.3e-6, "float16": 1e-3, "bfloat16": 1.6e-2}
ATOL: Final = {"float64": 1e-7, "float32": 1e-5, "float16": 1e-5, "bfloat16": 1e-5}
UNIT: Final = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-9}
"""Half of a last place of a number in 1..2."""
RATIO: Final = {"float64": 3.0, "float32": 3.0, "float16": 1.3, "bfloat16": 1.3}
"""How many times PyTorch's greatest error is the same; of wide floats sums in another order differ more."""
NEAR: Final = 100
"""Tolerances within which a difference is rounding, though more of it than PyTorch's."""


class Difference(Exception):  # noqa: N818 - a finding, which ends a comparison
    """A difference of a class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def judged(
    call: Call,
    want: Answer,
    *,
    seen: str = "plain",
    in_place: bool = False,
    gradients: bool = True,
    slack: float = 1.0,
) -> tuple[str, str]:
    """Return the class of a call's outcome and a text that says what differs.

    `slack` multiplies tolerances, for answers that are compared on processors that add up in other orders.
    """
    try:
        result, made = ours.evaluate(call, seen=seen, in_place=in_place)
        form, outs = flat(result, Tensor)
        outs = outs if in_place else ours.processed(call, outs)
        arrays = [ours.read(o) for o in outs]
        if want.gradients and gradients and not in_place and not want.error:
            ours.gradients(call, outs)
            slopes = {n: made[n].grad for n in want.gradients}
            found = {n: None if g is None else ours.read(g) for n, g in slopes.items()}
    except HcqError as error:
        text = f"{type(error).__name__}: {error}"
        why = "" if want.error else reason(call, "refused", text)
        return ("both raise", text) if want.error else ("decided", why) if why else ("refused", text)
    except Exception as error:  # noqa: BLE001 - what is not the project's own error is a finding
        return "accident", f"{type(error).__name__}: {error}" + (" (PyTorch raises)" if want.error else "")
    if want.error:
        why = reason(call, "only PyTorch raises", want.error)
        return ("decided", why) if why else ("only PyTorch raises", want.error)
    try:
        _compare(call, form, outs, arrays, want, slack)
        if want.gradients and gradients and not in_place:
            _gradients(found, made, want, slack)
    except Difference as difference:
        why = reason(call, difference.kind, str(difference))
        return ("decided", why) if why else (difference.kind, str(difference))
    return "same", ""


def _compare(  # noqa: PLR0917 - internal
    call: Call, form: str, outs: list[Any], arrays: list[Any], want: Answer, slack: float
) -> None:
    if form != want.form:
        raise Difference("structure", f"{form}, PyTorch {want.form}")
    if len(outs) != len(want.results):
        raise Difference("structure", f"{len(outs)} results, PyTorch {len(want.results)}")
    for i, (out, array, wanted) in enumerate(zip(outs, arrays, want.results, strict=True)):
        if tuple(out.shape) != wanted.shape:
            raise Difference("shape", f"result {i} {out.shape}, PyTorch {wanted.shape}")
        if wanted.dtype != out.dtype.name:
            raise Difference("dtype", f"result {i} {out.dtype.name}, PyTorch {wanted.dtype}")
        if not is_random(call) and not (call.name in TIES and _tied(call, array, wanted)):
            _numbers(f"result {i}", array, wanted, "value", slack)


def _tied(call: Call, mine: Any, want: Result) -> bool:
    """Return whether places, along an axis or of all, name elements equal to those that PyTorch's name."""
    x = leaves(call)[0].array
    if want.dtype != "int64" or not x.ndim:
        return False
    places = np.arange(mine.size) if want.places is None else want.places
    each = mine.reshape(-1)[places], np.asarray(want.values).reshape(-1)
    if any(e.size and (e.min() < 0 or e.max() >= x.size) for e in each):
        return False
    if not mine.ndim and _same(*[x.reshape(-1)[e] for e in each]):
        return True
    for axis, n in enumerate(x.shape):
        left = [s for i, s in enumerate(x.shape) if i != axis]
        keeps = mine.ndim == x.ndim
        if ([s for i, s in enumerate(mine.shape) if i != axis] if keeps else [*mine.shape]) != left:
            continue
        at = np.unravel_index(places, mine.shape)
        rest = [a for i, a in enumerate(at) if not keeps or i != axis]
        found = [x[(*rest[:axis], e, *rest[axis:])] for e in each if e.max(initial=0) < n]
        if len(found) == 2 and _same(*found):
            return True
    return False


def _same(a: Any, b: Any) -> bool:
    return bool(((a == b) | ~((a == a) | (b == b))).all())  # noqa: PLR0124 - NaNs are alike


def _gradients(found: dict[int, Any], made: list[Tensor], want: Answer, slack: float) -> None:
    for n, wanted in want.gradients.items():
        got = found[n]
        if wanted is None or got is None:
            zero = got is None and (wanted is None or not np.any(wanted.values))
            if zero or (wanted is None and not np.any(got)):
                continue
            raise Difference(
                "gradient", f"of input {n} {_text(got)}, PyTorch {_text(wanted and wanted.values)}"
            )
        if tuple(made[n].shape) != wanted.shape:
            raise Difference("shape", f"gradient {n} {got.shape}, PyTorch {wanted.shape}")
        _numbers(f"gradient of input {n}", got, wanted, "gradient", slack)


def _numbers(what: str, got: Any, want: Result, kind: str, slack: float) -> None:
    if want.values is None:
        raise Difference("dtype", f"{what}: PyTorch {want.dtype}")
    mine = got if want.places is None else got.reshape(-1)[want.places]
    if want.dtype not in RTOL:
        if not np.array_equal(mine, want.values):
            raise Difference(kind, f"{what} {_text(mine)}, PyTorch {_text(want.values)}")
        return
    excess = excesses(mine, want, slack)
    if excess.max(initial=0) <= 1:
        return
    worst = int(excess.argmax())
    exact = "" if want.truth is None else f", float64 {want.truth.reshape(-1)[worst]:.9g}"
    text = (
        f"{what} [{worst}] {mine.reshape(-1)[worst]:.9g}, PyTorch {want.values.reshape(-1)[worst]:.9g}{exact}"
        f" ({excess.max():.3g} tolerances, PyTorch's error {want.error:.3g})"
    )
    raise Difference("near" if excess.max() <= NEAR else kind, text)


def excesses(mine: Any, want: Result, slack: float = 1.0) -> Any:
    """Return by how many tolerances each element differs; up to 1 is the same."""
    mine, theirs = np.asarray(mine, "float64").reshape(-1), np.asarray(want.values).reshape(-1)
    with np.errstate(all="ignore"):
        bound = slack * (ATOL[want.dtype] + RTOL[want.dtype] * np.abs(theirs))
        found = np.where(
            (mine == theirs) | (np.isnan(mine) & np.isnan(theirs)), 0, np.abs(mine - theirs) / bound
        )
        if want.truth is not None:
            truth = want.truth.reshape(-1)
            room = np.maximum(RATIO[want.dtype] * want.error, 1.01 * UNIT[want.dtype] * np.abs(truth))
            room = np.maximum(room * slack, 1e-300)
            as_good = np.where(mine == truth, 0, np.abs(mine - truth) / room)
            found = np.fmin(found, np.where(as_good <= 1, 0, np.inf))
            found = np.where(np.isnan(truth) & np.isnan(mine), 0, found)
    return np.where(np.isnan(found), np.inf, found)


def _text(array: Any) -> str:
    if array is None:
        return "none"
    text = np.array2string(np.asarray(array), threshold=12, precision=6, separator=", ")
    return " ".join(text.split())[:200]
