"""One use of a method of `Tensor`, for the frontend and for PyTorch, and the points at which it is evaluated.

Next: `cases`, the list; `numbers`, the first group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

INF, NAN = float("inf"), float("nan")
HALF: Final = ("float32", "float64", "float16", "bfloat16")

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


def special(dtype: str) -> list[float]:
    """Return the points at which functions of one number are evaluated."""
    least, denormal, most = LEAST[dtype], DENORMAL[dtype], MOST[dtype]
    sizes = [*_COMMON, least, denormal, most, most**0.5]
    if dtype == "float64":
        sizes += [709.0, 745.0, 750.0]
    return [s for size in sizes for s in (size, -size)] + [NAN]


def few(dtype: str) -> list[float]:
    """Return the points whose pairs are evaluated."""
    return [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.0, -2.5, LEAST[dtype], 1e30, INF, -INF, NAN]


Inputs = Callable[[str], list[Any]]
"""From a dtype's name to the inputs as nested lists; inputs of integers or bools have no gradient."""


def points(dtype: str) -> list[Any]:
    """Return one vector of special points."""
    return [special(dtype)]


def pairs(dtype: str) -> list[Any]:
    """Return two vectors with every pair of special points."""
    values = few(dtype)
    return [[a for a in values for _ in values], [b for _ in values for b in values]]


def given(*inputs: Any) -> Inputs:
    """Return the same inputs for every dtype."""
    return lambda _: list(inputs)


@dataclass(frozen=True, slots=True)
class Case:
    """One use of a method, in this project and in PyTorch (`theirs` also receives the module `torch`)."""

    method: str
    use: str
    inputs: Inputs
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    tiled: bool = False
    """Whether it is elementwise; then PyTorch's inputs are repeated, so that its vectorized code runs."""
    dtypes: tuple[str, ...] = ("float32", "float64")
    tolerance: dict[str, float] = field(default_factory=dict)
    """Relative tolerances by dtype that replace the default ones."""
    beside_one: bool = False
    """Whether errors are relative to max(1, |result|), because small results lose digits to cancellation."""
    places: tuple[str, ...] = ()
    """Prefixes of the results that differ from PyTorch's, such as "value 0[3]" or "float32 gradient 1"."""

    @property
    def name(self) -> str:
        """The key of the case's record."""
        return f"{self.method} {self.use}".strip()


class Cases(list[Case]):
    """The cases of a group; rows of its table call `add`."""

    def add(
        self, method: str, inputs: Inputs, ours: Callable[..., Any], theirs: Callable[..., Any],
        use: str = "", **more: Any,
    ) -> None:  # fmt: skip
        """Append a case; `more` are its other fields."""
        self.append(Case(method, use, inputs, ours, theirs, **more))
