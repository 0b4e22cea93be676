"""Quirks of a driver: the alternatives of each field, and quirks as text ("stack=low+group_id=63").

Quirks are settings that public sources do not settle; a driver has one dataclass of them.

Not here: the dataclasses (`drivers.nv.quirks`, `drivers.amd.quirks`), trying alternatives
(`tools.bringup.ladder`).
"""

from __future__ import annotations

from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Values = Mapping[str, tuple[object, ...]]

Q = TypeVar("Q")
"""A dataclass of quirks: each field has a default."""


def alternatives(default: Any, **given: tuple[object, ...]) -> Values:
    """Return field -> its values, the default first.

    The values are those in `given`, else those of the field's `Literal`, else True and False.
    """
    hints, found = get_type_hints(type(default)), {}
    for field in fields(default):
        first = getattr(default, field.name)
        values = given.get(field.name) or get_args(hints[field.name]) or (True, False)
        found[field.name] = (first, *(value for value in values if value != first))
    return MappingProxyType(found)


def value_text(value: object) -> str:
    """Return the text of a value in the form that `read` accepts."""
    if isinstance(value, bool | None):
        return str(value).lower()
    return str(int(value)) if isinstance(value, int) else str(value)


def known(values: Values) -> str:
    """Return all fields and their values as text."""
    return "; ".join(f"{name}={'|'.join(map(value_text, row))}" for name, row in values.items())


def changes(choices: Any, start: Any = None) -> dict[str, Any]:
    """Return field -> value for the fields of `choices` that differ from `start` (None: the defaults)."""
    start = type(choices)() if start is None else start
    names = [field.name for field in fields(choices)]
    return {name: getattr(choices, name) for name in names if getattr(choices, name) != getattr(start, name)}


def describe(choices: object) -> str:
    """Return the values that differ from the defaults as text; "default" if there are none."""
    return "+".join(f"{name}={value_text(value)}" for name, value in changes(choices).items()) or "default"


def read(
    text: str,
    default: Q,
    values: Values,
    unknown: Callable[[str, str], str],
    presets: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Q:
    """Return quirks from a text; the inverse of `describe`.

    Parts are separated by "+" or ", ". A part "field=value" sets a field; the name of a preset sets the
    values of the preset. Later parts override earlier ones. For any other part this raises `UsageError` with
    the message `unknown(part, name)`, where `name` is the part before "=".
    """
    if text == describe(default):
        return default
    chosen: dict[str, Any] = {}
    for part in text.replace(", ", "+").split("+"):
        name, _, wanted = part.partition("=")
        if part in presets:
            chosen |= presets[part]
            continue
        fitting = [value for value in values.get(name, ()) if value_text(value) == wanted.lower()]
        if not fitting:
            raise UsageError(unknown(part, name))
        chosen[name] = fitting[0]
    return type(default)(**chosen)
