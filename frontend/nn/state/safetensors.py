"""safetensors files: reading, all tensors or one by one, and writing.

A file is eight bytes of header length (little-endian), a JSON header {name: {dtype, shape, data_offsets}},
and the elements, row-major: https://github.com/huggingface/safetensors#format.

Not here: other formats (`checkpoints`, `gguf`), the tensors of a model (`models`). Next: `tensor_file`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

from compiler.dtype import DType, dtypes
from frontend.arguments.conversion import shown
from frontend.evaluation.realize import realize_many
from frontend.nn.state.tensor_file import Contents, TensorEntry, TensorFile, check_folder, count_of
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

_NAMES: Final[dict[str, DType]] = {
    "BOOL": dtypes.bool, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
    "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
_METADATA: Final = "__metadata__"
"""The name of the texts in the header, which no tensor can have."""
_CODES: Final = {dtype: name for name, dtype in _NAMES.items()}


class SafeFile(TensorFile):
    """An open safetensors file: see `safe_open`."""

    kind = "safetensors file"

    def parse(self, data: Contents) -> None:
        """Read the header. Raises `UsageError`."""
        path = self.path
        header, start = _header(data, path)
        self.metadata = header.pop(_METADATA, {})
        if not isinstance(self.metadata, dict):
            raise UsageError(f"{path}: __metadata__ is {self.metadata!r}, not an object of names and texts")
        for name, entry in header.items():
            self.entries[name] = _entry(len(data), start, f"{path}, {name}", entry)
        if (end := self.refuse_gaps(start)) != len(data):
            raise UsageError(f"{path} is malformed: tensors end at byte {end} of {len(data)}")


def safe_open(path: str | Path, *, device: str | None = None) -> SafeFile:
    """Open a safetensors file without reading its tensors: a mapping from names to tensors.

        with nn.state.safe_open("model.safetensors") as file:
            table = file["embeddings.weight"]                  # this tensor is read
            first = file.rows("embeddings.weight", 0, 10)      # ten rows are read

    The caller closes the file. A tensor is read, and copied to the device (None: the default one), each time
    that it is indexed. Raises as `safe_load`.
    """
    return SafeFile(path, device)


def safe_load(path: str | Path, *, device: str | None = None) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, copied to a device (None: the default one).

    Raises `OSError` when the file cannot be read, `UsageError` when it is malformed: empty, cut off, its
    header no JSON object, an entry without dtype, shape or offsets, an unknown dtype, offsets outside of the
    file, a size that does not fit the shape, or bytes that are those of two tensors or of none.
    """
    with safe_open(path, device=device) as file:
        return dict(file.items())


def safe_metadata(path: str | Path) -> dict[str, str]:
    """Return the metadata of a safetensors file, which maps text to text; empty if it has none.

    Raises `OSError` when the file cannot be read, `UsageError` when it is malformed.
    """
    with safe_open(path) as file:
        found: dict[str, str] = file.metadata
        return found


def safe_save(
    tensors: Mapping[str, Tensor], path: str | Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file, in place of an existing one; `metadata` maps text to text.

    Pending tensors are computed first. Raises `OSError` when the file cannot be written. Before the file is
    opened it raises `UsageTypeError` for anything but a mapping of names to tensors and for metadata that is
    no text, `UsageError` for the name `__metadata__`, and as `Tensor.realize`.
    """
    _check_named(tensors)
    if metadata and not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise UsageTypeError(f"safe_save, metadata: wanted texts by name, saw {shown(metadata)}")
    check_folder(path, "safe_save")
    realize_many(list(tensors.values()))
    write({n: (t.dtype, t.shape, t.tobytes) for n, t in tensors.items()}, path, metadata)


def _check_named(tensors: Any) -> None:
    """Raise unless a value maps names, as the format has them, to tensors."""
    if not isinstance(tensors, Mapping):
        raise UsageTypeError(
            f"safe_save: wanted tensors by name, saw {shown(tensors)}\n"
            "hint: nn.state.get_state_dict(model) returns those of a model"
        )
    for name, t in tensors.items():
        if not isinstance(name, str) or not isinstance(t, Tensor):
            raise UsageTypeError(
                f"safe_save: wanted a tensor for each name, saw {shown(t)} for {name!r}\n"
                "hint: nn.state.get_state_dict(value) has those of nested containers; Tensor(array) makes one"
            )
    if _METADATA in tensors:
        raise UsageError(f"safe_save: {_METADATA} is the format's own name; give the tensor another one")


def write(
    parts: Mapping[str, tuple[DType, tuple[int, ...], Callable[[], bytes]]],
    path: str | Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write a safetensors file.

    `parts` maps a name to (dtype, shape, function that returns the bytes). Raises `OSError` if it cannot be
    written.
    """
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = dict(metadata)
    at = 0
    for name, (dtype, shape, _) in parts.items():
        end = at + count_of(shape) * dtype.itemsize
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, _, data in parts.values():
            file.write(data())


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary. Raises `ValueError` for a name that occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _header(data: Contents, path: str | Path) -> tuple[dict[str, Any], int]:
    """Return the header and the offset of the elements. Raises `UsageError` for a malformed header."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + size > len(data):
        raise UsageError(
            f"{path} is no safetensors file: its header would have {size} bytes, the file has {len(data)}"
        )
    try:
        header = json.loads(data[8 : 8 + size], object_pairs_hook=_named_once)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is no safetensors file: its header is no JSON object")
    return header, 8 + size


def _entry(length: int, start: int, name: str, entry: object) -> TensorEntry:
    """Return the entry of a tensor from that of the header. Raises `UsageError` when it is malformed.

    `start` is the offset of the elements, `length` the size of the file in bytes.
    """
    if not isinstance(entry, dict):
        raise UsageError(f"{name}: the entry is {entry!r}, not an object of dtype, shape and data_offsets")
    dtype = _NAMES.get(str(entry.get("dtype")))
    if dtype is None:
        raise UsageError(f"{name} has the dtype {entry.get('dtype')}; known are {', '.join(_NAMES)}")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise UsageError(f"{name}: shape {shape!r} and data_offsets {offsets!r} are not lists of sizes")
    begin, end = offsets
    if not begin <= end <= length - start:
        raise UsageError(f"{name}: bytes {begin} to {end} of {length - start} bytes of elements: cut off")
    if end - begin != count_of(tuple(shape)) * dtype.itemsize:
        raise UsageError(f"{name}: {end - begin} bytes do not fill the shape {shape} of {dtype.name}")
    return TensorEntry(dtype, tuple(shape), start + begin, start + end)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    """Return whether a value of JSON is a list of numbers that are not negative."""
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
