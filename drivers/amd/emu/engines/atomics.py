"""Atomic operations of packets: what each number means, for 32 and 64 bits.

Source: the atomic operations of the L2 as ATOMIC_MEM and SDMA ATOMIC number them (facts/amd.md 4.2, 6). Not
here: atomics of kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.emu.engines.errors import packet_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivers.amd.emu.engines.bus import Bus

_WIDE: Final = 32
"""Added to an operation's number for 64 bits."""
_NO_RETURN: Final = 64
"""Added for the form that returns nothing."""
COMPARE_SWAP: Final = 8


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


OPERATIONS: Final[Mapping[int, Callable[[int, int, int, int], int]]] = {
    7: lambda _old, new, _expected, _bits: new,
    COMPARE_SWAP: lambda old, new, expected, _bits: new if old == expected else old,
    15: lambda old, new, _expected, _bits: old + new,
    16: lambda old, new, _expected, _bits: old - new,
    17: lambda old, new, _expected, bits: min(old, new, key=lambda v: _signed(v, bits)),
    18: lambda old, new, _expected, _bits: min(old, new),
    19: lambda old, new, _expected, bits: max(old, new, key=lambda v: _signed(v, bits)),
    20: lambda old, new, _expected, _bits: max(old, new),
    21: lambda old, new, _expected, _bits: old & new,
    22: lambda old, new, _expected, _bits: old | new,
    23: lambda old, new, _expected, _bits: old ^ new,
    24: lambda old, new, _expected, _bits: 0 if old >= new else old + 1,
    25: lambda old, new, _expected, _bits: new if old == 0 or old > new else old - 1,
}
"""Number -> function of the old value, the operand, the value expected and the bits."""


def width(number: int, what: str) -> int:
    """Return the bytes that an operation works on; one that does not exist raises."""
    if number & ~(_WIDE | _NO_RETURN) not in OPERATIONS:
        raise packet_fault(f"{what}: there is no atomic operation {number}")
    return 8 if number & _WIDE else 4


def run(  # noqa: PLR0917 - a packet has that many parts
    bus: Bus, number: int, va: int, operand: int, expected: int, what: str
) -> int:
    """Run an operation on memory and return the old value."""
    size = width(number, what)
    mask = (1 << 8 * size) - 1
    old = bus.load(va, size, what)
    act = OPERATIONS[number & ~(_WIDE | _NO_RETURN)]
    bus.store(va, act(old, operand & mask, expected & mask, 8 * size), size, what, adds=True)
    return old
