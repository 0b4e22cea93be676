"""Matrix operations of a wave: WMMA of gfx11 and gfx12, SWMMAC of gfx12, MFMA and SMFMAC of gfx942.

D = A * B + C. Sums are in float32 (int32, f64) from k = 0 upwards, with fused steps; AMD does not document
the hardware's order. All lanes take part, whatever EXEC is: the pseudo-code of the ISA documents sets EXEC.

Not here: sizes and register maps (`matrix_shapes`), the sums (`matrix_sums`). Next: `meanings`, how an
operation is defined. Source: RDNA3, RDNA4 and CDNA3 ISA documents; docs/sources-amd.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import Imm, Operand, Reg
from emulator.amd.isa.matrix_shapes import BYTES, MFMA_NAMES, shape_of
from emulator.amd.isa.matrix_sums import copies_differ, element, sums
from emulator.amd.isa.meanings import MEANINGS
from emulator.ir.findings import i32
from emulator.ir.report import ReportKind

if TYPE_CHECKING:
    from emulator.amd.isa.matrix_shapes import MatrixShape
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import CodeBuilder, IrValue

_LANES_OF_BLGP = {
    1: [*range(32)] * 2, 2: [*range(32, 64)] * 2, 3: [*range(16, 64), *range(16)],
    **{4 + n: [*range(16 * n, 16 * n + 16)] * 4 for n in range(4)},
}  # fmt: skip
"""BLGP -> for each lane, the lane from which its part of B comes."""


def _from_results(c: CodeBuilder, shape: MatrixShape, value: IrValue) -> IrValue:
    """Return sums as the bits of results of the shape's type, an i32 for each lane."""
    if shape.d_type == "i32":
        return value
    if shape.d_type == "f32":
        return c.as_int(value)
    if shape.d_type == "f16":
        return c.resize(c.as_int(c.cast("fptrunc", value, "half")), 32)
    raw = c.as_int(value)
    rounded = c.op("add", raw, c.op("add", c.op("and", c.op("lshr", raw, 16), 1), 0x7FFF))
    nan = c.fcmp("uno", value, value)
    return c.select(nan, c.const(raw.type, 0x7FC0), c.op("lshr", rounded, 16))


def _registers(t: IsaTranslator, operand: Operand, count: int, type_: str = "") -> list[IrValue]:
    """Return `count` registers of a matrix operand; a constant of `type_` fills all of them."""
    if isinstance(operand, Imm) and type_[-2:] == "16":  # in both halves; a bf16 is the upper half of an f32
        half = operand.bits >> 16 if type_ == "bf16" and 0 < operand.bits >> 16 < 0xFFFF else operand.half
        return [t.c.const(t.v("i32"), half * 0x1_0001)] * count
    if isinstance(operand, Imm):
        return [t.raw(operand)] * count
    if not isinstance(operand, Reg) or operand.file == "s":
        raise t.error(f"{operand} is no matrix operand")
    if operand.count != count:
        raise t.error(f"wanted {count} registers, saw {operand.count} in {operand}")
    return [t.vgpr(operand.index + n, operand.file) for n in range(count)]


def _check(t: IsaTranslator, *registers: IrValue) -> None:
    """Report BAD_MATRIX if the copies of A and B, which WMMA of gfx11 wants in each row of lanes, differ."""
    site = t.site()
    with t.c.when(t.c.call(copies_differ(t.lib, len(registers)), "i1", *registers), likely=False):
        t.wf.report(ReportKind.BAD_MATRIX, site, i32(0))


def _matrix(t: IsaTranslator) -> None:
    """All matrix operations except those of f64. Raises `IsaError` for unsupported shapes and modifiers."""
    i, c = t.instruction, t.c
    family = t.target.family
    d, x, y, z = i.operands
    integer = "_iu8" in t.stem
    signs = (bool(i.get("neg") & 1), bool(i.get("neg") & 2)) if integer else (True, True)
    if any(i.get(m) for m in ("clamp", "neg_hi")) or (i.get("neg") and not integer):
        raise t.error("this modifier of a matrix operation is not supported")
    shape = shape_of(t.stem, family, t.lanes, signs=signs)
    if shape is None:
        raise t.error("the register map of this matrix operation is not known")
    a = _registers(t, x, shape.a_registers)
    b = _registers(t, y, shape.b_registers or shape.a_registers)
    if shape.copies > 1:
        _check(t, *a, *b)
    high = False
    if shape.sparse:
        old, index = _registers(t, d, shape.d_registers), [_index(t, shape, _registers(t, z, 1)[0])]
    else:
        old, index = _registers(t, z, shape.d_registers, shape.d_type), []
        high = bool(i.get("op_sel") & 4)
        if i.get("op_sel") & 3 or (high and shape.d_type[-2:] == "32"):
            raise t.error(f"wanted an op_sel that selects halves of 16-bit C and D, saw {i.get('op_sel')}")
    b, blocks = _broadcast(t, shape, b)
    start = _begin(c, shape, old, high=high)
    helper, type_ = sums(t.lib, shape, family, blocks, fnuz=t.target.fnuz)
    whole = c.call(helper, type_, *a, *b, *index, *start)
    numbers = [c.let(v.type, f"extractvalue {whole}, {n}") for n, v in enumerate(start)]
    results = [_from_results(c, shape, v) for v in numbers]
    if not isinstance(d, Reg):
        raise t.error(f"{d} is no matrix operand")
    if shape.packed:
        results = [
            c.op("or", low, c.op("shl", up, 16)) for low, up in zip(results[::2], results[1::2], strict=True)
        ]
    for n, value in enumerate(results):
        both = value
        if shape.d_type[-2:] != "32" and not shape.packed:
            kept = t.vgpr(d.index + n, d.file)
            both = (
                c.op("or", c.op("and", kept, 0xFFFF), c.op("shl", value, 16))
                if high
                else c.op("or", c.op("and", kept, 0xFFFF_0000), value)
            )
        t.set_vgpr(d.index + n, both, d.file, every=True)


