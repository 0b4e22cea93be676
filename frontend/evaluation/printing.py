"""Tensors as text: the values as PyTorch prints them, and one line for messages.

Floats have four digits after the point, or none if all are whole numbers. Powers of ten are used where a
magnitude is above 1e8, and of fractions also where one is below 1e-4 or two differ by a factor above 1,000.
Of more than 1,000 elements only the first and last 3 of each axis are shown. `set_printoptions` changes that.

Not here: reading values (`storage`). Next: `frontend.tensor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any, Final

from frontend.device import Device
from frontend.evaluation.base import Rebound, TensorBase
from frontend.evaluation.expr import PARAM
from frontend.evaluation.plan import CAPTURE
from hcq.errors import HcqError, UsageError

SMALL: Final = 100
DEFAULT: Final[dict[str, Any]] = {
    "precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None,
}  # fmt: skip
OPTIONS: Final[dict[str, Any]] = dict(DEFAULT)
"""The settings of `set_printoptions`."""


def set_printoptions(  # noqa: PLR0917 - PyTorch's signature
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,  # noqa: FBT001 - as above
) -> None:
    """Set how tensors are printed; None leaves a setting, but for `sci_mode`, which the values choose then.

    `precision` digits are shown after the point. Of more than `threshold` elements only `edgeitems` at each
    end of an axis are shown, in lines of at most `linewidth` characters. `profile` "default", "short" or
    "full" sets all of them first. Raises `UsageError` for another profile and for a number below 0.
    """
    profiles = {"default": DEFAULT, "short": {**DEFAULT, "precision": 2, "edgeitems": 2}}
    profiles["full"] = {**DEFAULT, "threshold": math.inf}
    if profile is not None and profile not in profiles:
        raise UsageError(f"set_printoptions, profile: wanted one of {', '.join(profiles)}, saw {profile!r}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None and not value >= 0:
            raise UsageError(f"set_printoptions, {name}: wanted a number of at least 0, saw {value!r}")
    OPTIONS.update(profiles.get(profile or "", {}))
    OPTIONS.update({name: value for name, value in given.items() if value is not None}, sci_mode=sci_mode)


def described(t: TensorBase) -> str:
    """Return dtype, shape, device and state of a tensor, without computing it."""
    e = t.expr
    state = f"pending {e.op}" if e.op is not PARAM else "realized"
    if t.recipe.__class__ is Rebound and t.recipe.home is not None:
        state = f"assigned, pending {e.op}"
    return f"<Tensor {e.dtype.name}{list(e.shape)} on {e.device}, {state}>"


def shown(t: Any, *, flowing: bool = False) -> str:
    """Return the values of a tensor as text.

    The dtype is named unless it is float32, int64 or bool, the device unless it is the default one. With
    `flowing` (gradients flow through the tensor to one with requires_grad) the text has `grad_fn`, as in
    PyTorch. Computes a pending tensor. Inside a captured function or a traced method, and where the value
    cannot be computed, returns the text of `described`.
    """
    e = t.expr
    if CAPTURE.now is not None or any(leaf.__class__ is int for leaf in t.leaves):
        return described(t)
    try:
        values = t.tolist()
    except HcqError:
        return described(t)
    more = [] if e.dtype.name in {"float32", "int64", "bool"} else [f"dtype=torch.{e.dtype.name}"]
    if e.device != Device.named(None):
        more.append(f"device={e.device!r}")
    wanted = hasattr(t, "state") and bool(t.state.wanted)
    head = "Parameter containing:\n" * (hasattr(t, "state") and t.state.parameter) + "tensor("
    if wanted or flowing:
        more.append("requires_grad=True" if wanted else "grad_fn=<Backward>")
    if not prod(e.shape):
        return f"{head}{', '.join(['[]', *([f'size={e.shape}'] if len(e.shape) > 1 else []), *more])})"
    cut = prod(e.shape) > OPTIONS["threshold"]
    text = _nested(values, e.shape, _format(_flat(values, e.shape, cut=cut)), len("tensor("), cut=cut)
    return f"{head}{', '.join([text, *more])})"


def table(t: Any) -> str:
    """Return shape, dtype and device of a tensor as HTML, and the values of at most `SMALL` elements.

    Computes such a tensor if it is pending, where `shown` does.
    """
    from hcq.tables import html_table, html_text  # noqa: PLC0415 - in notebooks only

    e = t.expr
    shape = "x".join(map(str, e.shape)) or "one number"
    about = html_table(("shape", "dtype", "device"), [(shape, e.dtype.name, e.device)])
    return about + (html_text(shown(t)) if prod(e.shape) <= SMALL else "")


def _flat(values: Any, shape: tuple[int, ...], *, cut: bool) -> list[Any]:
    """Return the numbers that are shown."""
    if not shape:
        return [values]
    parts = [part for part in _shown(values, cut=cut) if part is not None]
    return [v for part in parts for v in _flat(part, shape[1:], cut=cut)]


def _shown(values: list[Any], *, cut: bool) -> list[Any]:
    """Return the elements of an axis that are shown, and one None in place of those left out."""
    edge = OPTIONS["edgeitems"]
    return [*values[:edge], None, *values[len(values) - edge :]] if cut and len(values) > 2 * edge else values


def _format(numbers: list[Any]) -> Callable[[Any], str]:
    """Return the function that writes one of these numbers, all in one width."""
    if not isinstance(numbers[0], float):
        each: Callable[[Any], str] = str
    else:
        sizes = [abs(v) for v in numbers if math.isfinite(v) and v]
        low, high = (min(sizes), max(sizes)) if sizes else (1.0, 1.0)
        whole = all(s == int(s) for s in sizes)
        powers, digits = OPTIONS["sci_mode"], OPTIONS["precision"]
        if powers is None:
            powers = high > 1e8 or high / low > 1000 or (not whole and low < 1e-4)
        each = f"{{:.{digits}e}}".format if powers else _whole if whole else f"{{:.{digits}f}}".format
    width = max([len(each(v)) for v in numbers])
    return lambda v: each(v).rjust(width)


def _whole(value: float) -> str:
    return f"{value:.0f}." if math.isfinite(value) else str(value)


def _nested(
    values: Any, shape: tuple[int, ...], write: Callable[[Any], str], indent: int, *, cut: bool
) -> str:
    """Return brackets around the elements of each axis; lines of at most about `linewidth` characters."""
    if not shape:
        return write(values).strip()
    if len(shape) > 1:
        rows = [
            "..." if part is None else _nested(part, shape[1:], write, indent + 1, cut=cut)
            for part in _shown(values, cut=cut)
        ]
        return "[" + (",".ljust(len(shape), "\n") + " " * (indent + 1)).join(rows) + "]"
    words = [" ..." if v is None else write(v) for v in _shown(values, cut=cut)]
    a_line = max(1, (OPTIONS["linewidth"] - indent) // (max([len(w) for w in words]) + 2))
    lines = [", ".join(words[i : i + a_line]) for i in range(0, len(words), a_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
