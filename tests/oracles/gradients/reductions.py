"""Cases of reductions, cumulative sums, sorting and normalization, at ties, equal numbers and infinities.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.oracles.gradients.case import INF, NAN, Case, given

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: Final[list[Case]] = []

_KINDS: Final[dict[str, Any]] = {
    "distinct": [[0.5, -1.25, 2.0], [-4.0, 0.25, 1.5]],
    "ties": [[2.0, 1.0, 2.0], [0.0, -0.0, 0.0]],
    "equal": [[1.0, 1.0, 1.0], [-3.0, -3.0, -3.0]],
    "zeros": [[0.0, 2.0, 0.0], [3.0, 0.0, 5.0]],
    "one zero": [[1.0, 2.0, -3.0], [3.0, 0.0, 5.0]],
    "nan": [[1.0, NAN, 2.0], [NAN, NAN, 0.5]],
    "inf": [[INF, 1.0, 2.0], [-INF, 1.0, 2.0]],
    "both inf": [[INF, -INF, 0.0], [INF, INF, 1.0]],
    "lowest": [[-INF, -INF, -INF], [-INF, 0.0, -INF]],
    "large": [[3e38, 3e38, -3e38], [1e30, 1e-30, 1.0]],
    "small": [[1e-40, 2e-40, -1e-40], [1e-30, 1e-30, 2e-30]],
    "third": [[0.1, 0.1, 0.1], [1e-5, 1e-5, 1e-5]],
}
_ROWS: Final = {
    "": [row for rows in _KINDS.values() for row in rows] + [[-INF] * 3],
    "of one": [[2.0], [-0.0], [INF]],
}
_SQUARED: Final = tuple(
    [f"float32 {what} 0[{row}]" for what in ("value", "gradient") for row in (18, 19, 20, 21)]
)
_UNLIKE: Final[dict[str, tuple[str, ...]]] = {
    "logsumexp rows": ("gradient 0[18]",),
    "logsumexp all large": ("gradient 0[0]",),
    "prod all inf": ("gradient 0[0][0]", "gradient 0[1][0]"),
    "cumprod": tuple([f"gradient 0[{row}]" for row in (10, 12, 13, 15, 16, 17, 24)]),
    "cumsum": ("float32 value 0[18]",),
    "std correction 1": _SQUARED,
    "std correction 0": _SQUARED,
    "std all small": ("float32 value 0", "float32 gradient 0"),
    "var_mean": (*[f"value 1[{row}]" for row in (12, 13, 15, 16, 17, 24)], "float32 value 1[18]"),
    "layernorm": ("float32 value 0[19]", "float32 gradient 0[19]"),
    "normalize p 0.5": ("gradient 0[14]", "gradient 0[17]"),
}
"""Case -> the places where it differs from PyTorch; `tools.tensor_reference.DIFFERS` gives the reasons."""


def _reductions(
    method: str,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    use: str = "",
    *,
    tables: dict[str, Any] = _ROWS,
    **more: Any,
) -> None:
    for kind, data in tables.items():
        name = f"{use} {kind}".strip()
        places = _UNLIKE.get(f"{method} {name}".strip(), ())
        CASES.append(Case(method, name, given(data), ours, theirs, places=places, **more))


for _name in ("sum", "mean", "max", "min", "amax", "amin", "logsumexp", "prod"):
    _reductions(
        _name,
        lambda x, n=_name: getattr(x, n)(),
        lambda t, x, n=_name: getattr(t, n)(x, dim=(0, 1)) if n == "logsumexp" else getattr(t, n)(x),
        "all",
        tables=_KINDS,
    )
for _name in ("sum", "mean", "amax", "amin", "logsumexp", "prod"):
    _reductions(
        _name, lambda x, n=_name: getattr(x, n)(1), lambda t, x, n=_name: getattr(t, n)(x, dim=1), "rows"
    )
for _name in ("max", "min"):
    _reductions(
        _name,
        lambda x, n=_name: getattr(x, n)(1).values,
        lambda t, x, n=_name: getattr(t, n)(x, dim=1).values,
        "rows",
    )
    CASES.append(
        Case(
            _name,
            "two axes",
            given([[[1.0, 3.0], [3.0, 3.0]], [[NAN, 1.0], [0.0, 1.0]]]),
            lambda x, n=_name: getattr(x, "a" + n)((0, 2)),
            lambda t, x, n=_name: getattr(t, "a" + n)(x, dim=(0, 2)),
        )
    )
_reductions("aminmax", lambda x: list(x.aminmax(axis=1)), lambda t, x: list(t.aminmax(x, dim=1)))
for _name in ("var", "std"):
    for _c in (1, 0):
        _reductions(
            _name,
            lambda x, n=_name, c=_c: getattr(x, n)(1, correction=c),
            lambda t, x, n=_name, c=_c: getattr(t, n)(x, dim=1, correction=c),
            f"correction {_c}",
        )
    _reductions(
        _name,
        lambda x, n=_name: getattr(x, n)(),
        lambda t, x, n=_name: getattr(t, n)(x),
        "all",
        tables=_KINDS,
    )
_reductions("var_mean", lambda x: list(x.var_mean(1)), lambda t, x: list(t.var_mean(x, dim=1)))
for _p in (2.0, 1.0, 3.0, 1.5, 0.5):
    _reductions(
        "normalize",
        lambda x, p=_p: x.normalize(p),
        lambda t, x, p=_p: t.nn.functional.normalize(x, p),
        f"p {_p}",
        beside_one=True,
        tolerance={"float32": 1e-5},
    )
for _name in ("cumsum", "cumprod"):
    _reductions(_name, lambda x, n=_name: getattr(x, n)(1), lambda t, x, n=_name: getattr(t, n)(x, dim=1))
_reductions("sort", lambda x: x.sort(1)[0], lambda t, x: t.sort(x, dim=1, stable=True).values)
_reductions(
    "sort",
    lambda x: x.sort(1, descending=True)[0],
    lambda t, x: t.sort(x, dim=1, stable=True, descending=True).values,
    "down",
)
_reductions("topk", lambda x: x.topk(2)[0], lambda t, x: t.topk(x, 2).values, tables={"": _ROWS[""]})
for _name in ("softmax", "log_softmax"):
    _reductions(_name, lambda x, n=_name: getattr(x, n)(), lambda t, x, n=_name: getattr(t, n)(x, dim=-1))
_reductions(
    "layernorm",
    lambda x: x.layernorm(),
    lambda t, x: t.nn.functional.layer_norm(x, x.shape[-1:]),
    beside_one=True,
)
_reductions(
    "rmsnorm",
    lambda x: x.rmsnorm(),
    lambda t, x: t.nn.functional.rms_norm(x, x.shape[-1:], eps=1e-6),
    beside_one=True,
)
