"""Exchanges of 32-bit words between lanes of a wave whose indices differ in one bit.

The cheapest instruction for each distance, by the features of the processor:

- `row_xmask` (from gfx10): an operand modifier (DPP) for any distance below 16, no separate instruction;
  on older processors `quad_perm` for 1 and 2, and `row_ror:8` for 8, the same exchange in rows of 16.
- `v_permlanex16` (from gfx10): distance 16.
- `ds_swizzle` in bit mode: any distance below 32; it uses the crossbar of LDS, but no memory.
- `v_permlane64` (from gfx11): distance 32; before gfx10 `ds_bpermute`, which there reaches all 64 lanes.

Inactive lanes are never read: the partner of an active lane is active.

Not here: exchanges between waves through LDS (`compiler.emit.workgroup_reduce`). Next: `target`, the caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.targets.amdgcn.rows import Row

QUAD_PERM = {0: 0xE4, 1: 0xB1, 2: 0x4E}
"""Distance -> control word: `quad_perm:[0,1,2,3]`, `[1,0,3,2]` and `[2,3,0,1]`."""
ROW_ROTATE_8 = 0x128
"""The control word of `row_ror:8`."""
ROW_XMASK = 0x160
"""The control word of `row_xmask:0`; the distance is added."""
SAME_LOW, SAME_HIGH = 0x76543210, 0xFEDCBA98 - (1 << 32)
"""Selectors of `v_permlanex16`: each lane reads the lane with the same position in the other row."""
ROW, HALF = 16, 32
"""Lanes of a row, and of half a wave64."""
DECLARED = """declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.permlanex16.i32(i32, i32, i32, i32, i1 immarg, i1 immarg)
declare i32 @llvm.amdgcn.permlane64.i32(i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32 immarg)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)"""


def reach(row: Row, wave: int) -> int:
    """Return the number of adjacent threads that can exchange registers: a wave, or half of one."""
    return HALF if "row-xmask" in row.features and "permlane64" not in row.features else wave


def exchange(row: Row, register: str, word: str, distance: int) -> list[str]:
    """Return instructions that read into a register the word of the lane whose index differs by `distance`.

    The distance is a power of two below `reach`, or 0 for a copy.
    """
    control = dpp_control(row, distance)
    if control is not None:
        operands = f"i32 poison, i32 {word}, i32 {control}, i32 15, i32 15, i1 true"
        return [f"  {register} = call i32 @llvm.amdgcn.update.dpp.i32({operands})"]
    if distance == ROW and "permlane16" in row.features:
        operands = f"i32 poison, i32 {word}, i32 {SAME_LOW}, i32 {SAME_HIGH}, i1 false, i1 false"
        return [f"  {register} = call i32 @llvm.amdgcn.permlanex16.i32({operands})"]
    if distance < HALF:
        return [f"  {register} = call i32 @llvm.amdgcn.ds.swizzle(i32 {word}, i32 {swizzle(distance)})"]
    if "permlane64" in row.features:
        return [f"  {register} = call i32 @llvm.amdgcn.permlane64.i32(i32 {word})"]
    return [
        f"  {register}.low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)",
        f"  {register}.lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 {register}.low)",
        f"  {register}.from = xor i32 {register}.lane, {distance}",
        f"  {register}.byte = shl i32 {register}.from, 2",
        f"  {register} = call i32 @llvm.amdgcn.ds.bpermute(i32 {register}.byte, i32 {word})",
    ]


def dpp_control(row: Row, distance: int) -> int | None:
    """Return the control word of the DPP that exchanges at a distance; None if there is none."""
    if "row-xmask" in row.features:
        return ROW_XMASK + distance if distance < ROW else None
    return ROW_ROTATE_8 if distance == ROW // 2 else QUAD_PERM.get(distance)


def swizzle(distance: int) -> int:
    """Return the offset of `ds_swizzle` in bit mode: lane n of 32 reads lane ((n & 31) | 0) ^ distance."""
    return 31 | distance << 10
