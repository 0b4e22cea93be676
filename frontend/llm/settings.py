"""The settings of a model by name, as `config.json` or a file's metadata gives them, read with their types.

Not here: what they mean (`families`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class ModelSettings:
    """Named values of a file. Every method raises `UsageError`, which names the file, for a malformed one.

    A default of None: the value must be there. JSON's null counts as not there.
    """

    def __init__(self, values: Mapping[str, Any], path: str) -> None:
        self.values, self.path = values, path

    def raw(self, name: str, default: Any = None) -> Any:
        """Return a value as the file has it."""
        found = self.values.get(name)
        return default if found is None else found

    def wrong(self, name: str, wanted: str) -> UsageError:
        """Return the error of a value that is not what was wanted."""
        return UsageError(f"{self.path}: wanted {wanted} for {name}, saw {self.values.get(name)!r}"[:400])

    def count(self, name: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31) -> int:
        """Return a whole number from `least` to `most`."""
        found = self.raw(name, default)
        if type(found) is not int or not least <= found <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return int(found)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number of at least 0."""
        found = self.raw(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < math.inf:
            raise self.wrong(name, "a number of at least 0")
        return float(found)

    def flag(self, name: str, default: bool) -> bool:  # noqa: FBT001 - the default stands beside the name
        """Return true or false."""
        found = self.raw(name, default)
        if not isinstance(found, bool):
            raise self.wrong(name, "true or false")
        return found

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        found = self.raw(name, default)
        if not isinstance(found, str):
            raise self.wrong(name, "a text")
        return found

    def part(self, name: str) -> Mapping[str, Any]:
        """Return an object of named values; an empty one if it is not there."""
        found = self.raw(name, {})
        if not isinstance(found, dict):
            raise self.wrong(name, "an object of names and values")
        return found

    def ids(self, name: str) -> tuple[int, ...]:
        """Return token ids: one, a list, or none."""
        found = self.raw(name, [])
        found = [found] if type(found) is int else found
        if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
            raise self.wrong(name, "a token id or a list of them")
        return tuple(found)