def _index(t: IsaTranslator, shape: MatrixShape, register: IrValue) -> IrValue:
    """Return the indices of a sparse A, from bit 0 on.

    A register holds several sets, and a modifier selects one.
    """
    i = t.instruction
    bits = 2 * shape.a_registers * (4 // BYTES[shape.a_type])
    which = (0 if i.get("cbsz") else i.get("abid")) if t.target.family == "gfx9" else i.get("op_sel")
    if (which + 1) * bits > 32:
        raise t.error(f"wanted one of the {32 // bits} sets of indices of a register, saw number {which}")
    return t.c.op("lshr", register, which * bits) if which else register


def _broadcast(
    t: IsaTranslator, shape: MatrixShape, b: list[IrValue]
) -> tuple[list[IrValue], tuple[int, ...]]:
    """Return B with BLGP applied, and the block of A for each block, by CBSZ and ABID.

    The blocks are () if each block uses its own.
    """
    cbsz, abid, blgp = (t.instruction.get(field) for field in ("cbsz", "abid", "blgp"))
    if blgp:
        b = [t.c.shuffle(register, None, _LANES_OF_BLGP[blgp]) for register in b]
    if shape.sparse or not (cbsz or abid):
        return b, ()
    group = 1 << cbsz
    if group > shape.blocks or abid >= group:
        raise t.error(f"wanted cbsz and abid for {shape.blocks} blocks, saw cbsz {cbsz} and abid {abid}")
    return b, tuple(block // group * group + abid for block in range(shape.blocks))


def _begin(c: CodeBuilder, shape: MatrixShape, old: list[IrValue], *, high: bool) -> list[IrValue]:
    """Return C as float32 or int32, in the order of registers and parts. `high`: C is in the upper halves."""
    if shape.d_type == "i32":
        return old
    if shape.d_type == "f32":
        return [c.as_float(v) for v in old]
    parts = (0, 1) if shape.packed else (1 if high else 0,)
    return [element(c, v, shape.d_type, part, fnuz=False) for v in old for part in parts]


def _doubles(t: IsaTranslator) -> None:
    """MFMA of f64.

    A lane has one element of A and one of B; its register pair n has row 4 n + lane / 16 of D. BLGP negates:
    bit 0 A, bit 1 B, bit 2 C. Source: as `matrix_shapes`, and LLVM for BLGP.
    """
    c, i, lanes = t.c, t.instruction, range(t.lanes)
    d, x, y, z = i.operands
    if i.get("cbsz") or i.get("abid") or t.lanes != 64 or not isinstance(d, Reg):
        raise t.error("wanted no CBSZ and ABID, waves of 64 lanes and registers for D")
    small = "_4b_" in t.stem

    def read(operand: Operand, pair: int, bit: int) -> IrValue:
        part = replace(operand, index=operand.index + 2 * pair) if isinstance(operand, Reg) else operand
        value = c.as_float(t.raw(part, 64))
        return c.let(value.type, f"fneg {value}") if i.get("blgp") >> bit & 1 else value

    a, b = read(x, 0, 0), read(y, 0, 1)
    results = []
    for pair in range(d.count // 2):
        total = read(z, pair, 2)
        for k in range(4):
            rows = [16 * k + (lane % 16 // 4 * 4 if small else 4 * pair) + lane // 16 for lane in lanes]
            columns = [16 * k + lane % 16 for lane in lanes]
            total = c.intrinsic("fma", c.shuffle(a, None, rows), c.shuffle(b, None, columns), total)
        results.append(total)
    for pair, total in enumerate(results):
        for n, half in enumerate(t.known.split(c, c.as_int(total))):
            t.set_vgpr(d.index + 2 * pair + n, half, d.file, every=True)


MEANINGS["v_mfma_f64_16x16x4_f64"] = MEANINGS["v_mfma_f64_4x4x4_4b_f64"] = _doubles
for _d in ("f32", "f16", "bf16"):
    for _a in ("f16", "bf16", *(f"{p}_{q}" for p in ("fp8", "bf8") for q in ("fp8", "bf8"))):
        MEANINGS[f"v_wmma_{_d}_16x16x16_{_a}"] = _matrix
        MEANINGS[f"v_swmmac_{_d}_16x16x32_{_a}"] = _matrix
for _name in (*MFMA_NAMES, "v_wmma_i32_16x16x16_iu8", "v_swmmac_i32_16x16x32_iu8"):
    MEANINGS[_name] = _matrix
