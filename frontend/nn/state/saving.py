"""`save` and `load` of nested data with tensors, in the format of `torch.save`.

The file is a zip archive of stored entries: `archive/data.pkl`, a pickle of protocol 2 whose persistent ids
name the storages `archive/data/KEY`, as PyTorch 2.13 writes them. PyTorch reads it with `weights_only=True`.

Not here: safetensors (`safetensors`). Next: `checkpoints`, reading.
"""

from __future__ import annotations

import errno
import os
import pickle
import zipfile
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from compiler.dtype import DType, dtypes
from frontend.arguments.conversion import shown
from frontend.nn.state.checkpoints import torch_load
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageTypeError

if TYPE_CHECKING:
    from pathlib import Path

_STORAGES: Final = {
    dtypes.bool: "BoolStorage", dtypes.int8: "CharStorage", dtypes.uint8: "ByteStorage",
    dtypes.int16: "ShortStorage", dtypes.int32: "IntStorage", dtypes.int64: "LongStorage",
    dtypes.float16: "HalfStorage", dtypes.bfloat16: "BFloat16Storage", dtypes.float32: "FloatStorage",
    dtypes.float64: "DoubleStorage",
}  # fmt: skip
_PLAIN: Final = (bool, int, float, str, bytes, type(None))


class _Global(NamedTuple):
    """A name of PyTorch's or of Python's modules."""

    module: str
    name: str


class _Call(NamedTuple):
    """A call of a function of PyTorch's, which the reader of the file executes."""

    function: _Global
    arguments: tuple[Any, ...]


class _Storage(NamedTuple):
    """The persistent id of a storage."""

    identity: tuple[Any, ...]


_Python: Any = vars(pickle)["_Pickler"]
"""Python's own pickler: the one in C looks up every global by an import."""


class _Pickler(_Python):  # type: ignore[misc]  # a class that type checkers do not know
    """A pickler of `_Global`, `_Call` and `_Storage` that imports nothing."""

    def persistent_id(self, value: Any) -> Any:
        """Return the persistent id of a storage, None for anything else."""
        return value.identity if isinstance(value, _Storage) else None

    def save_global_name(self, value: _Global) -> None:
        """Write a global by its name."""
        self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())

    def save_call(self, value: _Call) -> None:
        """Write a call of a global."""
        self.save(value.function)
        self.save(value.arguments)
        self.write(pickle.REDUCE)

    dispatch: Final = {**_Python.dispatch, _Global: save_global_name, _Call: save_call}


def _described(value: Any, storages: list[bytes], where: str) -> Any:
    """Return data with its tensors as calls; their bytes are appended to `storages`."""
    if isinstance(value, Tensor):
        return _tensor(value, storages, where)
    if isinstance(value, DType):
        return _Global("torch", value.name)
    if type(value) in _PLAIN or type(value) is set:
        return value
    if isinstance(value, dict):
        return {
            _described(k, storages, where): _described(v, storages, f"{where}[{k!r}]")
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        kind = list if isinstance(value, list) else tuple
        return kind([_described(v, storages, f"{where}[{i}]") for i, v in enumerate(value)])
    if isinstance(value, str):
        return str(value)
    raise UsageTypeError(
        f"save: {where} is {shown(value)}\n"
        "hint: save numbers, texts, tensors, and lists and dictionaries of them; of a model its state_dict()"
    )


def _tensor(t: Tensor, storages: list[bytes], where: str) -> _Call:
    kind = _STORAGES.get(t.dtype)
    if kind is None:
        raise UnsupportedError(
            f"save: {where} is {t.dtype.name}, for which the format has no storage; cast it"
        )
    identity = ("storage", _Global("torch", kind), str(len(storages)), "cpu", t.numel())
    storages.append(t.tobytes())
    strides: list[int] = []
    step = 1
    for n in reversed(t.shape):
        strides.insert(0, step)
        step *= n
    wanted, none = bool(t.requires_grad), _Call(_Global("collections", "OrderedDict"), ())
    arguments = (_Storage(identity), 0, tuple(t.shape), tuple(strides), wanted, none)
    return _Call(_Global("torch._utils", "_rebuild_tensor_v2"), arguments)


def save(data: Any, file: str | Path | IO[bytes]) -> None:
    """Write data to a file or a binary stream in the format of `torch.save`; `load` and PyTorch read it.

    Data may hold numbers, texts, bytes, sets, dtypes, tensors, and lists, tuples and dictionaries of them.
    Tensors are computed and copied, each with memory of its own. For a path, a new file is written completely
    before it replaces an older one. Raises `UsageTypeError`, which names the value, for anything else, and
    `UnsupportedError` for a dtype that the format lacks, before anything is written; `OSError` when the file
    cannot be written, `FileNotFoundError` without its folder, and as `Tensor.realize`.
    """
    storages: list[bytes] = []
    described, packed = _described(data, storages, "data"), BytesIO()
    _Pickler(packed, 2).dump(described)
    if not isinstance(file, (str, os.PathLike)):
        _write(file, packed.getvalue(), storages)
        return
    path = os.fspath(file)
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - any path
    if not os.path.isdir(folder):  # noqa: PTH112 - as above
        raise FileNotFoundError(errno.ENOENT, "save: there is no such folder; make it first", path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "wb") as out:  # noqa: PTH123 - any path
            _write(out, packed.getvalue(), storages)
        os.replace(beside, path)  # noqa: PTH105 - as above
    except BaseException:
        if os.path.exists(beside):  # noqa: PTH110 - as above
            os.unlink(beside)  # noqa: PTH108 - as above
        raise


def _write(out: IO[bytes], packed: bytes, storages: list[bytes]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", packed)
        archive.writestr("archive/byteorder", "little")
        for key, data in enumerate(storages):
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")


def load(
    file: str | Path,
    map_location: str | None = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
) -> Any:
    """Return the data of a file of `save` or of `torch.save`; errors as `nn.state.torch_load`.

    Tensors are on the device `map_location`; None: the default device. No code of the file is run, whatever
    `weights_only` is. `mmap` has no effect.
    """
    del weights_only, mmap
    return torch_load(file, device=map_location)
