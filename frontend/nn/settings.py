"""Settings of optimisers: numbers that are checked when they are set, and fixed once a step is captured.

A step under `TinyJit` is captured with its numbers as constants. A later change would have no effect on
replays, so it raises an error. The learning rate is a tensor instead (`nn.optim`).

Next: `optim` and `layers`, the users.
"""

from __future__ import annotations

import math
from typing import Any, overload

from frontend.parameters import number
from hcq.errors import UsageError


def number_within(what: str, value: Any, low: float, high: float = math.inf) -> float:
    """Return a number, low <= value < high.

    Raises `UsageError`, which `what` starts, for one outside, `UsageTypeError` for anything else.
    """
    found = number(value, what)
    if not low <= found < high:
        upper = "" if high == math.inf else f" and below {high:g}"
        raise UsageError(f"{what}: wanted at least {low:g}{upper}, saw {found}")
    return found


class Setting:
    """A numeric attribute of an optimiser, low <= value < high.

    Setting it raises `UsageError` for a number outside and after a step was captured.
    """

    def __init__(self, low: float = 0.0, high: float = math.inf) -> None:
        self.low, self.high = low, high
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Setting: ...
    @overload
    def __get__(self, instance: object, owner: type) -> float: ...
    def __get__(self, instance: object, owner: type) -> Setting | float:
        if instance is None:
            return self
        found: float = vars(instance)[self.name]
        return found

    def __set__(self, instance: Any, value: float) -> None:
        what = f"{type(instance).__name__}, {self.name}"
        if vars(instance).get("captured"):
            raise UsageError(
                f"{what}: a captured step uses {vars(instance)[self.name]} and cannot change\n"
                "hint: make another optimiser and capture its step; only the learning rate may change later"
            )
        vars(instance)[self.name] = number_within(what, value, self.low, self.high)
