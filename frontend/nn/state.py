"""The tensors of a model by name, found by walking attributes; safetensors files.

A safetensors file is eight bytes of header length (little-endian), a JSON header {name: {dtype, shape,
data_offsets}}, and the elements, row-major: https://github.com/huggingface/safetensors#format.

Not here: pickles (`frontend.copies`), the state of an optimiser, whose tensors are attributes like any other.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeGuard

from compiler.dtype import DType, dtypes
from frontend.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final[dict[str, DType]] = {
    "BOOL": dtypes.bool,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "U8": dtypes.uint8,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
}
_CODES: Final = {dtype: name for name, dtype in _NAMES.items()}


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of an object by name: attributes, list items and dictionary values, joined by dots.

    The tensors are those of the object, not copies. `prefix` stands before each name.

        get_state_dict(Linear(2, 3))      # {"weight": ..., "bias": ...}
    """
    found: dict[str, Tensor] = {}
    _walk(model, prefix, found, set())
    return found


def _walk(value: Any, name: str, found: dict[str, Tensor], seen: set[int]) -> None:
    if isinstance(value, Tensor):
        found[name] = value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(str(i), v) for i, v in enumerate(value)]
    else:
        parts = list(getattr(value, "__dict__", {}).items())
    for key, part in parts:
        _walk(part, f"{name}.{key}" if name else key, found, seen)


def get_parameters(model: Any) -> list[Tensor]:
    """Return the tensors of an object, in the order of `get_state_dict`, also those without requires_grad."""
    return list(get_state_dict(model).values())


def load_state_dict(model: Any, state: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """Assign values to the tensors of an object by name, in place.

    Values are cast to the dtype and moved to the device of their target. With `strict`, missing and unknown
    names raise `UsageError`; a value of another shape always raises it. What raises assigns nothing.
    """
    own = get_state_dict(model)
    missing, extra = [n for n in own if n not in state], [n for n in state if n not in own]
    if strict and (missing or extra):
        raise UsageError(f"load_state_dict: missing {missing or 'nothing'}, unknown {extra or 'nothing'}")
    pairs = [(name, t, state[name]) for name, t in own.items() if name in state]
    for name, t, value in pairs:
        if t.shape != value.shape:
            raise UsageError(f"load_state_dict: {name} has the shape {t.shape}, the value has {value.shape}")
    for _, t, value in pairs:
        t.assign(value.detach().to(t.device).cast(t.dtype))
    realize_many([t for _, t, _ in pairs])


def safe_save(
    tensors: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file; `metadata` maps text to text.

    Pending tensors are computed first. Raises `OSError` when the file cannot be written.
    """
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    realize_many(list(tensors.values()))
    at = 0
    for name, t in tensors.items():
        end = at + t.nbytes()
        header[name] = {"dtype": _CODES[t.dtype], "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for t in tensors.values():
            file.write(t.data())


def safe_load(path: str | Path, *, device: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, copied to a device (the default one if None).

    Raises `OSError` when the file cannot be read, `UsageError` when it is malformed: empty, cut off, its
    header no JSON object, an entry without dtype, shape or offsets, an unknown dtype, offsets outside of the
    file, or a size that does not fit the shape.
    """
    with Path(path).open("rb") as file, _mapped(file, path) as data:
        header, start = _header(data, path)
        return {
            name: _entry(data, start, name, entry, device)
            for name, entry in header.items()
            if name != "__metadata__"
        }


def safe_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a safetensors file, which maps text to text; empty if it has none.

    Raises `OSError` when the file cannot be read, `UsageError` when its header is no JSON object or its
    metadata is none.
    """
    with Path(path).open("rb") as file, _mapped(file, path) as data:
        found = _header(data, path)[0].get("__metadata__", {})
    if not isinstance(found, dict):
        raise UsageError(f"{path}: __metadata__ is {found!r}, not an object of names and texts")
    return found


def _mapped(file: BinaryIO, path: str | Path) -> mmap.mmap:
    """Map a file for reading. Raises `UsageError` when it is empty."""
    if not os.fstat(file.fileno()).st_size:
        raise UsageError(f"{path} is no safetensors file: it is empty")
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _header(data: mmap.mmap, path: str | Path) -> tuple[dict[str, Any], int]:
    """Return the header, and where the elements begin. Raises `UsageError` when there is no header."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + size > len(data):
        raise UsageError(
            f"{path} is no safetensors file: its header would have {size} bytes, the file has {len(data)}"
        )
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise UsageError(f"{path} is no safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is no safetensors file: its header is no JSON object")
    return header, 8 + size


def _entry(data: mmap.mmap, start: int, name: str, entry: object, device: str | None) -> Tensor:
    """Return one tensor of a file. Raises `UsageError` when its entry is malformed."""
    if not isinstance(entry, dict):
        raise UsageError(f"{name}: the entry is {entry!r}, not an object of dtype, shape and data_offsets")
    dtype = _NAMES.get(str(entry.get("dtype")))
    if dtype is None:
        raise UsageError(f"{name} has the dtype {entry.get('dtype')}; known are {', '.join(_NAMES)}")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise UsageError(f"{name}: shape {shape!r} and data_offsets {offsets!r} are not lists of sizes")
    begin, end = offsets
    if not begin <= end <= len(data) - start:
        raise UsageError(f"{name}: bytes {begin} to {end} of {len(data) - start} bytes of elements")
    if end - begin != _count(tuple(shape)) * dtype.itemsize:
        raise UsageError(f"{name}: {end - begin} bytes do not fill the shape {shape} of {dtype.name}")
    return Tensor(data[start + begin : start + end], dtype=dtype, device=device).reshape(tuple(shape))


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    """Return whether a value of JSON is a list of numbers that are not negative."""
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
