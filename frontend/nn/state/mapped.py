"""Files of tensors that are mapped into memory and read tensor by tensor.

Opening a file reads its header. A tensor is copied to the device when it is asked for, so only its pages are
read. The file is a mapping from names to tensors; it must be closed.

Not here: the formats (`safetensors`, `gguf`, `checkpoints`).
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.dtype import DType
    from frontend.nn.state.gguf import Packing


class Entry(NamedTuple):
    """Where the bytes of a tensor lie in a file: `data[begin:end]`, row-major.

    `packing` says how its blocks are read; None: element by element.
    """

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int
    packing: Packing | None = None


def mapped(path: str | Path, kind: str) -> mmap.mmap:
    """Map a file for reading. Raises `OSError` when it cannot be read, `UsageError` when it is empty."""
    with Path(path).open("rb") as file:
        if not file.seek(0, 2):
            raise UsageError(f"{path} is no {kind}: it is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def count_of(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape."""
    count = 1
    for n in shape:
        count *= n
    return count


class TensorFile(Mapping[str, Tensor]):
    """An open file of tensors by name; reading a name copies that tensor to the device.

    A context manager. After `close` nothing can be read. Raises `KeyError` for a name that it does not hold.
    """

    def __init__(self, path: str | Path, device: str | None) -> None:
        self.path, self.device = str(path), device
        self._data: mmap.mmap | None = None
        self.entries: dict[str, Entry] = {}
        """Dtype, shape and place of each tensor by name."""

    def raw(self, begin: int, end: int) -> bytes:
        """Return a part of the file. Raises `UsageError` when it is closed, or shorter than it was."""
        if self._data is None:
            raise UsageError(f"{self.path} is closed; read its tensors inside the with block")
        if (size := self._data.size()) < end:  # reading a page beyond the end would end the process
            raise UsageError(
                f"{self.path} was cut off while it was open: wanted bytes {begin} to {end}, it has {size}"
            )
        return self._data[begin:end]

    def __getitem__(self, name: str) -> Tensor:
        e = self.entries[name]
        return self.tensor(e, self.raw(e.begin, e.end), e.shape)

    def tensor(self, e: Entry, raw: bytes, shape: tuple[int, ...]) -> Tensor:
        """Return bytes of a tensor, all or some rows, as a tensor of a shape."""
        return Tensor(raw, dtype=e.dtype, device=self.device).reshape(shape)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows start..stop-1 of the first axis of a tensor; only their bytes are read.

        Raises `UsageError` for a tensor without axes and rows that it does not have.
        """
        e = self.entries[name]
        if len(e.shape) < (1 if e.packing is None else 2) or not 0 <= start <= stop <= e.shape[0]:
            raise UsageError(f"{name} of the shape {e.shape}: wanted rows of it, saw {start}..{stop}")
        size = (e.end - e.begin) // max(1, e.shape[0])
        part = self.raw(e.begin + start * size, e.begin + stop * size)
        return self.tensor(e, part, (stop - start, *e.shape[1:]))

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, {len(self)} tensors)"

    def close(self) -> None:
        """Unmap the file. Tensors that were read stay."""
        if self._data is not None:
            self._data.close()
            self._data = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_data", None) is not None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
            self.close()
