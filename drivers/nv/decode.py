"""The decoder: words to packets, and layout values to text, for dumps, golden streams and checks.

It uses the layouts only, never the encoder, so that it can check the encoder's output.

Not here: checks of the decoded packets (`emulator.nv.engines`). Next: `tests.support.nv.golden`, which writes
streams as text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drivers.nv.layouts import compute, dma, host
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Method, MethodHeader, SecOp, Subchannel
from hcq.layout import MISSING, BitStruct, Struct


@dataclass(frozen=True, slots=True)
class MethodWrite:
    """One method with one word of data."""

    subchannel: int
    method: int
    """Byte address of the method."""
    name: str
    data: int
    fields: BitStruct | None
    """The decoded fields of the data; None if it is a plain number."""

    def __str__(self) -> str:
        engine = Subchannel(self.subchannel).name.lower() if self.method >= HOST_METHODS_END else "host"
        if self.name == "SET_OBJECT":
            engine = Subchannel(self.subchannel).name.lower()
        shown = fields_text(self.fields) if self.fields is not None else f"{self.data:#x}"
        return f"{engine:8} {self.name} {shown}"


def _tables(*, wide: bool) -> dict[int, Mapping[int, Method]]:
    """Return subchannel -> methods of its engine, for engines since Hopper (`wide`) or before."""
    return {
        Subchannel.COMPUTE: compute.METHODS if wide else compute.METHODS_AMPERE,
        Subchannel.COPY: dma.METHODS if wide else dma.METHODS_AMPERE,
    }


def methods(
    words: Sequence[int], *, wide: bool = True, wide_host: bool | None = None
) -> Iterator[MethodWrite]:
    """Yield the methods of a segment of push-buffer words.

    `wide` is True for engine classes since Hopper, `wide_host` for channel classes since Hopper; None means
    the value of `wide`. Raises `ValueError` at an invalid header, an unknown method, or too few words.
    """
    engines = _tables(wide=wide)
    hosts = host.METHODS if (wide if wide_host is None else wide_host) else host.METHODS_AMPERE
    at = 0
    while at < len(words):
        head = MethodHeader.from_int(words[at])
        bad = head.check()
        if bad:
            raise ValueError(f"word {at} ({words[at]:#x}) is not a method header: {bad[0]}")
        at += 1
        data = [head.COUNT] if head.OPCODE == SecOp.IMMEDIATE else list(words[at : at + head.COUNT])
        if head.OPCODE != SecOp.IMMEDIATE:
            if len(data) != head.COUNT:
                raise ValueError(f"{head!r} needs {head.COUNT} words, {len(data)} are left")
            at += head.COUNT
        for i, word in enumerate(data):
            address = head.ADDRESS + 4 * _step(head.OPCODE, i)
            known = hosts if address < HOST_METHODS_END else engines.get(head.SUBCHANNEL, {})
            method = known.get(address)
            if method is None:
                raise ValueError(f"{head!r}: no method {address:#x} on subchannel {head.SUBCHANNEL}")
            fields = method.data.from_int(word) if method.data is not None else None
            yield MethodWrite(head.SUBCHANNEL, address, method.name, word, fields)


def _step(op: SecOp, index: int) -> int:
    if op == SecOp.INCREMENTING:
        return index
    return min(index, 1) if op == SecOp.INCREMENT_ONCE else 0


def entry(word: int) -> GpfifoEntry:
    """Decode a ring entry of 64 bits."""
    return GpfifoEntry.from_int(word)


def text(words: Sequence[int], *, wide: bool = True) -> list[str]:
    """Return the text of a segment, one line for each method. Raises ValueError as `methods` does."""
    return [str(write) for write in methods(words, wide=wide)]


def fields_text(value: BitStruct | Struct) -> str:
    """Return "NAME=value" for each field that is not zero, or is a required field; "0" if there is none."""
    shown = []
    for name, spec in type(value).FIELDS.items():
        field: object = getattr(value, name)
        text = _text(field)
        required = isinstance(value, BitStruct) and getattr(spec, "default", 0) is MISSING
        if text and (required or not _zero(field)):
            shown.append(f"{name}={text}")
    return " ".join(shown) or "0"


def _text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return value.name or str(value.value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"{value:#x}" if value > 9 else str(value)
    if isinstance(value, (bytes, str)):
        return repr(value)
    if isinstance(value, tuple):
        places = ", ".join(f"{i}: {_text(one)}" for i, one in enumerate(value) if not _zero(one))
        return f"[{places}]"
    return f"({fields_text(value)})"  # type: ignore[arg-type]  # the remaining case is a nested layout


def _zero(value: object) -> bool:
    if isinstance(value, (int, str)):
        return not value
    if isinstance(value, bytes):
        return not any(value)
    if isinstance(value, tuple):
        return all(_zero(one) for one in value)
    return fields_text(value) == "0"  # type: ignore[arg-type]  # the same
