"""Accesses of memory against the ISA documents' pseudo-code: every operation of every vector format, every way to address.

A lane has 32 bytes of its own. They lie side by side in memory (GLOBAL, FLAT, MUBUF), at 4064 in its scratch (SCRATCH, FLAT),
and in two pieces in LDS (DS, FLAT), 1,024 bytes apart, which both strides of `2addr` name. v[4:7] is the data, v[6:7] the
second data, v[16:19] the result before. Of each case the result and all 32 bytes after it are compared, of lanes that do
not execute, too.

The texts do not compute addresses (`CalcGlobalAddr` and its like are functions without a body): how fields of an address
meet is said here, by the documents' sections on addressing.

Not here: scalar loads (`pcode_scalar_memory`), several lanes at one address (`test_memory`), orders of accesses.
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.opcodes import Opcode, target
from emulator.shared.memory import AddressSpace
from emulator.simt.work import LOCAL_WINDOW, SHARED_WINDOW
from tests.emulator.amd_isa import pcode, pcode_forms, pcode_values, single
from tests.emulator.amd_isa.lane_cases import Inputs
from tests.emulator.amd_isa.pcode_values import PcodeError, Value, value
from tests.emulator.amd_isa.single import EXEC, VECTOR, encode, move
from tools.record.amd.encode import packed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Array = np.ndarray[Any, Any]
ENUMS = {kind: (kind, f"V{kind}") for kind in ("GLOBAL", "FLAT", "SCRATCH")} | {
    "MUBUF": ("MUBUF", "VBUFFER"),
    "DS": ("DS",),
}
WAITS = {
    "gfx9": [0xBF8C_0000],
    "gfx11": [0xBF89_0000, 0xBC7C_0000],
    "gfx12": [0xBFC0_0000, 0xBFC1_0000, 0xBFC6_0000],
}
"""Waits for loads, stores and LDS."""
BYTES, PLANE, LANES = 32, 1024, 256
_BIAS, _SCRATCH, _LDS = 1 << 23, 4064, 0x4000
_OFF = {"gfx9": 0x7F, "gfx11": 124, "gfx12": 124}
NOT_COMPARED = {
    r".*addtid.*": "an address of the lane's number alone: tests of LDS",
    r"ds_(swizzle|permute|bpermute).*": "no memory: tests.tools.test_record_amd",
    r"ds_(consume|append|gws|ordered|bvh|nop).*": "one address of all lanes, or state beside memory",
    r".*(_lds_|barrier|wbinv|_wb|_inv|_tr_|ordered|block).*": "caches, orders and moves of many registers",
    r"t?buffer_.*format.*": "formats of textures, which the emulated GPU refuses",
}
"""Operations of which no form is run, and where they are tested."""


@dataclass(frozen=True, eq=False)
class Access:
    """One operation with one way to address."""

    target: str
    kind: str
    number: int
    opcode: Opcode
    text: str
    space: str
    """Which memory: "global", "lds", "scratch"."""
    offset: int = 0
    second: int = 0
    """Of `2addr` the second offset."""
    base: str = "s"
    """Registers of the address: "s" scalar base, "v" vector alone, "sv" both, "" none."""
    returns: bool = False
    records: int = LANES
    """Of a buffer: lanes that lie in it."""

    @property
    def label(self) -> str:
        more = f" {self.second}" if self.second else ""
        return f"{self.kind} {self.opcode.stem} {self.space} {self.base or 'none'} {self.offset}{more}{' returns' * self.returns}{' half' * (self.records < LANES)}"

    @property
    def stem(self) -> str:
        return canonical(self.opcode.stem, target(self.target).family)


@dataclass
class Cases:
    """What is run, and what is not: label -> why."""

    run: list[Access] = field(default_factory=list)
    uncovered: dict[str, str] = field(default_factory=dict)


def cases(name: str) -> Cases:
    """Return every access of a target."""
    found, known, family = Cases(), pcode.table(name), target(name).family
    for (kind, number), opcode in target(name).opcodes.items():
        if kind not in ENUMS:
            continue
        stem = canonical(opcode.stem, family)
        why = next((why for pattern, why in NOT_COMPARED.items() if re.fullmatch(pattern, stem)), "")
        entry = next((known[e, number] for e in ENUMS[kind] if (e, number) in known), None)
        if why or entry is None or not pcode_forms.same_name(entry[0], opcode.stem):
            found.uncovered[f"{kind} {opcode.stem}"] = why or "no pseudo-code"
            continue
        text = decided(entry[1])
        try:
            pcode.program(text)
        except PcodeError as error:
            found.uncovered[f"{kind} {opcode.stem}"] = str(error)
            continue
        atomic = bool(re.search("atomic", stem))
        for way in ways(name, kind, stem):
            for returns in (False, True) if atomic else (False,):
                found.run.append(Access(name, kind, number, opcode, text, returns=returns, **way))
    return found


def decided(text: str) -> str:
    """Return a text as it is compared.

    LLVM makes atomicrmw fmin and fmax of the float operations: of a number and a NaN the number, and -0 < 0. A result
    without a type has that of memory; memory without one that of what is stored (pairs of 16 bits, on gfx942).
    """
    if stored := re.search(r"MEM\[ADDR\] = \w+\.(\w+)", text):
        text = re.sub(r"MEM\[ADDR\](?!\.)", f"MEM[ADDR].{stored[1]}", text)
    if ".f" in text and "isNAN" not in text:
        text = text.replace("src < tmp ? src : tmp", "smaller(src, tmp)").replace(
            "src > tmp ? src : tmp", "larger(src, tmp)"
        )
    type_ = re.search(r"MEM\[[^\]]*\]\.(\w+)", text)
    return re.sub(r"RETURN_DATA = ", f"RETURN_DATA.{type_[1]} = ", text) if type_ else text


def ways(name: str, kind: str, stem: str) -> Iterator[dict[str, Any]]:
    """Yield ways to address: which registers, the field's ends, both signs."""
    family = target(name).family
    far = (1 << 23) - 1 if family == "gfx12" else 4095
    if kind == "DS":
        if "2addr" in stem:
            size = 8 if stem.endswith("64") else 4
            step = size * (64 if "stride64" in stem else 1)
            other = PLANE // step if "stride64" in stem else 16 // size - 1
            for first, second in ((0, other), (other, 0), *(((0, 0),) if "load" in stem else ())):
                yield {"space": "lds", "offset": first, "second": second, "base": "v"}
        else:
            yield from ({"space": "lds", "offset": n, "base": "v"} for n in (0, _LDS))
    elif kind == "GLOBAL":
        yield from (
            {"space": "global", "base": b, "offset": n} for b in ("s", "v") for n in (0, far, -far - 1)
        )
    elif kind == "FLAT":
        ends: tuple[int, ...] = (0, far, -far - 1) if family == "gfx12" else (0, far)
        yield from ({"space": "global", "base": "v", "offset": n} for n in ends)
        yield {"space": "lds", "base": "v", "offset": 0}
        yield {"space": "scratch", "base": "v", "offset": 0}
    elif kind == "SCRATCH":
        for base in ("s", "v", "sv", ""):
            starts = (0, _SCRATCH - 64, -4096) if base else (_SCRATCH,)
            yield from ({"space": "scratch", "base": base, "offset": n} for n in starts)
    else:
        far = (1 << 23) - 1 if family == "gfx12" else 4095
        for records in (LANES, LANES // 2):
            yield from ({"space": "global", "base": "v", "offset": n, "records": records} for n in (0, far))


# Words


def address_of(one: Access, at: int) -> list[int]:
    """Return code that puts the address, `at` bytes behind the region's begin, less the offset, into v14 or v[14:15], s12."""
    name, offset = one.target, one.offset if one.kind != "DS" or not one.second else 0
    if one.kind == "DS":
        offset = 0 if "2addr" in one.stem else one.offset
        return encode(name, "v_add_nc_u32", "VOP2", _LDS - offset, vdst=14, src0=255, vsrc1=3)
    if one.space == "lds":
        high = SHARED_WINDOW >> 32
        return [
            *encode(name, "v_add_nc_u32", "VOP2", _LDS, vdst=14, src0=255, vsrc1=3),
            *move(name, 15, 255, high),
        ]
    if one.kind == "SCRATCH":
        low = 64 if one.base == "sv" else 0
        return [
            *move(name, 14, 255, _SCRATCH - offset - low),
            *encode(name, "s_mov_b32", "SOP1", low or _SCRATCH - offset, sdst=12, ssrc0=255),
        ]
    if one.space == "scratch":
        return [*move(name, 14, 255, _SCRATCH), *move(name, 15, 255, LOCAL_WINDOW >> 32)]
    if one.kind == "MUBUF":
        size = 4 * max(s.dwords for s in one.opcode.operands if s.field == "vdata")
        end = at + BYTES * one.records - BYTES + (size if "cmpswap" not in one.stem else size // 2)
        return [
            *encode(name, "v_add_nc_u32", "VOP2", (at - offset) & 0xFFFF_FFFF, vdst=14, src0=255, vsrc1=1),
            *encode(name, "s_mov_b32", "SOP1", end, sdst=10, ssrc0=255),
        ] if offset <= at else [
            *encode(name, "v_add_nc_u32", "VOP2", at, vdst=14, src0=255, vsrc1=1),
            *encode(name, "s_mov_b32", "SOP1", end + offset, sdst=10, ssrc0=255),
            *encode(name, "s_sub_u32", "SOP2", offset, sdst=8, ssrc0=8, ssrc1=255),
            *encode(name, "s_subb_u32", "SOP2", sdst=9, ssrc0=9, ssrc1=128),
        ]  # fmt: skip
    words = encode(name, "v_add_nc_u32", "VOP2", at + _BIAS - offset, vdst=14, src0=255, vsrc1=1)
    if one.base == "s":
        return words
    return [
        *words,
        *encode(name, "v_mad_u64_u32", "VOP3SD", vdst=14, sdst=106, src0=VECTOR + 14, src1=129, src2=2),
    ]


def back_of(one: Access) -> list[int]:
    """Return code that undoes what `address_of` did to the descriptor."""
    if one.kind != "MUBUF":
        return []
    return [*encode(one.target, "s_mov_b64", "SOP1", sdst=8, ssrc0=14)]


def instruction(one: Access) -> list[int]:
    family = target(one.target).family
    low, high = (one.offset, one.second) if "2addr" in one.stem else (one.offset & 255, one.offset >> 8)
    fields: dict[str, int] = {
        "vdst": 16, "vdata": 4, "data0": 4, "data1": 6, "addr": 14, "vaddr": 14,
    }  # fmt: skip
    if one.kind == "DS":
        fields |= {"offset0": low, "offset1": high}
    else:
        fields |= {"offset": one.offset, "saddr": _OFF[family], "soffset": 128 if family != "gfx12" else 124}
    if one.kind == "FLAT" and family != "gfx12" and one.offset:  # the top bit of 13 is ignored
        fields["offset"] |= 1 << 12
    if one.kind == "MUBUF":
        fields |= {"offen": 1, "srsrc": 8 if family == "gfx12" else 2, "vdata": 16}
    if one.kind in ("GLOBAL", "FLAT", "SCRATCH"):
        fields |= {"seg": {"FLAT": 0, "SCRATCH": 1, "GLOBAL": 2}[one.kind]}
        if "s" in one.base:
            fields["saddr"] = 12 if one.kind == "SCRATCH" else 2
        if one.kind == "SCRATCH":
            fields["sve"] = int("v" in one.base)
        if not reads(one) and not one.returns:
            del fields["vdst"]
    if one.returns:
        fields |= {"gfx9": {"sc0": 1}, "gfx11": {"glc": 1}, "gfx12": {"th": 1}}[family]
    return packed(one.opcode, one.number, fields)


def reads(one: Access) -> bool:
    return any(s.field == "vdst" for s in one.opcode.operands)


def words_of(one: Access, at: int) -> list[int]:
    """Return an access on the region `at` bytes behind the begin of all: brought to its memory before, and back after it."""
    name = one.target
    copy, waits = f"s_mov_b{target(name).lanes}", WAITS[target(name).family]
    near = [*encode(name, "v_add_nc_u32", "VOP2", at + _BIAS, vdst=2, src0=255, vsrc1=1)]
    seg = {} if target(name).family == "gfx12" else {"seg": 2}
    words = [
        *(
            w
            for n in range(4)
            for w in move(name, 16 + n, VECTOR + (4 if one.kind == "MUBUF" and not loads(one) else 8) + n)
        )
    ]
    if one.space != "global":
        words += near
        for n in range(2):
            words += encode(
                name, "global_load_b128", "GLOBAL", **seg, vaddr=2, saddr=2, offset=16 * n, vdst=24 + 4 * n
            )
        words += waits
        for n in range(2):
            words += _moved(one, "store", n)
        words += waits
    words += address_of(one, at)
    words += [
        *encode(name, copy, "SOP1", sdst=EXEC, ssrc0=6),
        *instruction(one),
        *encode(name, copy, "SOP1", sdst=EXEC, ssrc0=193),
        *waits,
        *back_of(one),
    ]
    if one.space != "global":
        for n in range(2):
            words += _moved(one, "load", n)
        words += waits
        words += near
        for n in range(2):
            words += encode(
                name, "global_store_b128", "GLOBAL", **seg, vaddr=2, saddr=2, offset=16 * n, vdata=24 + 4 * n
            )
    return [*words, *encode(name, "v_add_nc_u32", "VOP2", at // 2, vdst=2, src0=255, vsrc1=0),
            *encode(name, "global_store_b128", "GLOBAL", **seg, vaddr=2, saddr=4, vdata=16), *waits]  # fmt: skip


def loads(one: Access) -> bool:
    return "load" in one.stem


def _moved(one: Access, verb: str, n: int) -> list[int]:
    """Return code that stores or loads 16 of a lane's bytes in LDS or scratch."""
    name = one.target
    if one.space == "lds":
        place = [*encode(name, "v_add_nc_u32", "VOP2", _LDS + PLANE * n, vdst=2, src0=255, vsrc1=3)]
        return [
            *place,
            *encode(
                name, f"ds_{verb}_b128", "DS", addr=2, **{"vdst" if verb == "load" else "data0": 24 + 4 * n}
            ),
        ]
    family = target(name).family
    seg = {} if family == "gfx12" else {"seg": 1}
    at = [*move(name, 2, 255, _SCRATCH + 16 * n)]
    return [*at, *encode(name, f"scratch_{verb}_b128", "SCRATCH", **seg, sve=1, vaddr=2, saddr=_OFF[family],
                         **{"vdst" if verb == "load" else "vdata": 24 + 4 * n})]  # fmt: skip


def prepared(name: str, accesses: Sequence[Access]) -> Any:
    """Translate: s[0:1] sources, s[2:3] memory less 2^23, s[4:5] results, s[6:7] EXEC, s[8:11] a descriptor, s[14:15] its address."""
    seg = {} if target(name).family == "gfx12" else {"seg": 2}
    words = encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=128 + 5, vsrc1=0)
    for n in range(2):
        words += encode(
            name, "global_load_b128", "GLOBAL", **seg, vaddr=1, saddr=0, offset=16 * n, vdst=4 + 4 * n
        )
    # LDS: lanes of a wave side by side, 16 bytes each; v3 is (thread / 64) * 2 * PLANE + (thread % 64) * 16
    words += WAITS[target(name).family]
    words += [
        *encode(name, "v_and_b32", "VOP2", vdst=3, src0=128 + 63, vsrc1=0),
        *encode(name, "v_lshlrev_b32", "VOP2", vdst=3, src0=128 + 4, vsrc1=3),
        *encode(name, "v_lshrrev_b32", "VOP2", vdst=2, src0=128 + 6, vsrc1=0),
        *encode(name, "v_lshlrev_b32", "VOP2", vdst=2, src0=128 + 11, vsrc1=2),
        *encode(name, "v_add_nc_u32", "VOP2", vdst=3, src0=VECTOR + 2, vsrc1=3),
        *encode(name, "v_lshlrev_b32", "VOP2", vdst=0, src0=128 + 4, vsrc1=0),
    ]
    for n, one in enumerate(accesses):
        words += words_of(one, n * LANES * BYTES)
    return single.program(name, words)


# Definition


def after(one: Access, given: Inputs, memory: Array) -> tuple[Array, Array]:
    """Return the result's registers and the lane's memory, as rows of dwords."""
    data, old = (_joined(given.words[:, n : n + 4]) for n in (0, 4))
    whole = _joined(memory)
    second = value("b", 64, _joined(given.words[:, 2:4]).astype("u8"))
    registers: dict[str, Any] = {
        "MEM": value("b", 8 * BYTES, whole),
        "ADDR": value("u", 64, 0),
        "ADDR_BASE": value("u", 32, 0),
    }
    registers |= {
        "DATA": value("b", 128, data),
        "DATA0": value("b", 128, data),
        "DATA2": second,
        "RETURN_DATA": value("b", 128, old),
    }
    registers["VDATA"] = value("b", 128, old if reads(one) or (one.kind == "MUBUF" and loads(one)) else data)
    if one.kind == "MUBUF" and not loads(one):
        registers["RETURN_DATA"] = value("b", 128, data)
    registers |= {
        "OFFSET": value("u", 32, 0),
        "OFFSET0": value("u", 32, one.offset),
        "OFFSET1": value("u", 32, one.second),
    }
    registers |= {"S0": value("u", 32, 0), "S1": value("b", 64, _joined(given.words[:, :2]).astype("u8"))}
    registers |= {"WAVE_MODE.IEEE": value("u", 1, 0), "dst": value("b", 128, data)}
    if one.space == "lds" and one.kind == "DS":
        registers["PLANE"] = PLANE
    with np.errstate(all="ignore"):
        made = pcode.program(one.text).run(registers, given.lanes, given.wave, {})
    key = "VDATA" if loads(one) and "VDATA" in one.text else "RETURN_DATA"
    result = (
        made[key].raw
        if reads(one) or one.returns or (one.kind == "MUBUF" and loads(one))
        else (data if one.kind == "MUBUF" else old)
    )
    on = given.lanes_of(given.active)
    inside = on & (np.arange(given.lanes) < one.records)
    if one.records < LANES:  # beyond a buffer loads give zeros, and stores are dropped
        size = 32 * result_dwords(one)
        beyond = (
            registers["RETURN_DATA" if key == "RETURN_DATA" else "VDATA"].raw >> size << size
            if loads(one) or one.returns
            else result
        )
        result = np.where(inside, result, beyond)
    before = data if one.kind == "MUBUF" and not loads(one) else old
    return (
        _split(np.where(on, result, before), 4),
        _split(np.where(inside, made["MEM"].raw, whole), BYTES // 4),
    )


def result_dwords(one: Access) -> int:
    """Return how many registers an access of a buffer writes."""
    size = next(s.dwords for s in one.opcode.operands if s.field == "vdata")
    return size // 2 if "cmpswap" in one.stem else size


def _joined(words: Array) -> Array:
    total = np.zeros(len(words), object)
    for n in range(words.shape[1]):
        total = total | words[:, n].astype(object) << 32 * n
    return total


def _split(whole: Array, count: int) -> Array:
    wide = np.broadcast_to(whole, (LANES,))
    return np.stack([(wide >> 32 * n & 0xFFFF_FFFF).astype("u4") for n in range(count)], 1)


def kinds_of(text: str) -> tuple[str, str, str, str]:
    found = re.search(r"\.(f64|f32|bf16|f16)", text)
    type_ = found[1] if found else "w64" if re.search(r"[iub]64", text) else "w32"
    return (type_, type_, type_, "")


def same(text: str, got: Array, wanted: Array) -> Array:
    """Return which rows are alike: bits, or NaNs of the text's type."""
    equal = got == wanted
    found = re.search(r"\.(bf16|f16|f32|f64)", text)
    if found:
        kind, bits = re.fullmatch(r"(bf|f)(\d+)", found[1]).groups()  # type: ignore[union-attr]
        wide = [np.ascontiguousarray(v).view(f"u{int(bits) // 8}") for v in (got, wanted)]
        a, b = (np.isnan(pcode_values.floats(Value(kind, int(bits), v.astype("u8")))) for v in wide)
        part = (wide[0] == wide[1]) | (a & b)
        equal = part
    alike: Array = equal.all(1)
    return alike


def inputs(name: str, kinds: tuple[str, str, str, str], text: str) -> tuple[Inputs, Array]:
    """Return registers, and the lanes' memory; a comparison holds in half of the lanes."""
    one = pcode_forms.inputs(name, kinds)
    words, rng = one.words[:LANES].copy(), np.random.default_rng(len(text))
    memory = rng.integers(0, 1 << 32, (LANES, BYTES // 4), "u4")
    memory[:, :2] = one.words[:LANES, 4:6]
    words[:, 4:] = rng.integers(0, 1 << 32, (LANES, 4), "u4")
    if "cmp" in text:
        equal = np.arange(LANES) % 2 == 0
        wide = bool(re.search(r"[iubf]64", text))
        place = slice(2, 4) if wide or "DATA2" in text else slice(1, 2)
        words[equal, place] = memory[equal, : place.stop - place.start]
    return Inputs(words, one.vcc, one.active, one.mask, one.wave), memory


def differences(name: str, accesses: Sequence[Access]) -> list[str]:
    """Run accesses of one text's kinds; return the first difference of each."""
    ready, found = prepared(name, accesses), []
    given, before = inputs(name, kinds_of(accesses[0].text), accesses[0].text)
    region = np.ascontiguousarray(np.tile(before, (len(accesses), 1)))
    results = np.zeros((len(accesses) * LANES, 4), "u4")
    space = AddressSpace()
    source = np.ascontiguousarray(given.words)
    space.map(region.ctypes.data, region.nbytes)
    memory = region.ctypes.data - _BIAS
    registers = [
        *single.mapped(space, source),
        memory & 0xFFFF_FFFF,
        memory >> 32,
        *single.mapped(space, results),
    ]
    registers += [given.active & 0xFFFF_FFFF, given.active >> 32]
    low, high = region.ctypes.data & 0xFFFF_FFFF, region.ctypes.data >> 32
    registers += [low, high, 0, 0x3101_6FAC, 0, 0, low, high]
    single.run(ready, space, registers, LANES, 0x8000, scratch=3 * _SCRATCH)
    for n, one in enumerate(accesses):
        rows = slice(n * LANES, (n + 1) * LANES)
        wanted = after(one, given, before)
        for what, got, want in (("result", results[rows], wanted[0]), ("memory", region[rows], wanted[1])):
            bad = np.flatnonzero(~same(one.text, got, want))
            if bad.size:
                lane = bad[0]
                found.append(
                    f"{one.label}: {what} of {len(bad)} lanes, first {lane}: {[hex(v) for v in got[lane].tolist()]}, wanted {[hex(v) for v in want[lane].tolist()]}, of {[hex(v) for v in given.words[lane].tolist()]}, {[hex(v) for v in before[lane].tolist()]}"
                )
                break
    return found


def groups(accesses: Sequence[Access]) -> list[list[Access]]:
    """Return accesses in groups that share their inputs."""
    found: dict[Any, list[Access]] = {}
    for one in accesses:
        found.setdefault(
            (kinds_of(one.text), len(one.text), "cmp" in one.text, "DATA2" in one.text), []
        ).append(one)
    return list(found.values())
