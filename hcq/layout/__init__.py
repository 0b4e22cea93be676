"""Declarative layouts: the single definition of every packet, descriptor, register and parameter block.

Layout files of the drivers import only this module.

- `BitStruct`: bits in u32 (or u64) words, `pack()` for hot paths. Declared with `bits` (must be given),
  `optional` (0 when not given), `split` (one number in several runs), `const`, `reserved`, `removed`.
- `Struct`: fields at byte offsets, as in C. Declared with `u8 … u64`, `i8 … i64`, `chars`, `blob`, `nested`.
- `Violation`: a broken rule that `check()` of a decoded value found. `Site`: the position of a field, for
  patches.

Not here: the layouts of each driver (such as `drivers.nv.layouts`). Next: `bitfield`, `bitstruct`,
`bytestruct`.
"""

from __future__ import annotations

from hcq.layout.base import MISSING, Site, Violation
from hcq.layout.bitfield import Field, bits, const, optional, removed, reserved, split
from hcq.layout.bitstruct import BitStruct
from hcq.layout.bytestruct import Member, Struct, blob, chars, i8, i16, i32, i64, nested, u8, u16, u32, u64

__all__ = [
    "MISSING",
    "BitStruct",
    "Field",
    "Member",
    "Site",
    "Struct",
    "Violation",
    "bits",
    "blob",
    "chars",
    "const",
    "i8",
    "i16",
    "i32",
    "i64",
    "nested",
    "optional",
    "removed",
    "reserved",
    "split",
    "u8",
    "u16",
    "u32",
    "u64",
]
