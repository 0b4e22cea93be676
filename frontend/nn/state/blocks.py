"""The quantised types of GGUF files: blocks of bytes to float32.

Each type packs a fixed number of elements into a block of fixed size, with scales in the block. The layouts
are those of `ggml/src/ggml-common.h`, the order of operations that of `ggml/src/ggml-quants.c`
(https://github.com/ggml-org/ggml, MIT); results are equal to the last bit.

Not here: the file (`gguf`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Bytes = np.ndarray[Any, Any]
    Floats = np.ndarray[Any, Any]

_FOURBIT: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of the four-bit codes of IQ4_NL and IQ4_XS (`kvalues_iq4nl`)."""
_E2M1: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of the four-bit floats of MXFP4 (`kvalues_mxfp4`)."""


class Packing(NamedTuple):
    """A quantised type: elements and bytes of a block, and the function of blocks (n, bytes)."""

    name: str
    elements: int
    size: int
    read: Callable[[Bytes], Floats]


def _half(b: Bytes, at: int) -> Floats:
    """Return the float16 at a byte of each block, as float32 (n, 1)."""
    found: Floats = b[:, at : at + 2].copy().view("<f2").astype("float32")
    return found


def _bits(b: Bytes, begin: int, end: int, width: int, run: int) -> Bytes:
    """Return fields of `width` bits: the lowest of all bytes of a run, then the next, ... (n, fields)."""
    import numpy as np  # noqa: PLC0415 - only where such files are read

    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    runs = b[:, begin:end].reshape(len(b), (end - begin) // run, 1, run)  # no -1: there may be no blocks
    fields = runs >> shifts & np.uint8((1 << width) - 1)
    found: Bytes = fields.reshape(len(b), (end - begin) * 8 // width)
    return found


def _signed(q: Bytes, offset: int) -> Floats:
    found: Floats = (q.astype("int8") - offset).astype("float32")
    return found


def _scaled(scale: Floats, q: Any, least: Floats) -> Floats:
    """Return scale * q + least, where each block has one of both."""
    found: Floats = scale * q.astype("float32") + least
    return found


def _q4_0(b: Bytes) -> Floats:
    return _half(b, 0) * _signed(_bits(b, 2, 18, 4, 16), 8)


def _q4_1(b: Bytes) -> Floats:
    return _scaled(_half(b, 0), _bits(b, 4, 20, 4, 16), _half(b, 2))


def _fifth(b: Bytes, at: int) -> Bytes:
    """Return bit i of the u32 at a byte as 16 or 0, for element i."""
    import numpy as np  # noqa: PLC0415 - only where such files are read

    found: Bytes = np.unpackbits(b[:, at : at + 4], axis=1, bitorder="little") << np.uint8(4)
    return found


def _q5_0(b: Bytes) -> Floats:
    return _half(b, 0) * _signed(_bits(b, 6, 22, 4, 16) | _fifth(b, 2), 16)


def _q5_1(b: Bytes) -> Floats:
    q = _bits(b, 8, 24, 4, 16) | _fifth(b, 4)
    return _scaled(_half(b, 0), q, _half(b, 2))


def _q8_0(b: Bytes) -> Floats:
    return _half(b, 0) * _signed(b[:, 2:34].copy().view("int8"), 0)


def _grouped(q: Any, scale: Floats, least: Floats | None = None) -> Floats:
    """Return scale * q - least, where each scale (n, groups) holds for neighbouring elements."""
    groups = q.reshape(len(q), scale.shape[1], q.shape[1] // scale.shape[1]).astype("float32")
    y = scale[:, :, None] * groups
    if least is not None:
        y -= least[:, :, None]
    found: Floats = y.reshape(q.shape)
    return found


def _q2_k(b: Bytes) -> Floats:
    scale, least = _half(b, 80) * (b[:, :16] & 15), _half(b, 82) * (b[:, :16] >> 4)
    return _grouped(_bits(b, 16, 80, 2, 32), scale.astype("float32"), least.astype("float32"))


def _q3_k(b: Bytes) -> Floats:
    low, high = _bits(b, 96, 104, 4, 8), _bits(b, 104, 108, 2, 4)
    scale = _half(b, 108) * _signed(low | high << 4, 32)
    quarter = _bits(b, 32, 96, 2, 32).astype("int8") - 4 * (1 - _bits(b, 0, 32, 1, 32).astype("int8"))
    return _grouped(quarter, scale)


def _six(b: Bytes, at: int) -> tuple[Floats, Floats]:
    """Return the eight six-bit scales and least values that twelve bytes hold."""
    import numpy as np  # noqa: PLC0415 - only where such files are read

    s = b[:, at : at + 12]
    first, second, third = s[:, :4], s[:, 4:8], s[:, 8:]
    scale = np.concatenate([first & 63, third & 15 | first >> 6 << 4], 1)
    least = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], 1)
    return scale.astype("float32"), least.astype("float32")


def _q4_k(b: Bytes) -> Floats:
    scale, least = _six(b, 4)
    return _grouped(_bits(b, 16, 144, 4, 32), _half(b, 0) * scale, _half(b, 2) * least)


def _q5_k(b: Bytes) -> Floats:
    scale, least = _six(b, 4)
    q = _bits(b, 48, 176, 4, 32) | _bits(b, 16, 48, 1, 32) << 4
    return _grouped(q, _half(b, 0) * scale, _half(b, 2) * least)


def _q6_k(b: Bytes) -> Floats:
    scale = _half(b, 208) * b[:, 192:208].copy().view("int8").astype("float32")
    return _grouped(_signed(_bits(b, 0, 128, 4, 64) | _bits(b, 128, 192, 2, 32) << 4, 32), scale)


def _chosen(values: tuple[int, ...], codes: Bytes) -> Floats:
    import numpy as np  # noqa: PLC0415 - only where such files are read

    found: Floats = np.array(values, dtype="float32")[codes]
    return found


def _iq4_nl(b: Bytes) -> Floats:
    return _half(b, 0) * _chosen(_FOURBIT, _bits(b, 2, 18, 4, 16))


def _iq4_xs(b: Bytes) -> Floats:
    high = _bits(b, 2, 4, 2, 1)
    low = _bits(b, 4, 8, 4, 1)
    scale = _half(b, 0) * _signed(low | high << 4, 32)
    return _grouped(_chosen(_FOURBIT, _bits(b, 8, 136, 4, 16)), scale)


def _mxfp4(b: Bytes) -> Floats:
    e = b[:, :1].astype("uint32")
    tiny = 0x0020_0000 << (e & 1)  # 2 ** -128 and 2 ** -127 are subnormal
    scale = ((e - (e > 0)) << 23) * (e > 1) + tiny * (e < 2)
    return scale.astype("uint32").view("float32") * _chosen(_E2M1, _bits(b, 1, 17, 4, 16))


PACKINGS: Final = {
    2: Packing("Q4_0", 32, 18, _q4_0),
    3: Packing("Q4_1", 32, 20, _q4_1),
    6: Packing("Q5_0", 32, 22, _q5_0),
    7: Packing("Q5_1", 32, 24, _q5_1),
    8: Packing("Q8_0", 32, 34, _q8_0),
    10: Packing("Q2_K", 256, 84, _q2_k),
    11: Packing("Q3_K", 256, 110, _q3_k),
    12: Packing("Q4_K", 256, 144, _q4_k),
    13: Packing("Q5_K", 256, 176, _q5_k),
    14: Packing("Q6_K", 256, 210, _q6_k),
    20: Packing("IQ4_NL", 32, 18, _iq4_nl),
    23: Packing("IQ4_XS", 256, 136, _iq4_xs),
    39: Packing("MXFP4", 32, 17, _mxfp4),
}
"""Number of a type in files (`enum ggml_type`) -> how its blocks are read."""

REFUSED: Final = {
    9: "Q8_1",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    21: "IQ3_S",
    22: "IQ2_S",
    29: "IQ1_M",
    34: "TQ1_0",
    35: "TQ2_0",
}
"""Names of types that are not read."""
