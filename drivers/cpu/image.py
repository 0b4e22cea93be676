"""Executable memory, and the command processor's code in it: compiled once a machine, then read from a cache.

A warm start reads one file, checks its digest and maps it: no translator, no LLVM.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.cpu.link import HostImage
from drivers.kernel import MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_EXEC, PROT_READ
from hcq.config import config
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.kernel import Kernel

SOURCES = ("image.py", "native.py", "layouts.py", "primitives.py", "processor.py")
"""What the compiled code depends on."""
DIGEST = 32


class Code:
    """Functions of a `HostImage`, mapped read-and-execute."""

    def __init__(self, kernel: Kernel, image: HostImage, resolve: Callable[[str], int]) -> None:
        size = (image.size + PAGE - 1) & -PAGE
        self._kernel = kernel
        self._mapping = kernel.mmap(size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        try:
            self._mapping.view[: image.size] = image.at(self._mapping.va, resolve)
            kernel.mprotect(self._mapping.va, size, PROT_READ | PROT_EXEC)
        except BaseException:
            self.close()
            raise
        self.address = {name: self._mapping.va + at for name, at in image.functions().items()}
        """Function -> address."""

    @property
    def span(self) -> tuple[int, int]:
        """The first address and the one behind the last."""
        return self._mapping.va, self._mapping.va + self._mapping.size

    def close(self) -> None:
        """Unmap; nothing may run in it any more."""
        self._kernel.munmap(self._mapping.va, self._mapping.size)


def nothing_from_outside(name: str) -> int:
    """Refuse a function that the code does not define itself."""
    raise UnsupportedError(f"host code calls {name}, which it does not define; nothing is linked to it")


def processor_code(kernel: Kernel) -> Code:
    """Return the command processor, from the cache or newly compiled."""
    machine = os.uname().machine
    key = hashlib.sha256(machine.encode())
    for name in SOURCES:
        key.update(Path(__file__).with_name(name).read_bytes())
    path = config().cache / "cpu" / f"processor-{key.hexdigest()[:24]}.o"
    data = read_checked(path)
    if data is None:
        from drivers.cpu.native import translate  # noqa: PLC0415 - 20 ms that a warm start does not need
        from drivers.cpu.processor import FUNCTIONS  # noqa: PLC0415 - the same

        data = compile_object(translate(FUNCTIONS, machine))
        write_checked(path, data)
    return Code(kernel, HostImage(data, machine), nothing_from_outside)


def compile_object(ir: str) -> bytes:
    """Compile IR of pure functions to an object that any processor of this machine's kind can run."""
    from compiler.llvm import Machine, emit_object, host  # noqa: PLC0415 - loads LLVM

    lse = "+lse" if os.uname().machine == "aarch64" else ""
    return emit_object(ir, Machine(host().triple, "generic", lse), level=2)


def read_checked(path: Path) -> bytes | None:
    """Return what `write_checked` wrote; None when the file is absent, cut short or changed."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, body = data[:DIGEST], data[DIGEST:]
    return body if hashlib.sha256(body).digest() == digest else None


def write_checked(path: Path, body: bytes) -> None:
    """Write a file behind its digest, atomically. A cache that cannot be written to is no error."""
    with contextlib.suppress(OSError):  # a read-only home costs time at each start, nothing else
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        part.write_bytes(hashlib.sha256(body).digest() + body)
        part.replace(path)
