"""Every instruction of the scalar unit against the ISA documents' pseudo-code: results, SCC and EXEC.

s[4:5] and s[6:7] are the sources, s[12:13] is what the destination s[8:9] holds before, s14 SCC, s[2:3] EXEC. Sources are
all pairs of edge values, registers, inline constants and literals; SCC is both.

Not here: vector instructions (`pcode_forms`), counting (`pcode_tally`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.instruction import IsaError, canonical
from emulator.amd.isa.opcodes import Opcode, target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import pcode, pcode_values, single
from tests.emulator.amd_isa.pcode_decisions import decided
from tests.emulator.amd_isa.pcode_values import Value, value
from tests.emulator.amd_isa.single import EXEC, LITERAL, encode, move
from tools.record.amd.encode import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]
FORMATS = ("SOP1", "SOP2", "SOPC", "SOPK")
EDGES = {
    "i": (0, 1, 31, 32, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x0010_0004, 0x0020_001F, 0x1234_5678, 0x8000_0001),
    "f": (0, 0x8000_0000, 0x3F80_3C00, 0xBFC0_BE00, 0x7F80_7C00, 0xFF80_FC00, 0x7FC0_7E01, 0x7FA0_7D01, 0x0000_0001,
          0x4F00_7BFF, 0x3F00_0400, 0x4020_4100, 0x807F_83FF),
}  # fmt: skip
"""Sources of integers and of floats; those of floats are edges as f32 and, in the lower half, as f16."""
CONSTANTS = (0, 1, 0x7FFF, 0x8000, 0xFFFF)
LITERAL_WORD = 0xC123_4567
NOT_COMPARED = {
    r"s_(getpc|setpc|swappc|call|rfe|cbranch|subvector|setvskip|version).*": "control flow; test_calls and test_kernels",
    r"s_(getreg|setreg|sendmsg|barrier|get_barrier|wakeup|sleep|alloc_vgpr|set_gpr_idx|waitcnt|prefetch|icache|ttrace).*": "state beside registers; tests of modes, waits and indices",
    r"s_movrel.*": "scalar registers addressed by M0: the emulated GPUs refuse them",
}
"""Operations that are not enumerated here, and where they are tested."""


@dataclass(frozen=True, eq=False)
class Scalar:
    """An operation of the scalar unit, one choice of operands, and its pseudo-code."""

    kind: str
    number: int
    opcode: Opcode
    stem: str
    text: str
    constant: int | None = None
    operand: tuple[str, int] | None = None
    """A source field with its encoding, where it is not a register."""

    @property
    def label(self) -> str:
        return f"{self.kind} {self.stem} {self.constant if self.constant is not None else ''} {self.operand or ''}"

    @property
    def floats(self) -> bool:
        return bool(re.search(r"\.f(16|32)", self.text))

    def size(self, field: str) -> int:
        """Return the dwords of a field."""
        return next((s.dwords for s in self.opcode.operands if s.field == field), 0)


def scalars(name: str) -> Iterator[Scalar]:
    """Yield every form: registers, each source as -16, 1.0 and a literal, constants of SOPK."""
    family, known = target(name).family, pcode.table(name)
    for (kind, number), opcode in target(name).opcodes.items():
        entry = known.get((kind, number))
        if kind not in FORMATS or entry is None or entry[0] != opcode.stem:
            continue
        stem = canonical(opcode.stem, family)
        other_wave = f"exec_b{96 - target(name).lanes}"  # they act on a part of EXEC, or more than there is
        if stem.endswith(other_wave) or any(re.fullmatch(pattern, stem) for pattern in NOT_COMPARED):
            continue
        text = decided(stem, entry[1])
        plain = Scalar(kind, number, opcode, stem, text)
        if kind == "SOPK":
            for constant in CONSTANTS:
                yield Scalar(kind, number, opcode, stem, text, constant)
            continue
        yield plain
        for field in ("ssrc0", "ssrc1"):
            for code in (208, 242, LITERAL) if plain.size(field) and not opcode.literal else ():
                yield Scalar(kind, number, opcode, stem, text, None, (field, code))


def words_of(form: Scalar) -> list[int]:
    fields = {"sdst": 8, "ssrc0": 4, "ssrc1": 6, "simm16": form.constant or 0}
    more = [LITERAL_WORD] if form.opcode.literal else []
    if form.operand is not None:
        fields[form.operand[0]] = form.operand[1]
        more += [LITERAL_WORD] if form.operand[1] == LITERAL else []
    used = {field: code for field, code in fields.items() if field == "simm16" or form.size(field)}
    return packed(form.opcode, form.number, used) + more


def refused(name: str, form: Scalar) -> str:
    """Return why the emulator does not run a form, or an empty text."""
    try:
        single.program(name, words_of(form))
    except IsaError as error:
        return error.why
    return ""


def differences(name: str, forms: list[Scalar], *, floats: bool) -> list[str]:
    """Run forms on all inputs, and return the first difference of each from its pseudo-code."""
    wave = target(name).lanes
    copy = f"s_mov_b{wave}"
    words: list[int] = []
    for form in forms:
        words += [
            *encode(name, "s_mov_b64", "SOP1", sdst=8, ssrc0=12),
            *encode(name, copy, "SOP1", sdst=EXEC, ssrc0=2),
            *encode(name, "s_cmp_lg_u32", "SOPC", ssrc0=14, ssrc1=128),
            *words_of(form),
            *encode(name, "s_cselect_b32", "SOP2", sdst=10, ssrc0=129, ssrc1=128),
            *encode(name, "s_mov_b64", "SOP1", sdst=16, ssrc0=EXEC),
            *encode(name, copy, "SOP1", sdst=EXEC, ssrc0=193),
        ]
        for register in (8, 9, 10, 16, 17):
            words += [
                *move(name, 2, register),
                *single.access(name, "global_store_b32", 2, 0, 0),
                *encode(name, "v_add_nc_u32", "VOP2", vdst=1, src0=128 + 4, vsrc1=1),
            ]
    ready, memory = single.program(name, [*move(name, 1, 128), *words]), AddressSpace()
    out = np.zeros(5 * len(forms), "u4")
    where = single.mapped(memory, out)
    rng = np.random.default_rng(5)
    inputs, results = [], []
    for a, b, scc in product(EDGES["f" if floats else "i"], EDGES["f" if floats else "i"], (0, 1)):
        high = rng.integers(0, 1 << 32, 4).tolist()
        given = [a, high[0], b, high[1], 0, 0, 0, 0, b ^ 0xA5A5_A5A5, high[2], scc, 0]
        before = [high[3] | 1, (high[3] * 7 | 1) & 0xFFFF_FFFF]
        inputs.append([*given, *before])
        single.run(ready, memory, [*where, *before, *given], 1)
        results.append(out.reshape(-1, 5).copy())
    columns, found = np.array(inputs, "u8"), np.array(results, "u8")
    return [text for n, form in enumerate(forms) if (text := _compared(name, form, columns, found[:, n]))]


def _wide(low: Array, high: Array) -> Array:
    both: Array = low | high << np.uint64(32)
    return both


def registers_of(form: Scalar, columns: Array, wave: int) -> dict[str, Any]:
    """Return what the pseudo-code reads."""
    count, found = len(columns), {}
    for n, field in enumerate(("ssrc0", "ssrc1")):
        bits = 32 * max(form.size(field), 1)
        raw = _wide(columns[:, 2 * n], columns[:, 2 * n + 1])
        if form.operand is not None and form.operand[0] == field:
            raw = np.full(count, constant_of(form, form.operand[1], bits), "u8")
        found[f"S{n}"] = value("b", bits, raw)
    found["D0"] = value("b", 64, _wide(columns[:, 8], columns[:, 9]))
    if form.kind == "SOPK":  # the documents name the constant in three ways, and a comparison's register S0
        immediate = value("b", 16, form.constant or 0)
        found |= {"SIMM16": immediate, "S1": immediate}
        found["S0"] = found["D0"] if "S0.i32" in form.text or "S0.u32" in form.text else immediate
    if form.opcode.literal:
        found["SIMM32"] = value("b", 32, LITERAL_WORD)
    found["SCC"] = value("u", 1, columns[:, 10])
    executes = _wide(columns[:, 12], columns[:, 13])
    found["EXEC"] = value("b", 64, executes & np.uint64((1 << wave) - 1))
    found["WAVE_MODE.IEEE"] = value("u", 1, 0)
    return found


def constant_of(form: Scalar, code: int, bits: int) -> int:
    """Return an inline constant or a literal as an operand of its type has it."""
    if code == 208:
        return -16 & (1 << bits) - 1
    if code == LITERAL:
        negative = bits == 64 and re.search(r"S[01]\.i64", form.text)
        return LITERAL_WORD | (0xFFFF_FFFF << 32 if negative else 0)
    if re.search(r"S[01]\.f16", form.text):
        return 0x3C00
    return 0x3FF0 << 48 if bits == 64 else 0x3F80_0000


def _compared(name: str, form: Scalar, columns: Array, found: Array) -> str:
    wave = target(name).lanes
    before = registers_of(form, columns, wave)
    others = {stem: text for (kind, _), (stem, text) in pcode.table(name).items() if kind in FORMATS}
    with np.errstate(all="ignore"):
        after = pcode.program(form.text).run(before, len(columns), wave, others)
    size = 32 * max(form.size("sdst"), 1)
    part = np.uint64((1 << size) - 1 if size < 64 else (1 << 64) - 1)
    old = _wide(columns[:, 8], columns[:, 9])
    wanted = after["D0"].raw & part | old & ~part if form.size("sdst") else old
    got = _wide(found[:, 0], found[:, 1])
    equal = got == wanted
    if form.floats:
        bits = 16 if re.search(r"D0(\[[^\]]*\])?\.f16", form.text) else 32
        low = np.uint64((1 << bits) - 1)
        if bits == 16:  # the documents do not say what is above a half
            got, wanted = got & low, wanted & low
            equal = got == wanted
        nan = [np.isnan(pcode_values.floats(Value("f", bits, v & low))) for v in (got, wanted)]
        equal |= nan[0] & nan[1]
    lanes = np.uint64((1 << wave) - 1 if wave < 64 else (1 << 64) - 1)
    for what, good in (
        ("result", equal),
        ("SCC", found[:, 2] == np.broadcast_to(after["SCC"].raw != 0, (len(columns),))),
        ("EXEC", _wide(found[:, 3], found[:, 4]) & lanes == after["EXEC"].raw & lanes),
    ):
        if not good.all():
            n = int(np.flatnonzero(~good)[0])
            return f"{form.label}: {what} of {int((~good).sum())}, first {[hex(int(v)) for v in found[n]]}, wanted {int(np.broadcast_to(wanted, got.shape)[n]):#x}, of {[hex(int(v)) for v in columns[n]]}"
    return ""
