"""Files of tensors that are read tensor by tensor.

Opening a file reads its header. A tensor is copied to the device when it is asked for, so only its pages are
read. The file is a mapping from names to tensors; it must be closed.

Not here: the formats (`safetensors`, `gguf`, `checkpoints`).
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from compiler.dtype import DType
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from frontend.nn.state.gguf import Packing


class TensorEntry(NamedTuple):
    """Where the bytes of a tensor lie in a file: `data[begin:end]`, row-major.

    `packing` says how its blocks are read; None: element by element.
    """

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int
    packing: Packing | None = None


class Contents(io.BufferedReader):
    """A file whose parts are read where they are asked for, by any thread: `contents[begin:end]`.

    A mapping would end the process if the file was shortened meanwhile. Raises `OSError` when the file cannot
    be read, `UsageError` when it is empty, and for a part that it has no longer.
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        super().__init__(io.FileIO(path))
        self.path, self.size = path, self.seek(0, 2)
        self.seek(0)
        if not self.size:
            self.close()
            raise UsageError(f"{path} is no {kind}: it is empty")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self.size)
        found: list[bytes] = []
        while begin < end:
            found.append(os.pread(self.fileno(), end - begin, begin))
            begin += len(found[-1])
            if not found[-1]:
                raise UsageError(
                    f"{self.path} was cut off while it was open: wanted bytes {part.start} to {end}, it has "
                    f"{os.fstat(self.fileno()).st_size}"
                )
        return b"".join(found)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes; a size beyond the end takes no memory."""
        rest = max(0, self.size - self.tell())
        return super().read(rest if size is None or size < 0 else min(size, rest))


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

    kind: str

    def __init__(self, path: str | Path, device: str | None) -> None:
        self.path, self.device = str(path), device
        self.entries: dict[str, TensorEntry] = {}
        """Dtype, shape and place of each tensor by name."""
        self.metadata: dict[str, Any] = {}
        """What the file has beside tensors, by name."""
        self._data: Contents | None = Contents(path, self.kind)
        try:
            self.parse(self._data)
        except BaseException:
            self.close()
            raise

    def parse(self, data: Contents) -> None:
        """Read the header. Raises `UsageError` when it is malformed."""
        raise NotImplementedError

    def raw(self, begin: int, end: int) -> bytes:
        """Return a part of the file. Raises `UsageError` when it is closed, or shorter than it was."""
        if self._data is None:
            raise UsageError(f"{self.path} is closed; read its tensors inside the with block")
        return self._data[begin:end]

    def __getitem__(self, name: str) -> Tensor:
        e = self.entries[name]
        return self.tensor(e, self.raw(e.begin, e.end), e.shape)

    def tensor(self, e: TensorEntry, raw: bytes, shape: tuple[int, ...]) -> Tensor:
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
        """Close the file. Tensors that were read stay."""
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
