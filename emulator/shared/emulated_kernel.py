"""What the emulated kernels of the vendors have in common: open files, texts, what is told of faults.

Not here: device nodes, ioctls and mappings (`emulator.nv.machine.kernel`, `emulator.amd.machine.kernel`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from drivers.kernel import fail
from emulator.shared.memory import TrackedBuffers

if TYPE_CHECKING:
    from emulator.shared.machine_report import MachineReport
    from emulator.shared.memory import AddressSpace
    from emulator.shared.scheduler import TurnLock
    from emulator.shared.surprises import Surprises

_FIRST_FD: Final = 1 << 20
TEXT: Final = "text"
"""The value of the node that a read-only text file has."""


@dataclass(slots=True, eq=False)
class FileDescription:
    """An open file."""

    fd: int
    node: Any
    """A member of the vendor's enumeration of nodes."""
    path: str
    content: bytes = b""
    """Of a text file."""
    at: int = 0
    """Bytes of it that were read."""


class Emulated(Protocol):
    """An emulated machine as its kernel uses it."""

    lock: TurnLock
    surprises: Surprises
    reports: list[MachineReport]

    def maps(self) -> list[AddressSpace]:
        """Return the memory maps of all address spaces. The caller holds the lock."""

    def new_texts(self) -> tuple[str, ...]:
        """Return the texts of the fault reports since the last call, the oldest first."""

    def close(self) -> None:
        """End the machine's threads and free its memory."""


M = TypeVar("M", bound=Emulated)
F = TypeVar("F", bound=FileDescription)


class OpenFileTable(Generic[M, F]):
    """The calls of a `drivers.kernel.Kernel` that do not depend on the vendor."""

    def __init__(self, machine: M, *, tracks: bool) -> None:
        """`tracks`: accesses of kernels are checked against buffers."""
        self.machine = machine
        self.files: dict[int, F] = {}
        self._next = _FIRST_FD
        self.tracker = TrackedBuffers(machine.lock, machine.maps) if tracks else None
        """What must learn of buffers in memory of the GPUs; None without checks."""

    @property
    def reports(self) -> list[MachineReport]:
        """The findings of the emulated GPUs."""
        return self.machine.reports

    def add_file(self, file: F) -> int:
        """Open a file; return its descriptor."""
        with self.machine.lock:
            file.fd = self._next
            self._next += 1
            self.files[file.fd] = file
            return file.fd

    def _file(self, call: str, fd: int) -> F:
        file = self.files.get(fd)
        if file is None:
            fail(call, errno.EBADF, f"fd {fd} is not open")
        return file

    def close(self, fd: int) -> None:
        """Close a descriptor; the machine ends with the last one."""
        raise NotImplementedError

    def read(self, fd: int, size: int) -> bytes:
        """Read the next bytes of a text file."""
        file = self._file("read", fd)
        if file.node.value != TEXT:
            fail("read", errno.EINVAL, f"{file.path} cannot be read")
        data = file.content[file.at : file.at + size]
        file.at += len(data)
        return data

    def read_file(self, path: str) -> bytes:
        """Return a text file."""
        return self.machine.surprises.file(path, lambda: self._text(path))

    def _text(self, path: str) -> bytes:
        raise NotImplementedError

    def diagnostics(self) -> tuple[str, ...]:
        """Return the texts of the fault reports since the last call, the oldest first."""
        return () if self.machine.surprises.table else self.machine.new_texts()

    def shut(self) -> None:
        """Close every descriptor, stop the emulated GPUs' threads and free their memory."""
        for fd in tuple(self.files):
            self.close(fd)
        self.machine.close()
