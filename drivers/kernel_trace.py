"""Records of the calls that a driver makes to the operating system. `TracingKernel` wraps any `Kernel`.

Not here: the calls themselves (`drivers.kernel`). Next: `tools.bringup.evidence`, which prints the records.
"""
# ruff: noqa: D102 - the contracts of the methods are in `drivers.kernel.Kernel`

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from drivers.kernel import PROT_READ, PROT_WRITE, Kernel, Mapping, Mmio
from hcq.counters import Counters


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call to a `TracingKernel`."""

    name: str
    arguments: tuple[object, ...]
    """The arguments; a bytearray is replaced by a copy of its contents after the call."""
    before: bytes
    """The contents of an ioctl's bytearray before the call; empty for other calls."""
    result: object
    """The returned value, or the exception that was raised."""
    duration_ns: int

    def __str__(self) -> str:
        words = ", ".join(f"{a:#x}" if isinstance(a, int) else _short(a) for a in self.arguments)
        result = f"{self.result:#x}" if isinstance(self.result, int) else _short(self.result)
        return f"{self.name}({words}) = {result}  <{self.duration_ns / 1000:.1f} us>"


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return value[:32].hex() + ("..." if len(value) > 32 else "")  # to keep one line for each call
    if isinstance(value, Mapping):
        return f"{value.va:#x}+{value.size:#x}"
    return repr(value)


_T = TypeVar("_T")


class TracingKernel:
    """A kernel that passes every call to `inner`, and then a record of it to `sink`.

    Failed calls and accesses of mapped registers are recorded, too.
    """

    def __init__(self, inner: Kernel, sink: Callable[[TracedCall], None]) -> None:
        self._inner = inner
        self._sink = sink

    def _traced(self, name: str, arguments: tuple[object, ...], call: Callable[[], _T]) -> _T:
        before = next((bytes(a) for a in arguments if isinstance(a, bytearray)), b"")
        start = time.monotonic_ns()
        result: object = None
        try:
            value = call()
        except BaseException as error:
            result = error
            raise
        else:
            result = value
            return value
        finally:
            seen = tuple(bytes(a) if isinstance(a, bytearray) else a for a in arguments)
            self._sink(TracedCall(name, seen, before, result, time.monotonic_ns() - start))

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        return self._traced("open", (path, flags), lambda: self._inner.open(path, flags))

    def close(self, fd: int) -> None:
        self._traced("close", (fd,), lambda: self._inner.close(fd))

    def read(self, fd: int, size: int) -> bytes:
        return self._traced("read", (fd, size), lambda: self._inner.read(fd, size))

    def read_file(self, path: str) -> bytes:
        return self._traced("read_file", (path,), lambda: self._inner.read_file(path))

    def list_dir(self, path: str) -> list[str]:
        return self._traced("list_dir", (path,), lambda: self._inner.list_dir(path))

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        return self._traced(
            "ioctl", (fd, request, argument), lambda: self._inner.ioctl(fd, request, argument)
        )

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        return self._traced(
            "mmap",
            (size, fd, offset, va, prot, flags),
            lambda: self._inner.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags),
        )

    def munmap(self, va: int, size: int) -> None:
        self._traced("munmap", (va, size), lambda: self._inner.munmap(va, size))

    def mprotect(self, va: int, size: int, prot: int) -> None:
        self._traced("mprotect", (va, size, prot), lambda: self._inner.mprotect(va, size, prot))

    def madvise(self, va: int, size: int, advice: int) -> None:
        self._traced("madvise", (va, size, advice), lambda: self._inner.madvise(va, size, advice))

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        inner = self._traced("mmio", (fd, size, offset), lambda: self._inner.mmio(fd, size, offset))
        return _TracingMmio(inner, self._traced)

    def poll(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        return self._traced("poll", (tuple(fds), timeout_s), lambda: self._inner.poll(fds, timeout_s))

    def fence(self) -> None:
        self._traced("fence", (), self._inner.fence)

    def diagnostics(self) -> tuple[str, ...]:
        return self._traced("diagnostics", (), self._inner.diagnostics)

    def refusal(self) -> str:
        return self._traced("refusal", (), self._inner.refusal)

    def count_kernels(self, into: Counters | None, gpu: int) -> Counters | None:
        return self._traced("count_kernels", (into, gpu), lambda: self._inner.count_kernels(into, gpu))


class _Traced(Protocol):
    def __call__(self, name: str, arguments: tuple[object, ...], call: Callable[[], _T]) -> _T: ...


class _TracingMmio:
    def __init__(self, inner: Mmio, traced: _Traced) -> None:
        self._inner, self._traced = inner, traced

    def read32(self, offset: int) -> int:
        return self._traced("read32", (offset,), lambda: self._inner.read32(offset))

    def read64(self, offset: int) -> int:
        return self._traced("read64", (offset,), lambda: self._inner.read64(offset))

    def write32(self, offset: int, value: int) -> None:
        self._traced("write32", (offset, value), lambda: self._inner.write32(offset, value))

    def write64(self, offset: int, value: int) -> None:
        self._traced("write64", (offset, value), lambda: self._inner.write64(offset, value))

    def close(self) -> None:
        self._traced("mmio.close", (), self._inner.close)
