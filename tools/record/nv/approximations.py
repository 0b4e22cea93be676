"""Forms of approximations, `.approx` and `.full`, whose error the manual bounds. Source: PTX ISA 9.7.3, 9.7.4.

The emulated GPU gives the correctly rounded result. Therefore a result of silicon that keeps the manual's
bound is at most the bound and half a unit in the last place from it. The allowed difference is this sum in
ulp, rounded up: a relative error of 2^-23 is up to 2 ulp of float32, so 3 ulp are allowed.

Not here: the exact forms (`manual`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tools.record.forms import FLOATS, Allowed, Form, Result, frozen, grid, joined, near
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.record.forms import Inputs

_ROWS: Final = 700
_FTZ: Final = ("", ".ftz")


def _ulp(amount: float, rule: str, absolute: float = 0.0) -> Allowed:
    return Allowed("ulp", amount, rule, absolute)


_SINGLE: Final = {
    "rcp": _ulp(2, "rcp.approx.f32: at most 1 ulp"),
    "sqrt": _ulp(3, "sqrt.approx.f32: relative error at most 2^-23"),
    "rsqrt": _ulp(3, "rsqrt.approx.f32: relative error at most 2^-22.9"),
    "ex2": _ulp(3, "ex2.approx.f32: at most 2 ulp"),
    "lg2": _ulp(
        5, "lg2.approx.f32: error at most 2^-22, absolute for 0.5 to 2, else relative", 2.0**-22 * 1.01
    ),
    "tanh": _ulp(2**13, "tanh.approx.f32: relative error at most 2^-11"),
}
"""Opcode -> the difference that is allowed in its float32 results."""
_WAVE: Final = _ulp(
    1, "sin, cos.approx.f32: absolute error at most 2^-20.5 from -pi to pi", 2.0**-20.5 * 1.01
)
_FAR: Final = Allowed("free", rule="sin, cos.approx.f32: no bound outside of -pi to pi")
_SMALL: Final = {
    ("ex2", "f16"): _ulp(3, "ex2.approx.f16: relative error at most 2^-9.9"),
    ("ex2", "bf16"): _ulp(3, "ex2.approx.bf16: relative error at most 2^-7"),
    ("tanh", "f16"): _ulp(2, "tanh.approx.f16: absolute error at most 2^-10.987", 2.0**-10),
    ("tanh", "bf16"): _ulp(2, "tanh.approx.bf16: absolute error at most 2^-8", 2.0**-7),
}
_GROSS: Final = Allowed("free", rule="PTX ISA 9.7.3: a gross approximation without a stated bound")


def _bits(values: object) -> Inputs:
    return frozen(np.array(values, "f4").view("u4").astype("u8").reshape(-1, 1))


def _spread(low: float, high: float) -> Inputs:
    """Return `_ROWS` values of float32 from low to high, not evenly spaced: a table of the GPU may be."""
    at = np.arange(_ROWS) * (math.sqrt(5) - 1) / 2 % 1
    return _bits(low + (high - low) * at)


_RANGES: Final = {
    "rcp": _spread(1, 2), "sqrt": _spread(1, 4), "rsqrt": _spread(1, 4), "ex2": _spread(-4, 4),
    "lg2": _spread(0.5, 2), "tanh": _spread(-5, 5),
}  # fmt: skip
"""Opcode -> inputs in the range that its table of values covers."""


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    edges = joined(grid(("f32",)), near(("f32",), 300, spread=120))
    for name, allowed in _SINGLE.items():
        inputs = joined(edges, _RANGES[name])
        for ftz in _FTZ if name != "tanh" else ("",):
            yield _one(f"{name}.approx{ftz}.f32", "f32", inputs, allowed)
    inside = joined(_spread(-math.pi, math.pi), _bits([0.0, -0.0, 1e-30, 1e-40, -1e-40, 0.5, math.pi / 2]))
    outside = joined(grid(("f32",)), _spread(-1000, 1000))
    for name in ("sin", "cos"):
        for ftz in _FTZ:
            yield _one(f"{name}.approx{ftz}.f32", "f32", inside, _WAVE)
            yield _one(f"{name}.approx{ftz}.f32", "f32", outside, _FAR, label=f"{name}.approx{ftz}.f32 far")
    operands = ("f32", "f32")
    inputs = joined(grid(operands), near(operands, 300), near(operands, 100, spread=120))
    for how in ("approx", "full"):
        for ftz in _FTZ:
            name = f"div.{how}{ftz}.f32"
            rule = f"div.{how}.f32: at most 2 ulp (approx: for divisors of 2^-126 to 2^126)"
            yield lanes(
                name,
                f"{name} $d0, $a0, $a1;",
                operands,
                inputs,
                (Result("d", "f32", _ulp(3, rule)),),
                doubt=8,
            )
    for (name, format_), allowed in _SMALL.items():
        for pair in ("", "x2"):
            ftz = ".ftz" if (name, format_) == ("ex2", "bf16") else ""
            type_ = f"{format_}{pair}"
            spread = 14 if format_ == "f16" else 100
            inputs = joined(grid((type_,)), near((type_,), 300, spread=4), near((type_,), 100, spread=spread))
            since = 90 if format_ == "bf16" else 75
            yield _one(f"{name}.approx{ftz}.{type_}", type_, inputs, allowed, since=since)
    doubles = joined(grid(("f64",)), near(("f64",), 200), near(("f64",), 60, spread=900))
    for name in ("rcp.approx.ftz.f64", "rsqrt.approx.f64", "rsqrt.approx.ftz.f64"):
        yield _one(name, "f64", doubles, _GROSS)


def _one(
    name: str, type_: str, inputs: Inputs, allowed: Allowed, *, label: str = "", since: int = 0
) -> Form:  # fmt: skip
    assert type_ in FLOATS
    text = f"{name} $d0, $a0;"
    return lanes(label or name, text, (type_,), inputs, (Result("d", type_, allowed),), doubt=8, needs=since)
