"""Tensors of ONNX files as values: element types, elements in the file or in files beside it.

A file beside it is named by a relative path and lies in the model's folder, also after symbolic links are
followed. Types of fewer than 8 bits have the values of a wider type: 2-bit and 4-bit integers are int8 or
uint8, 4-bit floats are float8_e4m3fn. Malformed tensors raise `UsageError`, strings and complex numbers
`UnsupportedError`.

Not here: the messages (`wire`).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.dtype import DType, dtypes
from frontend.nn.state.tensor_file import Contents
from frontend.onnx.values import SMALL, Value
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from contextlib import ExitStack

    from frontend.onnx.wire import StoredTensor

TYPES: Final[dict[int, DType]] = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16, 6: dtypes.int32,
    7: dtypes.int64, 9: dtypes.bool, 10: dtypes.float16, 11: dtypes.float64, 12: dtypes.uint32,
    13: dtypes.uint64, 16: dtypes.bfloat16, 17: dtypes.float8_e4m3fn, 18: dtypes.float8_e4m3fnuz,
    19: dtypes.float8_e5m2, 20: dtypes.float8_e5m2fnuz, 21: dtypes.uint8, 22: dtypes.int8,
    23: dtypes.float8_e4m3fn, 25: dtypes.uint8, 26: dtypes.int8,
}  # fmt: skip
"""Number of an element type in files -> the type of its values."""
NARROW: Final = {21: (4, False), 22: (4, True), 23: (4, False), 25: (2, False), 26: (2, True)}
"""Number of a type of fewer than 8 bits -> its bits, and whether it is signed."""
_NAMES: Final = {8: "strings", 14: "complex64", 15: "complex128", 24: "float8e8m0"}
_E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def element_type(number: int, what: str) -> DType:
    """Return the type of a number. Raises `UnsupportedError` for types that tensors lack."""
    if number not in TYPES:
        raise UnsupportedError(f"{what}: element type {_NAMES.get(number, number)} is not supported")
    return TYPES[number]


class Initialisers:
    """Reads the tensors of one model file; `files` closes the files beside it."""

    def __init__(self, folder: Path, device: str | None, files: ExitStack) -> None:
        self._folder, self._device, self._files = folder, device, files
        self._open: dict[str, Contents] = {}

    def read(self, stored: StoredTensor) -> Value:
        """Return a tensor of the device, or an array if it has few elements."""
        what = f"tensor {stored.name!r}"
        dtype = element_type(stored.data_type, what)
        shape = tuple(stored.dims)
        if any(n < 0 for n in shape) or len(shape) > 64 or stored.segment is not None:
            raise UsageError(f"{what}: wanted sizes of at least 0 in one segment, saw {list(shape)}")
        count = math.prod(shape)
        bits = NARROW.get(stored.data_type, (dtype.itemsize * 8, False))[0]
        raw = self._raw(stored, -(-count * bits // 8), what)
        if raw is None:
            raw = self._listed(stored, dtype, count, what)
        if stored.data_type in NARROW:
            raw = _unpacked(raw, stored.data_type, count)
        if len(raw) != count * dtype.itemsize:
            raise UsageError(f"{what}: {len(raw)} bytes do not fill the shape {shape} of {dtype.name}")
        if dtype is dtypes.bool:
            raw = (np.frombuffer(raw, np.uint8) != 0).tobytes()
        if dtype.numpy is None:
            return Tensor(bytes(raw), dtype=dtype, device=self._device).reshape(shape)
        array = np.frombuffer(raw, dtype.numpy).reshape(shape)
        return array.copy() if count <= SMALL else Tensor(array, device=self._device)

    def _raw(self, stored: StoredTensor, size: int, what: str) -> Any:
        """Return the bytes of a tensor that has them, here or in another file."""
        if stored.data_location == 1:
            return self._external({e.key: e.value for e in stored.external_data}, size, what)
        return stored.raw_data

    def _external(self, entries: dict[str, str], size: int, what: str) -> bytes:
        location = entries.get("location", "")
        begin, length = [_count(entries.get(key, default), what) for key, default in
                         (("offset", "0"), ("length", str(size)))]  # fmt: skip
        if location not in self._open:
            folder = self._folder.resolve()
            path = (folder / location).resolve() if "\0" not in location else folder
            if not path.is_relative_to(folder) or Path(location).is_absolute() or not path.is_file():
                raise UsageError(f"{what}: {location!r} is no file within the folder of the model")
            self._open[location] = self._files.enter_context(Contents(path, "file of an ONNX model"))
        file = self._open[location]
        if length != size or begin + length > len(file):
            raise UsageError(
                f"{what}: wanted {size} bytes at {begin}, saw a length of {length} in {location!r} of "
                f"{len(file)} bytes"
            )
        return file[begin : begin + length]

    @staticmethod
    def _listed(stored: StoredTensor, dtype: DType, count: int, what: str) -> bytes:
        """Return the bytes of elements that are listed as numbers."""
        if dtype is dtypes.float32:
            return np.array(stored.float_data, np.float32).tobytes()
        if dtype is dtypes.float64:
            return np.array(stored.double_data, np.float64).tobytes()
        if dtype is dtypes.int64:
            return np.array(stored.int64_data, np.int64).tobytes()
        if dtype in {dtypes.uint32, dtypes.uint64}:
            listed = np.array(stored.uint64_data, np.int64).view(np.uint64)
            return listed.astype(dtype.numpy).tobytes()
        numbers = np.array(stored.int32_data, np.int64)
        if stored.data_type in NARROW:
            bits = NARROW[stored.data_type][0]
            if len(numbers) != -(-count * bits // 8):
                raise UsageError(f"{what}: {len(numbers)} numbers are not {count} elements of {bits} bits")
            return numbers.astype(np.uint8).tobytes()
        return numbers.astype(f"<u{dtype.itemsize}").tobytes()


def _count(text: str, what: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise UsageError(f"{what}: wanted a number of bytes, saw {text!r}")
    return int(text)


def _unpacked(raw: Any, kind: int, count: int) -> bytes:
    """Return one byte an element of elements of 2 or 4 bits, the lowest bits first."""
    bits, signed = NARROW[kind]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    packed = np.frombuffer(raw, np.uint8)[:, None]
    found = ((packed >> shifts) & ((1 << bits) - 1)).astype(np.uint8).reshape(-1)[:count]
    if kind == 23:
        table = [_E8M7[abs(v)] | (128 if k & 8 else 0) for k in range(16) for v in (_E2M1[k & 7],)]
        return np.array(table, np.uint8)[found].tobytes()
    if signed:
        found = np.where(found >> (bits - 1), found.astype(np.int16) - (1 << bits), found).astype(np.int8)
    return found.tobytes()


_E8M7: Final = {0.0: 0x00, 0.5: 0x30, 1.0: 0x38, 1.5: 0x3C, 2.0: 0x40, 3.0: 0x44, 4.0: 0x48, 6.0: 0x4C}
"""Value -> its byte as float8_e4m3fn."""
