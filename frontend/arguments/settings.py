"""Settings of optimisers: numbers and flags, checked when they are set.

A step under `TinyJit` is captured with its settings as constants, on which a later change has no effect: a
replay after such a change raises `UsageError`. The learning rate may change, as it is a tensor.

Not here: settings of layers (`frontend.nn.checks`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, overload

from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag, number, shown
from hcq.errors import UsageError, UsageTypeError


def number_within(what: str, value: Any, low: float, high: float = math.inf) -> float:
    """Return a number, low <= value < high.

    Raises `UsageError` for a number outside the range and for NaN, `UsageTypeError` for no number. The
    message starts with `what`.
    """
    found = number(value, what)
    if not low <= found < high:
        least, most = 0.0 if low < 1e-300 else float(f"{low:g}"), float(f"{high:g}")
        wanted = f"{'above' if least < low else 'at least'} {least:g}"
        wanted += "" if high == math.inf else f" and {'at most' if most < high else 'below'} {most:g}"
        raise UsageError(f"{what}: wanted {wanted}, saw {found}")
    return found


def choice(what: str, value: object, names: Iterable[str]) -> str:
    """Return one of several names.

    Raises `UsageError` for another name, `UsageTypeError` for anything but a string.
    """
    every = tuple(names)
    if isinstance(value, str) and value in every:
        return value
    error = UsageError if isinstance(value, str) else UsageTypeError
    raise error(f"{what}: wanted {' or '.join([repr(n) for n in every])}, saw {shown(value)}")


class GroupSetting:
    """A numeric setting of the parameter groups of an optimiser, low <= value < high, with its default.

    Reading the attribute of the optimiser returns the setting of the first group. Assigning to it sets that
    of all groups; a group checks the value by `checked`. The settings of a class, in the order of its lines,
    are the arguments of its constructor after `params` and `lr`.
    """

    def __init__(self, default: Any = 0.0, low: float = 0.0, high: float = math.inf) -> None:
        self.default, self.low, self.high = default, low, high
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def checked(self, kind: str, value: Any) -> Any:
        """Return a value as a Python number. Raises as `number_within`; `kind` is the optimiser's name."""
        return number_within(f"{kind}, {self.name}", value, self.low, self.high)

    @overload
    def __get__(self, instance: None, owner: type) -> GroupSetting: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Any: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance.param_groups[0][self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        for group in instance.param_groups:
            group[self.name] = value


class GroupFlag(GroupSetting):
    """A setting that is True or False."""

    def __init__(self, default: bool = False) -> None:  # noqa: FBT001, FBT002 - a default
        super().__init__(default)

    def checked(self, kind: str, value: Any) -> Any:
        """Return a value as a Python bool. Raises `UsageTypeError` for anything else."""
        return flag(value, f"{kind}, {self.name}")


class GroupChoice(GroupSetting):
    """A setting that is one of several names, or None."""

    def __init__(self, default: str | None, names: tuple[str, ...]) -> None:
        super().__init__(default)
        self.names = names

    def checked(self, kind: str, value: Any) -> Any:
        """Return the name, or None. Raises as `choice`."""
        return None if value is None else choice(f"{kind}, {self.name}", value, self.names)


class GroupCount(GroupSetting):
    """A setting that is a whole number."""

    def checked(self, kind: str, value: Any) -> Any:
        """Return an int. Raises as `whole` and `number_within`."""
        return number_within(
            f"{kind}, {self.name}", whole(value, f"{kind}, {self.name}"), self.low, self.high
        )


class GroupNumbers(GroupSetting):
    """A setting of two or three numbers; each also has a name of its own, with its range."""

    def __init__(self, default: tuple[float | None, ...], **parts: tuple[float, float]) -> None:
        super().__init__(default)
        self.parts = parts
        """Name -> (low, high) of each number, in order."""

    def checked(self, kind: str, value: Any) -> Any:
        """Return the Python numbers.

        Raises `UsageTypeError` for anything but a tuple of as many numbers, and as `number_within`.
        """
        count = len(self.parts)
        if not isinstance(value, (tuple, list)) or len(value) != count:
            wanted = {2: "two", 3: "three"}[count]
            raise UsageTypeError(f"{kind}, {self.name}: wanted {wanted} numbers, saw {shown(value)}")
        pairs = zip(self.parts.items(), value, strict=True)
        return tuple(
            None if v is None is self.default[i] else number_within(f"{kind}, {name}", v, *limits)
            for i, ((name, limits), v) in enumerate(pairs)
        )
