"""Forms of the scalar unit: SOP1, SOP2, SOPC, SOPK.

A loop over the lanes of a wave computes a row in each turn. s[4:5] and s[6:7] are the sources, s[8:9] the
destination. The inputs also have the destination's value and SCC before the operation. Results are the
destination, SCC, and EXEC if the operation changes it.

An unknown architecture raises `UnsupportedError`.

Not here: jumps, messages and waits, which compute nothing. Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables and words of code read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import target
from tools.record.amd.encode import EXEC, ONE, VECTOR, ZERO, Code, packed, text_of
from tools.record.amd.vector import PARTIAL, SAME
from tools.record.forms import Allowed, Form, Result, grid

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = ("SOP1", "SOP2", "SOPC", "SOPK")
ELSEWHERE: Final = re.compile(
    r"s_(getpc|setpc|swappc|call|rfe|cbranch|subvector|setvskip|version|getreg|setreg|sendmsg|barrier|get_barrier|wakeup|sleep"
    r"|alloc_vgpr|set_gpr_idx|waitcnt|prefetch|icache|ttrace|movrel).*"
)
"""Operations without a form here: control flow, and operations on other state than registers."""
CONSTANTS: Final = (0, 1, 0x7FFF, 0x8000, 0xFFFF)
"""Values of the constant of SOPK."""


def forms(arch: str) -> Iterator[Form]:
    """Yield every form of this module."""
    c = Code(arch)
    for (kind, number), opcode in target(arch).opcodes.items():
        stem = canonical(opcode.stem, c.family)
        if kind not in KINDS or ELSEWHERE.fullmatch(stem) or stem.endswith(f"exec_b{96 - c.lanes}"):
            continue
        sizes = {s.field: s.dwords for s in opcode.operands}
        chosen = {"sdst": 8, "ssrc0": 4, "ssrc1": 6}
        for constant in CONSTANTS if kind == "SOPK" else (0,):
            fields = {k: v for k, v in chosen.items() if sizes.get(k)} | {"simm16": constant}
            words = packed(opcode, number, fields) + ([0xC123_4567] if opcode.literal else [])
            label = f" {constant:#x}" if kind == "SOPK" else ""
            changes = bool(re.search("saveexec|wrexec", stem))
            kinds = tuple(_edges(stem, sizes.get(one, 0)) for one in ("ssrc0", "ssrc1"))
            types = (*kinds, "pred", "u64")
            given = tuple((n, (0,)) for n, one in enumerate(("ssrc0", "ssrc1")) if not sizes.get(one))
            inputs = grid(types, most=72, more=24, few=True, given=(*given, (3, (0x8000_0001_1234_5678,))))
            results = ([_result(stem, sizes.get("sdst", 0)), Result("v20", "pred")] if sizes.get("sdst") else [Result("v20", "pred")])  # fmt: skip
            results += [Result("v22", "u64")] if changes else []
            name = f"{kind.lower()}.{opcode.stem}{label}"
            yield Form(name, text_of(name, loop(c, words)), types, inputs, tuple(results), doubt=1, group="lanes")  # fmt: skip


def _edges(stem: str, dwords: int) -> str:
    if dwords == 2:
        return "u64"
    return "f32" if re.search("f32", stem) else "f16x2" if re.search("f16", stem) else "u32"


def _result(stem: str, dwords: int) -> Result:
    if re.search(r"_f32", stem) and dwords == 1 and not stem.startswith("s_cvt"):
        return Result("v12", "f32", SAME)
    if re.search(r"_f16", stem) and dwords == 1:
        return Result("v12", "f16x2", SAME)
    return Result("v12", "u64" if dwords == 2 else "u32", Allowed())


def loop(c: Code, words: list[int]) -> list[int]:
    """Return a loop over the lanes of a wave: a turn reads its sources from a lane and writes its results there."""
    row = 48

    def read(register: int, source: int) -> list[int]:
        return c.make("v_readlane_b32", "VOP3", vdst=register, src0=VECTOR + source, src1=row)

    def write(register: int, source: int) -> list[int]:
        return c.make("v_writelane_b32", "VOP3", vdst=register, src0=source, src1=row)

    wide = f"s_mov_b{c.lanes}"
    body = [
        *read(4, 4), *read(5, 5), *read(6, 6), *read(7, 7), *read(10, 8), *read(8, 12), *read(9, 13), *c.settle,
        *c.executes(PARTIAL), *c.make("s_cmp_lg_u32", "SOPC", ssrc0=10, ssrc1=ZERO), *words,
        *c.make("s_cselect_b32", "SOP2", sdst=11, ssrc0=ONE, ssrc1=ZERO), *c.make("s_mov_b64", "SOP1", sdst=16, ssrc0=ZERO),
        *c.make(wide, "SOP1", sdst=16, ssrc0=EXEC), *c.everybody(), *c.settle,
        *write(12, 8), *write(13, 9), *write(20, 11), *write(22, 16), *write(23, 17), *c.settle,
        *c.make("s_add_u32", "SOP2", sdst=row, ssrc0=row, ssrc1=ONE), *c.make("s_cmp_lt_u32", "SOPC", ssrc0=row, ssrc1=ZERO + c.lanes),
    ]  # fmt: skip
    back = c.make("s_cbranch_scc1", "SOPP", simm16=-(len(body) + 1) & 0xFFFF)
    return [*(w for v in (20, 22, 23) for w in c.vector(v, ZERO)), *c.scalar(row, ZERO), *body, *back]
