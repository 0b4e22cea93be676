"""What an emulated kernel does otherwise than a healthy one: refusals, files, lost doorbells, faults.

Both vendors' emulated kernels ask a table at the same places: "open PATH", "read PATH" and "list PATH"; the
name of an ioctl, such as "CREATE_QUEUE" or "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A"; "doorbell", "interrupt" and
"clock". "doorbell #2" is the second one alone, "open /dev/*" is a pattern (`fnmatch`).

What happens there: a number is the errno of the call, `After` one of a call that works (KFD alone);
`StatusReply` is what the resource manager replies; `bytes` are a file's text and a list of names a folder's;
`LOST` drops a doorbell or an interrupt; a function changes a file's text, or does something to the machine in
place of a doorbell. A machine with such a table reports faults as Linux does: only through its interface.

Next: `tools.surprises`, tables.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, cast

from drivers.kernel import fail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOST: Final = "lost"
"""A doorbell or an interrupt does not arrive."""
_VERBS: Final = ("open", "read", "list", "mmap")


@dataclass(frozen=True, slots=True)
class StatusReply:
    """A status that the resource manager or UVM replies."""

    code: int


@dataclass(frozen=True, slots=True)
class After:
    """An errno of a call that has done its work all the same."""

    number: int


@dataclass(slots=True)
class Surprises:
    """Places -> what happens there. Counts how often each place was met."""

    table: Mapping[str, object] = field(default_factory=dict[str, object])
    met: Counter[str] = field(default_factory=Counter[str])

    def at(self, place: str) -> Any:
        """Return what happens at a place that is met now; None where nothing is out of the ordinary."""
        if not self.table:
            return None
        self.met[place] += 1
        numbered = f"{place} #{self.met[place]}"
        return next(
            (self.table[name] for name in self.table if fnmatchcase(place, name) or name == numbered), None
        )

    def call(self, name: str) -> Any:
        """Fail a call if its place has an errno; return what else happens there."""
        found = self.at(name)
        if isinstance(found, int):
            verb = name.partition(" ")[0]
            fail(verb if verb in _VERBS else "ioctl", found, name)
        return found

    def file(self, path: str, read: Callable[[], bytes]) -> bytes:
        """Return a file's text, or fail."""
        found = self.call(f"read {path}")
        if callable(found):
            return cast("bytes", found(read()))
        return read() if found is None else cast("bytes", found)

    def folder(self, path: str, listed: list[str] | None) -> list[str]:
        """Return the names in a folder that has the names `listed`, or None where there is none; or fail."""
        found = self.call(f"list {path.rstrip('/')}")
        names = listed if found is None else found
        return fail("listdir", errno.ENOENT, path) if names is None else list(names)

    def doorbell(self, machine: object, queue: object) -> bool:
        """Return whether a doorbell arrives; do what happens in its place."""
        found = self.at("doorbell")
        if callable(found):
            found(machine, queue)
        return found is None
