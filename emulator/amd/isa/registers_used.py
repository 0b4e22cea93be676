"""The registers that an instruction reads and writes.

On RDNA a D16 access to memory uses one half of its data register and keeps the other. A VALU instruction uses
whole registers: if it writes a half, the GPU writes back 32 bits (LLVM: D16Writes32BitVgpr of gfx11 and
gfx12).

Not here: registers that M0 selects (`indirect`). Next: `waits`, `observed_lanes` and `guesses`, the users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import EXEC, VCC, Operand, Reg, canonical
from emulator.amd.isa.meanings import LANEWISE

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction

Register = tuple[str, int]
"""File ("v", "a", "s") and number."""
Half = tuple[str, int, str]
"""File, number, and "l" or "h" for a half; in files without halves "l" is the whole register."""
# Instructions that read VCC without naming it; that have sources only; whose destination is a source, too.
_READS_VCC = ("v_div_fmas", "v_dual_cndmask")
_SOURCES_ALONE = ("s_cmp", "s_bitcmp", "s_setreg", "s_barrier_signal", "s_waitcnt_")
_DATA = ("vdst", "vdata", "data0")
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
    """Return how many of the first operands are destinations."""
    name = i.stem
    if name.startswith(_SOURCES_ALONE) or "_store_" in name or not i.operands:
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
    """Return the registers that an instruction, with its dual-issue half, reads, and those that it writes."""
    if i.second is not None:
        one, other = used_alone(i, family), used_alone(i.second, family)
        return one[0] | other[0], one[1] | other[1]
    return used_alone(i, family)


def used_alone(i: Instruction, family: str) -> tuple[set[Register], set[Register]]:
    """Return the registers as `used` does, without the second half of a dual-issue instruction."""
    written: set[Register] = set()
    read: set[Register] = set()
    count = _destinations(i)
    for number, operand in enumerate(i.operands):
        (written if number < count else read).update(_numbers(operand))
    if i.stem.startswith("buffer_atomic_") and (i.get("glc") or i.get("sc0") or i.get("th") & 1):
        data = sorted(_numbers(i.operands[0]))  # the old value replaces the operand
        written.update(data[: len(data) // 2] if "cmpswap" in i.stem else data)
    entry = LANEWISE.get(canonical(i.stem, family).replace("v_dual_", "v_"))
    if (entry is not None and entry.accumulates) or i.stem.startswith(_CHANGES_DESTINATION):
        read |= written
    if i.stem.startswith(_READS_VCC):
        read.add(("s", VCC))
    if i.stem.startswith("v_cmpx") or "saveexec" in i.stem or "wrexec" in i.stem:
        written.add(("s", EXEC))
    return read, written


def used_halves(i: Instruction, family: str) -> tuple[set[Half], set[Half]]:
    """Return the halves of registers that an instruction reads, and those that it writes."""
    halves = {"v": "l" if family == "gfx9" else "lh"}
    read, written = (
        {(file, number, half) for file, number in part for half in halves.get(file, "l")}
        for part in used(i, family)
    )
    data = _data_half(i) if family != "gfx9" else None
    if data is None:
        return read, written
    operand, half = data
    other = (operand.file, operand.index, "l" if half == "h" else "h")
    if "_load_" in i.stem:
        written.discard(other)
    elif not any(operand.index in range(r.index, r.index + r.count) for r in _addresses(i, operand)):
        read.discard(other)
    return read, written


def _data_half(i: Instruction) -> tuple[Reg, str] | None:
    """Return the data register and the half that an 8- or 16-bit access uses; None for other accesses."""
    if not i.stem.startswith(("global_", "flat_", "scratch_", "buffer_", "ds_")) or "format" in i.stem:
        return None
    if "d16" not in i.stem and not i.stem.endswith(("_store_b8", "_store_b16")):
        return None
    for slot, operand in zip(i.opcode.operands, i.operands, strict=False):
        if slot.field in _DATA and isinstance(operand, Reg):
            return operand, "h" if "d16_hi" in i.stem else "l"
    return None


def _addresses(i: Instruction, data: Reg) -> list[Reg]:
    """Return the registers of `data`'s file that a store reads beside `data`; it reads them whole."""
    return [r for r in i.operands if isinstance(r, Reg) and r is not data and r.file == data.file]
