"""Records of the calls that a driver makes to the operating system. `traced` wraps any `Kernel`.

Not here: the calls themselves (`drivers.kernel`). Next: `tools.bringup.evidence`, which prints the records.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from drivers.kernel import Kernel, Mapping, Mmio


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call to a `traced` kernel."""

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


def traced(inner: Kernel, sink: Callable[[TracedCall], None]) -> Kernel:
    """Return a kernel that passes every call to `inner`, and then a record of it to `sink`.

    Failed calls and accesses of mapped registers are recorded, too.
    """
    return cast("Kernel", _Tracer(inner, Kernel, sink))


class _Tracer:
    """An object with the methods of a Protocol, each of which calls `inner` and records the call."""

    def __init__(self, inner: object, protocol: type, sink: Callable[[TracedCall], None]) -> None:
        self._inner, self._protocol, self._sink = inner, protocol, sink

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = vars(self._protocol).get(name)
        if name.startswith("_") or not inspect.isfunction(method):
            raise AttributeError(name)
        signature = inspect.signature(method)

        def call(*args: Any, **keywords: Any) -> Any:
            bound = signature.bind(self, *args, **keywords)
            bound.apply_defaults()
            return self._record(name, (*bound.args[1:], *bound.kwargs.values()), args, keywords)

        return call

    def _record(
        self, name: str, arguments: tuple[Any, ...], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        before = next((bytes(a) for a in arguments if isinstance(a, bytearray)), b"")
        start = time.monotonic_ns()
        result: Any = None
        try:
            result = getattr(self._inner, name)(*args, **keywords)
        except BaseException as error:
            result = error
            raise
        finally:
            seen = tuple(bytes(a) if isinstance(a, bytearray) else a for a in arguments)
            label = "mmio.close" if self._protocol is Mmio and name == "close" else name
            self._sink(TracedCall(label, seen, before, result, time.monotonic_ns() - start))
        return _Tracer(result, Mmio, self._sink) if name == "mmio" else result
