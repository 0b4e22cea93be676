"""Copies of a frozen dataclass with other values in some fields, faster than `dataclasses.replace`.

Not here: what is copied (`emulator.nv.engines.descriptor`, `emulator.nv.engines.ready`).
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def template(value: T, *free: str) -> Callable[..., T]:
    """Return a function that makes copies of a dataclass; it takes the fields `free` by name."""
    one: Any = value
    fixed = {each.name: getattr(one, each.name) for each in fields(one) if each.name not in free}
    return partial(type(value), **fixed)
