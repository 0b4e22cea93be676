"""Rules of the scripted KFD: the error of a broken one, and which GPUs the process has acquired.

Next: `scripted`, the kernel that enforces them.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NoReturn

from hcq.errors import DriverError, OutOfMemoryError

if TYPE_CHECKING:
    from tests.support.amd.script import Script


def fail(number: int, rule: str) -> NoReturn:
    """Raise the error of an errno: `OutOfMemoryError` for ENOMEM, else `DriverError`.

    The hint is the rule.
    """
    kind = OutOfMemoryError if number == errno.ENOMEM else DriverError
    name = errno.errorcode.get(number, f"errno {number}")
    raise kind("ioctl", number, name, hint=f"scripted kernel: {rule}")


def demand(true: bool, rule: str, number: int = errno.EINVAL) -> None:  # noqa: FBT001 - an assertion
    """Raise the error of an errno unless a rule is kept."""
    if not true:
        fail(number, rule)


class Gpus:
    """The GPUs of a script, and those whose address space the process has acquired (ACQUIRE_VM)."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.acquired: dict[int, int] = {}
        """GPU id -> descriptor of its render node."""

    def index(self, gpu_id: int) -> int:
        """Return the index of a GPU in the script; EINVAL for an unknown id."""
        index = gpu_id - self.script.gpu_id(0)
        demand(0 <= index < len(self.script.gpus), f"gpu_id {gpu_id} is unknown")
        return index

    def require(self, gpu_id: int) -> None:
        """Fail with EINVAL unless a GPU was acquired."""
        self.index(gpu_id)
        demand(gpu_id in self.acquired, f"GPU {gpu_id} was not acquired")
