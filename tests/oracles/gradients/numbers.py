"""Cases of elementwise functions of one tensor: exponentials, roots, activations, operators with a number.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

# ruff: noqa: ARG005 - PyTorch's side gets its module, whether it needs it or not

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frontend.methods import METHODS
from tests.oracles.gradients.case import HALF, INF, NAN, Case, points

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: Final[list[Case]] = []


def _one(method: str, theirs: Callable[..., Any] | None = None, use: str = "", **more: Any) -> None:
    """Add a method of one tensor; by default PyTorch has it under the same name."""
    ours = more.pop("ours", None) or (lambda x: getattr(x, method)())
    asked = theirs or (lambda t, x: getattr(t, method)(x))
    inputs = more.pop("inputs", points)
    CASES.append(Case(method, use, inputs, ours, asked, tiled=True, **more))


_MORE: Final[dict[str, dict[str, Any]]] = {
    "tanh": {"beside_one": True},
    "sign": {
        "places": ("float32 value 0[46]", "float64 value 0[52]"),
    },
}
"""Further fields of the cases of some functions."""
for _row in METHODS:
    _name = _row.own
    if _row.function.startswith("functions.") and _row.operands == 1 and _row.differentiable and _row.oracle:
        _one(_name, **_MORE.get(_name, {}))
_one("neg")
_one("relu", dtypes=HALF)
_one("relu6", lambda t, x: t.nn.functional.relu6(x), dtypes=HALF)
_one("leaky_relu", lambda t, x: t.nn.functional.leaky_relu(x), dtypes=HALF)
_one(
    "leaky_relu",
    lambda t, x: t.nn.functional.leaky_relu(x, 0.2),
    "slope 0.2",
    ours=lambda x: x.leaky_relu(0.2),
    dtypes=HALF,
)
_one("elu", lambda t, x: t.nn.functional.elu(x), dtypes=HALF)
_one("elu", lambda t, x: t.nn.functional.elu(x, 0.5), "alpha 0.5", ours=lambda x: x.elu(0.5), dtypes=HALF)
_one("sigmoid", dtypes=HALF, beside_one=True)
_one("logsigmoid", lambda t, x: t.nn.functional.logsigmoid(x), dtypes=HALF)
_one("silu", lambda t, x: t.nn.functional.silu(x), dtypes=HALF)
_one("gelu", lambda t, x: t.nn.functional.gelu(x), dtypes=HALF, beside_one=True)
_one(
    "gelu",
    lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    "tanh",
    ours=lambda x: x.gelu("tanh"),
    dtypes=HALF,
    beside_one=True,
)
_one("quick_gelu", lambda t, x: x * t.sigmoid(x * 1.702), dtypes=HALF)
_one(
    "softplus",
    lambda t, x: t.nn.functional.softplus(x),
    dtypes=HALF,
    places=("float64 value 0[24]", "float64 gradient 0[24]"),
)
_one("softsign", lambda t, x: t.nn.functional.softsign(x), dtypes=HALF)
_one("mish", lambda t, x: t.nn.functional.mish(x), dtypes=HALF)
_one("hardsigmoid", lambda t, x: t.nn.functional.hardsigmoid(x), dtypes=HALF, tolerance={"float64": 1e-7})
_one("hardswish", lambda t, x: t.nn.functional.hardswish(x), dtypes=HALF)
_one("hardtanh", lambda t, x: t.nn.functional.hardtanh(x), dtypes=HALF)
_one(
    "hardtanh",
    lambda t, x: t.nn.functional.hardtanh(x, -0.5, 2.0),
    "-0.5..2",
    ours=lambda x: x.hardtanh(-0.5, 2.0),
    dtypes=HALF,
)
_one("clip", lambda t, x: t.clamp(x, -1, 2), "-1..2", ours=lambda x: x.clip(-1, 2))
_one("clip", lambda t, x: t.clamp(x, min=0.5), "0.5..", ours=lambda x: x.clip(0.5))
_one("clip", lambda t, x: t.clamp(x, max=0.5), "..0.5", ours=lambda x: x.clip(high=0.5))
_one("clip", lambda t, x: t.clamp(x, 3, 1), "3..1", ours=lambda x: x.clip(3, 1))
_one("maximum", lambda t, x: t.maximum(x, t.full_like(x, 0.5)), "number", ours=lambda x: x.maximum(0.5))
_one("minimum", lambda t, x: t.minimum(x, t.full_like(x, 0.5)), "number", ours=lambda x: x.minimum(0.5))
_one("add", lambda t, x: x + 2.5, "number", ours=lambda x: x + 2.5)
_one("sub", lambda t, x: x - 2.5, "number", ours=lambda x: x - 2.5)
_one("__rsub__", lambda t, x: 2.5 - x, "number", ours=lambda x: 2.5 - x)
_one("mul", lambda t, x: x * -2.5, "number", ours=lambda x: x * -2.5)
_one("mul", lambda t, x: x * 0, "zero", ours=lambda x: x * 0)
_one("div", lambda t, x: x / 2.5, "number", ours=lambda x: x / 2.5)
_one("div", lambda t, x: x / 0, "zero", ours=lambda x: x / 0)
_one("__rtruediv__", lambda t, x: 2.5 / x, "number", ours=lambda x: 2.5 / x)
_one(
    "div",
    lambda t, x: t.div(x, 2.5, rounding_mode="trunc"),
    "number, trunc",
    ours=lambda x: x.div(2.5, rounding_mode="trunc"),
)

_EXPONENTS: Final = (
    0, 0.0, 1, 2, 3, -1, -2, 0.5, -0.5, 0.3, -0.3, 1.7, 2.0, 3.3, 3.5, -1.5, 7, 64, 65, 70, 71.0, -3, INF,
    -INF, NAN,
)  # fmt: skip


_ROOTS: Final = {
    0.5: ("value 0[37]", "gradient 0[1]", "gradient 0[37]"),
    -0.5: ("value 0[1]", "value 0[37]"),
}


def _powers() -> None:
    for e in _EXPONENTS:
        places = _ROOTS.get(e, ())
        _one(
            "pow",
            lambda t, x, e=e: t.pow(x, e),
            f"to {e!r}",
            ours=lambda x, e=e: x**e,
            places=places,
            tolerance={"float32": 1e-5},
        )
    for b in (0, 0.0, -0.0, 1, 1.0, 2, 0.5, 0.7, -1, -2, -0.5, 10.0, INF, -INF, NAN):
        _one("__rpow__", lambda t, x, b=b: t.pow(b, x), f"of {b!r}", ours=lambda x, b=b: b**x)


_powers()
_one("mod", lambda t, x: t.remainder(x, 2.5), "number", ours=lambda x: x % 2.5)
_one(
    "__rmod__",
    lambda t, x: t.remainder(t.full_like(x, 2.5), x),
    "number",
    ours=lambda x: 2.5 % x,
    places=("float64 value 0[40]", "float64 value 0[41]"),
)
_one("floordiv", lambda t, x: t.div(x, 2.5, rounding_mode="floor"), "number", ours=lambda x: x // 2.5)
_one(
    "__rfloordiv__",
    lambda t, x: t.div(t.full_like(x, 2.5), x, rounding_mode="floor"),
    "number",
    ours=lambda x: 2.5 // x,
)
