"""The constant banks of launch descriptors: address, size, invalidation (docs/facts/nv.md 4).

A bank that the GPU refuses raises `ChannelError`.

Not here: the other fields (`descriptor`), the contents of banks (`images`, `fit`). Next: `descriptor`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from drivers.nv.layouts.qmd import CONSTANT_BANKS, QMDS
from emulator.nv.reports import ChannelError, launch_error

if TYPE_CHECKING:
    from hcq.layout import Field


@dataclass(frozen=True, slots=True)
class Bank:
    """A constant bank of one launch."""

    index: int
    va: int
    size: int
    """In bytes, 16 to 65536."""
    invalidate: bool
    """Whether the launch invalidates the bank's contents in the constant cache."""


def banks_of(version: str, whole: int) -> dict[int, Bank]:
    """Return the valid banks of a descriptor, whose bytes are the little-endian number `whole`, by index.

    Raises a launch error for a bank with an invalid size or a misaligned address.
    """
    valid = _bank_fields(version).valid
    return {i: _bank(version, whole, i) for i in range(CONSTANT_BANKS) if valid.extract(whole, i)}


class _BankFields(NamedTuple):
    """The fields of constant banks in one version of the descriptor.

    Each field is an array over the banks.
    """

    valid: Field
    invalidate: Field
    size: Field
    lower: Field
    upper: Field
    shift: int
    """The number of low bits of an address that the fields leave out; these bits are 0."""


@functools.cache
def _bank_fields(version: str) -> _BankFields:
    fields, old = QMDS[version].FIELDS, version == "V03"
    tail = "" if old else "_SHIFTED6"
    names = ("VALID", "INVALIDATE", "SIZE_SHIFTED4", f"ADDR_LOWER{tail}", f"ADDR_UPPER{tail}")
    valid, invalidate, size, lower, upper = (fields[f"CONSTANT_BUFFER_{name}"] for name in names)
    return _BankFields(valid, invalidate, size, lower, upper, 0 if old else 6)


def _bank(version: str, whole: int, i: int) -> Bank:
    fields = _bank_fields(version)
    va = bank_address(version, whole, i)
    size = fields.size.extract(whole, i) << 4
    if not 0 < size <= 1 << 16:  # PTX ISA: a bank has 64 KiB at most; the field can hold twice as much
        raise launch_error(f"constant bank {i} has {size:#x} bytes, wanted 0x10 to 0x10000")
    return Bank(i, va, size, bool(fields.invalidate.extract(whole, i)))


def bank_address(version: str, whole: int, i: int) -> int:
    """Return the address of bank `i`.

    Raises a launch error if it is not aligned to 256 bytes in version V03.
    """
    fields = _bank_fields(version)
    va = (fields.upper.extract(whole, i) << 32 | fields.lower.extract(whole, i)) << fields.shift
    if va % 256 and not fields.shift:
        raise launch_error(f"constant bank {i} at {va:#x} is not aligned to 256 bytes")
    return va


@functools.lru_cache(maxsize=64)
def first_bank(version: str, raw: bytes) -> Bank | None:
    """Return constant bank 0 of a descriptor without checks of other fields.

    None if it is absent or invalid.
    """
    whole = int.from_bytes(raw, "little")
    if not _bank_fields(version).valid.extract(whole, 0):
        return None
    try:
        return _bank(version, whole, 0)
    except ChannelError:
        return None
