"""Files of tensors that are read tensor by tensor.

Opening a file reads its header. A tensor is read and copied to the device when it is indexed. The file is a
mapping from names to tensors; it must be closed.

Not here: the formats. Next: `safetensors`, `gguf`, `checkpoints`.
"""

from __future__ import annotations

import errno
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from math import prod
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Self

from compiler.dtype import DType
from frontend.arguments.conversion import shown
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError
from hcq.names import nearest

if TYPE_CHECKING:
    from pathlib import Path

    import hcq
    from frontend.device import TensorDevice
    from frontend.nn.state.gguf import Packing


_PIECE: Final = 1 << 26
"""The most bytes that are copied to a device at once."""


class TensorEntry(NamedTuple):
    """A tensor of a file: dtype and shape as it is read, and its bytes `data[begin:end]`, row-major.

    `packing` is the quantised type of its blocks; None: the elements are stored one by one.
    """

    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int
    packing: Packing | None = None


class Contents(io.BufferedReader):
    """An open file whose parts can be read by any thread: `contents[begin:end]`.

    `path` may be a binary stream, which is read to its end. The file is not mapped into memory: a mapping
    ends the process if the file is shortened meanwhile. Raises `OSError` when the file cannot be read,
    `UsageError` when it is empty, `UsageTypeError` for no path and no stream. Reading a part raises
    `UsageError` if the file has become shorter.
    """

    def __init__(self, path: str | Path | IO[bytes], kind: str) -> None:
        self.path: str | Path = path if isinstance(path, (str, os.PathLike)) else "a stream"
        try:
            super().__init__(io.FileIO(_copied(path, kind) if self.path is not path else self.path))
        except OSError as error:
            raise _refused(error, self.path, kind) from None
        self.size = self.seek(0, 2)
        self.seek(0)
        if not self.size:
            self.close()
            raise UsageError(f"{self.path} is no {kind}: it is empty")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        begin, end, _ = part.indices(self.size)
        found: list[bytes] = []
        while begin < end:
            found.append(os.pread(self.fileno(), end - begin, begin))
            begin += len(found[-1])
            self._refuse_end(len(found[-1]), end)
        return b"".join(found)

    def read_into(self, memory: memoryview, begin: int) -> None:
        """Fill a view of memory with the bytes from `begin` on."""
        end = begin + len(memory)
        while memory:
            count = os.preadv(self.fileno(), [memory], begin)
            memory, begin = memory[count:], begin + count
            self._refuse_end(count, end)

    def _refuse_end(self, count: int, end: int) -> None:
        if not count:
            seen = f"wanted bytes up to {end}, it has {os.fstat(self.fileno()).st_size}"
            raise UsageError(f"{self.path} was cut off while it was open: {seen}")

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next `size` bytes, fewer at the end; -1 or None: all. Allocates no more than that."""
        rest = max(0, self.size - self.tell())
        return super().read(rest if size is None or size < 0 else min(size, rest))


def _copied(stream: Any, kind: str) -> int:
    """Return the descriptor of a file without a name that has what a binary stream has left."""
    data = stream.read() if hasattr(stream, "read") else None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise UsageTypeError(f"wanted a {kind}, as a path or a binary stream, saw {shown(stream)}")
    found = os.memfd_create(kind)
    with open(found, "wb", closefd=False) as out:
        out.write(data)
    return found


def _refused(error: OSError, path: str | Path, kind: str) -> OSError:
    """Return an error of its class with what was wanted, and the names beside a file that does not exist."""
    folder, name = os.path.split(os.fspath(path))
    near = nearest(name, os.listdir(folder or ".")) if os.path.isdir(folder or ".") else ""  # noqa: PTH112, PTH208 - any path
    hint = f"; did you mean {near}?" if near and near != name else ""
    return OSError(error.errno, f"wanted a {kind}, saw: {error.strerror}{hint}", os.fspath(path))


def check_folder(path: str | Path, what: str) -> None:
    """Raise `FileNotFoundError` unless the folder of a file to be written exists; `what` writes it."""
    if not os.path.isdir(os.path.dirname(path) or "."):  # noqa: PTH112, PTH120 - any path
        raise FileNotFoundError(errno.ENOENT, f"{what}: no such folder; make it first", os.fspath(path))


def count_of(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a shape."""
    return prod(shape)


class TensorFile(Mapping[str, Tensor]):
    """An open file of tensors by name; reading a name copies that tensor to the device.

    A context manager. After `close`, reading raises `UsageError`. Raises `KeyError` for a name that is not in
    the file, `OSError` when it cannot be opened, and as `parse`. Without `parse` of a subclass it raises
    `NotImplementedError`.
    """

    kind: str
    """The name of the format in messages."""

    def __init__(self, path: str | Path, device: str | None) -> None:
        self.path, self.device = str(path), device
        self.entries: dict[str, TensorEntry] = {}
        """Name -> entry of each tensor."""
        self.metadata: dict[str, Any] = {}
        """Name -> value of the data that is no tensor."""
        self._data: Contents | None = Contents(path, self.kind)
        try:
            self.parse(self._data)
        except BaseException:
            self.close()
            raise

    def parse(self, data: Contents) -> None:
        """Read the header into `entries` and `metadata`; a subclass defines it.

        Raises `UsageError` if it is malformed.
        """
        raise NotImplementedError

    def refuse_gaps(self, start: int, alignment: int = 1) -> int:
        """Return the byte behind the last tensor, aligned. Tensors fill the file from byte `start` on.

        Raises `UsageError` for bytes that belong to two tensors or to none.
        """
        for name, e in sorted(self.entries.items(), key=lambda each: each[1][2:4]):
            if e.begin != start:
                raise UsageError(
                    f"{self.path} is malformed: {name} begins at byte {e.begin}; wanted {start}, where "
                    "the tensor before it ends"
                )
            start = -(-e.end // alignment) * alignment
        return start

    def raw(self, begin: int, end: int) -> bytes:
        """Return bytes begin..end of the file.

        Raises `UsageError` when it is closed or has become shorter.
        """
        if self._data is None:
            raise UsageError(f"{self.path} is closed; read its tensors inside the with block")
        return self._data[begin:end]

    def read_into(self, device: TensorDevice, buffer: hcq.Buffer, at: int, begin: int, end: int) -> None:
        """Copy bytes begin..end of the file to byte `at` of a buffer that no submission uses yet.

        Of a device whose memory the host addresses they are read in place. Raises as `raw`, and as
        `TensorDevice.write_into`.
        """
        if self._data is not None and device.direct:
            self._data.read_into(buffer.borrow()[at : at + end - begin], begin)
            return
        for piece in range(begin, end, _PIECE):
            device.write_into(buffer, at + piece - begin, self.raw(piece, min(end, piece + _PIECE)))

    def __getitem__(self, name: str) -> Tensor:
        e = self.entries[name]
        return self.tensor(e, self.raw(e.begin, e.end), e.shape)

    def tensor(self, e: TensorEntry, raw: bytes, shape: tuple[int, ...]) -> Tensor:
        """Return the bytes of a tensor, or of some of its rows, as a tensor of a shape on the device."""
        return Tensor(raw, dtype=e.dtype, device=self.device).reshape(shape)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows start..stop-1 of the first axis of a tensor; only their bytes are read.

        Raises `UsageError` for a tensor without axes, for rows that it does not have, and for quantised
        tensors of one axis; `KeyError` for an unknown name.
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
        """Close the file. Tensors that were read stay valid."""
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
