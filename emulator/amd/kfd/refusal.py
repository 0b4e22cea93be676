"""Refused calls of the emulated kernel: the errno, and the rule that the call broke.

Not here: faults of queues (`emulator.amd.reports`). Next: `ioctls`, which raises
them; `emulator.amd.machine.kernel` records them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn


class CallRefused(Exception):  # noqa: N818 - an answer, not a failure of the emulator
    """Raised to end a call with an errno; `reason` says which rule the call broke."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"{reason} (errno {number})")
        self.number = number
        self.reason = reason


class NotEmulated(CallRefused):
    """Raised for a call or an argument that Linux may support and this emulator does not."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One call that was refused."""

    call: str
    number: int
    """The errno."""
    reason: str
    emulated: bool = True
    """False if Linux may support it, and this emulator does not."""

    def __str__(self) -> str:
        return f"{self.call}: {self.reason} (errno {self.number})"


def refuse(number: int, reason: str) -> NoReturn:
    """End the call in progress: raise `CallRefused` with an errno."""
    raise CallRefused(number, reason)
