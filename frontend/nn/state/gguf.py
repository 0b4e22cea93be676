"""GGUF files: metadata, and tensors whose quantised blocks are read as float32.

A file has the magic, a version, the numbers of tensors and of metadata, the metadata (typed values by name),
for each tensor its name, sizes (the fastest axis first), type and offset, and then the aligned data:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3 are read, little-endian.

Each quantised type packs a fixed number of elements into a block of fixed size, with scales in the block. The
layouts are those of `ggml/src/ggml-common.h`, the order of operations that of `ggml/src/ggml-quants.c`
(https://github.com/ggml-org/ggml, MIT). Results are equal to those of ggml to the last bit.

Not here: writing. Next: `tensor_file`, the base class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from compiler.dtype import DType, dtypes
from frontend.nn.state.tensor_file import Contents, TensorEntry, TensorFile, count_of
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


_FOURBIT: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The values of the four-bit codes of IQ4_NL and IQ4_XS (`kvalues_iq4nl`)."""
_E2M1: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of the four-bit floats of MXFP4 (`kvalues_mxfp4`)."""


class Packing(NamedTuple):
    """A quantised type: an element is scale * value; a value is a code less `offset`, or one of a table.

    The functions take blocks (..., size) of uint8, and are lazy.
    """

    name: str
    elements: int
    """Elements of a block."""
    size: int
    """Bytes of a block."""
    run: int
    """Neighbouring elements whose fields are the same bits of neighbouring bytes."""
    scale: Callable[[Tensor], Tensor]
    """Returns the scale (..., 1), float32."""
    codes: Callable[[Tensor], Tensor]
    """Returns the codes (..., elements), whole numbers of 8 bits. Blocks of 256 without a table may be uint16
    (..., size / 2): then two neighbours are in the halves of each uint32 (..., elements / 2)."""
    offset: int = 0
    table: tuple[int, ...] = ()
    factors: Callable[[Tensor], Tensor] | None = None
    """Returns whole numbers (..., groups), with which the scales of neighbouring elements are multiplied."""
    least: Callable[[Tensor], tuple[Tensor, Tensor | None]] | None = None
    """Returns a scale (..., 1), float32, and whole numbers (..., groups), None: 1. Neighbouring elements are
    less by their product."""

    def values(self, b: Tensor) -> Tensor:
        """Return the values (..., elements), float32."""
        codes = self.codes(b)
        return _chosen(self.table, codes) if self.table else _signed(codes, self.offset)

    def read(self, b: Tensor) -> Tensor:
        """Return the elements (..., elements), float32."""
        q, scale = self.values(b), _scaled(self.scale(b), self.factors and self.factors(b))
        y = scale * q.reshape(*scale.shape[:-1], self.elements // scale.shape[-2])
        if self.least is not None:
            least = _scaled(*self.least(b))
            y = y.reshape(*least.shape[:-1], self.elements // least.shape[-2]) - least
        return y.reshape(*q.shape)


def _scaled(scale: Tensor, factors: Tensor | None) -> Tensor:
    """Return the products, (..., groups, 1)."""
    return (scale if factors is None else scale * factors.cast(dtypes.float32)).unsqueeze(-1)


def _half(b: Tensor, at: int = 0) -> Tensor:
    """Return the float16 at byte `at` of each block, as float32 (..., 1).

    A bitcast of two bytes would be a sum of two, which a product's kernel does not contain.
    """
    low, high = (b[..., n : n + 1].cast(dtypes.uint16) for n in (at, at + 1))
    return (low | (high << 8)).bitcast(dtypes.float16).cast(dtypes.float32)


def _word(b: Tensor, at: int) -> Tensor:
    """Return the number in the four bytes from `at` on of each block, uint32 (..., 1)."""
    return reduce(or_, [b[..., at + n : at + n + 1].cast(dtypes.uint32) << 8 * n for n in range(4)])


def _each(b: Tensor, code: int) -> int:
    """Return the number that is a code in each half of a word, if `Packing.codes` of `b` are such pairs."""
    return code if b.dtype.itemsize == 1 else code * 0x10001


def _bits(b: Tensor, begin: int, end: int, width: int, run: int) -> Tensor:
    """Return the fields of `width` bits in bytes begin..end of each block, as `Packing.codes`.

    Of each run of `run` bytes come first the lowest fields of all bytes, then the next fields, and so on.
    """
    lead, count, n = b.shape[:-1], 8 // width, b.dtype.itemsize
    runs = b[..., begin // n : end // n].reshape(*lead, (end - begin) // run, 1, run // n)
    if n == 2:  # the second byte of a word moves to the upper half
        runs = runs.cast(dtypes.uint32) | (runs.cast(dtypes.uint32) << 8)
    shifts = (Tensor.arange(count, dtype=runs.dtype, device=b.device) * width).reshape(count, 1)
    return ((runs >> shifts) & _each(b, (1 << width) - 1)).reshape(*lead, (end - begin) * count // n)


def _signed(q: Tensor, offset: int) -> Tensor:
    return (q.cast(dtypes.int8) - offset if offset else q).cast(dtypes.float32)


def _fifth(b: Tensor, at: int) -> Tensor:
    """Return for element i bit i of the 32-bit word at byte `at`, as 16 or 0."""
    place = Tensor.arange(32, dtype=dtypes.uint32, device=b.device)
    sixteen, none = (Tensor.full((1,), n, dtype=dtypes.uint8, device=b.device) for n in (16, 0))
    return ((_word(b, at) & (1 << place)) != 0).where(sixteen, none)


def _six(b: Tensor, at: int, each: int = 1) -> Tensor:
    """Return eight numbers of 6 bits, each so many times: scales at byte 4, least values at byte 8."""
    low, both = _word(b, at), _word(b, 12) >> (at - 4)
    high = (both & 0x0F0F0F0F) | ((low >> 2) & 0x30303030)
    place = Tensor.arange(8 * each, dtype=dtypes.uint32, device=b.device) >> each - 1
    return ((place < 4).where(low & 0x3F3F3F3F, high) >> ((place & 3) * 8)) & 63


def _chosen(values: tuple[int, ...], codes: Tensor) -> Tensor:
    """Return the values of four-bit codes, packed as the bytes of four 32-bit words, as float32."""
    words = struct.unpack("<4I", struct.pack("<16b", *values))
    a, b, c, d = (Tensor.full((1,), w, dtype=dtypes.uint32, device=codes.device) for w in words)
    word = (codes < 8).where((codes < 4).where(a, b), (codes < 12).where(c, d))
    place = (codes & 3).cast(dtypes.uint32) * 8
    return (word >> place).cast(dtypes.uint8).bitcast(dtypes.int8).cast(dtypes.float32)


def _mxfp4_scale(b: Tensor) -> Tensor:
    e = b[..., :1].cast(dtypes.int32)
    tiny = (e & 1) * 0x0020_0000 + 0x0020_0000  # 2 ** -128 and 2 ** -127 are subnormal
    return (e > 1).where((e - 1) * 0x0080_0000, tiny).bitcast(dtypes.float32)


def _minimum(b: Tensor) -> tuple[Tensor, None]:
    return -_half(b, 2), None


PACKINGS: Final = {
    2: Packing("Q4_0", 32, 18, 16, _half, lambda b: _bits(b, 2, 18, 4, 16), 8),
    3: Packing("Q4_1", 32, 20, 16, _half, lambda b: _bits(b, 4, 20, 4, 16), least=_minimum),
    6: Packing("Q5_0", 32, 22, 16, _half, lambda b: _bits(b, 6, 22, 4, 16) | _fifth(b, 2), 16),
    7: Packing("Q5_1", 32, 24, 16, _half, lambda b: _bits(b, 8, 24, 4, 16) | _fifth(b, 4), least=_minimum),
    8: Packing("Q8_0", 32, 34, 16, _half, lambda b: b[..., 2:34].bitcast(dtypes.int8)),
    10: Packing(
        "Q2_K", 256, 84, 32, lambda b: _half(b, 80), lambda b: _bits(b, 16, 80, 2, 32),
        factors=lambda b: b[..., :16] & 15, least=lambda b: (_half(b, 82), b[..., :16] >> 4),
    ),
    11: Packing(
        "Q3_K", 256, 110, 32, lambda b: _half(b, 108),
        lambda b: _bits(b, 32, 96, 2, 32) | (_bits(b, 0, 32, 1, 32) << 2), 4,
        factors=lambda b: (_bits(b, 96, 104, 4, 8) | (_bits(b, 104, 108, 2, 4) << 4)).cast(dtypes.int8) - 32,
    ),
    12: Packing(
        "Q4_K", 256, 144, 32, _half, lambda b: _bits(b, 16, 144, 4, 32),
        factors=lambda b: _six(b, 4), least=lambda b: (_half(b, 2), _six(b, 8, 2)),
    ),
    13: Packing(
        "Q5_K", 256, 176, 32, _half, lambda b: _bits(b, 48, 176, 4, 32) | (_bits(b, 16, 48, 1, 32) << 4),
        factors=lambda b: _six(b, 4), least=lambda b: (_half(b, 2), _six(b, 8, 2)),
    ),
    14: Packing(
        "Q6_K", 256, 210, 32, lambda b: _half(b, 208),
        lambda b: _bits(b, 0, 128, 4, 64) | (_bits(b, 128, 192, 2, 32) << 4), 32,
        factors=lambda b: b[..., 192:208].bitcast(dtypes.int8),
    ),
    20: Packing("IQ4_NL", 32, 18, 16, _half, lambda b: _bits(b, 2, 18, 4, 16), table=_FOURBIT),
    23: Packing(
        "IQ4_XS", 256, 136, 16, _half, lambda b: _bits(b, 8, 136, 4, 16), table=_FOURBIT,
        factors=lambda b: (_bits(b, 4, 8, 4, 1) | (_bits(b, 2, 4, 2, 1) << 4)).cast(dtypes.int8) - 32,
    ),
    39: Packing("MXFP4", 32, 17, 16, _mxfp4_scale, lambda b: _bits(b, 1, 17, 4, 16), table=_E2M1),
}  # fmt: skip
"""Number of a quantised type in files (`enum ggml_type`) -> the type."""

REFUSED: Final = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip
"""Number of a type that is not read -> its name, for the error."""


_PLAIN: Final[dict[int, DType]] = {
    0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32,
    27: dtypes.int64, 28: dtypes.float64, 30: dtypes.bfloat16,
}  # fmt: skip
"""Number of a type in files -> its dtype, where elements are stored one by one."""
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a type of metadata -> its code of `struct`."""
_TEXT: Final = 8
_ARRAY: Final = 9
_MOST_AXES: Final = 8
_ALIGNMENT: Final = "general.alignment"


