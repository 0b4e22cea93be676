"""Vector registers that M0 selects: `v_movrel*` of gfx11 and gfx12, and the index mode of gfx9.

A register is a value of the engine. So an indirect access selects among all registers from the instruction's
own up to the highest that the kernel names. A number above that reads v0, and writes nothing. Index mode must
end in the basic block where it begins, and supports `v_mov_b32` only: compilers use no other. Source: RDNA3,
RDNA4 and CDNA3 ISA documents.

Not here: scalar registers that M0 selects, which are refused. Next: `meanings`, how an operation is defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import M0, M0_GFX9, Reg, Word
from emulator.amd.isa.meanings import MEANINGS, meaning

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Operand
    from emulator.amd.isa.values import IsaTranslator
    from emulator.ir.vector import IrValue

_SRC0, _DST = 1, 8
"""Bits of the index mode: M0 is added to the first source, to the destination."""
_MODE_AT, _INDEX, _MODE = 12, 0xFF, 0xF
"""M0 in index mode: position of the mode, mask of the index, mask of the mode."""
_FIELD = 0x3FF
"""Mask of each of the two indices of v_movrelsd_2: source at bit 0, destination at bit 16."""


def _read(t: IsaTranslator, operand: Operand, index: IrValue) -> IrValue:
    if not isinstance(operand, Reg) or operand.file != "v":
        raise t.error(f"{operand} is no vector register that an index could follow")
    c = t.c
    value = t.vgpr(0)
    for number in range(operand.index, t.highest + 1):
        hit = c.icmp("eq", index, number - operand.index)
        value = c.select(hit, t.vgpr(number), value)
    return value


def _write(t: IsaTranslator, operand: Operand, index: IrValue, value: IrValue) -> None:
    if not isinstance(operand, Reg) or operand.file != "v":
        raise t.error(f"{operand} is no vector register that an index could follow")
    c = t.c
    for number in range(operand.index, t.highest + 1):
        hit = c.icmp("eq", index, number - operand.index)
        t.set_vgpr(number, c.select(hit, value, t.vgpr(number)))


def _moves(t: IsaTranslator) -> None:
    """v_movrels, v_movreld, v_movrelsd: M0 is added to the source's number, the destination's, or both."""
    d, s = t.instruction.operands
    m0 = t.sgpr(M0)
    kind = t.stem.removeprefix("v_movrel").removesuffix("_b32")
    from_index, to_index = m0, m0
    if kind == "sd_2":
        from_index = t.c.op("and", m0, _FIELD)
        to_index = t.c.op("and", t.c.op("lshr", m0, 16), _FIELD)
    value = _read(t, s, from_index) if kind.startswith("s") else t.raw(s)
    if "d" in kind:
        _write(t, d, to_index, value)
    else:
        t.write(d, value)


for _kind in ("s", "d", "sd", "sd_2"):
    MEANINGS[f"v_movrel{_kind}_b32"] = _moves


@meaning("s_set_gpr_idx_on")
def _on(t: IsaTranslator) -> None:
    """Begin index mode: M0 gets the index, and the operands to which it is added."""
    c = t.c
    source, mode = t.instruction.operands
    assert isinstance(mode, Word), mode
    index = c.op("and", t.scalar(source), _INDEX)
    kept = c.op("and", t.sgpr(M0_GFX9), ~(_INDEX | _MODE << _MODE_AT) & 0xFFFF_FFFF)
    t.set_sgpr(M0_GFX9, c.op("or", c.op("or", kept, index), mode.value << _MODE_AT))
    if mode.value & ~(_SRC0 | _DST):
        raise t.error("an index of the second or third source is not supported")
    t.index_mode = mode.value


@meaning("s_set_gpr_idx_off")
def _off(t: IsaTranslator) -> None:
    t.index_mode = 0


def move(t: IsaTranslator) -> bool:
    """Write the code of a `v_mov_b32` in index mode, and return True; return False outside the mode.

    Scalar instructions return False, too. Raises `IsaError` for another vector instruction in the mode.
    """
    mode = t.index_mode
    if not mode or not t.stem.startswith("v_"):
        return False
    if t.stem != "v_mov_b32" or t.instruction.get("sdwa") or t.instruction.get("dpp"):
        raise t.error("only v_mov_b32 is supported in index mode")
    d, s = t.instruction.operands
    index = t.c.op("and", t.sgpr(M0_GFX9), _INDEX)
    indirect = isinstance(s, Reg) and s.file == "v" and bool(mode & _SRC0)
    value = _read(t, s, index) if indirect else t.raw(s)
    if mode & _DST:
        _write(t, d, index, value)
    else:
        t.write(d, value)
    return True
