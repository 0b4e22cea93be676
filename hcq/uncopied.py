"""What owns memory, a queue or code of a device refuses to be copied or pickled.

A copy made by the default way would share the device's memory without knowing it, or be a shell whose end
raises. `__reduce__ = refuse_copy` is all that a class needs: `copy`, `deepcopy` and pickle ask for it.
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
