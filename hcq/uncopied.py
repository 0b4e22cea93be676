"""Refusal of `copy`, `deepcopy` and pickle for objects that own memory, a queue or code of a device.

A default copy would share the device's memory without holding a reference to it, and free it twice. Such a
class sets `__reduce__ = refuse_copy`.

Not here: tensors, which can be copied (`frontend.copies`).
"""

from __future__ import annotations

from typing import NoReturn

from hcq.errors import UsageTypeError


def refuse_copy(self: object) -> NoReturn:
    """Raise `UsageTypeError`: the object cannot be copied or pickled."""
    raise UsageTypeError(
        f"{type(self).__name__} {self!r} belongs to an open device and cannot be copied or pickled\n"
        "hint: copy its contents, for example by a Copy command, or make another object"
    )
