"""Places in an image, and images with other bytes there."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drivers.elf import Elf
from drivers.nv.layouts.cubin import InfoAttribute, InfoFormat, InfoRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

PARAM_BASE = {"sm_80": 0x160, "sm_90": 0x210, "sm_120": 0x380}


def record(raw: bytes, section: str, attribute: InfoAttribute) -> int:
    """Return where the first info record of an attribute lies in an image."""
    elf = Elf(raw)
    found = elf.section(section)
    assert found is not None
    at = found.offset
    while at < found.offset + found.size:
        head = InfoRecord.from_bytes(raw, at)
        if head.attribute == attribute:
            return at
        at += InfoRecord.SIZE + (head.value if head.format == InfoFormat.SVAL else 0)
    raise AssertionError(f"{section} has no {attribute.name}")


def patched(raw: bytes, changes: Mapping[int, bytes]) -> bytes:
    """Return an image with other bytes at some offsets."""
    out = bytearray(raw)
    for at, data in changes.items():
        out[at : at + len(data)] = data
    return bytes(out)


def header_of(raw: bytes, section: str) -> int:
    """Return where the section header of a name lies in an image."""
    elf = Elf(raw)
    found = elf.section(section)
    assert found is not None
    (table,) = struct.unpack_from("<Q", raw, 0x28)
    return int(table) + found.index * 64
