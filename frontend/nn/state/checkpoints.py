"""PyTorch checkpoints (`torch.save`), read without PyTorch and without running a pickle.

The format since PyTorch 1.6 is a zip archive of stored entries: `NAME/data.pkl`, a pickle whose persistent
ids name the storages `NAME/data/KEY`. The legacy format is one file with five pickles, one after the other: a
magic number, a version, a dictionary about the system, the data, and a list of storage keys. After them
follow, for each key, its number of elements and the elements. Source of both formats:
`torch/serialization.py` of PyTorch 2.13 (https://github.com/pytorch/pytorch, BSD-3-Clause).

Not here: writing, TorchScript archives. Next: `pickled`, the opcodes.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from compiler.dtype import FLOAT8, DType, dtypes
from frontend.arguments.checks import Size
from frontend.nn.state import pickled
from frontend.nn.state.pickled import PickledGlobal
from frontend.nn.state.tensor_file import Contents, count_of
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = 0x1950A86A20F9469CFC6C
"""The first pickle of a legacy file."""
_PROTOCOL: Final = 1001
"""The second pickle of a legacy file."""
_MOST_REPEATED: Final = 1 << 30
"""The most bytes of a tensor that repeats elements of its storage (stride 0)."""
STORAGES: Final = {
    "BoolStorage": dtypes.bool, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "ShortStorage": dtypes.int16, "IntStorage": dtypes.int32, "LongStorage": dtypes.int64,
    "HalfStorage": dtypes.float16, "BFloat16Storage": dtypes.bfloat16, "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
}  # fmt: skip
"""The name of a storage in a file -> its dtype."""
_DTYPES: Final = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_FLOATS: Final = ("float16", "bfloat16", "float32", "float64", *[t.name for t in FLOAT8])


_Devices: TypeAlias = str | Mapping[str, str] | None


class _Storage(NamedTuple):
    """A storage of a file: its key, its dtype, its number of elements, and its device in the file."""

    key: str
    dtype: DType
    elements: int
    place: Any


class _Rebuilder:
    """Makes the tensors of one file. Its methods raise `UsageError` for malformed arguments."""

    def __init__(self, data: Contents, device: _Devices, *, swapped: bool) -> None:
        self.data, self.device, self.swapped = data, device, swapped
        """`swapped`: the elements are big-endian."""
        self.storages: dict[str, _Storage] = {}
        """Key -> storage, as the pickles name them."""
        self.place_of: Callable[[_Storage], range] | None = None
        """Returns the bytes of the file that a storage has; None while they are not known."""

    def persistent(self, pid: Any) -> _Storage:
        """Return the storage of a persistent id ("storage", type, key, location, elements, ...)."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise UsageError("a persistent id that is no storage")
        _, kind, key, place, count, *_ = pid
        if len(pid) > 5 and pid[5] is not None:
            raise UnsupportedError("a storage that is a part of another one")
        if not isinstance(kind, DType) or not isinstance(key, str) or type(count) is not int or count < 0:
            raise UsageError(f"a storage of the key {key!r} with {count!r} elements")
        return self.storages.setdefault(key, _Storage(key, kind, count, place))

    def tensor(self, args: tuple[Any, ...]) -> Tensor | None:
        """Return the tensor of (storage, offset, shape, stride, requires_grad, hooks, metadata)."""
        storage, offset, shape, stride, *rest = args
        return self.made(storage, storage.dtype, offset, shape, stride, wanted=bool(rest and rest[0] is True))

    def typed(self, args: tuple[Any, ...]) -> Tensor | None:
        """Return the tensor of (storage, offset, shape, stride, requires_grad, hooks, dtype, ...)."""
        storage, offset, shape, stride, wanted, _, dtype, *_ = args
        if not isinstance(dtype, DType):
            raise UsageError("a tensor without a dtype")
        return self.made(storage, dtype, offset, shape, stride, wanted=wanted is True)

    def made(
        self, storage: Any, dtype: DType, offset: Any, shape: Any, stride: Any, *, wanted: bool
    ) -> Tensor | None:
        """Return the tensor of a part of a storage; None while `place_of` is None.

        `offset` and `stride` count elements. `wanted` sets requires_grad of a float tensor.
        """
        sizes, steps = _sizes(shape), _sizes(stride)
        if not isinstance(storage, _Storage) or type(offset) is not int or len(sizes) != len(steps):
            raise UsageError(f"a tensor of the shape {sizes} with the strides {steps} at {offset!r}")
        if self.place_of is None:
            return None
        place, size, count = self.place_of(storage), dtype.itemsize, count_of(sizes)
        last = offset + sum([(n - 1) * s for n, s in zip(sizes, steps, strict=True)]) if count else 0
        if offset < 0 or (last + 1) * size > len(place) + size * (not count):
            raise UsageError(
                f"a tensor of the shape {sizes} at {offset} needs {(last + 1) * size} bytes, "
                f"the storage {storage.key} has {len(place)}"
            )
        if count * size > max(len(place), _MOST_REPEATED):
            raise UnsupportedError(f"a tensor of {count} elements that repeats {len(place) // size}")
        part = slice(place.start + offset * size, place.start + (last + 1) * size)
        data = _gathered(self.data[part], size, sizes, steps, swapped=self.swapped) if count else b""
        device = self.device.get(storage.place) if isinstance(self.device, Mapping) else self.device
        found = Tensor(data, dtype=dtype, device=device).reshape(sizes)
        if wanted and dtype.is_float:
            found.requires_grad = True
        return found

    def known(self) -> dict[str, Any]:
        """Return the globals that a checkpoint may name: full name -> value or `PickledGlobal`."""
        found: dict[str, Any] = {f"torch.{name}": dtype for name, dtype in STORAGES.items()}
        found |= {f"torch.{name}": getattr(dtypes, name) for name in (*_DTYPES, *_FLOATS)}
        found |= {f"torch.{name}": dtypes.uint8 for name in ("UntypedStorage", "storage.UntypedStorage")}
        rebuild = "torch._utils._rebuild_"
        calls: dict[str, Callable[[tuple[Any, ...]], Any]] = {
            "collections.OrderedDict": partial(_ordered, OrderedDict),
            "collections.Counter": partial(_ordered, Counter),
            f"{rebuild}tensor": self.tensor,
            f"{rebuild}tensor_v2": self.tensor,
            f"{rebuild}tensor_v3": self.typed,
            f"{rebuild}parameter": _parameter,
            "torch.Size": lambda args: Size(_sizes(args[0])),
            "torch.device": lambda args: ":".join([str(a) for a in args if isinstance(a, (str, int))]),
            "_codecs.encode": _encoded,
            "builtins.set": lambda args: {pickled.plain_key(v) for v in args[0]},
            "__builtin__.set": lambda args: {pickled.plain_key(v) for v in args[0]},
        }
        return found | {name: PickledGlobal(name, read) for name, read in calls.items()}


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)) or not all(type(n) is int and n >= 0 for n in value):
        raise UsageError("sizes or strides that are no list of numbers of at least 0")
    return tuple(value)


