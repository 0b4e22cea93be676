"""Layout values as text for people: only the fields that say something."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hcq.bits import BitStruct, Struct


def fields_text(value: BitStruct | Struct) -> str:
    """Return "NAME=value" for every field that is not zero."""
    shown = []
    for name in type(value).FIELDS:
        field: object = getattr(value, name)
        text = _text(field)
        if text:
            shown.append(f"{name}={text}")
    return " ".join(shown) or "0"


def _text(value: object) -> str:
    if isinstance(value, enum.Enum):
        # 0 has a name too, which may be what matters: a release of operation 0.
        return value.name or str(value.value)
    if isinstance(value, bool):
        return "1" if value else ""
    if isinstance(value, int):
        return f"{value:#x}" if value > 9 else str(value) if value else ""
    if isinstance(value, (bytes, str)):
        return repr(value) if any(value) else ""
    if isinstance(value, tuple):
        return _many(value)
    inner = fields_text(value)  # type: ignore[arg-type]  # what is left is a nested layout
    return "" if inner == "0" else f"({inner})"


def _many(values: tuple[object, ...]) -> str:
    shown = {i: _text(one) for i, one in enumerate(values)}
    if all(_zero(one) for one in values):
        return ""
    return "[" + ", ".join(f"{i}: {text}" for i, text in shown.items() if text and not _zero(values[i])) + "]"


def _zero(value: object) -> bool:
    if isinstance(value, (int, bytes, str)):
        return not value or (isinstance(value, bytes) and not any(value))
    return _text(value) == ""
