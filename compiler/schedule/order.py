"""The dependencies between kernels, kept up to date while fusion adds kernels and dependencies.

Fusion asks whether a store may join a kernel without a cycle, so the transitive closure is stored: a bit set
for each kernel.

Not here: the order in which kernels run in the end (`scheduler`). Next: `fusion`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.schedule.analysis import KernelDraft


class Order:
    """The dependencies between kernels, by their numbers."""

    def __init__(self) -> None:
        self.later: list[int] = []
        """For each kernel, the bit set of the kernels that must run after it, directly or not."""
        self.users: list[dict[int, None]] = []
        """For each kernel, the kernels that directly wait for it."""
        self._waiting = 0
        """The bit set of all kernels that wait for another."""

    def add(self) -> None:
        """Add the next kernel, without dependencies."""
        self.later.append(0)
        self.users.append({})

    def after(self, first: KernelDraft, then: KernelDraft) -> None:
        """Record that `first` must run before `then`."""
        self.users[first.number][then.number] = None
        bit = 1 << first.number
        new = self.later[then.number] | 1 << then.number
        self._waiting |= new
        if new & ~self.later[first.number]:
            self.later[first.number] |= new
            if self._waiting & bit:
                for number, later in enumerate(self.later):
                    if later & bit:
                        self.later[number] = later | new

    def must_precede(self, first: KernelDraft, then: KernelDraft) -> bool:
        """Return whether `first` is already known to run before `then`."""
        return bool(self.later[first.number] >> then.number & 1)
