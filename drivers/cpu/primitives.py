"""Primitives of the native subset: atomic accesses, raw memory, calls by address.

`drivers.cpu.native` translates calls of these functions by name. An argument named `field` is written
`record.field`. The primitive determines the memory order; a plain `record.field` is a monotonic access.
Python can also execute `acquire`, `view` of a `Record`, and `pause`; the others raise NotImplementedError.

Next: `processor`, the user.
"""

from __future__ import annotations

from typing import TypeVar

from drivers.cpu.layouts import Record
from hcq.layout import BitStruct

u64 = int
"""The type of every value of the subset: an unsigned 64-bit integer, or an address."""

LayoutT = TypeVar("LayoutT", bound=Record | BitStruct)


def acquire(field: u64) -> u64:
    """Load a field with sequential consistency."""
    return field


def release(field: u64, value: u64) -> None:
    """Store to a field with release order: whoever acquires the value sees all earlier stores."""
    raise _native_only("release", field, value)


def swap(field: u64, value: u64) -> u64:
    """Store to a field with sequential consistency; return the old value."""
    raise _native_only("swap", field, value)


def fetch_add(field: u64, value: u64) -> u64:
    """Add to a field with sequential consistency; return the old value."""
    raise _native_only("fetch_add", field, value)


def cas(field: u64, old: u64, new: u64) -> bool:
    """Replace `old` by `new` in a field with sequential consistency; return whether it held `old`."""
    raise _native_only("cas", field, old, new)


def address(field: u64) -> u64:
    """Return the address of a field."""
    raise _native_only("address", field)


def base(record: Record | BitStruct) -> u64:
    """Return the address of a record or packet."""
    raise _native_only("base", record)


def view(kind: type[LayoutT], at: u64) -> LayoutT:
    """Return the record or packet at an address."""
    if issubclass(kind, Record):
        return kind(at)
    raise _native_only("view", kind, at)


def stack(size: u64) -> u64:
    """Return the address of `size` bytes, a constant, in this call's stack frame, aligned to 16 bytes."""
    raise _native_only("stack", size)


def store8(at: u64, value: u64) -> None:
    """Store the low byte of a value at an address."""
    raise _native_only("store8", at, value)


def store32(at: u64, value: u64) -> None:
    """Store the low 32 bits of a value at an address of any alignment."""
    raise _native_only("store32", at, value)


def store64(at: u64, value: u64) -> None:
    """Store all 64 bits of a value at an address of any alignment."""
    raise _native_only("store64", at, value)


def load64(at: u64) -> u64:
    """Load a u64 from an address of any alignment."""
    raise _native_only("load64", at)


def pause() -> None:
    """Hint to the core that this is a spin loop (PAUSE, YIELD)."""


def call(function: u64, *arguments: u64) -> u64:
    """Call the C function at an address."""
    raise _native_only("call", function, *arguments)


def syscall(function: u64, number: u64, *arguments: u64) -> u64:
    """Call libc's variadic `syscall`, whose address is `function`."""
    raise _native_only("syscall", function, number, *arguments)


def float_mode() -> u64:
    """Return this thread's floating-point control: rounding and denormals (MXCSR, FPCR)."""
    raise _native_only("float_mode")


def set_float_mode(mode: u64) -> None:
    """Set this thread's floating-point control."""
    raise _native_only("set_float_mode", mode)


def on_stack(top: u64, function: u64, a: u64, b: u64, c: u64, d: u64) -> u64:  # noqa: PLR0917
    """Call the function at an address with four arguments on another stack, which ends below `top`.

    `top` is a multiple of 16.
    """
    raise _native_only("on_stack", top, function, a, b, c, d)


def _native_only(name: str, *arguments: object) -> NotImplementedError:
    return NotImplementedError(f"{name}{arguments} is available in compiled code only")
