"""The reader of the metadata note of a code object, which is a MessagePack map.

Not here: the ELF file (`drivers.elf`), the kernel descriptor (`code`). Next: `code`.

Source: the MessagePack specification; LLVM AMDGPUUsage, code object V5 metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivers.amd.layouts.code import HIDDEN_PREFIX, NOTE_NAME, NOTE_TYPE
from drivers.elf import Elf, SectionType
from hcq.errors import UsageError

_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_TEXTS: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_ARRAYS: Final = {0xDC: ">H", 0xDD: ">I"}
_MAPS: Final = {0xDE: ">H", 0xDF: ">I"}
"""Format byte of MessagePack -> `struct` format of the number or of the length, or the constant."""
_DEEPEST: Final = 16
"""The most nested maps and arrays that are read."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel, explicit or hidden."""

    kind: str
    """`.value_kind`, such as "by_value", "global_buffer" or "hidden_block_count_x"."""
    offset: int
    """Offset in the argument block, in bytes."""
    size: int
    """Bytes."""

    @property
    def hidden(self) -> bool:
        """Whether the driver provides the value."""
        return self.kind.startswith(HIDDEN_PREFIX)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of one kernel."""

    max_threads: int
    """The most work-items of a workgroup that the code was compiled for; 0: the note has no record."""
    arguments: tuple[Argument, ...]
    """In the order of the note."""


class _Reader:
    """A cursor over MessagePack bytes.

    Raises `IndexError` or `struct.error` at the end of the bytes, `ValueError` for a byte that begins no
    value and for too deep nesting.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self, size: int) -> str:
        part = self.data[self.at : self.at + size]
        if len(part) != size:
            raise IndexError(size)
        self.at += size
        return part.decode(errors="replace")

    def value(self, depth: int = 0) -> Any:
        """Read one value."""
        if depth > _DEEPEST:
            raise ValueError(depth)
        byte = self.number(">B")
        if byte < 0x80 or byte >= 0xE0:
            return byte - 256 if byte >= 0xE0 else byte
        if byte in _CONSTANTS:
            return _CONSTANTS[byte]
        if byte in _NUMBERS:
            return self.number(_NUMBERS[byte])
        if byte >> 5 == 0b101 or byte in _TEXTS:
            return self.text(byte & 0x1F if byte >> 5 == 0b101 else self.number(_TEXTS[byte]))
        if byte >> 4 == 0b1001 or byte in _ARRAYS:
            count = byte & 0xF if byte >> 4 == 0b1001 else self.number(_ARRAYS[byte])
            return [self.value(depth + 1) for _ in range(count)]
        if byte >> 4 == 0b1000 or byte in _MAPS:
            count = byte & 0xF if byte >> 4 == 0b1000 else self.number(_MAPS[byte])
            pairs = [(self.value(depth + 1), self.value(depth + 1)) for _ in range(count)]
            return {key: value for key, value in pairs if isinstance(key, (str, int))}
        raise ValueError(byte)


def unpack(data: bytes) -> Any:
    """Return the first value of MessagePack bytes; maps keep only keys that are strings or integers.

    Raises `UsageError` if the bytes are malformed.
    """
    try:
        return _Reader(data).value()
    except (IndexError, ValueError, struct.error):
        raise UsageError("the metadata note of the code object is no whole MessagePack value") from None


def note(elf: Elf) -> Mapping[str, Any]:
    """Return the metadata map of a file; empty if it has no note. Raises `UsageError` as `unpack` does."""
    for section in elf.sections:
        if section.type == SectionType.NOTE:
            found = _note_in(elf.content(section))
            if found is not None:
                value = unpack(found)
                return value if isinstance(value, dict) else {}
    return {}


def _note_in(data: bytes) -> bytes | None:
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        start = at + 12 + (name_size + 3 & -4)
        name = data[at + 12 : at + 12 + name_size].rstrip(b"\0")
        if kind == NOTE_TYPE and name == NOTE_NAME.encode():
            return data[start : start + size]
        at = start + (size + 3 & -4)
    return None


def of_kernel(elf: Elf, symbol: str) -> Metadata | None:
    """Return the metadata of the kernel with the descriptor `symbol`; None if the file has none of it.

    Raises `UsageError` if the note is malformed.
    """
    kernels = note(elf).get("amdhsa.kernels", [])
    for kernel in kernels:
        if isinstance(kernel, dict) and kernel.get(".symbol") == symbol:
            try:
                arguments = [
                    Argument(str(one[".value_kind"]), int(one[".offset"]), int(one[".size"]))
                    for one in kernel.get(".args", ())
                ]
                threads = int(kernel.get(".max_flat_workgroup_size", 0))
            except (KeyError, TypeError, ValueError):
                raise UsageError(f"the metadata of {symbol} has an argument without offset or size") from None
            return Metadata(threads, tuple(arguments))
    return None
