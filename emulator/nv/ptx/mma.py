"""Matrix instructions of a warp: mma.sync, ldmatrix, stmatrix, movmatrix.

Source: PTX ISA 9.7.14 (fragment layouts of each shape).

Products of elements of 8 and 16 bits and of tf32 are exact in float32. Sums are float32 fused multiply-adds in
ascending k, which begin with C. Hardware sums in groups and truncates, so its last bits differ; integers are
exact. Elements of one bit (.b1) are taken 32 at a time: `MmaShape` has them as elements of 32 bits, and its k is
that of the instruction divided by 32.

Not here: conversions of elements (`convert`, `emulator.ir.numeric`), checks of addresses
(`emulator.ir.addresses`), products of a warpgroup (`wgmma`), fragments of CUDA's interface (`wmma`). Sparse and
block-scaled products are not supported. Next: `core`, how an instruction is defined.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.ir import numeric
from emulator.ir.addresses import READ, WRITE, translate
from emulator.ir.vector import IrValue
from emulator.nv.ptx.convert import small_to_f16
from emulator.nv.ptx.core import Modifiers, PtxTranslator, meaning, operands, vector_elements
from emulator.nv.ptx.floats import write_small
from emulator.nv.ptx.integers import is_signed, join_halves
from emulator.nv.ptx.memory import take_space
from emulator.nv.ptx.statements import Operand, PtxInstruction, Vec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emulator.ir.vector import CodeBuilder


@dataclass(frozen=True, slots=True)
class MmaShape:
    """The shape m x n x k of a product, and the width of an operand element in bits."""

    m: int
    n: int
    k: int
    bits: int

    @property
    def a_registers(self) -> int:
        """The number of registers of A in each lane. A register has 32 bits, or 64 for f64."""
        return self.m * self.k * self.bits // (32 * max(self.bits, 32))

    @property
    def b_registers(self) -> int:
        """The number of registers of B in each lane."""
        return self.n * self.k * self.bits // (32 * max(self.bits, 32))

    def place(self, row: int, k: int, rows: int) -> tuple[int, int, int]:
        """Return the lane, its register and the part of the register that hold element (row, k) of an operand.

        `rows` is the operand's number of rows; for B, `row` and `rows` are columns. A register holds `pack` neighbours in k,
        and four neighbouring lanes hold 4 * pack of them. Each lane's registers go through the rows in steps of 8, then
        through k.
        """
        pack = max(32 // self.bits, 1)
        span = 4 * pack
        lane = row % 8 * 4 + k % span // pack
        register = (row // 8) + (k // span) * (rows // 8)
        return lane, register, k % pack


@dataclass(frozen=True, slots=True)
class MmaFamily:
    """Operand types that may be combined, and the shapes and accumulators that they support."""

    types: tuple[str, ...]
    """The types of A and B; the two may differ."""
    bits: int
    """Width of an element of A and B."""
    shapes: tuple[str, ...]
    """As written in the instruction."""
    sums: tuple[str, ...]
    """The possible types of C and D; both have the same type."""
    arch: int = 80
    """The lowest architecture: 80 stands for sm_80."""


_INTEGER = ("s32",)
"""The accumulators of integer products."""
FAMILIES = (
    MmaFamily(("f16",), 16, ("m16n8k8", "m16n8k16"), ("f16", "f32")),
    MmaFamily(("bf16",), 16, ("m16n8k8", "m16n8k16"), ("f32",)),
    MmaFamily(("tf32",), 32, ("m16n8k4", "m16n8k8"), ("f32",)),
    MmaFamily(("e4m3", "e5m2"), 8, ("m16n8k16", "m16n8k32"), ("f32", "f16"), 89),
    MmaFamily(("s8", "u8"), 8, ("m8n8k16", "m16n8k16", "m16n8k32"), _INTEGER),
    MmaFamily(("s4", "u4"), 4, ("m8n8k32", "m16n8k32", "m16n8k64"), _INTEGER),
    MmaFamily(("b1",), 1, ("m8n8k128", "m16n8k128", "m16n8k256"), _INTEGER),
    MmaFamily(("f64",), 64, ("m8n8k4",), ("f64",)),
    MmaFamily(("f64",), 64, ("m16n8k4", "m16n8k8", "m16n8k16"), ("f64",), 90),
)
"""All products that mma.sync can make here."""
_KIND = 120
"""The first architecture whose mma names the kind of its elements."""
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the registers of a fragment, which is {a, b, ...}, or one register without braces."""
    return operand.items if isinstance(operand, Vec) else (operand,)


