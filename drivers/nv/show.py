"""Layout values as text for people: only the fields that say something."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from hcq.layout import MISSING, BitStruct

if TYPE_CHECKING:
    from hcq.layout import Struct


def fields_text(value: BitStruct | Struct) -> str:
    """Return "NAME=value" for every field that is not zero, and for those that must always be given."""
    shown = []
    for name, spec in type(value).FIELDS.items():
        field: object = getattr(value, name)
        text = _text(field)
        required = isinstance(value, BitStruct) and getattr(spec, "default", 0) is MISSING
        if text and (required or not _zero(field)):
            shown.append(f"{name}={text}")
    return " ".join(shown) or "0"


def _text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return value.name or str(value.value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"{value:#x}" if value > 9 else str(value)
    if isinstance(value, (bytes, str)):
        return repr(value)
    if isinstance(value, tuple):
        places = ", ".join(f"{i}: {_text(one)}" for i, one in enumerate(value) if not _zero(one))
        return f"[{places}]"
    return f"({fields_text(value)})"  # type: ignore[arg-type]  # what is left is a nested layout


def _zero(value: object) -> bool:
    if isinstance(value, (int, str)):
        return not value
    if isinstance(value, bytes):
        return not any(value)
    if isinstance(value, tuple):
        return all(_zero(one) for one in value)
    return fields_text(value) == "0"  # type: ignore[arg-type]  # the same
