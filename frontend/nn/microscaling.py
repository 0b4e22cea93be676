"""Microscaling (MX): blocks of 32 numbers of 4, 6 or 8 bits that share a scale, which is a power of two.

    codes, scales = nn.microscaling.to_mx(weights, "float4_e2m1fn")
    weights = nn.microscaling.from_mx(codes, scales, "float4_e2m1fn")

Source: OCP Microscaling Formats (MX) Specification 1.0, 5.3 (elements), 5.4 (scales) and 6.3 (conversion).

Not here: half types in training (`frontend.nn.amp`). Next: `compiler.narrow_floats`, 8-bit floats as dtypes.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from compiler.dtype import dtypes
from frontend.tensor import Tensor
from hcq.errors import UsageError

BLOCK: Final = 32
"""Number of elements that share a scale."""


class MxElement(NamedTuple):
    """An element type of blocks: a sign, an exponent and a fraction."""

    bits: int
    """Bits of an element."""
    fraction: int
    """Bits of the fraction."""
    bias: int
    """Bias of the exponent."""
    most: float
    """The greatest value; greater numbers saturate to it."""


ELEMENTS: Final = {
    "float8_e4m3fn": MxElement(8, 3, 7, 448.0), "float8_e5m2": MxElement(8, 2, 15, 57344.0),
    "float6_e3m2fn": MxElement(6, 2, 3, 28.0), "float6_e2m3fn": MxElement(6, 3, 1, 7.5),
    "float4_e2m1fn": MxElement(4, 1, 1, 6.0),
}  # fmt: skip
"""The types of elements by name."""


def to_mx(x: Tensor, element: str = "float8_e4m3fn") -> tuple[Tensor, Tensor]:
    """Return the elements and the scales of blocks of 32 along the last axis; no gradient flows back.

    Elements of 8 bits have the dtype `element`. Elements of 6 bits are uint8, one in each; elements of 4 bits
    are uint8, two in each, the first in the lower half (as torch.float4_e2m1fn_x2). Scales are uint8, one for
    each block: a code e means 2**(e - 127), and 255 means NaN (as torch.float8_e8m0fnu). A scale is the
    greatest power of two not above the magnitudes of a block, divided by the greatest power of two of the
    element type. Elements are rounded to nearest even, and saturate. A block with a NaN or an infinity has
    the scale NaN and elements 0.

    Raises `UsageError` for another dtype than float32, float16 and bfloat16, a last axis that is no multiple
    of 32, and an unknown element type.
    """
    row = _row(element, "to_mx")
    if x.dtype not in {dtypes.float32, dtypes.float16, dtypes.bfloat16} or not x.shape or x.shape[-1] % BLOCK:
        raise UsageError(
            f"to_mx: wanted float32, float16 or bfloat16 with a last axis of a multiple of {BLOCK}, "
            f"saw {x.dtype.name}{list(x.shape)}"
        )
    *outer, n = x.shape
    blocks = x.detach().float().reshape(*outer, n // BLOCK, BLOCK)
    exponent = _bits(blocks.abs().amax(-1, keepdim=True)) >> 23 & 255
    finite = exponent < 255
    scale = (exponent - (math.frexp(row.most)[1] - 1)).clip(0, 254)
    scaled = finite.where(blocks, 0.0) * ((254 - scale) << 23).bitcast("float32")
    scaled = scaled.clip(-row.most, row.most).reshape(*outer, n)
    scales = finite.where(scale, 255).cast("uint8").reshape(*outer, n // BLOCK)
    if row.bits == 8:
        return scaled.cast(element), scales
    codes = _encoded(scaled, row)
    if row.bits == 4:
        pairs = codes.reshape(*outer, n // 2, 2)
        codes = pairs[..., 0] | (pairs[..., 1] << 4)
    return codes.cast("uint8"), scales


def from_mx(codes: Tensor, scales: Tensor, element: str = "float8_e4m3fn") -> Tensor:
    """Return elements times scales, both as returned by `to_mx`, as float32.

    The products are exact, unless they are beyond the range of float32.

    Raises `UsageError` for elements and scales of other dtypes or shapes, and an unknown element type.
    """
    row = _row(element, "from_mx")
    *outer, n = codes.shape or (0,)
    n *= 2 if row.bits == 4 else 1
    wanted = element if row.bits == 8 else "uint8"
    if codes.dtype.name != wanted or scales.dtype is not dtypes.uint8 or scales.shape != (*outer, n // BLOCK):
        raise UsageError(
            f"from_mx: wanted {wanted} elements, and a uint8 scale for {BLOCK} of them, "
            f"saw {codes.dtype.name}{list(codes.shape)} and {scales.dtype.name}{list(scales.shape)}"
        )
    if row.bits == 4:
        codes = Tensor.stack([codes & 15, codes >> 4], axis=-1).reshape(*outer, n)
    values = codes.float() if row.bits == 8 else _decoded(codes.int(), row)
    scale = scales.int()
    factor = (scale == 255).where(0x7FC00000, (scale == 0).where(1 << 22, scale << 23)).bitcast("float32")
    return (values.reshape(*outer, n // BLOCK, BLOCK) * factor.unsqueeze(-1)).reshape(*outer, n)


def _row(element: str, what: str) -> MxElement:
    found = ELEMENTS.get(element)
    if found is None:
        raise UsageError(f"{what}: wanted one of {', '.join(ELEMENTS)}, saw {element!r}")
    return found


def _bits(x: Tensor) -> Tensor:
    return x.bitcast("int32")


def _encoded(x: Tensor, row: MxElement) -> Tensor:
    """Return the codes of float32 numbers in range, as int32."""
    size, shift = x.abs(), 23 - row.fraction
    bits = _bits(size)
    near = (bits + ((bits >> shift) & 1) + ((1 << (shift - 1)) - 1)) >> shift
    small = (size * 2.0 ** (row.bias - 1 + row.fraction)).round().int()
    code = (size < 2.0 ** (1 - row.bias)).where(small, near - ((127 - row.bias) << row.fraction))
    return code | ((_bits(x) < 0).int() << (row.bits - 1))


def _decoded(code: Tensor, row: MxElement) -> Tensor:
    """Return the values of int32 codes, as float32."""
    size = code & ((1 << (row.bits - 1)) - 1)
    normal = ((size << (23 - row.fraction)) + ((127 - row.bias) << 23)).bitcast("float32")
    small = size.float() * 2.0 ** (1 - row.bias - row.fraction)
    value = (size < 1 << row.fraction).where(small, normal)
    return (code > size).where(-value, value)