@meaning("mma")
def _mma(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    of_bytes = m.flag("kind::f8f6f4")
    for word in m.rest:
        if word.startswith(("sp", "kind::", "block_scale")):
            raise t.error(f".{word} is not supported")
    for word in ("sync", "aligned", "row", "col"):
        m.need(word)
    word = next((w for w in m.rest if _SHAPE.fullmatch(w)), "")
    m.flag(word)
    saturates, bit_op = m.flag("satfinite"), m.one_of("xor", "and")
    if bit_op:
        m.need("popc")
    if len(m.rest) != 4:
        raise t.error("needs a shape and the types of D, A, B and C")
    d_type, a_type, b_type, c_type = m.rest
    m.rest.clear()
    family = _family(t, word, (a_type, b_type), (d_type, c_type))
    if of_bytes and (t.arch < _KIND or word != "m16n8k32" or not {a_type, b_type} <= {"e4m3", "e5m2"}):
        raise t.error(
            f".kind::f8f6f4 needs sm_{_KIND}a, m16n8k32 and .e4m3 or .e5m2; others are not supported"
        )
    if bool(bit_op) != (family.bits == 1) or (saturates and (d_type != "s32" or bit_op)):
        raise t.error("only .b1 needs an operation (.xor, .and), and only other integers take .satfinite")
    shape = _shape(word, family)
    d, a, b, c = operands(t, i, 4)
    if len(items_of(a)) != shape.a_registers or len(items_of(b)) != shape.b_registers:
        raise t.error(f"needs {shape.a_registers} and {shape.b_registers} registers")
    width = 64 if shape.bits == 64 else 32
    a_regs = [t.bits(o, width) for o in items_of(a)]
    b_regs = [t.bits(o, width) for o in items_of(b)]
    kind = d_type if d_type != "s32" else bit_op or ("saturated" if saturates else "int")
    sums = [accumulator(t, item, d_type) for item in items_of(c)]
    flat = [v for group in sums for v in group] if kind == "f16" else [group[0] for group in sums]
    if len(flat) != shape.m * shape.n // 32:
        raise t.error(f"needs {shape.m * shape.n // 32} accumulators")
    result = product(t, shape, (a_type, b_type), kind, a_regs, b_regs, flat)
    if kind == "f16":
        for k, target in enumerate(vector_elements(t, d, len(result) // 2)):
            write_small(t, target, result[2 * k : 2 * k + 2], "f16x2")
    else:
        for target, value in zip(vector_elements(t, d, len(result)), result, strict=True):
            (t.write if d_type == "s32" else t.write_float)(target, value)


def _family(t: PtxTranslator, shape: str, types: tuple[str, str], sums: tuple[str, str]) -> MmaFamily:
    """Return the family of a product. Raises `PtxError` if there is none, or not for these sums or this target."""
    for family in FAMILIES:
        if shape in family.shapes and set(types) <= set(family.types):
            if t.arch < family.arch:
                raise t.error(f"needs sm_{family.arch}")
            if sums[0] != sums[1] or sums[0] not in family.sums:
                raise t.error(f"needs the same type for C and D, one of .{', .'.join(family.sums)}")
            return family
    raise t.error(f"shape {shape or '(none)'} of .{types[0]} and .{types[1]} is not supported")


def _shape(word: str, family: MmaFamily) -> MmaShape:
    """Return the shape that `word` names; elements of one bit are taken 32 at a time."""
    match = _SHAPE.fullmatch(word)
    assert match is not None
    m, n, k = map(int, match.groups())
    return MmaShape(m, n, k, family.bits) if family.bits > 1 else MmaShape(m, n, k // 32, 32)


def accumulator(t: PtxTranslator, item: Operand, kind: str) -> list[IrValue]:
    """Return the sums in a register of C of type `kind`: two f16 as float32, else one."""
    if kind == "s32":
        return [t.bits(item, 32)]
    if kind in ("f32", "f64"):
        return [t.float(item, kind)]
    raw = t.bits(item, 32)
    return [numeric.from_small(t.c, t.c.resize(t.c.op("lshr", raw, at), 16), "f16") for at in (0, 16)]


def product(
    t: PtxTranslator,
    shape: MmaShape,
    types: tuple[str, str],
    kind: str,
    a: Sequence[IrValue],
    b: Sequence[IrValue],
    sums: Sequence[IrValue],
) -> list[IrValue]:
    """Return the elements of D = A B + C, computed by a helper function: kernels repeat few combinations of types.

    `a` and `b` are the registers of A and B as integers. `sums` are the elements of C of each lane, one vector for each.
    The elements of D have the same order and types. `kind` is that of `step`; with "saturated", only the addition of C
    saturates.
    """
    lib = t.wf.lib
    one = sums[0].type
    result = "{ " + ", ".join([one] * len(sums)) + " }"

    def body(c: CodeBuilder, *values: IrValue) -> None:
        left, right = values[: len(a)], values[len(a) : len(a) + len(b)]
        totals = list(values[len(a) + len(b) :])
        parts_a, parts_b = unpacked(c, left, types[0], shape), unpacked(c, right, types[1], shape)
        moved: dict[tuple[int, int, str], IrValue] = {}

        def operand(side: str, index: Callable[[int], int], k: int, key: int) -> IrValue:
            parts, rows = (parts_a, shape.m) if side == "a" else (parts_b, shape.n)
            if (key, k, side) not in moved:
                places = [shape.place(index(lane), k, rows) for lane in range(32)]
                _, register, part = places[0]
                moved[key, k, side] = c.shuffle(parts[register][part], None, [lane for lane, _, _ in places])
            return moved[key, k, side]

        for n, first in enumerate(totals):
            total = first if kind != "saturated" else c.zero(first.type)
            for k in range(shape.k):
                x = operand("a", lambda lane, n=n: lane // 4 + 8 * (n // 2), k, n // 2)  # type: ignore[misc]
                y = operand("b", lambda lane, n=n: lane % 4 * 2 + n % 2, k, n % 2)  # type: ignore[misc]
                total = step(c, kind, x, y, total)
            totals[n] = total if kind != "saturated" else c.intrinsic("sadd.sat", first, total)
        whole = IrValue(result, "poison")
        for n, total in enumerate(totals):
            whole = c.let(result, f"insertvalue {whole}, {total}, {n}")
        c.ret(whole)

    name = f"ptx.mma.m{shape.m}n{shape.n}k{shape.k}.{types[0]}.{types[1]}.{kind}"
    parameters = {f"x{n}": v.type for n, v in enumerate((*a, *b, *sums))}
    lib.define(name, result, parameters, body)
    whole = t.c.call(name, result, *a, *b, *sums)
    return [t.c.let(one, f"extractvalue {whole}, {n}") for n in range(len(sums))]


def unpacked(c: CodeBuilder, registers: Sequence[IrValue], type_: str, shape: MmaShape) -> list[list[IrValue]]:
    """Return the elements in each of some registers, lowest bits first, as `element` converts them."""
    found = []
    for register in registers:
        pack = max(32 // shape.bits, 1)
        parts = [c.op("lshr", register, shape.bits * n) if n else register for n in range(pack)]
        found.append([element(c, part, type_) for part in parts])
    return found


def element(c: CodeBuilder, value: IrValue, type_: str) -> IrValue:
    """Return the elements of A or B in the low bits of `value`, as float32 or double, or as i32 for integers and .b1."""
    if type_ == "f64":
        return c.as_float(value)
    if type_ == "tf32":
        return c.as_float(c.op("and", value, ~0x1FFF))
    if type_ in ("f16", "bf16"):
        return numeric.from_small(c, c.resize(value, 16), type_)
    if type_ in ("e4m3", "e5m2"):
        return numeric.from_small(c, small_to_f16(c, c.op("and", c.resize(value, 16), 255), type_), "f16")
    if type_ == "b1":
        return value
    return c.resize(c.resize(value, int(type_[1:])), 32, signed=is_signed(type_))


def step(c: CodeBuilder, kind: str, x: IrValue, y: IrValue, total: IrValue) -> IrValue:
    """Return `total` with the product of `x` and `y` added.

    `kind` selects the arithmetic:
    - "int" or "saturated": integers, of which the sum wraps here in both cases;
    - "xor" or "and": this operation on bits, of whose result the ones are counted and added;
    - the type of a floating-point sum: a fused multiply-add.
    """
    if kind in ("int", "saturated"):
        return c.op("add", c.op("mul", x, y), total)
    if kind in ("xor", "and"):
        return c.op("add", c.intrinsic("ctpop", c.op(kind, x, y)), total)
    return c.intrinsic("fma", x, y, total)


def _matrix_words(t: PtxTranslator, m: Modifiers, opcode: str) -> tuple[int, bool]:
    """Consume the modifiers of ldmatrix or stmatrix; return the number of matrices, and whether they are transposed."""
    m.need("sync")
    m.need("aligned")
    if m.need("m8n8") and not m.flag("b16"):
        raise t.error(f"{opcode} supports only .b16")
    count = {"x1": 1, "x2": 2, "x4": 4}[m.need("x1", "x2", "x4")]
    return count, m.flag("trans")


def _rows(t: PtxTranslator, operand: Operand, count: int, mode: int) -> IrValue:
    """Return the addresses of rows, i32, and check those of the first 8 * count lanes: within shared memory and aligned.

    `mode` is READ or WRITE.
    """
    rows = t.address(operand, 32)
    c = t.c
    naming = c.op("and", t.wf.active, c.const(t.wf.lib.mask, (1 << 8 * count) - 1))
    name = translate(t.wf.lib, "shared", 16)
    c.call(name, t.v("i64"), t.wf.warp, rows, naming, IrValue("i32", str(t.site())), IrValue("i32", str(mode)))
    return rows


def _count_rows(t: PtxTranslator, rows: IrValue, count: int, what: str) -> None:
    """Count an access (`what` is "load" or "store") to 8 rows of 16 bytes for each of `count` matrices."""
    if t.wf.counting is not None:
        naming = t.c.op("and", t.wf.active, t.c.const(t.wf.lib.mask, (1 << 8 * count) - 1))
        t.wf.counting.access("shared", what, rows, 16, naming)


def _element_address(t: PtxTranslator, rows: IrValue, matrix: int, part: int, *, trans: bool) -> IrValue:
    """Return the address of each lane's pair of elements of a matrix; `rows` are the addresses of all rows.

    With `trans` the two elements lie in different rows, and the address is that of one of them: `part` 0 or 1.
    """
    c = t.c
    row = [8 * matrix + (lane % 4 * 2 + part if trans else lane // 4) for lane in range(32)]
    column = [lane // 4 * 2 if trans else lane % 4 * 4 for lane in range(32)]
    return c.op("add", c.shuffle(rows, None, row), c.ints(rows.type, column))


@meaning("ldmatrix")
def _ldmatrix(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    count, trans = _matrix_words(t, m, i.opcode)
    d, a = operands(t, i, 2)
    _shared_only(t, m, a)
    rows = _rows(t, a, count, READ)
    _count_rows(t, rows, count, "load")
    values = []
    for matrix in range(count):
        site = t.site()
        if trans:
            halves = [
                t.wf.load("shared", 16, 1, _element_address(t, rows, matrix, part, trans=True), site)[0]
                for part in (0, 1)
            ]
            values.append(join_halves(t, *halves))
        else:
            values += t.wf.load("shared", 32, 1, _element_address(t, rows, matrix, 0, trans=False), site)
    for target, value in zip(vector_elements(t, d, len(values)), values, strict=True):
        t.write(target, value)


@meaning("stmatrix")
def _stmatrix(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    count, trans = _matrix_words(t, m, i.opcode)
    a, s = operands(t, i, 2)
    _shared_only(t, m, a)
    rows = _rows(t, a, count, WRITE)
    _count_rows(t, rows, count, "store")
    for matrix, item in enumerate(items_of(s)):
        value, site = t.bits(item, 32), t.site()
        if not trans:
            t.wf.store("shared", _element_address(t, rows, matrix, 0, trans=False), [value], site)
            continue
        for part in (0, 1):
            half = t.c.resize(t.c.op("lshr", value, 16 * part), 16)
            t.wf.store("shared", _element_address(t, rows, matrix, part, trans=True), [half], site)


def _shared_only(t: PtxTranslator, m: Modifiers, address: Operand) -> None:
    """Consume the state space. Raises `PtxError` if it is not shared memory."""
    if take_space(t, m, address) not in ("shared", "generic"):
        raise t.error("needs an address in shared memory")


@meaning("movmatrix")
def _movmatrix(t: PtxTranslator, i: PtxInstruction, m: Modifiers) -> None:
    for word in ("sync", "aligned", "m8n8", "trans", "b16"):
        m.need(word)
    d, x = operands(t, i, 2)
    c, value = t.c, t.bits(x, 32)
    halves = [c.resize(value, 16), c.resize(c.op("lshr", value, 16), 16)]
    found = []
    for part in (0, 1):
        source = [(lane % 4 * 2 + part) * 4 + lane // 8 for lane in range(32)]
        both = [c.shuffle(half, None, source) for half in halves]
        odd = c.ints(t.v("i1"), [lane // 4 % 2 for lane in range(32)])
        found.append(c.select(odd, both[1], both[0]))
    t.write(d, join_halves(t, *found))
