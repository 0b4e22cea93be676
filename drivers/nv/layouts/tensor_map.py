"""The tensor map: 128 bytes that describe a tensor in global memory to copies by coordinates.

NVIDIA does not document the format. The source are the loads, masks and stores of these fields to which
ptxas 13 compiles `tensormap.replace` for sm_90a (PTX in `docs/sources.md`). The other bits are not known.

Not here: copies that use the map. Next: `emulator.nv.ptx.tensor_copies`, which emulates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BYTES: Final = 128
RANKS: Final = 5
"""The most dimensions; the first is the innermost."""
STRIDE_UNIT: Final = 16
"""Bytes: strides are stored divided by this."""


@dataclass(frozen=True, slots=True)
class TensorField:
    """A field of bits in a 32-bit word at `offset` bytes; the stored number is `bias` less than the value."""

    offset: int
    shift: int
    bits: int
    bias: int = 0


ADDRESS: Final = 0x00
"""Byte offset of the tensor's address, 64 bits."""
RANK: Final = TensorField(0x08, 4, 3)
"""The number of dimensions less 1; the operand of `tensormap.replace` is also less 1, so there is no bias."""
ELEMENT: Final = TensorField(0x08, 7, 4)
"""The element type: an index of `ELEMENT_BYTES`."""
INTERLEAVE: Final = TensorField(0x08, 11, 2)
SWIZZLE: Final = TensorField(0x08, 13, 2)
FILL: Final = TensorField(0x08, 15, 1)
STRIDES: Final = tuple(TensorField(0x0C + 4 * n, 0, 32) for n in range(RANKS - 1))
"""The low 32 bits of the stride of dimension n + 1, in units of 16 bytes."""
HIGH_STRIDES: Final = tuple(TensorField(0x1C, 4 * n, 4) for n in range(RANKS - 1))
"""The 4 bits above them."""
DIMENSIONS: Final = tuple(TensorField(0x20 + 4 * n, 0, 32, 1) for n in range(RANKS))
"""The size of each dimension in elements."""
STEPS: Final = tuple(TensorField(0x34, 3 * n, 3, 1) for n in range(RANKS))
"""The distance in elements between neighbours of a box along a dimension of the tensor."""
BOXES: Final = (TensorField(0x34, 24, 8, 1), *(TensorField(0x38, 8 * n, 8, 1) for n in range(RANKS - 1)))
"""The size of a box, which one copy moves, along each dimension in elements."""

ELEMENT_BYTES: Final = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
"""Bytes of an element: u8, u16, u32, s32, u64, s64, f16, f32, f32.ftz, f64, bf16, tf32, tf32.ftz."""
