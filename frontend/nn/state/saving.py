"""`save` and `load` of nested data with tensors, in the format of `torch.save`.

The file is a zip archive of stored entries: `archive/data.pkl`, a pickle of protocol 2 whose persistent ids
name the storages `archive/data/KEY`, as PyTorch 2.13 writes them. PyTorch reads it with `weights_only=True`.

Not here: safetensors (`safetensors`). Next: `checkpoints`, reading.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from contextlib import suppress
from io import BytesIO
from math import prod
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from compiler.dtype import DType
from frontend.arguments.checks import Size
from frontend.arguments.conversion import shown
from frontend.device import DeviceName
from frontend.nn.state.checkpoints import STORAGES, torch_load
from frontend.nn.state.tensor_file import check_folder
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from pathlib import Path

_STORAGES: Final = {dtype: name for name, dtype in STORAGES.items()}
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
        return _tensor(value, storages)
    if isinstance(value, DType):
        return _Global("torch", value.name)
    if type(value) in _PLAIN or type(value) is set:
        return value
    if isinstance(value, dict):
        pairs = [
            (_described(k, storages, where), _described(v, storages, f"{where}[{k!r}]"))
            for k, v in value.items()
        ]
        kind = type(value) if isinstance(value, (OrderedDict, Counter)) else None
        return dict(pairs) if kind is None else _called(f"collections.{kind.__name__}", dict(pairs))
    if isinstance(value, Size):
        return _called("torch.Size", tuple(value))
    if isinstance(value, (list, tuple)):
        items = [_described(v, storages, f"{where}[{i}]") for i, v in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, DeviceName) and value.type == "cpu":
        return _called("torch.device", *value.split(":")[:1])
    if isinstance(value, str):
        return str(value)
    raise UsageTypeError(
        f"save: {where} is {shown(value)}\n"
        "hint: save numbers, texts, tensors, and lists and dictionaries of them; of a model its state_dict()"
    )


def _called(name: str, *arguments: Any) -> _Call:
    module, _, own = name.rpartition(".")
    return _Call(_Global(module, own), arguments)


def _tensor(t: Tensor, storages: list[bytes]) -> _Call:
    kind = _STORAGES.get(t.dtype)  # None: the elements of the storage are bytes
    storage = _Global("torch", kind) if kind else _Global("torch.storage", "UntypedStorage")
    count = t.numel() * (1 if kind else t.dtype.itemsize)
    identity = ("storage", storage, str(len(storages)), "cpu", count)
    storages.append(t.tobytes())
    strides = [prod(t.shape[axis + 1 :]) for axis in range(t.ndim)]
    wanted, none = bool(t.requires_grad), _called("collections.OrderedDict")
    arguments = (_Storage(identity), 0, tuple(t.shape), tuple(strides), wanted, none)
    if kind:
        return _called("torch._utils._rebuild_tensor_v2", *arguments)
    return _called("torch._utils._rebuild_tensor_v3", *arguments, _Global("torch", t.dtype.name))


def save(
    obj: Any, f: str | Path | IO[bytes], pickle_module: Any = None, pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,  # noqa: FBT001, FBT002 - the field's signature
) -> None:  # fmt: skip
    """Write data to a file or a binary stream in the format of `torch.save`; `load` and PyTorch read it.

    Data may hold numbers, texts, bytes, sets, dtypes, tensors, and lists, tuples and dictionaries of them.
    Tensors are computed and copied, each with memory of its own. For a path, a new file is written completely
    before it replaces an older one. Raises `UsageTypeError`, which names the value, for anything else, before
    anything is written; `OSError` when the file cannot be written, `FileNotFoundError` without its folder,
    and as `Tensor.realize`. The last three arguments change nothing: the format is that of today's PyTorch.
    """
    del pickle_module, pickle_protocol, _use_new_zipfile_serialization
    storages: list[bytes] = []
    described, packed = _described(obj, storages, "data"), BytesIO()
    _Pickler(packed, 2).dump(described)
    if not isinstance(f, (str, os.PathLike)):
        _write(f, packed.getvalue(), storages)
        return
    path = os.fspath(f)
    check_folder(path, "save")
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
    f: str | Path | IO[bytes],
    map_location: Any = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
) -> Any:
    """Return the data of a file or a binary stream of `save` or of `torch.save`.

    Tensors are on the device `map_location`; None: the default device; a dictionary: from devices of the file
    to those here; a function that returns its storage as it is: "cpu". No code of the file is run, whatever
    `weights_only` is. `mmap` has no effect. Errors are those of `nn.state.torch_load`, and `UsageError` for
    another function.
    """
    del weights_only, mmap
    if callable(map_location):
        map_location = _where_it_leaves(map_location)
    return torch_load(f, device=map_location)


def _where_it_leaves(function: Any) -> str:
    storage = object()
    with suppress(AttributeError):  # of a storage, whose methods move it
        if function(storage, "cpu") is storage:
            return "cpu"
    raise UsageError(
        "load, map_location: wanted a function that returns its storage, which stays on cpu\n"
        'hint: name the device, map_location="cuda", or map names of devices to others by a dictionary'
    )
