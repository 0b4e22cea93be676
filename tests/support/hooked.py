"""An emulated kernel of either vendor that fails one call, or changes a reply.

`HookedKernel` keeps the names of the calls, and counts what the driver holds. The names are those of
`emulator.shared.surprises`, whose table (`kernel.machine.surprises.table`) refuses calls and replaces files.

Not here: changes of what the driver sends (`tests.mutants.interpose`).
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel`

from __future__ import annotations

import errno
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from drivers.amd.layouts.kfd import Call, request
from drivers.kernel import MAP_FIXED, PAGE, fail
from emulator.shared.surprises import Surprises

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Mapping

WAIT_EVENTS = request(Call.WAIT_EVENTS, 24)
MOST_POLLS = 3
"""How often the call counts with which a driver polls: how many there are depends on the machine's load."""


_STATUS = ("RM_", "UVM_", "NVOS")
"""Beginnings of the names of places that return a status."""


class Places(Surprises):
    """Surprises that keep the name of every place, in order."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.names: list[str] = []
        self.reply: object = None
        """What the next call of the resource manager or UVM is answered with."""

    def at(self, place: str) -> Any:
        self.names.append(place)
        if self.reply is not None and place.startswith(_STATUS):
            reply, self.reply = self.reply, None
            return reply
        return super().at(place)


class HookedKernel:
    """An emulated kernel (`inner`) of which call number `fail_at` fails; None: none does."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.machine = inner, inner.machine
        self.machine.surprises = self._places = Places(self.machine.surprises.table)
        self.calls: list[str] = self._places.names
        """The places of the emulated kernel that were reached, in order."""
        self.after: dict[str, Callable[[bytearray], None]] = {}
        """Name of an ioctl -> a function that changes its structure behind the call."""
        self.told: tuple[str, ...] = ()
        """What `diagnostics` reports next, once, in place of the machine's reports."""
        self.fail_at: int | None = None
        self.status: object = None
        """The `StatusReply` with which an ioctl of NVIDIA fails; None: it fails as a whole."""
        self.count, self.failed, self._polls = 0, "", 0
        """`failed`: the call that failed; empty: none."""
        self._kept = False
        """Whether a call failed that gives something back: the process leaves that to the kernel."""
        self._fds: set[int] = set()
        self._mapped: list[tuple[int, int]] = []

    def start(self, fail_at: int | None) -> None:
        """Let the call fail that has this number from now on; None: let none fail."""
        self.failed, self._polls = "", 0
        self.fail_at = None if fail_at is None else self.count + fail_at

    def __getattr__(self, name: str) -> Any:  # what does not fail here
        return getattr(self.inner, name)

    def _enter(self, call: str, number: int, what: str) -> None:
        self.count += 1
        if self.count - 1 == self.fail_at:
            self.failed = f"{call} {what}"
            self._kept = self._kept or any(word in what for word in ("FREE", "UNMAP", "DESTROY"))
            if call == "ioctl" and self.status is not None:
                self._places.reply = self.status
            else:
                fail(call, number, what)

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        self._enter("open", errno.EMFILE, path)
        fd: int = self.inner.open(path, flags)
        self._fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.inner.close(fd)
        self._fds.discard(fd)

    def read_file(self, path: str) -> Any:
        self._enter("read", errno.EIO, path)
        return self.inner.read_file(path)

    def list_dir(self, path: str) -> Any:
        self._enter("listdir", errno.EIO, path)
        return self.inner.list_dir(path)

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        self._polls += request == WAIT_EVENTS
        if request != WAIT_EVENTS or self._polls <= MOST_POLLS:
            kfd = request >> 8 & 0xFF == ord("K")
            self._enter("ioctl", errno.EIO, Call(request & 0xFF).name if kfd else f"{request:#x}")
        before = len(self.calls)
        replied = self._places.reply
        try:
            result: int = self.inner.ioctl(fd, request, argument)
        finally:
            if replied is not None and self._places.reply is None:
                self.failed = next(one for one in self.calls[before:] if one.startswith(_STATUS))
            self._places.reply = None
        for name in self.after.keys() & self.calls[before:] if self.after else ():
            assert isinstance(argument, bytearray)
            self.after[name](argument)
        return result

    def mmap(self, size: int, *, va: int = 0, flags: int | None = None, **rest: int) -> Mapping:
        self._enter("mmap", errno.ENOMEM, f"{size:#x} bytes")
        found: Mapping = self.inner.mmap(size, va=va, flags=flags, **rest)
        if flags is not None and flags & MAP_FIXED:
            self._forget(found.va, size)
        self._mapped.append((found.va, found.va + -(-size // PAGE) * PAGE))
        return found

    def munmap(self, va: int, size: int) -> None:
        self.inner.munmap(va, size)
        self._forget(va, size)

    def mmio(self, fd: int, size: int, offset: int) -> Any:
        self._enter("mmap", errno.EAGAIN, f"registers at {offset:#x}")
        return self.inner.mmio(fd, size, offset)

    def diagnostics(self) -> Any:
        told, self.told = self.told, ()
        return told or self.inner.diagnostics()

    def _forget(self, va: int, size: int) -> None:
        end = va + -(-size // PAGE) * PAGE
        parts = [part for a, b in self._mapped for part in ((a, min(b, va)), (max(a, end), b))]
        self._mapped = [(a, b) for a, b in parts if a < b]

    def held(self) -> dict[str, int]:
        """Return how much the driver holds of each kind of resource, or left to the kernel to free."""
        found = Counter({"descriptors": len(self._fds), "mapped bytes": sum(b - a for a, b in self._mapped)})
        machine = self.machine
        if hasattr(machine, "clients"):  # NVIDIA
            spaces = [file.uvm for file in self.inner.files.values() if file.uvm is not None]
            mapped = [one.mapped for space in spaces for one in space.gpus.values()]
            found["objects"] = sum(len(client.objects) for client in machine.clients.values())
            found["pinned"] = len(machine.pinned)
            found["ranges"] = sum(len(space.ranges) for space in spaces)
            found["mappings of the GPU"] = sum(map(len, mapped))
            found["video memory"] = sum(gpu.vram_used for gpu in machine.gpus)
        else:
            found["host memory"] = machine.process.host_used
            left = () if self._kept else machine.leaks
            found.update(one.kind for one in (*machine.process.leaks(), *left))
        return dict(+found)
