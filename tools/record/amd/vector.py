"""Forms of vector instructions: every operation of VOP1, VOP2, VOPC, VOP3 and VOP3P, plain and with its modifiers.

Inputs are edge values of the operands' types, which come from the operation's name. The types only choose
inputs. A modifier has a form of its own: signs, absolute values, halves, clamp and output multiplier, a move
between lanes (DPP, DPP8), parts of registers (SDWA). A few lanes do not execute; VCC and s[8:9] hold masks.

An unknown architecture raises `UnsupportedError`.

Not here: matrices (`matrix`), moves between lanes (`exchange`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501, PLR0917 - tables and words of code read best on one line; a form has that many parts

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import Opcode, Slot, target
from tools.record.amd.encode import EXEC, VCC, VECTOR, Code, packed, text_of
from tools.record.forms import Allowed, Form, Result, grid

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P")
PARTIAL: Final = 0xBFFD_FFFB_FFF7_FF7F
"""A mask of lanes in which a few are inactive."""
MASK, CARRY = 0x8000_3C00_C080_3F81, 0x5A5A_F00F_1234_8001
"""The scalar operand or mask of an instruction, and the carries that VCC holds before it."""
SAME: Final = Allowed("ulp", 0, rule="NaNs are equal, whatever their payloads: no ISA document states them")
_ULP: Final = Allowed("ulp", 1, rule="1ULP accuracy (AMD, RDNA3 Instruction Set Architecture, VOP1, notes)")
_HALF_ULP: Final = Allowed(
    "ulp", 1, rule="0.51ULP accuracy (AMD, RDNA3 Instruction Set Architecture, VOP1, notes)"
)
_WIDE: Final = Allowed(
    "ulp", 2.0**29, rule="(2**29)ULP accuracy (AMD, RDNA3 Instruction Set Architecture, VOP1, notes)"
)
_SINE: Final = Allowed(
    "absolute", 2.0**-9, rule="no document bounds the error of sines: recorded to learn it"
)
_INEXACT: Final = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|rcp_iflag|exp_legacy|log_legacy)_(f\d+)")
_OLD: Final = 0x7A5A_1234_C0DE_8001
_TYPE: Final = re.compile(r"bf16|(?:[fiub])(?:8|16|24|32|64)(?!\d)")
ELSEWHERE: Final = re.compile(
    r"v_(readlane|readfirstlane|writelane|permlane|swap|movrel|nop|pipeflush|illegal|clrexcp|screen|w?s?wmmac?|wmma|mfma|smfmac|accvgpr).*"
)
"""Operations whose forms are in `exchange`, `matrix` and `special`, or that compute nothing."""


def type_of(stem: str, *, source: bool) -> str:
    """Return the type of an operation's result or, with `source`, of its sources, by its name; else "b32"."""
    found = _TYPE.findall(stem)
    if not found:
        return "b32"
    return str(found[-1] if source or len(found) == 1 else found[0])