class _Cursor:
    """Reads the header of a file from front to back. All methods raise `UsageError` beyond the file's end."""

    def __init__(self, data: Contents, path: str | Path) -> None:
        self.data, self.path, self.at = data, path, 0

    def bytes(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise UsageError(
                f"{self.path} is malformed: {count} bytes wanted at byte {self.at}, "
                f"the file has {len(self.data)}; it may be cut off"
            )
        found = self.data[self.at : self.at + count]
        self.at += count
        return found

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.bytes(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        begin = self.at
        try:
            return self.bytes(self.number("Q")).decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.path} is malformed: the text at byte {begin}: {error}") from None

    def value(self, kind: int) -> Any:
        """Return a value of metadata of the type `kind`.

        Raises `UsageError` for an unknown type, `UnsupportedError` for an array of arrays.
        """
        if kind == _TEXT:
            return self.text()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise UsageError(f"{self.path} is malformed: metadata of the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in _NUMBERS:
            code = _NUMBERS[inner]
            return list(struct.unpack(f"<{count}{code}", self.bytes(count * struct.calcsize(code))))
        if inner != _TEXT:
            raise UnsupportedError(f"{self.path}: metadata that is an array of the type {inner}")
        if count * 8 > len(self.data) - self.at:  # a text has at least its length
            raise UsageError(f"{self.path} is malformed: {count} texts wanted at byte {self.at}")
        return [self.text() for _ in range(count)]


class GgufFile(TensorFile):
    """An open GGUF file: see `gguf_open`."""

    kind = "GGUF file"

    def parse(self, data: Contents) -> None:
        """Read the header. Raises `UsageError` and `UnsupportedError`."""
        path = self.path
        c = _Cursor(data, path)
        if c.bytes(4) != b"GGUF":
            raise UsageError(f"{path} is no GGUF file: it starts with {data[:4]!r}")
        version = c.number("I")
        if version not in {2, 3}:
            raise UnsupportedError(
                f"{path}: wanted a GGUF file of version 2 or 3, little-endian, saw {version}"
            )
        tensors, values = c.number("Q"), c.number("Q")
        for _ in range(values):
            name = c.text()
            if name in self.metadata:
                raise UsageError(f"{path} is malformed: the metadata {name} is there twice")
            self.metadata[name] = c.value(c.number("I"))
        alignment = self.metadata.get(_ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1:
            raise UsageError(f"{path} is malformed: {_ALIGNMENT} is {alignment!r}")
        found = [_described(c) for _ in range(tensors)]
        start = -(-c.at // alignment) * alignment
        for name, shape, kind, offset in found:
            if name in self.entries:
                raise UsageError(f"{path} is malformed: the tensor {name} is there twice")
            self.entries[name] = _stored(name, shape, kind, start + offset, len(data))
        self.refuse_gaps(start, alignment)

    def tensor(self, e: TensorEntry, raw: bytes, shape: tuple[int, ...]) -> Tensor:
        """Return bytes of a tensor as a tensor of a shape; quantised blocks become float32."""
        if e.packing is None:
            return super().tensor(e, raw, shape)
        blocks = Tensor(raw, dtype=dtypes.uint8, device=self.device).reshape(-1, e.packing.size)
        return e.packing.read(blocks).reshape(shape).realize()


def _described(c: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return name, shape, type and offset of a tensor."""
    name, axes = c.text(), c.number("I")
    if axes > _MOST_AXES:
        raise UsageError(f"{c.path} is malformed: the tensor {name} has {axes} axes")
    sizes = [c.number("Q") for _ in range(axes)]
    return name, tuple(reversed(sizes)), c.number("I"), c.number("Q")


def _stored(name: str, shape: tuple[int, ...], kind: int, begin: int, length: int) -> TensorEntry:
    """Return the entry of a tensor. Raises `UsageError` if it is malformed or beyond the file's end.

    Raises `UnsupportedError` for a type that is not read.
    """
    packing = PACKINGS.get(kind)
    if packing is None and kind not in _PLAIN:
        known = ", ".join([*[d.name for d in _PLAIN.values()], *[p.name for p in PACKINGS.values()]])
        raise UnsupportedError(f"{name} has the type {REFUSED.get(kind, kind)}; known are {known}")
    count = count_of(shape)
    if packing is None:
        dtype, size = _PLAIN[kind], count * _PLAIN[kind].itemsize
    elif not shape or shape[-1] % packing.elements:
        raise UsageError(f"{name}: rows of {shape} are no blocks of {packing.elements} elements")
    else:
        dtype, size = dtypes.float32, count // packing.elements * packing.size
    if begin + size > length:
        raise UsageError(f"{name}: bytes {begin} to {begin + size} of a file of {length}; it may be cut off")
    return TensorEntry(dtype, shape, begin, begin + size, packing)


def gguf_open(path: str | Path, *, device: str | None = None) -> GgufFile:
    """Open a GGUF file without reading its tensors: a mapping from names to tensors, and `metadata`.

        with nn.state.gguf_open("model.gguf") as file:
            print(file.metadata["general.architecture"], file.entries["token_embd.weight"].shape)
            table = file["token_embd.weight"]      # this tensor is read

    Tensors of quantised types (`frontend.nn.state.gguf.PACKINGS`) become float32; others keep their dtype.
    Shapes have the slowest axis first. `device` None is the default device. Raises `OSError` when the file
    cannot be read, `UsageError` when it is malformed, `UnsupportedError` for other versions and types.
    """
    return GgufFile(path, device)


def gguf_load(path: str | Path, *, device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata and all tensors of a GGUF file by name. Raises as `gguf_open`, which is lazy."""
    with gguf_open(path, device=device) as file:
        return file.metadata, dict(file.items())
