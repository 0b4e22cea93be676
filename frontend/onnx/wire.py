"""Reader of ONNX files: messages of protocol buffers, as far as a model needs them.

A message is a sequence of fields: a varint (number << 3 | wire type), then a varint (0), 8 bytes (1), a
length and as many bytes (2), or 4 bytes (5). The classes below have the field numbers of `onnx.proto`
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto); fields that are not listed are skipped. A malformed
file raises `UsageError`; memory is proportional to the file.

Not here: the elements of tensors (`initialisers`), the meaning of nodes (`graph`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Final

import numpy as np

from hcq.errors import UsageError

_DEEPEST: Final = 64
"""Messages within each other."""
_PACKED: Final[dict[str, np.dtype[Any]]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}


def _one(number: int, kind: str, default: Any = None) -> Any:
    return field(default=default, metadata={"number": number, "kind": kind, "many": False})


def _many(number: int, kind: str) -> Any:
    return field(default_factory=list, metadata={"number": number, "kind": kind, "many": True})


@dataclass(slots=True)
class OperatorSet:
    """OperatorSetIdProto."""

    domain: str = _one(1, "text", "")
    version: int = _one(2, "int", 0)


@dataclass(slots=True)
class Entry:
    """StringStringEntryProto."""

    key: str = _one(1, "text", "")
    value: str = _one(2, "text", "")


@dataclass(slots=True)
class StoredTensor:
    """TensorProto."""

    dims: list[int] = _many(1, "int")
    data_type: int = _one(2, "int", 0)
    segment: bytes | None = _one(3, "bytes")
    float_data: list[float] = _many(4, "float")
    int32_data: list[int] = _many(5, "int")
    string_data: list[bytes] = _many(6, "bytes")
    int64_data: list[int] = _many(7, "int")
    name: str = _one(8, "text", "")
    raw_data: bytes | None = _one(9, "bytes")
    double_data: list[float] = _many(10, "double")
    uint64_data: list[int] = _many(11, "int")
    external_data: list[Entry] = _many(13, "Entry")
    data_location: int = _one(14, "int", 0)


@dataclass(slots=True)
class Dimension:
    """TensorShapeProto.Dimension: a size, a name, or neither."""

    dim_value: int | None = _one(1, "int")
    dim_param: str | None = _one(2, "text")


@dataclass(slots=True)
class StoredShape:
    """TensorShapeProto."""

    dim: list[Dimension] = _many(1, "Dimension")


@dataclass(slots=True)
class TensorType:
    """TypeProto.Tensor."""

    elem_type: int = _one(1, "int", 0)
    shape: StoredShape | None = _one(2, "StoredShape")


@dataclass(slots=True)
class StoredType:
    """TypeProto; of types that are no tensor, only whether it is one of them."""

    tensor_type: TensorType | None = _one(1, "TensorType")


@dataclass(slots=True)
class ValueInfo:
    """ValueInfoProto."""

    name: str = _one(1, "text", "")
    type: StoredType | None = _one(2, "StoredType")


class AttributeKind(IntEnum):
    """Which field of an `Attribute` has its value: `AttributeProto.AttributeType`."""

    FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS = range(1, 9)


@dataclass(slots=True)
class Attribute:
    """AttributeProto."""

    name: str = _one(1, "text", "")
    f: float = _one(2, "float", 0.0)
    i: int = _one(3, "int", 0)
    s: bytes = _one(4, "bytes", b"")
    t: StoredTensor | None = _one(5, "StoredTensor")
    g: StoredGraph | None = _one(6, "StoredGraph")
    floats: list[float] = _many(7, "float")
    ints: list[int] = _many(8, "int")
    strings: list[bytes] = _many(9, "bytes")
    type: int = _one(20, "int", 0)
    ref_attr_name: str = _one(21, "text", "")


@dataclass(slots=True)
class StoredNode:
    """NodeProto."""

    input: list[str] = _many(1, "text")
    output: list[str] = _many(2, "text")
    name: str = _one(3, "text", "")
    op_type: str = _one(4, "text", "")
    attribute: list[Attribute] = _many(5, "Attribute")
    domain: str = _one(7, "text", "")


@dataclass(slots=True)
class StoredGraph:
    """GraphProto."""

    node: list[StoredNode] = _many(1, "StoredNode")
    name: str = _one(2, "text", "")
    initializer: list[StoredTensor] = _many(5, "StoredTensor")
    input: list[ValueInfo] = _many(11, "ValueInfo")
    output: list[ValueInfo] = _many(12, "ValueInfo")
    sparse_initializer: list[bytes] = _many(15, "bytes")


@dataclass(slots=True)
class StoredFunction:
    """FunctionProto."""

    name: str = _one(1, "text", "")
    input: list[str] = _many(4, "text")
    output: list[str] = _many(5, "text")
    attribute: list[str] = _many(6, "text")
    node: list[StoredNode] = _many(7, "StoredNode")
    opset_import: list[OperatorSet] = _many(9, "OperatorSet")
    domain: str = _one(10, "text", "")
    attribute_proto: list[Attribute] = _many(11, "Attribute")


@dataclass(slots=True)
class StoredModel:
    """ModelProto."""

    ir_version: int = _one(1, "int", 0)
    graph: StoredGraph | None = _one(7, "StoredGraph")
    opset_import: list[OperatorSet] = _many(8, "OperatorSet")
    functions: list[StoredFunction] = _many(25, "StoredFunction")


MESSAGES: Final[tuple[type[Any], ...]] = (
    OperatorSet, Entry, StoredTensor, Dimension, StoredShape, TensorType, StoredType, ValueInfo, Attribute,
    StoredNode, StoredGraph, StoredFunction, StoredModel,
)  # fmt: skip
_BY_NAME: Final = {message.__name__: message for message in MESSAGES}


_FIELDS: Final = {
    m: {f.metadata["number"]: (f.name, f.metadata["kind"], f.metadata["many"]) for f in fields(m)}
    for m in MESSAGES
}
"""Message -> number -> (name, kind, whether it is repeated) of its fields."""


def parse_model(data: bytes) -> StoredModel:
    """Return the model of a file's bytes; its tensors are views of them. Raises `UsageError`."""
    found: StoredModel = _message(StoredModel, memoryview(data), 0)
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise UsageError("a number is cut off or too long")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _message(message: type[Any], data: memoryview, depth: int) -> Any:
    if depth > _DEEPEST:
        raise UsageError(f"more than {_DEEPEST} messages within each other")
    found, table, at = message(), _FIELDS[message], 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            part: Any = _signed(value)
        elif wire in {1, 2, 5}:
            size, at = _varint(data, at) if wire == 2 else (8 if wire == 1 else 4, at)
            if size > len(data) - at:
                raise UsageError(f"{message.__name__}: field {key >> 3} is cut off")
            part = data[at : at + size]
            at += size
        else:
            raise UsageError(f"{message.__name__}: field {key >> 3} has the wire type {wire}")
        if key >> 3 not in table:
            continue
        name, kind, many = table[key >> 3]
        values = _values(kind, wire, part, depth, f"{message.__name__}.{name}")
        if many:
            getattr(found, name).extend(values)
        elif values:
            setattr(found, name, values[-1])
    return found


def _values(kind: str, wire: int, part: Any, depth: int, where: str) -> list[Any]:
    """Return the values of a field: one, or those of a packed field."""
    if kind == "int" and wire == 0:
        return [part]
    if kind == "int" and wire == 2:
        found, at = [], 0
        while at < len(part):
            value, at = _varint(part, at)
            found.append(_signed(value))
        return found
    if kind in _PACKED and (wire == 2 or (wire == 5 and kind == "float") or (wire == 1 and kind == "double")):
        if len(part) % _PACKED[kind].itemsize:
            raise UsageError(f"{where}: {len(part)} bytes are no array of {kind}")
        listed: list[float] = np.frombuffer(part, _PACKED[kind]).tolist()
        return listed
    if wire != 2 or kind in _PACKED or kind == "int":
        raise UsageError(f"{where}: wanted {kind}, saw the wire type {wire}")
    if kind == "bytes":
        return [part]
    if kind == "text":
        try:
            return [str(part, "utf-8")]
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is no text: {error}") from None
    return [_message(_BY_NAME[kind], part, depth + 1)]
