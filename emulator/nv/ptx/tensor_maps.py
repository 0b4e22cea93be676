"""Tensor maps: the instructions that write them, and their fields. Source: PTX ISA 9.7.9.27 (tensormap).

Not here: the format (`drivers.nv.layouts.tensor_map`), copies (`tensor_copies`). Next: `tensor_copies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.nv.layouts import tensor_map as layout
from emulator.ir.findings import i32, i64
from emulator.ir.library import iota
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.memory import address_bits, scope_of, take_space
from emulator.nv.ptx.statements import PtxImm, PtxInstruction
from emulator.sanitizers import sanitize

if TYPE_CHECKING:
    from drivers.nv.layouts.tensor_map import TensorField
    from emulator.ir.vector import CodeBuilder, IrValue

_PLAIN = {
    "rank": layout.RANK, "elemtype": layout.ELEMENT, "interleave_layout": layout.INTERLEAVE,
    "swizzle_mode": layout.SWIZZLE, "fill_mode": layout.FILL,
}  # fmt: skip
"""Field of tensormap.replace that exists once -> its place in a map."""
_ORDERED = {"box_dim": layout.BOXES, "global_dim": layout.DIMENSIONS, "element_stride": layout.STEPS}
"""Field that each dimension has -> their places in a map."""
_CONSTANT = ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
"""Fields whose new value must be a constant."""
_ARCHES = (90, 100, 103, 110, 120, 121)
"""Architectures with tensormap."""
_WORD = 32
ARCH = 90
"""The lowest architecture with tensor maps."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The fields of a tensor map, as scalars.

    There are as many dimensions as a map can have; those that a copy does not use have size 1.
    """

    address: IrValue
    """The tensor's device address, i64."""
    element: IrValue
    """The number of the element type, i32."""
    log: IrValue
    """Log2 of the bytes of an element, i64."""
    dimensions: list[IrValue]
    """Elements of the tensor in each dimension, i64."""
    strides: list[IrValue]
    """Bytes from one element to the next in each dimension but the first, i64."""
    boxes: list[IrValue]
    """Elements of a box in each dimension, i32."""
    pattern: IrValue
    """The bits of a shared address that the swizzle changes, i32."""
    bad: IrValue
    """Whether the map is invalid or not supported, or has another rank than the copy, i1."""


def _word(c: CodeBuilder, map_: IrValue, field: TensorField) -> IrValue:
    """Return a field of the map at a host address, i32."""
    raw = c.load("i32", c.gep(map_, field.offset))
    part = c.op("lshr", raw, field.shift) if field.shift else raw
    return part if field.bits == _WORD else c.op("and", part, (1 << field.bits) - 1)


def read_map(c: CodeBuilder, map_: IrValue, rank: IrValue) -> TensorMap:
    """Return the fields of the map at a host address, for a copy with `rank` coordinates (i32)."""
    address = c.load("i64", c.gep(map_, layout.ADDRESS))
    kind, swizzle = _word(c, map_, layout.ELEMENT), _word(c, map_, layout.SWIZZLE)
    sizes = sum((size.bit_length() - 1) << 4 * n for n, size in enumerate(layout.ELEMENT_BYTES))
    log = c.op("and", c.op("lshr", i64(sizes), c.resize(c.op("shl", kind, 2), 64)), 3)
    dimensions, strides, boxes = [], [], []
    bad = c.icmp("uge", kind, len(layout.ELEMENT_BYTES))
    for n in range(layout.RANKS):
        used = c.icmp("ult", i32(n), rank)
        size = c.op("add", c.resize(_word(c, map_, layout.DIMENSIONS[n]), 64), layout.DIMENSIONS[n].bias)
        box = c.op("add", _word(c, map_, layout.BOXES[n]), layout.BOXES[n].bias)
        steps = c.icmp("ne", _word(c, map_, layout.STEPS[n]), 0)
        bad = c.op("or", bad, c.op("and", used, steps))
        dimensions.append(c.select(used, size, i64(1)))
        boxes.append(c.select(used, box, i32(1)))
    for low, high in zip(layout.STRIDES, layout.HIGH_STRIDES, strict=True):
        upper = c.op("shl", c.resize(_word(c, map_, high), 64), 32)
        units = c.op("or", upper, c.resize(_word(c, map_, low), 64))
        strides.append(c.op("mul", units, layout.STRIDE_UNIT))
    for field in (layout.INTERLEAVE, layout.FILL):
        bad = c.op("or", bad, c.icmp("ne", _word(c, map_, field), 0))
    bad = c.op("or", bad, c.icmp("ne", c.op("add", _word(c, map_, layout.RANK), 1), rank))
    row = c.op("shl", c.resize(boxes[0], 64), log)
    for value in (address, row):
        bad = c.op("or", bad, c.icmp("ne", c.op("and", value, layout.STRIDE_UNIT - 1), 0))
    span = c.op("shl", i64(16), c.resize(swizzle, 64))
    wide = c.op("and", c.icmp("ne", swizzle, 0), c.icmp("ugt", row, span))
    pattern = c.op("shl", c.op("sub", c.op("shl", i32(1), swizzle), 1), 4)
    return TensorMap(address, kind, log, dimensions, strides, boxes, pattern, c.op("or", bad, wide))


