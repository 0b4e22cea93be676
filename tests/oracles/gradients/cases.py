"""The recorded cases of differentiable methods: what is evaluated here and in PyTorch, and at which points.

They are the lines of `tests/frontend/data/gradients.jsonl`; `tests.oracles.gradients.oracle` adds some.

Not here: recording (`oracle`), comparing (`compare`).
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

INF, NAN = float("inf"), float("nan")
DATA: Final = Path(__file__).parents[2] / "frontend" / "data" / "gradients.jsonl"

MOST: Final = {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308, "float16": 65504.0,
               "bfloat16": 3.3895313892515355e38}  # fmt: skip
LEAST: Final = {"float32": 2.0**-126, "float64": 2.0**-1022, "float16": 2.0**-14, "bfloat16": 2.0**-126}
"""The smallest positive normal number."""
DENORMAL: Final = {"float32": 1000 * 2.0**-149, "float64": 1000 * 2.0**-1074, "float16": 2.0**-21,
                   "bfloat16": 2.0**-130}  # fmt: skip
_COMMON: Final = [
    *(0.0, 1.0, 0.5, 2.0, 2.5, 3.0, 6.0, 1e-3, 7.25, 13.0, 17.0, 20.0, 20.5, 37.5, 88.0, 89.0, 104.0, 1000.0),
    INF,
]


def _points(dtype: str) -> list[float]:
    sizes = [*_COMMON, LEAST[dtype], DENORMAL[dtype], MOST[dtype], MOST[dtype] ** 0.5]
    if dtype == "float64":
        sizes += [709.0, 745.0, 750.0]
    return [s for size in sizes for s in (size, -size)] + [NAN]


def _every(*values: tuple[float, ...] | list[float]) -> list[list[float]]:
    """Return a vector for each operand, which together have every combination of values."""
    rows: list[list[float]] = [[]]
    for numbers in values:
        rows = [[*row, n] for row in rows for n in numbers]
    return [list(column) for column in zip(*rows, strict=True)]


def special(kind: str, dtype: str) -> list[list[float]]:
    """Return the vectors of a kind of special points, one for each operand."""
    few, shares = (
        [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.0, -2.5, LEAST[dtype], 1e30, INF, -INF, NAN],
        (0.0, 1.0, 0.3),
    )
    found: dict[str, list[list[float]]] = {
        "points": [_points(dtype)],
        "pairs": _every(few, few),
        "triples": _every(*[(0.0, 1.0, -2.0, INF, NAN)] * 2, (0.0, 0.25, 0.5, 1.0, 2.0)),
        "shares": _every((0.0, 1.0, 0.5, 0.25, 1e-30, 1 - 2**-20, LEAST[dtype], 1e-13), shares),
        "logits": _every(_points(dtype), shares),
    }
    return found[kind]


@dataclass(frozen=True, slots=True)
class Case:
    """One use of a method: a text that is evaluated here, and one that PyTorch evaluates, as `torch`."""

    case: str
    """The name: the method and its use."""
    inputs: str | dict[str, Any]
    """A kind of `special`, of x, y and w, or lists by name; integers and bools have no gradient."""
    ours: str
    theirs: str = ""
    """Where it is not the same."""
    tiled: bool = False
    """Whether it is elementwise; then PyTorch's inputs are repeated, so that its vectorized code runs."""
    tolerance: dict[str, float] = field(default_factory=dict)
    """Relative tolerances by dtype that replace the default ones."""
    beside_one: bool = False
    """Whether errors are relative to max(1, |result|), because small results lose digits to cancellation."""
    places: tuple[str, ...] = ()
    """Prefixes of the results that differ from PyTorch's, such as "value 0[3]" or "float32 gradient 1"."""
    records: dict[str, Any] = field(default_factory=lambda: {"float32": None, "float64": None})
    """What PyTorch answered, by dtype."""

    @property
    def method(self) -> str:
        """The method of `Tensor`."""
        return self.case.partition(" ")[0]

    def given(self, dtype: str) -> dict[str, Any]:
        """Return the inputs by name, as lists."""
        if isinstance(self.inputs, str):
            return dict(zip("xyw", special(self.inputs, dtype), strict=False))
        return self.inputs


def evaluated(text: str, inputs: dict[str, Any], torch: Any = None) -> list[Any]:
    """Return the results of a text."""
    space = {"torch": torch, "operator": operator, "inf": INF, "nan": NAN, **inputs}
    result = eval(text, space)  # noqa: S307 - a text of the record
    return result if isinstance(result, list) else [result]


def read(line: str) -> Case:
    """Return the case of a line."""
    row = json.loads(line)
    return Case(**row | {"places": tuple(row.get("places", ()))})


CASES: Final = tuple(map(read, DATA.read_text().splitlines()))
