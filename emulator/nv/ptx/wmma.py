"""The matrix fragments of CUDA's wmma interface: wmma.load, wmma.store, wmma.mma. Source: PTX ISA 9.7.14.4.

PTX leaves open which lane holds which element. Here a fragment consists of tiles of `mma`: 16 rows (8 where the shape
has no more) by 8 columns. Where m is 8 and n is 32, A and B are *swapped* and the result is transposed. Elements of
accumulators of f16 and of f32 have the same numbers.

Not here: the product of a tile (`mma`), wgmma (`wgmma`). Next: `mma`.
"""

# ruff: noqa: E501, PLR0917 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands, vector_elements
from emulator.nv.ptx.floats import write_small
from emulator.nv.ptx.integers import join_halves
from emulator.nv.ptx.memory import address_bits, take_space
from emulator.nv.ptx.mma import MmaShape, accumulator, items_of, product

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.ir.vector import IrValue
    from emulator.nv.ptx.statements import Operand, PtxInstruction

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WIDE = ("m16n16k16", "m32n8k16", "m8n32k16")
"""The shapes of elements of 8 and 16 bits."""
_SHAPES = {
    "f16": _WIDE, "bf16": _WIDE, "s8": _WIDE, "u8": _WIDE, "tf32": ("m16n16k8",), "f64": ("m8n8k4",), "s4": ("m8n8k32",),
    "u4": ("m8n8k32",), "b1": ("m8n8k128",),
}  # fmt: skip
"""Element type of A and B -> shapes."""
_BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "tf32": 32, "f64": 64, "s4": 4, "u4": 4, "b1": 1}
"""Type of A and B -> width of an element."""
_SUMS = {"f16": 16, "f32": 32, "s32": 32, "f64": 64}
"""Type of C and D -> width of an element."""
_TILE = 8
"""Columns of a tile."""


@dataclass(frozen=True, slots=True)
class _Fragments:
    """How a shape consists of tiles."""

    tile: MmaShape
    """The shape of a tile."""
    rows: int
    columns: int
    """The numbers of tiles along both dimensions of the result, which is transposed if they are swapped."""
    swapped: bool
    """Whether A and B are swapped."""
    bits: int
    """Width of an element of A and B; `tile` has elements of one bit as words of 32."""


