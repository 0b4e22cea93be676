"""The check that bytes are a complete object file. Source: System V ABI, chapter 4.

Not here: reading object files (`drivers.elf`). Next: the caches that use it, `compiler.image` and
`drivers.cpu.image`.
"""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_IDENT = b"\x7fELF\x02\x01"
_NOBITS = 8


def is_whole(data: bytes) -> bool:
    """Return whether `data` is a little-endian 64-bit ELF file that contains all its sections and segments.

    A file without sections is not whole. The contents of sections are not checked; a loader does that.
    """
    if len(data) < _HEADER.size or not data.startswith(_IDENT):
        return False
    head = _HEADER.unpack_from(data)
    segments, sections = head[5:7]
    segment_size, segment_count, section_size, section_count, names = head[9:]
    if section_size != _SECTION.size or names >= section_count:
        return False
    if segment_count and segment_size != _SEGMENT.size:
        return False
    if max(segments + segment_count * segment_size, sections + section_count * section_size) > len(data):
        return False
    for index in range(section_count):
        _, kind, _, _, offset, size, *_ = _SECTION.unpack_from(data, sections + index * section_size)
        if kind != _NOBITS and offset + size > len(data):
            return False
    for index in range(segment_count):
        _, _, offset, _, _, size, *_ = _SEGMENT.unpack_from(data, segments + index * segment_size)
        if offset + size > len(data):
            return False
    return True
