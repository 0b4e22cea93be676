"""Comparison of an expression's results, dtypes, gradients and errors with those recorded from PyTorch.

An error must be
raised where PyTorch raises one, an `IndexError` where it raises that; `ACCEPTED` has a result here.

Not here: recording (`answers`).
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from frontend import Tensor, dtypes
from hcq.errors import HcqError, UsageError
from tests.oracles.every import EVERY
from tests.oracles.inputs import ARRAYS, names
from tests.oracles.space import functional, torch

ACCEPTED: Final = re.compile(
    r".*\.(\w+)\((2|3|4|6|u, 1)\)"  # a number where PyTorch wants a tensor
    r"|[imt](\[.*\])?\.(mean|nanmean|std|var|softmax|log_softmax|logcumsumexp)\(.*"  # as float32
    r"|m(\[.*\])?\.\w+\(.*"  # bools as numbers
    r"|.*\.(logaddexp2?|hypot|heaviside_?|float_power_)\(.*"  # dtypes that PyTorch does not combine
    r"|.*\.(floor_divide|remainder|fmod)_?\(k\[0, :3\]\)"  # 0 where a divisor that the device reads is 0
    r"|.*\.view\(-1\)"  # tensors have no strides
    r"|.*\.frac_?\(\)"  # of integers: 0
)
"""Expressions of `GENERATED` that have a result here, although PyTorch raises an error, with the reasons."""
GENERATED: Final = {*EVERY, "b.clamp(u, 1)", "n8.lcm(6)", "i.gcd_(4)", "m.gcd(m)", "i.histogram(3)"}
TOLERANCE: Final = {"float64": 1e-6, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
NEARER: Final = frozenset({"(odd + 0.3).digamma()"})
"""Expressions whose gradients are not compared: beside a pole PyTorch's is 2e-4 from float64, ours 5e-8."""


def compared(want: dict[str, Any]) -> list[str]:
    """Return a line for each difference from a record."""
    leaves = {n: Tensor(a).realize() for n, a in ARRAYS.items()}
    for n, t in leaves.items():
        if ARRAYS[n].dtype.kind == "f":
            t.requires_grad = True
    given = names(lambda a: _own(next(t for n, t in leaves.items() if ARRAYS[n] is a)))
    space = {"torch": torch, "F": functional, "dtypes": dtypes, "inf": np.inf, "nan": np.nan, **given}
    Tensor.manual_seed(0)
    text = want["of"]
    try:
        result = eval(text, space)  # noqa: S307 - this tool's own text
        outs = list(result) if isinstance(result, (tuple, list)) else [result]
        if "plain" in want:
            seen = repr(list(result) if isinstance(result, tuple) else result)
            return [] if seen == want["plain"] else [f"{text}: {seen}, PyTorch {want['plain']}"]
        arrays = [o.cast(dtypes.float64).numpy() if o.dtype.is_float else o.numpy() for o in outs]
    except (HcqError, TypeError, IndexError, ValueError, AttributeError) as error:
        name = want.get("error")
        good = name is not None and (name != "IndexError" or isinstance(error, IndexError))
        wanted = name or want.get("values") or want.get("plain")
        return [] if good else [f"{text}: {error!r}, PyTorch {wanted}"]
    if "error" in want and text in GENERATED and ACCEPTED.fullmatch(text):
        return []
    if "error" in want:
        return [f"{text}: {[a.tolist() for a in arrays]}, PyTorch raises {want['error']}"]
    gradients = [] if text in NEARER else _gradients(outs, leaves, want)
    return [f"{text}: {line}" for line in [*_results(outs, arrays, want), *gradients]]


def _own(t: Tensor) -> Tensor:
    """Return what the expressions use, as PyTorch's `t.clone()`: no leaf, so it may be written in place."""
    return t.clone()


def _results(outs: list[Any], arrays: list[Any], want: dict[str, Any]) -> list[str]:
    if len(outs) != len(want["values"]):
        return [f"{len(outs)} results, PyTorch {len(want['values'])}"]
    wrong = []
    every = zip(outs, arrays, want["shapes"], want["dtypes"], want["values"], strict=True)
    for i, (out, array, shape, dtype, values) in enumerate(every):
        if list(out.shape) != shape:
            wrong.append(f"shape {i} {out.shape}, PyTorch {shape}")
            continue
        if dtype != out.dtype.name:
            wrong.append(f"dtype {i} {out.dtype.name}, PyTorch {dtype}")
        wrong += _numbers(f"value {i}", array, values, out.dtype.name)
    return wrong


def _numbers(what: str, got: Any, want: list[Any], dtype: str) -> list[str]:
    wanted = np.array(want, "float64" if dtype in TOLERANCE else None).reshape(got.shape)
    if dtype not in TOLERANCE:
        fine = bool((got == wanted).all())
    else:
        size = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)))
        near = np.isclose(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * size, equal_nan=True)
        fine = bool(near.all())
    return [] if fine else [f"{what} {got.tolist()}, PyTorch {wanted.tolist()}"]


def _gradients(outs: list[Any], leaves: dict[str, Tensor], want: dict[str, Any]) -> list[str]:
    wanted = want.get("gradients", {})
    flowing = [o for o in outs if o.dtype.is_float and o.numel()]
    if not wanted or not flowing:
        return []
    total = Tensor(0.0)
    for o in flowing:
        weights = (1 + np.arange(o.numel()) % 5 / 2).reshape(o.shape)
        total = total + (o * Tensor(weights, dtype="float64").cast(o.dtype)).sum()
    try:
        total.backward()
    except UsageError as error:
        if "depends on no tensor with requires_grad" not in str(error):
            raise
    wrong = []
    for name, numbers in wanted.items():
        g = leaves[name].grad
        if g is None:
            if any(numbers):
                wrong.append(f"gradient of {name}: none, PyTorch {numbers}")
            continue
        wrong += _numbers(f"gradient of {name}", g.cast(dtypes.float64).numpy(), numbers, g.dtype.name)
    return wrong