def operand_type(stem: str, dwords: int) -> str:
    """Return the type whose edge values a source of `dwords` dwords gets."""
    type_ = type_of(stem, source=True)
    if "fma_mix" in stem:
        return "f32"
    if dwords == 2:
        return "f64" if type_ == "f64" else "f32x2" if type_ == "f32" else "u64"
    if dwords > 2:
        return "u64"
    return {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32", "f64": "u32"}.get(type_, "u32")


def result_of(stem: str, register: str, dwords: int) -> Result:
    """Return the column of a result in `register`, of 1 or 2 dwords, with the allowed difference."""
    type_ = type_of(stem, source=False)
    exact = _INEXACT.fullmatch(stem)
    allowed = SAME
    if exact:
        allowed = {"f32": _ULP, "f16": _HALF_ULP}.get(exact[3], _WIDE)
    if re.fullmatch("v_(sin|cos)_f(16|32)", stem):
        allowed = _SINE
    if dwords == 2:
        kind = {"f64": "f64", "f32": "f32x2"}.get(type_, "u64")
    else:
        kind = {"f16": "f16x2", "bf16": "bf16x2", "f32": "f32"}.get(type_, "u32")
    return Result(register, kind, allowed if kind[0] in "fb" else Allowed())


def is_mask(slot: Slot, stem: str) -> bool:
    """Return whether an operand is a mask of lanes."""
    return slot.mask or (slot.field == "src2" and bool(re.fullmatch(r"v_cndmask_b(16|32)|v_\w+_co_ci_u32", stem)))  # fmt: skip


def forms(arch: str) -> Iterator[Form]:
    """Yield every form of the vector formats."""
    for (kind, number), opcode in target(arch).opcodes.items():
        stem = canonical(opcode.stem, target(arch).family)
        if kind not in KINDS or ELSEWHERE.fullmatch(stem):
            continue
        for label, fields, more in variants(arch, kind, stem, opcode):
            yield form(arch, kind, number, opcode, stem, label, fields, more)


def variants(
    arch: str, kind: str, stem: str, opcode: Opcode
) -> Iterator[tuple[str, dict[str, int], list[int]]]:
    """Yield (label, fields, words after the instruction): the plain form, then one for each modifier."""
    known, family = opcode.modifiers, target(arch).family
    plain = ({"op_sel_hi": 3, "op_sel_hi2": 1} if kind == "VOP3P" and "dot4" not in stem and "dot8" not in stem else {})  # fmt: skip
    tail = [0xC123_4567] if opcode.literal else []
    yield "", plain, tail
    sources = [s.field for s in opcode.operands if s.field in ("src0", "src1", "src2", "vsrc1")]
    for what in ("neg", "abs", "neg_hi"):
        bits = sum(1 << n for n in range(len(sources)) if what in known and (not known[what] or str(n) in known[what]))  # fmt: skip
        if bits:
            yield f" {what} {bits:03b}", plain | {what: bits}, tail
    for n in range(4) if "op_sel" in known else ():
        if not known["op_sel"] or str(n) in known["op_sel"]:
            yield f" op_sel {1 << n:04b}", plain | {"op_sel": 1 << n}, tail
    if plain:
        yield " op_sel_hi 000", {"op_sel_hi": 0, "op_sel_hi2": 0}, tail
    if "clamp" in known:
        yield " clamp", plain | {"clamp": 1}, tail
    for n in (1, 2, 3) if "omod" in known else ():
        yield f" omod {n}", plain | {"omod": n}, tail
    if (
        tail
        or kind not in ("VOP1", "VOP2", "VOPC")
        or any(s.dwords == 2 for s in opcode.operands if s.field != "vcc")
    ):
        return
    for control, bound in ((0x1B, 1), (0x111, 1), (0x12F, 1), (0x140, 1), (0x141, 1)):
        yield f" dpp {control:#x}", {"src0": 250}, [4 | control << 8 | bound << 19 | 0xFF << 24]
    if family != "gfx9":
        yield " dpp8", {"src0": 233}, [4 | 0o01234567 << 8]
        return
    for low, high, to, unused in ((1, 5, 6, 0), (4, 2, 5, 2), (5, 0, 0, 1)):
        extra = 4 | low << 16 | high << 24 | (0 if kind == "VOPC" else to << 8 | unused << 11)
        yield f" sdwa {low} {high} {to} {unused}", {"src0": 249}, [extra]


def form(
    arch: str,
    kind: str,
    number: int,
    opcode: Opcode,
    stem: str,
    label: str,
    fields: dict[str, int],
    more: list[int],
) -> Form:
    """Return the form of an opcode with one choice of fields, and `more` words after the instruction."""
    c = Code(arch)
    compare = kind == "VOPC" or stem.startswith("v_cmp")
    executes = stem.startswith("v_cmpx")
    gfx9 = c.family == "gfx9"
    chosen = {"vdst": 12, "sdst": 10, "src0": VECTOR + 4, "src1": VECTOR + 6, "src2": VECTOR + 8, "vsrc1": 6}
    if compare:
        chosen["vdst"] = EXEC if executes and not gfx9 else 10
    for slot in opcode.operands:
        if slot.field == "src2" and is_mask(slot, stem):
            chosen["src2"] = 8
    if stem.startswith("v_s_"):
        chosen |= {"src0": 8, "vdst": 10}
    named = {s.field for s in opcode.operands} | ({"vdst"} if compare else set())
    fields = {k: v for k, v in (chosen | fields).items() if k in named or k not in chosen}
    words = [
        *c.constant(VCC, CARRY), *c.constant(8, MASK), *c.constant(10, 0), *c.executes(PARTIAL), *c.settle,
        *packed(opcode, number, fields), *more, *c.settle,
    ]  # fmt: skip
    results: list[Result] = []
    destination = [s for s in opcode.operands if s.field == "vdst" and not s.scalar]
    if stem.startswith("v_s_"):
        words += [*c.everybody(), *c.settle, *c.vector(12, 10)]
        results.append(result_of(stem, "v12", 1))
    elif destination and not compare:
        results.append(result_of(stem, "v12", min(destination[0].dwords, 2)))
        if destination[0].dwords == 4:
            results.append(result_of(stem, "v14", 2))
    masks = []
    if compare:
        masks = [EXEC] if executes else [10 if kind == "VOP3" else VCC]
        masks += [10 if kind == "VOP3" else VCC] if executes and gfx9 else []
    elif kind == "VOP3SD":
        masks = [10]
    elif any(s.field == "vcc" for s in opcode.operands[:2]):
        masks = [VCC]
    if EXEC in masks:
        words += c.make("s_mov_b64", "SOP1", sdst=16, ssrc0=EXEC)
        masks = [16 if one == EXEC else one for one in masks]
    words += [*c.everybody(), *c.settle] if masks else []
    for n, mask in enumerate(masks):
        words += c.bit_of(20 + n, mask)
        results.append(Result(f"v{20 + n}", "pred"))
    columns = []
    for n in range(3):
        slots = [s for s in opcode.operands if s.field in ("src0", "src1", "src2", "vsrc1") and not is_mask(s, stem)]  # fmt: skip
        columns.append(operand_type(stem, slots[n].dwords) if n < len(slots) else "u32")
    live = sum(s.field in ("src0", "src1", "src2", "vsrc1") and not is_mask(s, stem) for s in opcode.operands)
    accumulates = bool(re.search("mac|fmac|dot2acc|dot.c_", stem))
    old = operand_type(stem, 1) if accumulates else "u64"
    given = [(n, (0,)) for n in range(live, 3)] + ([] if accumulates else [(3, (_OLD,))])
    few = label != "" or live + accumulates > 2
    inputs = grid((*columns, old), few=few, most=24 if label else 96, more=8 if label else 32, given=tuple(given))  # fmt: skip
    name = f"{kind.lower()}.{opcode.stem}{label}"
    return Form(name, text_of(name, words), (*columns, old), inputs, tuple(results), doubt=doubt_of(stem, label), group="lanes")  # fmt: skip


def doubt_of(stem: str, label: str) -> int:
    """Return `Form.doubt`: the highest for operations whose results no document states."""
    if re.search(r"dot|_div_|fp8|bf8|_sr_|sin|cos|mad_f|mix|legacy", stem):
        return 6 if not label else 5
    if _INEXACT.fullmatch(stem) or "clamp" in label or "omod" in label:
        return 4
    return 2 if label else 1
