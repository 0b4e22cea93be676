"""Dense matrix products of a warpgroup: wgmma.mma_async, fence, commit_group and wait_group. Source: PTX ISA 9.7.15.

Each of the four warps of a warpgroup computes 16 of the 64 rows, so no warp waits for another. A product is computed when
it is issued, which is one of the orders that hardware may choose. Sums are rounded as in `mma`.

Not here: the tiles of A and B in shared memory (`wgmma_tiles`), products of one warp (`mma`). Sparse products
(wgmma.mma_async.sp) are not supported. Next: `wgmma_tiles`.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.ir.findings import emit_report, i32
from emulator.ir.ir_text import element
from emulator.ir.report import ReportKind
from emulator.ir.vector import IrValue
from emulator.nv.ptx import wgmma_tiles as tiles
from emulator.nv.ptx.core import CANONICAL_NAN, Modifiers, PtxTranslator, meaning, operands
from emulator.nv.ptx.counted import count_tile
from emulator.nv.ptx.mma import MmaShape, items_of, step, unpacked
from emulator.nv.ptx.statements import Operand, PtxImm, PtxInstruction, PtxReg, Vec
from emulator.sanitizers import read_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.ir.vector import CodeBuilder

_ARCH = 90
"""The only architecture with wgmma."""
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_COLUMNS = 256
"""The most columns of B."""
_INTEGER_STEP_FROM = 32
"""Above this many columns, integer products take multiples of 16 columns only."""
_UNROLLED = 4
"""Elements of k in one turn of the innermost loop; more would take longer to compile."""


@dataclass(frozen=True, slots=True)
class _Family:
    """Types of A and B that may be combined, and what follows from them."""

    types: tuple[str, ...]
    k: int
    """As written in the shape."""
    bits: int
    """Width of an element; elements of one bit are taken 32 at a time."""
    sums: tuple[str, ...]
    """The possible types of D."""

    @property
    def steps(self) -> int:
        """The number of elements along k, each of `bits` bits."""
        return tiles.ROW_BYTES * 8 // self.bits


_FAMILIES = (
    _Family(("f16",), 16, 16, ("f16", "f32")),
    _Family(("bf16",), 16, 16, ("f32",)),
    _Family(("tf32",), 8, 32, ("f32",)),
    _Family(("e4m3", "e5m2"), 32, 8, ("f16", "f32")),
    _Family(("s8", "u8"), 32, 8, ("s32",)),
    _Family(("b1",), 256, 32, ("s32",)),
)


@dataclass(frozen=True, slots=True)
class _Product:
    """What distinguishes the helper functions."""

    a_type: str
    b_type: str
    bits: int
    """Width of an element of A and B."""
    steps: int
    """Elements along k."""
    kind: str
    """As in `mma.step`: "f32", "f16", "int", "saturated" or "and"."""
    in_registers: bool
    """Whether A is in registers."""
    a_by_rows: bool
    b_by_rows: bool
    """Whether shared memory holds the rows of A (columns of B) of one k side by side: MN-major (`wgmma_tiles`)."""
    negated: bool
    """Whether the product is subtracted from D."""

    @property
    def name(self) -> str:
        """The name of the helper."""
        flags = "".join(
            letter for letter, on in zip("ramn", (self.in_registers, self.a_by_rows, self.b_by_rows, self.negated), strict=True) if on
        )  # fmt: skip
        return f"ptx.wgmma.{self.a_type}.{self.b_type}.{self.kind}.{flags or 'plain'}"


def uses(i: PtxInstruction) -> bool:
    """Return whether an instruction needs the area "reads" in a warp's reserved memory, which has groups of products."""
    return i.opcode == "wgmma"


