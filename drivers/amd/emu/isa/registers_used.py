"""Which registers an instruction reads and writes, told by its operands.

Next: `waits`, which checks their use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.emu.isa.meanings import LANEWISE
from drivers.amd.emu.isa.names import canonical
from drivers.amd.emu.isa.operands import EXEC, VCC, Operand, Reg

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction

Register = tuple[str, int]
_READS_VCC = ("v_div_fmas", "v_dual_cndmask")
_SOURCES_ALONE = ("s_cmp", "s_bitcmp", "s_setreg", "s_barrier_signal", "s_waitcnt_")
_CHANGES_DESTINATION = (
    "s_addk",
    "s_mulk",
    "s_cmov",
    "s_bitset",
    "s_fmac",
    "v_writelane",
    "v_swap",
    "v_fma_mixlo",
    "v_fma_mixhi",
    "v_cvt_pk_fp8",
    "v_cvt_pk_bf8",
    "v_smfmac_",
    "v_swmmac_",
)


def _numbers(operand: Operand) -> set[Register]:
    if not isinstance(operand, Reg):
        return set()
    return {(operand.file, operand.index + k) for k in range(operand.count)}


def _destinations(i: Instruction) -> int:
    """Return how many of the first operands are written."""
    name = i.stem
    if name.startswith(_SOURCES_ALONE) or "_store" in name or not i.operands:
        return 0
    fields = [slot.field for slot in i.opcode.operands]
    if "_atomic_" in name:
        return 1 if len(i.operands) > len(fields) or fields[:1] == ["vdst"] else 0
    if name.startswith("buffer_load"):
        return 1
    if i.opcode.form.name == "VOPD":
        return 1
    count = 0
    for field in fields[:2]:
        if field in ("vdst", "sdst", "sdata") or (field == "vcc" and count < len(fields) - 1):
            count += 1
        else:
            break
    return 2 if name.startswith("v_swap") else count


def used(i: Instruction, family: str) -> tuple[set[Register], set[Register]]:
    """Return the registers that an instruction reads and those that it writes."""
    if i.second is not None:
        one, other = used_alone(i, family), used_alone(i.second, family)
        return one[0] | other[0], one[1] | other[1]
    return used_alone(i, family)


def used_alone(i: Instruction, family: str) -> tuple[set[Register], set[Register]]:
    """Return the same of one half of a dual-issue instruction."""
    written: set[Register] = set()
    read: set[Register] = set()
    count = _destinations(i)
    for number, operand in enumerate(i.operands):
        (written if number < count else read).update(_numbers(operand))
    entry = LANEWISE.get(canonical(i.stem, family).replace("v_dual_", "v_"))
    if (entry is not None and entry.accumulates) or i.stem.startswith(_CHANGES_DESTINATION):
        read |= written
    if i.stem.startswith(_READS_VCC):
        read.add(("s", VCC))
    if i.stem.startswith("v_cmpx") or "saveexec" in i.stem or "wrexec" in i.stem:
        written.add(("s", EXEC))
    return read, written
