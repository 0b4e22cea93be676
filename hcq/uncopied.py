"""Refusal of copies: `copy`, `deepcopy` and pickle of what owns memory, a queue or code of a device.

A default copy would share the device's memory without a reference to it, or be an object whose finalizer
raises. A class sets `__reduce__ = refuse_copy`.

Not here: tensors, which can be copied (`frontend.copies`).
"""

from __future__ import annotations

from typing import NoReturn

from hcq.errors import UsageTypeError


def refuse_copy(self: object) -> NoReturn:
    """Raise: this object cannot be copied or pickled."""
    raise UsageTypeError(
        f"{type(self).__name__} {self!r} belongs to an open device and cannot be copied or pickled\n"
        "hint: copy what it holds, as with a Copy command, or make another"
    )