@meaning("wgmma")
def _wgmma(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    if t.arch != _ARCH:
        raise t.error("needs sm_90a")
    what = m.need("fence", "commit_group", "wait_group", "mma_async")
    if what == "mma_async" and m.flag("sp"):
        raise t.error("sparse products are not supported")
    m.need("sync")
    m.need("aligned")
    if what == "mma_async":
        _mma_async(t, i, m)
        return
    found = operands(t, i, 1 if what == "wait_group" else 0)
    if found and not isinstance(found[0], PtxImm):
        raise t.error("the number of groups must be a constant")
    if what == "commit_group":
        read_groups.committed(t.wf, t.area("reads"))
    elif what == "wait_group" and isinstance(found[0], PtxImm):
        read_groups.waited(t.wf, t.area("reads"), found[0].value)


def _mma_async(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    """Translate wgmma.mma_async; `m` has consumed the words before the shape."""
    word = next((w for w in m.rest if _SHAPE.fullmatch(w)), "")
    m.flag(word)
    saturates, bit_op = m.flag("satfinite"), m.flag("and")
    if bit_op:
        m.need("popc")
    if not word or len(m.rest) != 3:
        raise t.error("needs a shape m64nNkK and the types of D, A and B")
    d_type, *types = m.rest
    m.rest.clear()
    family, columns = _family(t, word, d_type, types)
    if bit_op != (family.types == ("b1",)) or (saturates and (d_type != "s32" or bit_op)):
        raise t.error("only .b1 needs .and.popc, and only other integers take .satfinite")
    d, a, b, scale, *flags = i.operands
    in_registers = isinstance(a, Vec)
    negated, a_by_rows, b_by_rows = _flags(t, flags, family, in_registers=in_registers)
    kind = d_type if d_type != "s32" else "and" if bit_op else "saturated" if saturates else "int"
    product = _Product(
        types[0], types[1], family.bits, family.steps, kind, in_registers, a_by_rows, b_by_rows, negated
    )
    _issue(t, product, columns, d, a, b, scale)


def _family(t: PtxTranslator, word: str, d_type: str, types: Sequence[str]) -> tuple[_Family, int]:
    """Return the family of a product of shape `word`, and its number of columns. Raises `PtxError` if there is none."""
    match = _SHAPE.fullmatch(word)
    assert match is not None
    columns, k = map(int, match.groups())
    for family in _FAMILIES:
        if set(types) <= set(family.types) and d_type in family.sums and k == family.k:
            step_ = 16 if family.sums == ("s32",) and columns > _INTEGER_STEP_FROM else 8
            if columns % step_ or not 8 <= columns <= _COLUMNS:
                raise t.error(f"{columns} columns are not defined for these types")
            return family, columns
    raise t.error(f"shape {word} of .{types[0]} and .{types[1]} into .{d_type} is not defined")


def _flags(
    t: PtxTranslator, flags: Sequence[Operand], family: _Family, *, in_registers: bool
) -> tuple[bool, bool, bool]:
    """Return whether the product is negated, and whether A and B are stored MN-major.

    `flags` are the operands after the scale of D. Raises `PtxError` for another number, or values that are not defined.
    """
    values = [flag.value for flag in flags if isinstance(flag, PtxImm)]
    small = family.bits == 16
    wanted = 0 if family.sums == ("s32",) else 2 + (0 if not small else 1 if in_registers else 2)
    if len(values) != len(flags) or len(flags) != wanted:
        raise t.error(f"takes {wanted} constants after the scale of D")
    signs, transposes = values[:2], values[2:]
    if any(v not in (1, -1) for v in signs) or any(v not in (0, 1) for v in transposes):
        raise t.error("scales of A and B are 1 or -1, transposes 0 or 1")
    a_by_rows, b_by_rows = map(bool, (*[0] * (2 - len(transposes)), *transposes))
    return signs[:1] != signs[1:], a_by_rows, b_by_rows


def _issue(
    t: PtxTranslator, product: _Product, columns: int, d: Operand, a: Operand, b: Operand, scale: Operand
) -> None:
    """Compute a product and write D; report it if not all lanes are active."""
    c, targets = t.c, items_of(d)
    if len(targets) != columns // (4 if product.kind == "f16" else 2):
        raise t.error(f"{len(targets)} registers of D, not {columns // (4 if product.kind == 'f16' else 2)}")
    site = t.site()
    whole = c.icmp("eq", t.wf.active, -1)
    with c.when(c.not_(whole), likely=False):
        t.wf.report(ReportKind.BAD_MATRIX, site, t.wf.active)
    names = ",".join(o.name for o in targets if isinstance(o, PtxReg))
    sums = t.scratch(f"wgmma {names}", f"[{len(targets)} x {t.v('i32')}]")
    for n, target in enumerate(targets):
        c.store(t.bits(target, 32), c.gep(sums, 128 * n))
    left = _registers_of_a(t, a) if product.in_registers else c.extract(t.bits(a, 64), 0)
    keeps = _keeps(t, scale)
    arguments = (sums, left, c.extract(t.bits(b, 64), 0), i32(columns // 8), keeps, i32(site))
    read_groups.begin(t.wf, t.area("reads"))
    c.call(_multiply(t, product), "void", t.wf.warp, *arguments)
    read_groups.end(t.wf)
    if not product.in_registers:
        count_tile(t, left, by_rows=product.a_by_rows)
    count_tile(t, arguments[2], by_rows=product.b_by_rows, groups=columns // 8)
    for n, target in enumerate(targets):
        t.write(target, c.load(t.v("i32"), c.gep(sums, 128 * n)))


def _keeps(t: PtxTranslator, scale: Operand) -> IrValue:
    """Return whether the product is added to D instead of replacing it: a scalar, of lane 0."""
    if isinstance(scale, PtxImm):
        return IrValue("i1", "true" if scale.value else "false")
    return t.c.extract(t.pred(scale), 0)


def _registers_of_a(t: PtxTranslator, a: Operand) -> IrValue:
    """Return a pointer to copies of the four registers of A. Raises `PtxError` for another number."""
    sources = items_of(a)
    if len(sources) != 4:
        raise t.error("A has 4 registers")
    slot = t.scratch("wgmma a", f"[4 x {t.v('i32')}]")
    for n, source in enumerate(sources):
        t.c.store(t.bits(source, 32), t.c.gep(slot, 128 * n))
    return slot


def _multiply(t: PtxTranslator, product: _Product) -> str:
    """`ptx.wgmma.TYPES.KIND.FLAGS(warp, sums, a, b, groups, keeps, site)`: one product for the 16 rows of a warp.

    `sums` points to the registers of D, each with all lanes, which it changes. `a` points to the registers of A, or is its
    descriptor; `b` is that of B. `groups` is the number of columns divided by 8. If `keeps`, the product is added to D.
    Invalid descriptors and addresses are reported.
    """
    lib = t.wf.lib
    lane_type = "float" if product.kind in ("f16", "f32") else "i32"
    one, steps = lib.v(lane_type), product.steps

    def body(
        c: CodeBuilder, warp: IrValue, sums: IrValue, a: IrValue, b: IrValue, groups: IrValue, keeps: IrValue, site: IrValue
    ) -> None:
        left = c.slot(f"[{2 * steps} x {one}]")
        right = c.slot(f"[{_COLUMNS * steps} x {lane_type}]")
        bad = c.slot("i8")
        c.store(IrValue("i8", "0"), bad)
        if product.in_registers:
            _spread_registers(c, product, a, left)
        else:
            tiles.load_a(
                lib,
                c,
                tiles.WgmmaTile(product.a_type, product.bits, product.a_by_rows, product.negated),
                warp,
                a,
                left,
                bad,
                site,
            )
        negated = product.negated and product.in_registers
        tiles.load_b(
            lib,
            c,
            tiles.WgmmaTile(product.b_type, product.bits, product.b_by_rows, negated),
            warp,
            b,
            groups,
            right,
            bad,
            site,
        )
        with c.count(groups) as group:
            wide = c.resize(group, 64)
            _sum(c, product, sums, left, right, wide, keeps, one)
        with c.when(c.icmp("ne", c.load("i8", bad), 0)):
            emit_report(lib, c, warp, ReportKind.BAD_DESCRIPTOR, site, i32(0))

    place = "ptr" if product.in_registers else "i64"
    return lib.define(product.name, "void", f"ptr, ptr, {place}, i64, i32, i1, i32", body)


def _spread_registers(c: CodeBuilder, product: _Product, registers: IrValue, left: IrValue) -> None:
    """Write A from registers to `left`: for each k, two vectors of rows 0 to 7 and 8 to 15.

    In a vector, lane n has the element of row n // 4, as the sums of that lane need it.
    """
    shape = MmaShape(16, 8, product.steps, product.bits)
    whole = [c.load("<32 x i32>", c.gep(registers, 128 * n)) for n in range(4)]
    parts = unpacked(c, whole, product.a_type, shape)
    for k in range(product.steps):
        for half in (0, 1):
            places = [shape.place(lane // 4 + 8 * half, k, 16) for lane in range(32)]
            _, register, part = places[0]
            value = c.shuffle(parts[register][part], None, [lane for lane, _, _ in places])
            c.store(value, c.gep(left, 128 * (2 * k + half)), align=64)


def _sum(
    c: CodeBuilder, product: _Product, sums: IrValue, left: IrValue, right: IrValue, group: IrValue, keeps: IrValue, one: str
) -> None:
    """Compute 8 columns of D, number `group` (i64).

    `sums` points to the registers of D; `left` and `right` to A and B, as `load_a` and `load_b` of `wgmma_tiles` write
    them. `one` is the vector type of a sum.
    """
    pieces = 2 if product.kind == "f16" else 4
    at = c.gep(sums, c.op("mul", group, 128 * pieces))
    raw = [c.load("<32 x i32>", c.gep(at, 128 * n), align=64) for n in range(pieces)]
    if product.kind == "f16":
        before = [
            numeric.from_small(c, c.resize(c.op("lshr", r, s), 16), "f16") for r in raw for s in (0, 16)
        ]
    else:
        before = [c.bitcast(r, one) for r in raw]
    before = [c.select(keeps, value, c.zero(one)) for value in before]
    totals = [c.slot(one) for _ in range(4)]
    for value, slot in zip(before, totals, strict=True):
        c.store(c.zero(one) if product.kind == "saturated" else value, slot)
    column = c.gep(right, c.op("mul", group, 32 * product.steps))
    with c.count(i32(product.steps // _UNROLLED)) as number:
        wide = c.resize(number, 64)
        _four_steps(
            c,
            product.kind,
            c.gep(left, c.op("mul", wide, 256 * _UNROLLED)),
            c.gep(column, c.op("mul", wide, 32 * _UNROLLED)),
            totals,
            one,
        )
    total = [c.load(one, slot) for slot in totals]
    if product.kind == "saturated":
        total = [c.intrinsic("sadd.sat", x, y) for x, y in zip(before, total, strict=True)]
    for n, value in enumerate(_stored(c, product.kind, total)):
        c.store(value, c.gep(at, 128 * n), align=64)


def _four_steps(c: CodeBuilder, kind: str, left: IrValue, column: IrValue, totals: Sequence[IrValue], one: str) -> None:
    """Add the products of `_UNROLLED` consecutive k to the four sums to which `totals` point."""
    total = [c.load(one, slot) for slot in totals]
    for k in range(_UNROLLED):
        rows = [c.load(one, c.gep(left, 128 * (2 * k + half)), align=64) for half in (0, 1)]
        cells = []
        for parity in (0, 1):
            four = c.load(f"<4 x {element(one)}>", c.gep(column, 32 * k + 16 * parity), align=16)
            cells.append(c.shuffle(four, None, [lane % 4 for lane in range(32)]))
        for n in range(4):
            total[n] = step(c, kind, rows[n // 2], cells[n % 2], total[n])
    for value, slot in zip(total, totals, strict=True):
        c.store(value, slot)


def _stored(c: CodeBuilder, kind: str, total: Sequence[IrValue]) -> list[IrValue]:
    """Return the registers of D that hold four sums: NaNs are canonical, and two f16 share a register."""
    if kind == "f32":
        found = []
        for value in total:
            bits = c.as_int(value)
            found.append(c.select(c.fcmp("uno", value, value), c.const(bits.type, CANONICAL_NAN[32]), bits))
        return found
    if kind == "f16":
        small = [c.resize(numeric.to_small(c, value, "f16"), 32) for value in total]
        return [c.op("or", small[n], c.op("shl", small[n + 1], 16)) for n in (0, 2)]
    return list(total)