def _parameter(args: tuple[Any, ...]) -> Tensor | None:
    """Return the tensor of (tensor, requires_grad, hooks)."""
    found, wanted, *_ = args
    if not isinstance(found, Tensor | None):
        raise UsageError(f"a parameter that is a value of type {type(found).__name__}")
    if found is not None and wanted is True and found.dtype.is_float:
        found.requires_grad = True
    kept: Tensor | None = found
    return kept


def _ordered(kind: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the dictionary of the arguments of an OrderedDict or a Counter: none, pairs, or a dictionary."""
    pairs = (args[0].items() if isinstance(args[0], dict) else args[0]) if args else []
    return kind({pickled.plain_key(k): v for k, v in pairs})


def _encoded(args: tuple[Any, ...]) -> bytes:
    """Return bytes that protocol 2 stores as a text of latin1."""
    text, name = args
    if name != "latin1" or not isinstance(text, str):
        raise UnsupportedError(f"a text in the encoding {name!r}")
    return text.encode(name)


def _gathered(
    raw: bytes, size: int, shape: tuple[int, ...], stride: tuple[int, ...], *, swapped: bool
) -> bytes:
    """Return the elements of a strided part of memory in row-major order.

    `size` is the bytes of an element.
    """
    import numpy as np  # noqa: PLC0415 - only where such files are read
    from numpy.lib.stride_tricks import as_strided  # noqa: PLC0415 - as above

    words = np.frombuffer(raw, f"<u{size}")
    part = as_strided(words, shape, [s * size for s in stride], writeable=False)
    return (part.byteswap() if swapped else part).tobytes()


def torch_load(path: str | Path | IO[bytes], *, device: str | Mapping[str, str] | None = None) -> Any:
    """Return the data of a PyTorch checkpoint: its dictionaries and lists, with tensors on a device.

        nn.state.load_state_dict(model, nn.state.torch_load("model.pt"))

    Reads both formats of `torch.save`, without PyTorch; nothing of the file is run. Float tensors that
    require a gradient in the file do so here. Tensors that share memory in the file get memory of their own.
    Data may have numbers, texts, bytes, lists, tuples, sets, dictionaries, sizes, devices (as texts) and
    dtypes. `path` may be a binary stream, which is read to its end. `device` None is the default device; a
    dictionary has the devices of the file and those to use instead.

    Raises `OSError` when the file cannot be read, `UsageError` when it is malformed or no checkpoint,
    `UnsupportedError` for a compressed or TorchScript archive and for any other global or opcode of a pickle,
    which the message names; and as `Tensor`.
    """
    with Contents(path, "PyTorch checkpoint") as data:
        load = _load_archive if data[:4] == b"PK\x03\x04" else _load_legacy
        return load(data, data.path, device)


def _load_archive(data: Contents, path: str | Path, device: _Devices) -> Any:
    try:
        with zipfile.ZipFile(data) as archive:
            entries = {e.filename: e for e in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, struct.error) as error:
        raise UsageError(f"{path} is malformed: {error}") from None
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise UsageError(f"{path} is no PyTorch checkpoint: it has {len(roots)} entries NAME/data.pkl")
    root = roots[0]
    if f"{root}constants.pkl" in entries:
        raise UnsupportedError(f"{path} is a TorchScript archive; save the state_dict() of its model")

    def place(name: str) -> range:
        if root + name not in entries:
            raise UsageError(f"{path} is malformed: it has no entry {root}{name}")
        return _stored(data, entries[root + name], path)

    def part(name: str) -> bytes:
        return data[place(name).start : place(name).stop]

    order = part("byteorder") if f"{root}byteorder" in entries else b"little"
    if order not in {b"little", b"big"}:
        raise UsageError(f"{path} is malformed: the order of bytes is {order!r}")
    rebuilder = _Rebuilder(data, device, swapped=order == b"big")
    rebuilder.place_of = lambda storage: place(f"data/{storage.key}")
    return _parsed(io.BytesIO(part("data.pkl")), rebuilder, f"{path}, data.pkl")


def _stored(data: Contents, entry: zipfile.ZipInfo, path: str | Path) -> range:
    """Return the bytes of the file that an entry of an archive has; `torch.save` stores it uncompressed.

    The checksum of the entry is not compared, as PyTorch may write a wrong one.
    """
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
        raise UnsupportedError(f"{path}: the entry {entry.filename} is compressed or encrypted")
    header = data[entry.header_offset : entry.header_offset + 30]
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise UsageError(f"{path} is malformed: the entry {entry.filename} has no header")
    name, extra = struct.unpack("<HH", header[26:30])
    begin = entry.header_offset + 30 + name + extra
    if begin + entry.file_size > len(data):
        raise UsageError(f"{path} is malformed: the entry {entry.filename} is cut off")
    return range(begin, begin + entry.file_size)


def _parsed(reader: pickled.PickleSource, rebuilder: _Rebuilder, what: str) -> Any:
    return pickled.read(reader, rebuilder.known(), rebuilder.persistent, what)


def _load_legacy(data: Contents, path: str | Path, device: _Devices) -> Any:
    rebuilder = _Rebuilder(data, device, swapped=False)
    try:
        magic = _parsed(data, rebuilder, f"{path}, first pickle")
    except (UsageError, UnsupportedError):
        magic = None
    if magic != _MAGIC:
        raise UsageError(f"{path} is no PyTorch checkpoint: it starts with {data[:8]!r}")
    if (version := _parsed(data, rebuilder, f"{path}, version")) != _PROTOCOL:
        raise UnsupportedError(f"{path}: wanted the legacy format {_PROTOCOL}, saw {pickled.shown(version)}")
    system = _parsed(data, rebuilder, f"{path}, system")
    rebuilder.swapped = isinstance(system, dict) and system.get("little_endian") is False
    begin = data.tell()
    _parsed(data, rebuilder, f"{path}, data")  # a first pass, to find the storages, which come after it
    keys = _parsed(data, rebuilder, f"{path}, keys")
    places: dict[str, range] = {}
    for key in keys if isinstance(keys, list) else [keys]:
        storage = rebuilder.storages.get(key) if isinstance(key, str) else None
        if storage is None:
            raise UsageError(f"{path} is malformed: no tensor is in the storage {pickled.shown(key)}")
        count = int.from_bytes(data.read(8), "big" if rebuilder.swapped else "little")
        at = data.tell()
        size = count * storage.dtype.itemsize
        if count != storage.elements or size > len(data) - at:
            raise UsageError(
                f"{path} is malformed: the storage {key} has {count} elements of {storage.elements}, "
                f"{len(data) - at} bytes are left; it may be cut off"
            )
        places[key] = range(at, at + size)
        data.seek(at + size)

    def place_of(storage: _Storage) -> range:
        if storage.key not in places:
            raise UsageError(f"the storage {storage.key} is missing")
        return places[storage.key]

    rebuilder.place_of = place_of
    data.seek(begin)
    return _parsed(data, rebuilder, f"{path}, data")
