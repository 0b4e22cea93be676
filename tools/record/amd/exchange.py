"""Forms of exchanges between lanes: single lanes, permutations, swizzles, moves of DPP, under masks of lanes.

Each runs with all lanes, without a few lanes, and with lanes 8 and 31 only, of a wave of 64 also 63 ("two" in the
names). v4 is the value, v6 an index, v12 the value of the destination before.

Not here: DPP of other operations (`vector`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables and words of code read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.amd.encode import LITERAL, VECTOR, Code, text_of
from tools.record.amd.vector import PARTIAL
from tools.record.forms import Form, Result, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

MASKS: Final = {"all": (1 << 64) - 1, "few missing": PARTIAL, "two": 0x8000_0000_8000_0100}
ROWS: Final = 64
"""Rows of a form: one for each lane of the largest wave."""
_SWIZZLES: Final = {
    "swap 1": 0x041F, "reverse": 0x7C1F, "broadcast 3": 0x0060, "mirror 16": 0x401F, "quads 3210": 0x801B, "or 8": 0x011F,
}  # fmt: skip
_CONTROLS: Final = (0x1B, 0x00, 0xFF, 0x101, 0x10F, 0x111, 0x11F, 0x121, 0x12F, 0x140, 0x141)
_GFX9: Final = (0x130, 0x134, 0x138, 0x13C, 0x142, 0x143, 0x150, 0x15F)
_LATER: Final = (0x150, 0x15F, 0x161, 0x16F)


def _inputs() -> object:
    values = [(row * 0x9E37_79B9 & 0xFFFF_FFFF) | row << 32 for row in range(ROWS)]
    index = [(row * 37 + 11) % 64 * 4 for row in range(ROWS)]
    return frozen([[v, i, 0, 0xC0DE_0000 + row] for row, (v, i) in enumerate(zip(values, index, strict=True))])  # fmt: skip


_ROWS: Final = _inputs()
_TYPES: Final = ("u64", "u64", "u64", "u64")


def forms(arch: str) -> Iterator[Form]:
    """Yield every form of this module for an architecture of `encode.base`."""
    c = Code(arch)
    for label, words, results in operations(c):
        for name, mask in MASKS.items():
            whole = [*c.constant(8, 0x1B), *c.constant(10, 0x4567_89AB_FEDC_0123), *c.executes(mask), *c.settle, *words, *c.waits, *c.settle,
                     *c.everybody(), *c.settle]
            for register, source in results.items():
                whole += c.vector(register, source) if source >= 0 else []
            full = f"exchange.{label} {name}"
            columns = tuple(Result(f"v{register}", "u32") for register in results)
            yield Form(full, text_of(full, whole), _TYPES, _ROWS, columns, doubt=3, group="lanes")


def operations(c: Code) -> Iterator[tuple[str, list[int], dict[int, int]]]:
    """Yield a label, the words, and the results of each operation.

    Results are vector registers -> the scalar register that is copied there, -1 for none.
    """
    gfx9 = c.family == "gfx9"
    own = {12: -1}
    yield "v_readfirstlane_b32", c.make("v_readfirstlane_b32", "VOP1", vdst=16, src0=VECTOR + 4), {12: 16}
    for lane in dict.fromkeys((0, 5, c.lanes - 1, 63)):
        yield (f"v_readlane_b32 {lane}", c.make("v_readlane_b32", "VOP3", vdst=16, src0=VECTOR + 4, src1=128 + lane), {12: 16})  # fmt: skip
        yield (f"v_writelane_b32 {lane}", c.make("v_writelane_b32", "VOP3", vdst=12, src0=10, src1=128 + lane), own)  # fmt: skip
    yield "v_swap_b32", c.make("v_swap_b32", "VOP1", vdst=12, src0=VECTOR + 4), {12: -1, 4: -1}
    for stem in ("ds_permute_b32", "ds_bpermute_b32"):
        for offset in (0, 4, 0xFFFC):
            words = c.make(stem, "DS", addr=6, data0=4, vdst=12, offset0=offset & 255, offset1=offset >> 8)
            yield f"{stem} {offset:#x}", words, own
    for label, how in _SWIZZLES.items():
        yield (f"ds_swizzle_b32 {label}", c.make("ds_swizzle_b32", "DS", addr=4, vdst=12, offset0=how & 255, offset1=how >> 8), own)  # fmt: skip
    for control in (*_CONTROLS, *(_GFX9 if gfx9 else _LATER)):
        for bound, fetch in ((0, 0), (1, 0), *(() if gfx9 else ((0, 1), (1, 1)))):
            for rows, banks in ((15, 15), (10, 5)):
                extra = 4 | control << 8 | fetch << 18 | bound << 19 | banks << 24 | rows << 28
                words = c.make("v_mov_b32", "VOP1", extra, vdst=12, src0=250)
                yield f"v_mov_b32 dpp {control:#x} {bound}{fetch} {rows:x}{banks:x}", words, own
    if gfx9:
        for register in (0, 5):
            words = [*c.make("v_accvgpr_write_b32", "MFMA", vdst=register, src0=VECTOR + 4), *c.settle]
            words += [*c.make("v_accvgpr_mov_b32", "VOP1", vdst=7, src0=VECTOR + register), *c.settle]
            yield (f"v_accvgpr {register}", [*words, *c.make("v_accvgpr_read_b32", "MFMA", vdst=12, src0=VECTOR + 7, acc=1)], own)  # fmt: skip
        for mode in (1, 8, 9):  # index mode: of the source, of the destination, of both
            words = [*c.scalar(16, 130), *c.make("s_set_gpr_idx_on", "SOPC", ssrc0=16, ssrc1=mode), *c.vector(12, VECTOR + 4)]  # fmt: skip
            yield (f"s_set_gpr_idx_on {mode}", [*c.vector(14, VECTOR + 5), *words, *c.make("s_set_gpr_idx_off", "SOPP")], {12: -1, 14: -1})  # fmt: skip
        return
    for kind in ("s", "d", "sd", "sd_2"):  # registers behind those that are named, as many as M0 says
        for number in (0, 2, *((2 << 16, 2 << 16 | 2) if kind == "sd_2" else ())):
            words = [*c.vector(14, VECTOR + 5), *c.scalar(125, LITERAL, number), *c.settle]
            words += c.make(f"v_movrel{kind}_b32", "VOP1", vdst=12, src0=VECTOR + 4)
            yield f"v_movrel{kind}_b32 {number:#x}", words, {12: -1, 14: -1}
    for fetch in (0, 1):
        for label, places in (("reverse", 0o01234567), ("all 3", 0o33333333), ("turn", 0o07654321)):
            yield (f"v_mov_b32 dpp8 {label} {fetch}", c.make("v_mov_b32", "VOP1", 4 | places << 8, vdst=12, src0=233 + fetch), own)  # fmt: skip
    yield "v_permlane64_b32", c.make("v_permlane64_b32", "VOP1", vdst=12, src0=VECTOR + 4), own
    for stem in ("v_permlane16_b32", "v_permlanex16_b32"):
        for select in range(4):
            words = c.make(stem, "VOP3", vdst=12, src0=VECTOR + 4, src1=10, src2=11, op_sel=select)
            yield f"{stem} {select}", words, own
            if c.family == "gfx12":
                words = c.make(stem.replace("_b32", "_var_b32"), "VOP3", vdst=12, src0=VECTOR + 4, src1=VECTOR + 6, op_sel=select)  # fmt: skip
                yield f"{stem.replace('_b32', '_var_b32')} {select}", words, own
