"""Writer of ONNX files for tests, over the messages and field numbers of `frontend.onnx.wire`.

Not here: a check of the field numbers (tests/frontend/onnx/test_onnx_nodes.py, where onnx is installed).
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frontend.onnx import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NUMBERS: Final = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9,
    "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
}  # fmt: skip
"""NumPy's name of an element type -> its number in files."""


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def encoded(message: Any) -> bytes:
    """Return the bytes of a message of `frontend.onnx.wire`."""
    out = b""
    for f in fields(message):
        value, number, kind = getattr(message, f.name), f.metadata["number"], f.metadata["kind"]
        for one in value if f.metadata["many"] else [] if value is None else [value]:
            if kind == "int":
                out += _varint(number << 3) + _varint(int(one))
            elif kind in {"float", "double"}:
                wide = kind == "double"
                out += _varint(number << 3 | (1 if wide else 5)) + struct.pack("<d" if wide else "<f", one)
            else:
                raw = (
                    one.encode() if isinstance(one, str) else bytes(one) if kind == "bytes" else encoded(one)
                )
                out += _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return out


def tensor(name: str, value: Any) -> wire.StoredTensor:
    """Return an array as the tensor of a file."""
    array = np.asarray(value)
    return wire.StoredTensor(
        list(array.shape), NUMBERS[array.dtype.name], name=name, raw_data=array.tobytes()
    )


def info(name: str, dtype: str, shape: Sequence[int | str | None] | None) -> wire.ValueInfo:
    """Return the description of an input or output; a size may be a name, or None."""
    dims = None
    if shape is not None:
        dims = wire.StoredShape(
            [wire.Dimension(dim_param=n) if isinstance(n, str) else wire.Dimension(n) for n in shape]
        )
    return wire.ValueInfo(name, wire.StoredType(wire.TensorType(NUMBERS[dtype], dims)))


def attribute(name: str, value: Any) -> wire.Attribute:
    """Return an attribute of a number, a text, a list of numbers, an array or a graph."""
    if isinstance(value, wire.StoredGraph):
        return wire.Attribute(name, g=value, type=5)
    if isinstance(value, np.ndarray):
        return wire.Attribute(name, t=tensor("", value), type=4)
    if isinstance(value, str):
        return wire.Attribute(name, s=value.encode(), type=3)
    if isinstance(value, (list, tuple)):
        if all(isinstance(v, int) for v in value):
            return wire.Attribute(name, ints=list(value), type=7)
        if all(isinstance(v, str) for v in value):
            return wire.Attribute(name, strings=[v.encode() for v in value], type=8)
        return wire.Attribute(name, floats=list(value), type=6)
    if isinstance(value, float):
        return wire.Attribute(name, f=value, type=1)
    return wire.Attribute(name, i=value, type=2)


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> wire.StoredNode:
    """Return a node; the attribute `domain` is that of the operator."""
    domain = attributes.pop("domain", "")
    listed = [attribute(n, v) for n, v in attributes.items()]
    return wire.StoredNode(list(inputs), list(outputs), "", kind, listed, domain)


def graph(
    nodes: Sequence[wire.StoredNode],
    inputs: Sequence[wire.ValueInfo],
    outputs: Sequence[wire.ValueInfo],
    constants: Mapping[str, Any] | None = None,
) -> wire.StoredGraph:
    """Return a graph with constants by name."""
    stored = [tensor(n, v) for n, v in (constants or {}).items()]
    return wire.StoredGraph(list(nodes), "graph", stored, list(inputs), list(outputs))


def model(
    body: wire.StoredGraph, *, opset: int = 17, functions: Sequence[wire.StoredFunction] = ()
) -> wire.StoredModel:
    """Return a model of one graph, in an opset."""
    opsets = [wire.OperatorSet("", opset), *[wire.OperatorSet(f.domain, 1) for f in functions]]
    return wire.StoredModel(8, body, opsets, list(functions))
