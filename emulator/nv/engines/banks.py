"""The constant banks of launch descriptors (nv.md 4).

Not here: the other fields (`descriptor`), the contents of banks (`images`, `fit`).
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
    """A constant bank."""

    index: int
    va: int
    size: int
    invalidate: bool


def banks_of(version: str, whole: int) -> dict[int, Bank]:
    """Return the banks of a descriptor, given as a number. Raises a launch error for a bad one."""
    valid = _bank_fields(version).valid
    return {i: _bank(version, whole, i) for i in range(CONSTANT_BANKS) if valid.extract(whole, i)}


class _BankFields(NamedTuple):
    """The fields of constant banks in one version."""

    valid: Field
    invalidate: Field
    size: Field
    lower: Field
    upper: Field
    shift: int
    """Low bits of an address that the fields do not hold."""


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
    if not 0 < size <= 1 << 16:  # PTX ISA: a bank has 64 KiB, half of what the field can hold
        raise launch_error(f"constant bank {i} has {size:#x} bytes, wanted 0x10 to 0x10000")
    return Bank(i, va, size, bool(fields.invalidate.extract(whole, i)))


def bank_address(version: str, whole: int, i: int) -> int:
    """Return the address of a bank. Raises a launch error if it is not aligned."""
    fields = _bank_fields(version)
    va = (fields.upper.extract(whole, i) << 32 | fields.lower.extract(whole, i)) << fields.shift
    if va % 256 and not fields.shift:
        raise launch_error(f"constant bank {i} at {va:#x} is not aligned to 256 bytes")
    return va


@functools.lru_cache(maxsize=64)
def first_bank(version: str, raw: bytes) -> Bank | None:
    """Return constant bank 0 of a descriptor without other checks; None if there is none or it is bad."""
    whole = int.from_bytes(raw, "little")
    if not _bank_fields(version).valid.extract(whole, 0):
        return None
    try:
        return _bank(version, whole, 0)
    except ChannelError:
        return None
