"""Executable memory, and the code of the command processor, which is compiled once and then cached on disk.

A warm start reads one file, checks its digest and maps it; it loads neither the translator nor LLVM.

Not here: the translator (`native`), kernels of users (`program`), linking (`link`). Next: `link`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from drivers.cpu.link import HostImage
from drivers.kernel import MAP_ANONYMOUS, MAP_PRIVATE, PAGE, PROT_EXEC, PROT_READ, Kernel
from hcq.config import config
from hcq.errors import UnsupportedError, UsageError
from hcq.installed import folder_of, version_of
from hcq.objectfile import is_whole
from hcq.store import key_of, store

SOURCES = (
    "image.py", "native.py", "layouts.py", "primitives.py",
    "futex.py", "cores.py", "workers.py", "processor.py", "host.py",
)  # fmt: skip
"""The source files on which the compiled code depends."""
KIND = "cpu"
"""The kind of these entries in the cache (`hcq.store`)."""


class HostCode:
    """Functions of a `HostImage`, mapped readable and executable. It owns the mapping until `close`.

    `resolve` returns the address of an external function, or raises. Raises as `HostImage.at` does,
    `OutOfMemoryError` or `DriverError` if the code cannot be mapped.
    """

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
        """Name of a function -> address."""

    @property
    def span(self) -> tuple[int, int]:
        """The first address of the mapping, and the address after its end."""
        return self._mapping.va, self._mapping.va + self._mapping.size

    def close(self) -> None:
        """Unmap the code; no thread may still execute it."""
        self._kernel.munmap(self._mapping.va, self._mapping.size)


def nothing_from_outside(name: str) -> int:
    """Raise `UnsupportedError`: the `resolve` function of code that must not call external functions."""
    raise UnsupportedError(f"host code calls {name}, which it does not define; nothing is linked to it")


def processor_code(kernel: Kernel) -> HostCode:
    """Return the command processor, from the cache or newly compiled. A damaged cache entry is replaced.

    The caller closes it when no thread executes it. Raises `NativeSyntaxError` for a machine without the
    native subset, and as `compile_object` and `HostCode`.
    """
    machine = os.uname().machine
    key = processor_key(machine)
    kept = store(config().cache)
    data = kept.get(KIND, key)
    if data is not None:
        image = _mappable(data, machine)
        if image is not None:
            return HostCode(kernel, image, nothing_from_outside)
    from drivers.cpu.host import FUNCTIONS  # noqa: PLC0415 - the same
    from drivers.cpu.native import translate  # noqa: PLC0415 - 20 ms that a warm start does not need

    data = compile_object(translate(FUNCTIONS, machine))
    kept.put(KIND, key, data)
    return HostCode(kernel, HostImage(data, machine), nothing_from_outside)


def processor_key(machine: str) -> str:
    """Return the cache key of the command processor, from its sources, the compiler and the architecture."""
    compiler = folder_of("compiler")
    assert compiler is not None, "drivers and compiler are installed together"
    files = [*(Path(__file__).with_name(name) for name in SOURCES), compiler / "llvm.py"]
    return key_of(machine, version_of("llvmlite"), *[file.read_bytes() for file in files])


def _mappable(data: bytes, machine: str) -> HostImage | None:
    """Return the image of cached code; None if it is damaged or for another machine."""
    if not is_whole(data):
        return None
    try:
        return HostImage(data, machine)
    except UsageError:
        return None


def compile_object(ir: str) -> bytes:
    """Compile IR of pure functions to an object that every processor of this architecture can run.

    Raises as `compiler.llvm.emit_object`.
    """
    from compiler.llvm import Machine, emit_object, host  # noqa: PLC0415 - loads LLVM

    lse = "+lse" if os.uname().machine == "aarch64" else ""
    return emit_object(ir, Machine(host().triple, "generic", lse), level=2)
