"""GGUF files: metadata, and tensors whose quantised blocks are read as float32.

A file is the magic, a version, counts of tensors and of metadata, the metadata (typed values by name), for
each tensor its name, sizes (fastest first), type and offset, and the aligned data:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Versions 2 and 3, little-endian.

Not here: the quantised types (`blocks`), the mapping (`mapped`), writing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType, dtypes
from frontend.nn.state.blocks import PACKINGS, REFUSED
from frontend.nn.state.mapped import Entry, TensorFile, count_of, mapped
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

_PLAIN: Final[dict[int, DType]] = {
    0: dtypes.float32,
    1: dtypes.float16,
    24: dtypes.int8,
    25: dtypes.int16,
    26: dtypes.int32,
    27: dtypes.int64,
    28: dtypes.float64,
    30: dtypes.bfloat16,
}
"""Number of a type in files -> its dtype, where elements are stored one by one."""
_NUMBERS: Final = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
"""Number of a type of metadata -> its code of `struct`."""
_TEXT: Final = 8
_ARRAY: Final = 9
_MOST_AXES: Final = 8
_ALIGNMENT: Final = "general.alignment"


class _Cursor:
    """Reads the header of a file from front to back. Raises `UsageError` at its end."""

    def __init__(self, data: mmap.mmap, path: str | Path) -> None:
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
        """Return a value of metadata of a type."""
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

    def __init__(self, path: str | Path, data: mmap.mmap, device: str | None) -> None:
        super().__init__(path, device)
        c = _Cursor(data, path)
        if c.bytes(4) != b"GGUF":
            raise UsageError(f"{path} is no GGUF file: it starts with {data[:4]!r}")
        version = c.number("I")
        if version not in {2, 3}:
            raise UnsupportedError(
                f"{path}: wanted a GGUF file of version 2 or 3, little-endian, saw {version}"
            )
        tensors, values = c.number("Q"), c.number("Q")
        self.metadata: dict[str, Any] = {}
        """Values by name: numbers, texts, and lists of them."""
        for _ in range(values):
            name = c.text()
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
        self._data = data

    def tensor(self, e: Entry, raw: bytes, shape: tuple[int, ...]) -> Tensor:
        """Return bytes of a tensor as a tensor of a shape, blocks as float32."""
        if e.packing is None:
            return super().tensor(e, raw, shape)
        import numpy as np  # noqa: PLC0415 - only where such files are read

        with np.errstate(all="ignore"):  # a scale may be any float16
            found = e.packing.read(np.frombuffer(raw, np.uint8).reshape(-1, e.packing.size))
        return Tensor(found.reshape(shape), device=self.device)


def _described(c: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return name, shape, type and offset of a tensor."""
    name, axes = c.text(), c.number("I")
    if axes > _MOST_AXES:
        raise UsageError(f"{c.path} is malformed: the tensor {name} has {axes} axes")
    sizes = [c.number("Q") for _ in range(axes)]
    return name, tuple(reversed(sizes)), c.number("I"), c.number("Q")


def _stored(name: str, shape: tuple[int, ...], kind: int, begin: int, length: int) -> Entry:
    """Return where a tensor lies. Raises `UsageError` if the file does not hold it."""
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
    return Entry(dtype, shape, begin, begin + size, packing)


def gguf_open(path: str | Path, *, device: str | None = None) -> GgufFile:
    """Open a GGUF file without reading its tensors: a mapping from names to tensors, and `metadata`.

        with nn.state.gguf_open("model.gguf") as file:
            print(file.metadata["general.architecture"], file.entries["token_embd.weight"].shape)
            table = file["token_embd.weight"]      # this tensor is read

    Quantised tensors become float32 (`frontend.nn.state.blocks` has the list); other types keep theirs.
    Shapes have the slowest axis first, as everywhere here. Raises `OSError` when the file cannot be read,
    `UsageError` when it is malformed, `UnsupportedError` for other versions and types.
    """
    data = mapped(path, "GGUF file")
    try:
        return GgufFile(path, data, device)
    except (UsageError, UnsupportedError):
        data.close()
        raise


def gguf_load(path: str | Path, *, device: str | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata and all tensors of a GGUF file by name; see `gguf_open`, which is lazy."""
    with gguf_open(path, device=device) as file:
        return file.metadata, dict(file.items())
