"""The text of a call of C's `printf`, from the format and the bytes of the arguments that a kernel stored.

Source: C17 7.21.6.1 and the CUDA C++ programming guide, formatted output. Not here: the code that stores the
bytes (`interop.device_library`). Next: `interop.output`, which reads them.
"""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPEC: Final = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?"
    r"(?P<length>hh|h|ll|[lLjztq])?(?P<kind>.)",
    re.DOTALL,
)
_INTEGERS: Final = "diuxXoc"
_FLOATS: Final = "fFeEgGaA"
_BASES: Final = {"x": "x", "X": "X", "o": "o"}
_NARROW: Final = {"hh": 8, "h": 16}


class PrintfArguments:
    """The arguments of one call in order. In `data` each is aligned to its size.

    `strings` has the texts of the string arguments, each ended by a zero byte; `data` has their addresses.
    """

    def __init__(self, data: bytes, strings: bytes) -> None:
        self._data = data
        self._at = 0
        self._strings: Iterator[bytes] = iter(strings.split(b"\0"))

    def integer(self, size: int, *, signed: bool) -> int:
        """Return the next integer of 4 or 8 bytes."""
        at = -(-self._at // size) * size
        self._at = at + size
        return int.from_bytes(self._data[at : at + size], "little", signed=signed)

    def number(self) -> float:
        """Return the next double."""
        value: float = struct.unpack("<d", self.integer(8, signed=False).to_bytes(8, "little"))[0]
        return value

    def string(self) -> str | None:
        """Return the next string; None for a null pointer."""
        return next(self._strings).decode(errors="replace") if self.integer(8, signed=False) else None


def formatted(pattern: str, arguments: PrintfArguments) -> str:
    """Return the text of a call of `printf`.

    An unknown conversion stays as it is; it takes an argument for each `*` only.
    """
    return _SPEC.sub(lambda found: _converted(found, arguments), pattern)


def _converted(found: re.Match[str], arguments: PrintfArguments) -> str:
    kind, flags = found["kind"], found["flags"]
    if kind == "%":
        return "%"
    width = _count(found["width"], arguments) or 0
    precision = _count(found["precision"], arguments)
    if width < 0:
        flags, width = flags + "-", -width
    if precision is not None and precision < 0:
        precision = None
    if kind in _INTEGERS:
        body, zeros = _integer(found, flags, precision, arguments)
    elif kind in _FLOATS:
        body, zeros = _float(arguments.number(), kind, flags, precision)
    elif kind == "p":
        address = arguments.integer(8, signed=False)
        body, zeros = f"{address:#x}" if address else "(nil)", False
    elif kind == "s":
        text = arguments.string()
        body, zeros = ("(null)" if text is None else text)[:precision], False
    else:
        return found[0]
    if "-" in flags:
        return body.ljust(width)
    if zeros and "0" in flags:
        sign = len(body) - len(body.lstrip("+- "))
        sign += 2 if body[sign : sign + 2].lower() == "0x" else 0
        return body[:sign] + body[sign:].rjust(width - sign, "0")
    return body.rjust(width)


def _count(text: str | None, arguments: PrintfArguments) -> int | None:
    """Return a width or precision; None if the conversion has none. "*" takes it from the arguments."""
    if text == "*":
        return arguments.integer(4, signed=True)
    return None if text is None else int(text or 0)


def _integer(
    found: re.Match[str], flags: str, precision: int | None, arguments: PrintfArguments
) -> tuple[str, bool]:
    """Return the text of an integer, and whether it may be padded with zeros."""
    kind, length = found["kind"], found["length"]
    value = arguments.integer(4 if length in {None, "h", "hh"} else 8, signed=kind in "di")
    if kind == "c":
        return chr(value & 0xFF), False
    if bits := _NARROW.get(length or ""):
        value &= (1 << bits) - 1
        value -= 1 << bits if kind in "di" and value >> bits - 1 else 0
    digits = format(abs(value), _BASES.get(kind, "d"))
    if precision is not None:
        digits = digits.rjust(precision, "0") if value or precision else ""
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "#" in flags and kind in "xX" and value:
        digits = f"0{kind}{digits}"
    return (_sign(flags, negative=value < 0) if kind in "di" else "") + digits, precision is None


def _sign(flags: str, *, negative: bool) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _float(value: float, kind: str, flags: str, precision: int | None) -> tuple[str, bool]:
    """Return the text of a floating-point number, and whether it may be padded with zeros."""
    sign = _sign(flags, negative=math.copysign(1.0, value) < 0)
    size = abs(value)
    if not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf"
    elif kind in "aA":
        text = _hexadecimal(size, precision, point="#" in flags)
    else:
        text = f"%{'#' if '#' in flags else ''}.{6 if precision is None else precision}{kind.lower()}" % size
    return sign + (text.upper() if kind.isupper() else text), math.isfinite(value)


def _hexadecimal(value: float, precision: int | None, *, point: bool) -> str:
    """Return a finite number >= 0 in the form of `%a`: 0x1.8p+1. Rounds to nearest, ties to even."""
    lead, _, rest = value.hex().removeprefix("0x").partition(".")
    digits, _, exponent = rest.partition("p")
    if precision is None:
        digits = digits.rstrip("0")
    elif precision >= len(digits):
        digits = digits.ljust(precision, "0")
    else:
        cut = 4 * (len(digits) - precision)
        number, below = divmod(int(lead + digits, 16), 1 << cut)
        number += 2 * below + (number & 1) > 1 << cut
        whole = format(number, "x").rjust(precision + 1, "0")
        lead, digits = whole[: len(whole) - precision], whole[len(whole) - precision :]
    return f"0x{lead}{'.' if digits or point else ''}{digits}p{exponent}"
