"""Accesses of global memory and LDS up to 64 bits a lane against the ISA documents' pseudo-code: results and memory.

A lane has eight bytes of its own: of global memory those where its result is stored, of LDS those at 8 x lane. They hold
v[8:9] before; v[4:7] is the data. Of each operation the result, and what memory holds after it, are compared.

Not here: addresses and offsets (`test_memory`), scalar loads (`test_scalar_memory`), orders of lanes.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from drivers.amd.emu.isa.instruction import canonical
from drivers.amd.emu.isa.opcodes import Opcode, target
from tests.drivers.amd_isa import pcode, pcode_forms, pcode_values, single
from tests.drivers.amd_isa.lane_cases import Case, Inputs
from tests.drivers.amd_isa.pcode_values import PcodeError, Value, value
from tests.drivers.amd_isa.single import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, Any]
ENUMS = {"GLOBAL": ("GLOBAL", "VGLOBAL"), "DS": ("DS",)}
WAITS = {
    "gfx9": [0xBF8C_0000],
    "gfx11": [0xBF89_0000, 0xBC7C_0000],
    "gfx12": [0xBFC0_0000, 0xBFC1_0000, 0xBFC6_0000],
}
"""Waits for loads, stores and LDS."""


def cases(name: str) -> Iterator[tuple[tuple[str, ...], Case, str]]:
    """Yield the kinds of sources, a case, and why it is not evaluated, if it is not."""
    known, family = pcode.table(name), target(name).family
    for (kind, number), opcode in target(name).opcodes.items():
        entry = next((known[e, number] for e in ENUMS.get(kind, ()) if (e, number) in known), None)
        if (
            entry is None
            or entry[0] != opcode.stem
            or max(s.dwords for s in opcode.operands) > 2 + 2 * ("cmpswap" in opcode.stem)
        ):
            continue
        stem, text = canonical(opcode.stem, family), entry[1]
        if (
            ".f" in text
        ):  # LLVM makes atomicrmw fmin and fmax of them: of a number and a NaN the number, and -0 < 0
            text = text.replace("src < tmp ? src : tmp", "smaller(src, tmp)").replace(
                "src > tmp ? src : tmp", "larger(src, tmp)"
            )
        if re.search(
            "addtid|swizzle|permute|consume|append|lds|gws|ordered|bvh|2addr|barrier|wb|inv|prefetch|csub|cond|_tr_",
            stem,
        ):
            continue
        type_ = (
            "f64"
            if re.search(r"\.f64", text)
            else "f16"
            if re.search("f16", text)
            else "f32"
            if ".f32" in text
            else "w64"
            if re.search(r"[iub]64", text)
            else "w32"
        )
        kinds = (type_, type_, type_, "")
        for what in ("RETURN_DATA", "MEM"):
            loads = "load" in stem
            if (what == "MEM" and loads) or (
                what != "MEM" and "store" in stem and "xchg" not in stem and "rtn" not in stem
            ):
                continue
            if kind == "DS" and what != "MEM" and not any(s.field == "vdst" for s in opcode.operands):
                continue
            made = case(name, kind, number, opcode, stem=stem, text=text, what=what)
            try:
                after(text, opcode, pcode_forms.inputs(name, kinds), stem)
            except PcodeError as error:
                yield kinds, made, str(error)
                continue
            yield kinds, made, ""


def after(text: str, opcode: Opcode, one: Inputs, stem: str) -> dict[str, Any]:
    """Run the text on a lane's memory."""
    low = [one.column(n) for n in range(4)]
    data = value("b", 64, low[0])
    sizes = [s.dwords for s in opcode.operands if s.field in ("vdata", "data0")]
    if "cmpswap" in stem and sizes and sizes[0] == 4:
        data = value("b", 128, low[0].astype(object) | low[1].astype(object) << 64)
    registers = {
        "MEM": value("b", 64, low[2]),
        "DATA": data,
        "DATA0": data,
        "DATA2": value("b", 64, low[1]),
        "ADDR": value("u", 64, 0),
    }
    registers |= {
        "RETURN_DATA": value("b", 64, low[3]),
        "VDATA": value("b", 64, low[3]) if "load" in stem else data,
    }
    registers |= {"OFFSET": value("u", 32, 0), "WAVE_MODE.IEEE": value("u", 1, 0)}
    with np.errstate(all="ignore"):
        return pcode.program(text).run(registers, one.lanes, one.wave, {})


def case(name: str, kind: str, number: int, opcode: Opcode, *, stem: str, text: str, what: str) -> Case:
    family, layout = target(name).family, opcode.form
    returns = what == "RETURN_DATA"
    fields: dict[str, int] = {
        "vdst": 12,
        "vdata": 4,
        "data0": 4,
        "data1": 6,
        "addr": 14,
        "vaddr": 1,
        "saddr": 2,
        "op": number,
    }
    if kind == "GLOBAL":
        fields |= {} if family == "gfx12" else {"seg": 2}
        if returns and "load" not in stem:
            fields |= {"gfx9": {"sc0": 1}, "gfx11": {"glc": 1}, "gfx12": {"th": 1}}[family]
    encoding = layout.base
    for field, content in fields.items():
        if field in layout.fields and not (field == "vdst" and not returns and kind == "GLOBAL"):
            encoding = layout.put(encoding, field, content)
    words = [encoding >> 32 * n & 0xFFFF_FFFF for n in range(layout.dwords)]
    if kind == "GLOBAL":
        before, behind = (
            single.access(name, "global_store_b64", 8, 0, 2),
            single.access(name, "global_load_b64", 12, 0, 2),
        )
    else:
        before = [
            *encode(name, "v_lshlrev_b32", "VOP2", vdst=14, src0=128 + 3, vsrc1=0),
            *encode(name, "ds_store_b64", "DS", addr=14, data0=8),
        ]
        behind = encode(name, "ds_load_b64", "DS", addr=14, vdst=12)
    waits = WAITS[family]
    words = [*before, *waits, *words, *waits, *([] if returns else [*behind, *waits])]

    def result(one: Inputs) -> Array:
        found = after(text, opcode, one, stem)
        key = "VDATA" if "load" in stem and "VDATA" in text else what
        made: Array = np.broadcast_to(found[key].raw, (one.lanes,)).astype("u8")
        return made

    wide = not returns or any(s.field == "vdst" and s.dwords == 2 for s in opcode.operands) or "64" in stem
    return Case(words, result, wide=wide, text=f"{kind} {opcode.stem} {what}", same=_same(text))


def _same(text: str) -> Callable[[Array, Array], Array]:
    found = re.search(r"\.f(16|32|64)", text)
    bits = int(found[1]) if found else 0
    if not bits:
        return np.equal

    def alike(got: Array, wanted: Array) -> Array:
        equal = np.ones(got.shape, bool)
        for low in range(0, 64, bits):
            part = np.uint64((1 << bits) - 1) if bits < 64 else np.uint64(0xFFFF_FFFF_FFFF_FFFF)
            a, b = (v >> np.uint64(low) & part for v in (got, wanted))
            nan = [np.isnan(pcode_values.floats(Value("f", bits, v))) for v in (a, b)]
            equal &= (a == b) | (nan[0] & nan[1])
        return equal

    return alike
