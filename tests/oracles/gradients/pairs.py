"""Cases of elementwise methods of two and three tensors.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

# ruff: noqa: ARG005 - PyTorch's side gets its module, whether it needs it or not

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frontend.methods import METHODS
from tests.oracles.gradients.case import INF, NAN, Case, pairs, points

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: Final[list[Case]] = []


def _add(method: str, theirs: Callable[..., Any] | None = None, use: str = "", **more: Any) -> None:
    """Add a method of two tensors; by default PyTorch has it under the same name."""
    ours = more.pop("ours", None) or (lambda x, y: getattr(x, method)(y))
    asked = theirs or (lambda t, x, y: getattr(t, method)(x, y))
    CASES.append(Case(method, use, more.pop("inputs", pairs), ours, asked, tiled=True, **more))


for _name in ("add", "sub", "mul", "div", "maximum", "minimum"):
    _add(_name)
for _row in METHODS:
    if _row.function.startswith("functions.") and _row.operands == 2 and _row.oracle:
        _add(_row.own)
_add(
    "div",
    lambda t, x, y: t.div(x, y, rounding_mode="trunc"),
    "trunc",
    ours=lambda x, y: x.div(y, rounding_mode="trunc"),
)
_add("where", lambda t, x, y: t.where(x > y, x, y), ours=lambda x, y: (x > y).where(x, y))
_add("masked_fill", lambda t, x, y: t.where(x > y, y, x), ours=lambda x, y: x.masked_fill(x > y, y))
_add(
    "masked_fill",
    lambda t, x: x.masked_fill(x > 1, 7.0),
    "number",
    inputs=points,
    ours=lambda x: x.masked_fill(x > 1, 7.0),
)
_add("clip", lambda t, x, y: t.clamp(x, min=y), "low", ours=lambda x, y: x.clip(y))
_add("clip", lambda t, x, y: t.clamp(x, max=y), "high", ours=lambda x, y: x.clip(high=y))
_add("clip", lambda t, x, y: t.clamp(x, y, y + 1), "both", ours=lambda x, y: x.clip(y, y + 1))
_add("lerp", lambda t, x, y: t.lerp(x, y, 0.25), "number", ours=lambda x, y: x.lerp(y, 0.25))
_add(
    "lerp",
    lambda t, x, y: t.lerp(x, y, t.full_like(x, 0.75)),
    "number above a half",
    ours=lambda x, y: x.lerp(y, 0.75),
)


def _triples(_: str) -> list[Any]:
    values, weights = (0.0, 1.0, -2.0, INF, NAN), (0.0, 0.25, 0.5, 1.0, 2.0)
    return [list(x) for x in zip(*[(a, b, w) for a in values for b in values for w in weights], strict=True)]


_add("lerp", lambda t, x, y, w: t.lerp(x, y, w), inputs=_triples, ours=lambda x, y, w: x.lerp(y, w))
_add(
    "clip",
    lambda t, x, y, w: t.clamp(x, y, w),
    "low above high",
    inputs=_triples,
    ours=lambda x, y, w: x.clip(y, w),
)

_add("pow")
_add(
    "mod",
    lambda t, x, y: t.remainder(x, y),
    places=("float64 value 0[149]",),
)
_add("floordiv", lambda t, x, y: t.div(x, y, rounding_mode="floor"))
_add("__truediv__", lambda t, x, y: x / y, ours=lambda x, y: x / y)
