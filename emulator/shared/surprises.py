"""Deviations of an emulated kernel: injected failures, and refused values of a driver's quirks.

A table maps *places* to what happens there. Both vendors' emulated kernels look up the same places: "open
PATH", "read PATH" and "list PATH"; the name of an ioctl, such as "CREATE_QUEUE" or "RM_ALLOC
HOPPER_CHANNEL_GPFIFO_A"; "doorbell", "interrupt" and "clock". A key "doorbell #2" is the second doorbell
alone. Other keys are patterns (`fnmatch`), such as "open /dev/*".

Values of the table:

- a number: the errno with which the call fails;
- `After`: an errno that the call returns although it has done its work (KFD only);
- `StatusReply`: the status that the resource manager or UVM returns;
- `bytes`: the content of a file; a list: the names in a folder;
- `LOST`: the doorbell or interrupt does not arrive;
- a function: of a file's content to other content; or of machine and queue, called in place of a doorbell.

A machine with a table reports faults only as Linux does, through the interface of the kernel driver.

A *quirk* is a setting of a driver that public sources do not settle, such as a flag of an ioctl that some
firmware may refuse (docs/nv.md, docs/amd.md). By default an emulated GPU accepts every value. A machine that
is opened with rejections refuses the call, ignores the packet, or makes the launch a fault. For that, code of
the emulator asks `Rejections.refuses` at a named place.

Not here: the tables (`tests.support.surprises`, `tools.bringup`). Next: `emulator.nv.machine`.
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
"""The value for a doorbell or an interrupt that does not arrive."""
_VERBS: Final = ("open", "read", "list", "mmap")


@dataclass(frozen=True, slots=True)
class StatusReply:
    """A status that the resource manager or UVM returns."""

    code: int


@dataclass(frozen=True, slots=True)
class After:
    """An errno that a call returns although it has done its work."""

    number: int


@dataclass(slots=True)
class Surprises:
    """The table of one machine, and the number of times that each place was reached (`met`).

    Without a table nothing is counted.
    """

    table: Mapping[str, object] = field(default_factory=dict[str, object])
    met: Counter[str] = field(default_factory=Counter[str])

    def at(self, place: str) -> Any:
        """Count a place as reached; return the value of the first key that matches it, None if none does."""
        if not self.table:
            return None
        self.met[place] += 1
        numbered = f"{place} #{self.met[place]}"
        return next(
            (self.table[name] for name in self.table if fnmatchcase(place, name) or name == numbered), None
        )

    def call(self, name: str) -> Any:
        """Raise `DriverError` if the place `name` has an errno; else return its value as `at` does."""
        found = self.at(name)
        if isinstance(found, int):
            verb = name.partition(" ")[0]
            fail(verb if verb in _VERBS else "ioctl", found, name)
        return found

    def file(self, path: str, read: Callable[[], bytes]) -> bytes:
        """Return the content of a file: the table's bytes, else `read()`, changed by a function of the table.

        Raises `DriverError` if the table has an errno.
        """
        found = self.call(f"read {path}")
        if callable(found):
            return cast("bytes", found(read()))
        return read() if found is None else cast("bytes", found)

    def folder(self, path: str, listed: list[str] | None) -> list[str]:
        """Return the names in a folder: those of the table, else `listed`.

        Raises `DriverError`: with the table's errno, or ENOENT if `listed` is None, for a folder that is
        absent.
        """
        found = self.call(f"list {path.rstrip('/')}")
        names = listed if found is None else found
        return fail("listdir", errno.ENOENT, path) if names is None else list(names)

    def doorbell(self, machine: object, queue: object) -> bool:
        """Return whether a doorbell arrives. If the table has a function for it, call that in its place."""
        found = self.at("doorbell")
        if callable(found):
            found(machine, queue)
        return found is None


@dataclass(frozen=True, slots=True)
class Rejection:
    """One value of a quirk that the GPU rejects."""

    place: str
    """The name of the place in the emulator's code that asks."""
    meets: Callable[..., Any]
    """Returns whether what the place passes is the rejected value: any object, which counts by its truth."""


class Rejections:
    """What one machine rejects: name of a quirk -> its rejection. Without any it rejects nothing."""

    def __init__(self, rows: Mapping[str, Rejection] | None = None) -> None:
        self._rows = dict(rows or {})

    def refuses(self, place: str, *things: Any) -> str:
        """Return the name of the first quirk that `place` rejects for `things`; "" if there is none."""
        for name, row in self._rows.items():
            if row.place == place and row.meets(*things):
                return name
        return ""