def _fragments(t: PtxTranslator, word: str, type_: str) -> _Fragments:
    """Return the tiles of shape `word` for elements of `type_` in A and B. Raises `PtxError` if it is not defined."""
    if word not in _SHAPES.get(type_, ()):
        raise t.error(f"shape {word or '(none)'} of .{type_} is not defined")
    match = _SHAPE.fullmatch(word)
    assert match is not None
    m, n, k = map(int, match.groups())
    swapped = m < n
    m, n = (n, m) if swapped else (m, n)
    bits = _BITS[type_]
    tile = MmaShape(min(m, 16), _TILE, k if bits > 1 else k // 32, bits if bits > 1 else 32)
    return _Fragments(tile, m // tile.m, n // _TILE, swapped, bits)


def _word(m: Modifiers) -> str:
    """Consume the shape; return it, or "" if there is none."""
    word = next((w for w in m.rest if _SHAPE.fullmatch(w)), "")
    m.flag(word)
    return word


def _take_memory(t: PtxTranslator, m: Modifiers, address: Operand) -> str:
    """Consume the state space; return the engine's. Raises `PtxError` if it is not global or shared memory."""
    space = take_space(t, m, address)
    if space not in ("global", "shared", "generic"):
        raise t.error(f"works in global and shared memory, not in .{space}")
    return space


@meaning("wmma.load")
def _load(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("load")
    which = m.need("a", "b", "c")
    for name in ("sync", "aligned"):
        m.need(name)
    by_rows, word = m.need("row", "col") == "row", _word(m)
    d, address, *stride = operands(t, i, 2, 3)
    space = _take_memory(t, m, address)
    type_ = m.need(*(_SUMS if which == "c" else _BITS))
    base = t.address(address, address_bits(space))
    if which == "c":
        _load_sums(
            t,
            _sums_shape(t, word, type_),
            type_,
            d,
            (space, base, _stride(t, stride, word, "c", by_rows=by_rows)),
            by_rows=by_rows,
        )
        return
    found = _fragments(t, word, type_)
    if found.bits < 8 and by_rows != (which == "a"):
        raise t.error(f"fragments of .{type_} take .row for A and .col for B")
    left = (which == "a") != found.swapped
    along = by_rows == (which == "a")
    place = (space, base, _stride(t, stride, word, which, by_rows=by_rows))
    registers = _load_operand(t, found, place, left=left, along=along)
    targets = items_of(d)
    if len(targets) % len(registers):
        raise t.error(f"needs {len(registers)} registers")
    for number, target in enumerate(targets):  # f16 has every element twice
        t.write(target, registers[number % len(registers)])


def _stride(t: PtxTranslator, given: list[Operand], word: str, which: str, *, by_rows: bool) -> IrValue:
    """Return the number of elements from one row (column) to the next: the operand or, without one, the matrix's extent.

    `which` is "a", "b", "c" or "d", and `word` the shape.
    """
    if given:
        return t.bits(given[0], 32)
    match = _SHAPE.fullmatch(word)
    assert match is not None
    m, n, k = map(int, match.groups())
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[which]
    return t.c.const(t.v("i32"), columns if by_rows else rows)


def _addresses(
    t: PtxTranslator,
    base: IrValue,
    stride: IrValue,
    bits: int,
    far: Callable[[int], int],
    near: Callable[[int], int],
) -> IrValue:
    """Return the addresses of elements of `bits` bits: those of lane n are far(n) strides and near(n) elements from `base`."""
    c, lanes = t.c, range(t.wf.lib.lanes)
    outer = c.op("mul", stride, c.ints(stride.type, [far(lane) for lane in lanes]))
    at = c.op("add", outer, c.ints(stride.type, [near(lane) for lane in lanes]))
    scaled = c.op("lshr", c.op("mul", at, bits), 3)
    return c.op("add", base, c.resize(scaled, 64) if base.type.endswith("i64>") else scaled)


def _load_operand(
    t: PtxTranslator, found: _Fragments, place: tuple[str, IrValue, IrValue], *, left: bool, along: bool
) -> list[IrValue]:
    """Load the left operand of the tiles (`left`) or the right one; return its registers, tile by tile.

    `place` is the space, the base and the stride. If `along`, consecutive k lie side by side in memory.
    """
    space, base, stride = place
    tile, site = found.tile, t.site()
    rows = tile.m if left else tile.n
    width, pack = max(tile.bits, 32), max(32 // tile.bits, 1)
    registers = []
    for number in range(found.rows if left else found.columns):
        for r in range(tile.a_registers if left else tile.b_registers):

            def row(lane: int, r: int = r, number: int = number) -> int:
                return lane // 4 + 8 * (r % (rows // 8)) + rows * number

            def k(lane: int, r: int = r) -> int:
                return (lane % 4 * pack + 4 * pack * (r // (rows // 8))) * (
                    tile.bits // found.bits if found.bits == 1 else 1
                )

            if along:
                at = _addresses(t, base, stride, found.bits, row, k)
                registers += _load_counted(t, space, width, at, site)
                continue
            parts = []
            for part in range(pack):
                at = _addresses(t, base, stride, tile.bits, lambda lane, part=part: k(lane) + part, row)  # type: ignore[misc]
                parts += _load_counted(t, space, tile.bits, at, site)
            registers.append(_joined(t, parts, width))
    return registers


def _load_counted(t: PtxTranslator, space: str, bits: int, address: IrValue, site: int) -> list[IrValue]:
    """Load one value of `bits` bits for each lane, and count the access if the kernel counts."""
    if t.wf.counting is not None:
        t.wf.counting.access(space, "load", address, bits // 8, t.wf.active)
    return t.wf.load(space, bits, 1, address, site)


def _joined(t: PtxTranslator, parts: list[IrValue], width: int) -> IrValue:
    """Return integers of `width` bits that consist of `parts`, the lowest first."""
    value = t.c.resize(parts[0], width)
    step = width // len(parts)
    for n, part in enumerate(parts[1:], 1):
        value = t.c.op("or", value, t.c.op("shl", t.c.resize(part, width), n * step))
    return value


def _sums_shape(t: PtxTranslator, word: str, type_: str) -> _Fragments:
    """Return the tiles of an accumulator; of A and B its instruction tells only the extents.

    Raises `PtxError` for a shape that is not defined.
    """
    for name, words in _SHAPES.items():
        if word in words and (type_ == "f64") == (name == "f64"):
            return _fragments(t, word, name)
    raise t.error(f"shape {word or '(none)'} of .{type_} is not defined")


def _places(found: _Fragments) -> list[tuple[Callable[[int], int], Callable[[int], int]]]:
    """Return for each element of an accumulator two functions: from a lane to the row and the column of its element."""
    places: list[tuple[Callable[[int], int], Callable[[int], int]]] = []
    for tile_row in range(found.rows):
        for tile_column in range(found.columns):
            for n in range(found.tile.m * _TILE // 32):

                def row(lane: int, n: int = n, at: int = tile_row) -> int:
                    return lane // 4 + 8 * (n // 2) + found.tile.m * at

                def column(lane: int, n: int = n, at: int = tile_column) -> int:
                    return lane % 4 * 2 + n % 2 + _TILE * at

                places.append((column, row) if found.swapped else (row, column))
    return places


def _load_sums(
    t: PtxTranslator,
    found: _Fragments,
    type_: str,
    d: Operand,
    place: tuple[str, IrValue, IrValue],
    *,
    by_rows: bool,
) -> None:
    """Load an accumulator into the registers `d`; `place` is the space, the base and the stride."""
    space, base, stride = place
    site, bits, values = t.site(), _SUMS[type_], []
    for row, column in _places(found):
        far, near = (row, column) if by_rows else (column, row)
        values += _load_counted(t, space, bits, _addresses(t, base, stride, bits, far, near), site)
    if type_ == "f16":
        values = [join_halves(t, *values[n : n + 2]) for n in range(0, len(values), 2)]
    for target, value in zip(vector_elements(t, d, len(values)), values, strict=True):
        t.write(target, value)


@meaning("wmma.store")
def _store(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    for name in ("store", "d", "sync", "aligned"):
        m.need(name)
    by_rows, word = m.need("row", "col") == "row", _word(m)
    address, d, *stride = operands(t, i, 2, 3)
    space = _take_memory(t, m, address)
    type_ = m.need(*_SUMS)
    found, bits, site = _sums_shape(t, word, type_), _SUMS[type_], t.site()
    base, step = t.address(address, address_bits(space)), _stride(t, stride, word, "d", by_rows=by_rows)
    places = _places(found)
    sources = vector_elements(t, d, len(places) // (2 if type_ == "f16" else 1))
    for n, (row, column) in enumerate(places):
        if type_ == "f16":
            value = t.c.resize(t.c.op("lshr", t.bits(sources[n // 2], 32), 16 * (n % 2)), 16)
        else:
            value = t.bits(sources[n], bits)
        far, near = (row, column) if by_rows else (column, row)
        at = _addresses(t, base, step, bits, far, near)
        if t.wf.counting is not None:
            t.wf.counting.access(space, "store", at, bits // 8, t.wf.active)
        t.wf.store(space, at, [value], site)


@meaning("wmma.mma")
def _mma(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    m.need("mma")
    operation = m.one_of("xor", "and")
    if operation:
        m.need("popc")
    for name in ("sync", "aligned"):
        m.need(name)
    for _ in ("a", "b"):
        m.need("row", "col")
    word, saturates = _word(m), m.flag("satfinite")
    m.one_of("rn")
    types = list(m.rest)
    m.rest.clear()
    if len(types) == 2:
        types = [types[0], "f16", "f16", types[1]]
    if len(types) != 4:
        raise t.error("needs a shape and the types of D, A, B and C")
    d_type, a_type, b_type, c_type = types
    found = _fragments(t, word, a_type)
    _check_types(t, types, bool(operation), saturates=saturates)
    d, a, b, c = operands(t, i, 4)
    left, right = (b, a) if found.swapped else (a, b)
    types_of = (b_type, a_type) if found.swapped else (a_type, b_type)
    results = _tiles(
        t,
        found,
        types_of,
        operation or ("saturated" if saturates else _kind(d_type)),
        (left, right, c),
        c_type,
    )
    _write(t, d, d_type, results)


def _kind(d_type: str) -> str:
    """Return the kind of sum, as in `mma.step`; f16 sums are computed in float32."""
    return {"s32": "int", "f64": "f64"}.get(d_type, "f32")


def _check_types(t: PtxTranslator, types: list[str], bit_op: bool, *, saturates: bool) -> None:  # noqa: FBT001 - one of two checks
    """Raise `PtxError` unless the types of D, A, B and C, the operation on bits and .satfinite may be combined."""
    d_type, a_type, b_type, c_type = types
    wanted = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}.get(
        a_type, ("s32",)
    )
    if a_type != b_type or d_type not in wanted or c_type not in wanted:
        raise t.error(f"D and C of .{a_type} and .{b_type} are .{' or .'.join(wanted)}")
    if bit_op != (a_type == "b1") or (saturates and (d_type != "s32" or bit_op)):
        raise t.error("only .b1 needs an operation (.xor, .and), and only other integers take .satfinite")


def _tiles(
    t: PtxTranslator,
    found: _Fragments,
    types: tuple[str, str],
    kind: str,
    given: tuple[Operand, Operand, Operand],
    c_type: str,
) -> list[IrValue]:
    """Return the elements of D: one product for each tile.

    `types` are those of the left and the right operand, and `given` these operands and C, of `c_type`. `kind` is that of
    `mma.step`. Raises `PtxError` for a wrong number of registers.
    """
    tile, width = found.tile, max(found.tile.bits, 32)
    per_a, per_b, per_c = tile.a_registers, tile.b_registers, tile.m * _TILE // 32
    a = [t.bits(o, width) for o in items_of(given[0])]
    b = [t.bits(o, width) for o in items_of(given[1])]
    if len(a) % (per_a * found.rows) or len(b) % (per_b * found.columns) or not a or not b:
        raise t.error(f"needs {per_a * found.rows} and {per_b * found.columns} registers of A and B")
    sums = [v for item in items_of(given[2]) for v in accumulator(t, item, c_type)]
    if len(sums) != per_c * found.rows * found.columns:
        raise t.error(f"needs {per_c * found.rows * found.columns} elements of C, has {len(sums)}")
    results = []
    for row in range(found.rows):
        for column in range(found.columns):
            at = per_c * (row * found.columns + column)
            left, right = a[per_a * row : per_a * (row + 1)], b[per_b * column : per_b * (column + 1)]
            results += product(t, tile, types, kind, left, right, sums[at : at + per_c])
    return results


def _write(t: PtxTranslator, d: Operand, d_type: str, results: list[IrValue]) -> None:
    """Write the elements of D; two f16 share a register."""
    if d_type == "f16":
        for n, target in enumerate(vector_elements(t, d, len(results) // 2)):
            write_small(t, target, results[2 * n : 2 * n + 2], "f16x2")
        return
    for target, value in zip(vector_elements(t, d, len(results)), results, strict=True):
        (t.write if d_type == "s32" else t.write_float)(target, value)
