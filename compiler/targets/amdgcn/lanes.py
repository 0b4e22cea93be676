"""Exchanges of 32-bit words between the lanes of a wave whose numbers differ in one bit.

The cheapest instruction for each distance, by what the processor has:

- `row_xmask` (gfx10 on): a modifier of an operand (DPP), any distance below 16 in no instruction of its own;
  before it `quad_perm` for 1 and 2, and `row_ror:8` for 8, which in rows of 16 is the same exchange.
- `v_permlanex16` (gfx10 on): distance 16.
- `ds_swizzle` in its bit mode: any distance below 32; it uses the crossbar of LDS, no memory.
- `v_permlane64` (gfx11 on): distance 32; `ds_bpermute` where it reaches all 64 lanes, which is before gfx10.

Lanes that are switched off are never read: a partner of a running lane runs, too.

Not here: exchanges between waves, which go through LDS (`compiler.codegen.workgroup_reduce`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.targets.amdgcn.rows import Row

QUAD_PERM = {1: 0xB1, 2: 0x4E}
"""`quad_perm:[1,0,3,2]` and `[2,3,0,1]`."""
ROW_ROTATE_8 = 0x128
ROW_XMASK = 0x160
SAME_LOW, SAME_HIGH = 0x76543210, 0xFEDCBA98 - (1 << 32)
"""Selects of `v_permlanex16`: each lane reads the lane of its own place in the other row."""
ROW, HALF = 16, 32
"""Lanes of a row, and of half a long wave."""
DECLARED = """declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.permlanex16.i32(i32, i32, i32, i32, i1 immarg, i1 immarg)
declare i32 @llvm.amdgcn.permlane64.i32(i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32 immarg)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)"""


def reach(row: Row, wave: int) -> int:
    """Threads, from a multiple of that number on, that exchange registers: a wave, or half of one."""
    return HALF if "row-xmask" in row.features and "permlane64" not in row.features else wave


def exchange(row: Row, register: str, word: str, distance: int) -> list[str]:
    """Instructions that put the word of the lane at a distance in the register.

    The distance is a power of two below `reach`.
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
    """The control word of the DPP that exchanges at this distance, or None."""
    if "row-xmask" in row.features:
        return ROW_XMASK + distance if distance < ROW else None
    return ROW_ROTATE_8 if distance == ROW // 2 else QUAD_PERM.get(distance)


def swizzle(distance: int) -> int:
    """The offset of `ds_swizzle` in bit mode: and 31, or 0, xor the distance, within each 32 lanes."""
    return 31 | distance << 10
