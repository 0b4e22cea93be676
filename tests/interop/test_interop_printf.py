"""Formatted output: the C library's own `snprintf` is the oracle."""

import ctypes
import math
import struct

import pytest

from interop.printf import PrintfArguments, formatted

LIBC = ctypes.CDLL(None)
NUMBERS = [0, 1, -1, 42, 2**31 - 1, -(2**31)]
WIDE = [0, -1, 5_000_000_000, 2**63 - 1]
FLOATS = [0.0, -0.0, 1.0, 1.5, -2.5, 0.1, 12345.678, 1e-7, 1e20, 255.96875, math.inf, -math.inf, math.nan]


def by_libc(pattern: str, *values: object) -> str:
    room = ctypes.create_string_buffer(600)
    LIBC.snprintf(room, ctypes.c_size_t(600), pattern.encode(), *values)
    return room.value.decode(errors="replace")


def ours(pattern: str, *parts: bytes, strings: bytes = b"") -> str:
    data = b""
    for part in parts:
        data += bytes(-len(data) % len(part)) + part
    return formatted(pattern, PrintfArguments(data, strings))


@pytest.mark.parametrize(
    "pattern",
    ["%d", "%+d", "% i", "%6d|", "%-6d|", "%06d", "%.3d", "%08.3d", "%.0d", "%u", "%x", "%#X", "%#o", "%#.2o",
     "%hd", "%hhu", "%#10x", "%-#10x|", "%010o", "%+05d"],
)  # fmt: skip
def test_integers_are_those_of_libc(pattern: str):
    for value in NUMBERS:
        assert ours(pattern, struct.pack("<i", value)) == by_libc(pattern, ctypes.c_int(value))


@pytest.mark.parametrize("pattern", ["%ld", "%llu", "%lx", "%+lld", "%022lld", "%zu", "%jd", "%#lo"])
def test_wide_integers_are_those_of_libc(pattern: str):
    for value in WIDE:
        assert ours(pattern, struct.pack("<q", value)) == by_libc(pattern, ctypes.c_longlong(value))


@pytest.mark.parametrize(
    "pattern",
    ["%f", "%F", "%e", "%E", "%g", "%G", "%a", "%A", "%.0f", "%#.0f", "%.3a", "%.0a", "%#.0a", "%.20a",
     "%+.2e", "% g", "%012.4f", "%-12.4g|", "%#g", "%08f", "%020a", "%.1a"],
)  # fmt: skip
def test_floating_point_numbers_are_those_of_libc(pattern: str):
    for value in FLOATS:
        assert ours(pattern, struct.pack("<d", value)) == by_libc(pattern, ctypes.c_double(value))


def test_other_conversions_are_those_of_libc():
    one = struct.pack("<i", 65)
    assert ours("%c%5c|%-3c|", one, one, one) == by_libc("%c%5c|%-3c|", *[ctypes.c_int(65)] * 3)
    pointer = struct.pack("<Q", 0x7F00_1234)
    assert ours("%p %20p", pointer, pointer) == by_libc("%p %20p", *[ctypes.c_void_p(0x7F00_1234)] * 2)
    assert ours("%p", bytes(8)) == by_libc("%p", None)
    texts = ours("%s|%8s|%-8s|%.2s", *[pointer] * 4, strings=b"a\0right\0left\0cut\0")
    assert texts == by_libc("%s|%8s|%-8s|%.2s", b"a", b"right", b"left", b"cut")
    assert ours("%s", bytes(8)) == "(null)"
    assert ours("100%% %d %k", one) == "100% 65 %k"


def test_a_star_takes_an_argument_for_width_and_precision():
    three = [struct.pack("<i", -8), struct.pack("<i", 3), struct.pack("<d", 3.14159)]
    values = ctypes.c_int(-8), ctypes.c_int(3), ctypes.c_double(3.14159)
    assert ours("%*.*f|", *three) == by_libc("%*.*f|", *values)
    assert ours("%.*d", struct.pack("<i", -1), struct.pack("<i", 5)) == "5"