@meaning("tensormap")
def _tensormap(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    if t.arch not in _ARCHES:
        raise t.error("needs sm_90a or a later architecture")
    if m.need("replace", "cp_fenceproxy") == "cp_fenceproxy":
        _published(t, i, m)
        return
    m.need("tile")
    name = m.need(*_PLAIN, *_ORDERED, "global_address", "global_stride")
    given = operands(t, i, 3 if name in _ORDERED or name == "global_stride" else 2)
    space = take_space(t, m, given[0])
    if space not in ("global", "shared", "generic"):
        raise t.error(f"works in global and shared memory, not in .{space}")
    m.need("b1024")
    m.need("b64" if name in ("global_address", "global_stride") else "b32")
    at = t.address(given[0], address_bits(space))
    if name == "global_address":
        t.wf.store(space, t.c.op("add", at, layout.ADDRESS), [t.bits(given[1], 64)], t.site())
        return
    number = given[1]
    if len(given) > 2 and not isinstance(number, PtxImm):
        raise t.error("the number of the dimension must be a constant")
    if name in _CONSTANT and not isinstance(given[1], PtxImm):
        raise t.error("the value must be a constant")
    if name == "global_stride":
        units = t.c.op("lshr", t.bits(given[2], 64), layout.STRIDE_UNIT.bit_length() - 1)
        order = _order(t, number, len(layout.STRIDES))
        _replace(t, space, at, layout.STRIDES[order], t.c.resize(units, 32))
        _replace(t, space, at, layout.HIGH_STRIDES[order], t.c.resize(t.c.op("lshr", units, 32), 32))
        return
    field = _PLAIN[name] if name in _PLAIN else _ORDERED[name][_order(t, number, layout.RANKS)]
    value = t.bits(given[-1], 32)
    _replace(t, space, at, field, t.c.op("sub", value, field.bias) if field.bias else value)


def _order(t: PtxTranslator, number: object, limit: int) -> int:
    """Return the number of a dimension, which is a constant. Raises `PtxError` unless it is below `limit`."""
    assert isinstance(number, PtxImm)
    if not 0 <= number.value < limit:
        raise t.error(f"the number of the dimension is {number.value}; wanted: 0 to {limit - 1}")
    return number.value


def _replace(t: PtxTranslator, space: str, at: IrValue, field: TensorField, value: IrValue) -> None:
    """Replace a field of the map at address `at` of a space, and no other bits of its word."""
    c, site = t.c, t.site()
    where = c.op("add", at, field.offset)
    ones = (1 << field.bits) - 1
    if field.bits < _WORD:
        (old,) = t.wf.load(space, 32, 1, where, site)
        value = c.op("shl", c.op("and", value, ones), field.shift)
        value = c.op("or", c.op("and", old, ~(ones << field.shift)), value)
    t.wf.store(space, where, [value], site)


def _published(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate tensormap.cp_fenceproxy: a warp copies a map from shared to global memory and releases it."""
    for word in ("global", "shared::cta", "tensormap::generic", "release"):
        m.need(word)
    scope = m.need("cta", "cluster", "gpu", "sys")
    m.need("sync")
    m.need("aligned")
    target, source, size = operands(t, i, 3)
    if not isinstance(size, PtxImm) or size.value != layout.BYTES:
        raise t.error(f"the size must be {layout.BYTES}")
    c, site = t.c, t.site()
    narrow, wide = (c.ints(t.v(f"i{bits}"), iota(t.wf.lib.lanes, 4)) for bits in (32, 64))
    words = t.wf.load("shared", 32, 1, c.op("add", t.address(source, 32), narrow), site)
    t.wf.store("global", c.op("add", t.address(target, 64), wide), words, site)
    c.emit("fence seq_cst")
    sanitize.released(t.wf, scope_of(scope))
