"""Tensor maps made on the host, as by CUDA's `cuTensorMapEncodeTiled`; the TMA unit of sm_90 copies by them.

The bytes equal those that `tensormap.replace` writes into a map of zeros, so that a kernel may change them.

Not here: maps that kernels make. Next: `drivers.nv.layouts.tensor_map`, the layout and its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.layouts import tensor_map as layout
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.nv.layouts.tensor_map import TensorField

_ALIGN = 16


def encode(
    address: int,
    *,
    element: int,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """Return the 128 bytes of a tensor map.

    - `address`: of the first element, a multiple of 16.
    - `element`: the type's number in `tensormap.replace.elemtype` (6: f16, 7: f32, 10: bf16).
    - `shape`, `box`: elements along each dimension, the outermost first, of the tensor and of one copy.
    - `strides`: distances in elements along each dimension; the last is 1, the others multiples of 16 bytes.
    - `swizzle`: the number in `tensormap.replace.swizzle_mode`: 0 none, 1 to 3 for 32, 64 and 128 bytes.
    - `fill_nan`: whether elements outside of the tensor are NaN instead of 0.

    Raises `UsageError` for values that the format cannot express.
    """
    rank = len(shape)
    if not 1 <= rank <= layout.RANKS or len(strides) != rank or len(box) != rank:
        raise UsageError(
            f"a tensor map has 1 to {layout.RANKS} dimensions with a stride and a box each, saw shape "
            f"{tuple(shape)}, strides {tuple(strides)}, box {tuple(box)}"
        )
    if not 0 <= element < len(layout.ELEMENT_BYTES):
        raise UsageError(f"a tensor map has no element type {element}")
    if strides[-1] != 1:
        raise UsageError(f"a tensor map needs a last stride of 1, saw strides {tuple(strides)}")
    unit = layout.ELEMENT_BYTES[element]
    steps = [stride * unit for stride in reversed(strides[:-1])]
    for what, number in [("address", address), *(("stride", step) for step in steps)]:
        if number % _ALIGN or number < 0:
            raise UsageError(f"a tensor map needs multiples of {_ALIGN} bytes, saw the {what} {number:#x}")
    raw = bytearray(layout.BYTES)
    raw[layout.ADDRESS : layout.ADDRESS + 8] = address.to_bytes(8, "little")
    for field, value in (
        (layout.RANK, rank - 1),
        (layout.ELEMENT, element),
        (layout.SWIZZLE, swizzle),
        (layout.FILL, int(fill_nan)),
    ):
        _put(raw, field, value)
    for n, step in enumerate(steps):
        low, high = step // layout.STRIDE_UNIT & 0xFFFF_FFFF, step // layout.STRIDE_UNIT >> 32
        _put(raw, layout.STRIDES[n], low)
        _put(raw, layout.HIGH_STRIDES[n], high)
    for n, (extent, part) in enumerate(zip(reversed(shape), reversed(box), strict=True)):
        _put(raw, layout.DIMENSIONS[n], extent)
        _put(raw, layout.STEPS[n], 1)
        _put(raw, layout.BOXES[n], part)
    return bytes(raw)


def _put(raw: bytearray, field: TensorField, value: int) -> None:
    stored = value - field.bias
    if not 0 <= stored < 1 << field.bits:
        raise UsageError(
            f"a tensor map holds {field.bias} to {field.bias + (1 << field.bits) - 1} there, saw {value}"
        )
    word = int.from_bytes(raw[field.offset : field.offset + 4], "little") | stored << field.shift
    raw[field.offset : field.offset + 4] = word.to_bytes(4, "little")
