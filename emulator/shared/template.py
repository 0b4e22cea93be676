"""Copies of a frozen dataclass with other values in some fields, faster than `dataclasses.replace`.

Not here: the copied classes. Next: `emulator.nv.engines.ready`, a user.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def template(value: T, *free: str) -> Callable[..., T]:
    """Return a function that makes copies of `value`; it takes values for the fields `free` as keywords."""
    one: Any = value
    fixed = {each.name: getattr(one, each.name) for each in fields(one) if each.name not in free}
    return partial(type(value), **fixed)
