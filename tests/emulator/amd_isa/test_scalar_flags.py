"""Integer operations of the scalar unit, with what they make of SCC and EXEC, against definitions in Python.

Definitions are those of the ISA documents of CDNA3, RDNA3 and RDNA4, in numbers of unlimited size. Every
integer operation that the emulator knows is here; sources are all pairs of edge values.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa.instruction import canonical
from emulator.amd.isa.meanings import MEANINGS
from emulator.amd.isa.opcodes import target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import single
from tests.emulator.amd_isa.single import EXEC, NAMES, encode, move

if TYPE_CHECKING:
    from collections.abc import Callable

Result = tuple[int | None, int | None]
"""The destination, None where it keeps its value; SCC, None where it stays."""

EDGES = (0, 1, 2, 31, 32, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x0010_0004, 0x0020_001F, 0x1234_5678)


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def fits(value: int) -> int:
    """Return whether a signed result overflows 32 bits."""
    return int(not -(1 << 31) <= value < 1 << 31)


def both(bits: int, compute: Callable[[int, int], int]) -> Callable[[int, int, int, int], Result]:
    """SCC is whether the result is not 0."""

    def define(a: int, b: int, _old: int, _scc: int) -> Result:
        value = compute(a, b) & (1 << bits) - 1
        return value, int(value != 0)

    return define


def alone(compute: Callable[[int, int], int]) -> Callable[[int, int, int, int], Result]:
    """SCC stays."""
    return lambda a, b, _old, _scc: (compute(a, b), None)


def compared(compute: Callable[[int, int], bool]) -> Callable[[int, int, int, int], Result]:
    return lambda a, b, _old, _scc: (None, int(compute(a, b)))


def first(value: int, bits: int, wanted: int, *, high: bool) -> int:
    """Return how many bits precede the first that is `wanted`, from the top or the bottom; -1 for none."""
    order = range(bits - 1, -1, -1) if high else range(bits)
    return next((n for n, bit in enumerate(order) if value >> bit & 1 == wanted), -1)


def sign_bits(value: int, bits: int) -> int:
    top = value >> bits - 1
    return first(value, bits, 1 - top, high=True)


def field(a: int, how: int, bits: int, *, sign: bool) -> int:
    offset, width = how & bits - 1, how >> 16 & 127
    value = (signed(a, bits) if sign else a) >> offset & (1 << min(width, bits)) - 1
    if sign and 0 < width < bits:
        return signed(value, width)
    return value


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b, "or_not1": lambda a, b: a | ~b,
    "and_not0": lambda a, b: ~a & b, "or_not0": lambda a, b: ~a | b,
}  # fmt: skip
COMPARES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip
DEFINITIONS: dict[str, Callable[[int, int, int, int], Result]] = {
    "s_add_u32": lambda a, b, _o, _s: (a + b, (a + b) >> 32),
    "s_sub_u32": lambda a, b, _o, _s: (a - b, int(b > a)),
    "s_addc_u32": lambda a, b, _o, s: (a + b + s, (a + b + s) >> 32),
    "s_subb_u32": lambda a, b, _o, s: (a - b - s, int(b + s > a)),
    "s_add_i32": lambda a, b, _o, _s: (a + b, fits(signed(a) + signed(b))),
    "s_sub_i32": lambda a, b, _o, _s: (a - b, fits(signed(a) - signed(b))),
    "s_min_i32": lambda a, b, _o, _s: (min(a, b, key=signed), int(signed(a) < signed(b))),
    "s_max_i32": lambda a, b, _o, _s: (max(a, b, key=signed), int(signed(a) >= signed(b))),
    "s_min_u32": lambda a, b, _o, _s: (min(a, b), int(a < b)),
    "s_max_u32": lambda a, b, _o, _s: (max(a, b), int(a >= b)),
    "s_cselect_b32": lambda a, b, _o, s: (a if s else b, None),
    "s_cselect_b64": lambda a, b, _o, s: (a if s else b, None),
    "s_cmov_b32": lambda a, _b, o, s: (a if s else o, None),
    "s_cmov_b64": lambda a, _b, o, s: (a if s else o, None),
    "s_absdiff_i32": both(32, lambda a, b: abs(signed(a - b))),
    "s_abs_i32": both(32, lambda a, _b: abs(signed(a))),
    "s_lshl_b32": both(32, lambda a, b: a << (b & 31)),
    "s_lshl_b64": both(64, lambda a, b: a << (b & 63)),
    "s_lshr_b32": both(32, lambda a, b: a >> (b & 31)),
    "s_lshr_b64": both(64, lambda a, b: a >> (b & 63)),
    "s_ashr_i32": both(32, lambda a, b: signed(a) >> (b & 31)),
    "s_ashr_i64": both(64, lambda a, b: signed(a, 64) >> (b & 63)),
    "s_bfe_u32": both(32, lambda a, b: field(a, b, 32, sign=False)),
    "s_bfe_i32": both(32, lambda a, b: field(a, b, 32, sign=True)),
    "s_bfe_u64": both(64, lambda a, b: field(a, b, 64, sign=False)),
    "s_bfe_i64": both(64, lambda a, b: field(a, b, 64, sign=True)),
    "s_bfm_b32": alone(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "s_bfm_b64": alone(lambda a, b: ((1 << (a & 63)) - 1) << (b & 63)),
    "s_mul_i32": alone(lambda a, b: a * b),
    "s_mul_u64": alone(lambda a, b: a * b),
    "s_add_nc_u64": alone(lambda a, b: a + b),
    "s_sub_nc_u64": alone(lambda a, b: a - b),
    "s_mul_hi_u32": alone(lambda a, b: a * b >> 32),
    "s_mul_hi_i32": alone(lambda a, b: signed(a) * signed(b) >> 32),
    "s_pack_ll_b32_b16": alone(lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16),
    "s_pack_lh_b32_b16": alone(lambda a, b: a & 0xFFFF | b >> 16 << 16),
    "s_pack_hh_b32_b16": alone(lambda a, b: a >> 16 | b >> 16 << 16),
    "s_pack_hl_b32_b16": alone(lambda a, b: a >> 16 | (b & 0xFFFF) << 16),
    "s_sext_i32_i8": alone(lambda a, _b: signed(a, 8)),
    "s_sext_i32_i16": alone(lambda a, _b: signed(a, 16)),
    "s_cls_i32": alone(lambda a, _b: sign_bits(a, 32)),
    "s_addk_i32": lambda _a, b, o, _s: (o + signed(b, 16), fits(signed(o) + signed(b, 16))),
    "s_mulk_i32": lambda _a, b, o, _s: (o * signed(b, 16), None),
    "s_movk_i32": lambda _a, b, _o, _s: (signed(b, 16), None),
    "s_cmovk_i32": lambda _a, b, o, s: (signed(b, 16) if s else o, None),
}
for _bits in (32, 64):
    DEFINITIONS |= {
        f"s_mov_b{_bits}": alone(lambda a, _b: a),
        f"s_not_b{_bits}": both(_bits, lambda a, _b: ~a),
        f"s_brev_b{_bits}": alone(lambda a, _b, n=_bits: int(f"{a:0{n}b}"[::-1], 2)),
        f"s_bcnt0_i32_b{_bits}": both(32, lambda a, _b, n=_bits: n - a.bit_count()),
        f"s_bcnt1_i32_b{_bits}": both(32, lambda a, _b: a.bit_count()),
        f"s_ctz_i32_b{_bits}": alone(lambda a, _b, n=_bits: first(a, n, 1, high=False)),
        f"s_clz_i32_u{_bits}": alone(lambda a, _b, n=_bits: first(a, n, 1, high=True)),
        f"s_bitset0_b{_bits}": lambda a, _b, o, _s, n=_bits: (o & ~(1 << (a & n - 1)), None),  # type: ignore[misc]
        f"s_bitset1_b{_bits}": lambda a, _b, o, _s, n=_bits: (o | 1 << (a & n - 1), None),  # type: ignore[misc]
        f"s_bitcmp0_b{_bits}": compared(lambda a, b, n=_bits: not a >> (b & n - 1) & 1),
        f"s_bitcmp1_b{_bits}": compared(lambda a, b, n=_bits: bool(a >> (b & n - 1) & 1)),
    }
    DEFINITIONS |= {f"s_{name}_b{_bits}": both(_bits, compute) for name, compute in LOGIC.items()}
for _name, _compare in COMPARES.items():
    DEFINITIONS[f"s_cmp_{_name}_i32"] = compared(lambda a, b, c=_compare: c(signed(a), signed(b)))
    DEFINITIONS[f"s_cmp_{_name}_u32"] = compared(lambda a, b, c=_compare: c(a, b))
    DEFINITIONS[f"s_cmp_{_name}_u64"] = compared(lambda a, b, c=_compare: c(a, b))
    DEFINITIONS[f"s_cmpk_{_name}_i32"] = lambda _a, b, o, _s, c=_compare: (
        None,
        int(c(signed(o), signed(b, 16))),
    )  # type: ignore[misc]
    DEFINITIONS[f"s_cmpk_{_name}_u32"] = lambda _a, b, o, _s, c=_compare: (None, int(c(o, b & 0xFFFF)))  # type: ignore[misc]
for _k in (1, 2, 3, 4):
    DEFINITIONS[f"s_lshl{_k}_add_u32"] = lambda a, b, _o, _s, k=_k: (
        (a << k) + b,
        int((a << k) + b >= 1 << 32),
    )  # type: ignore[misc]
"""Operation, as gfx11 names it -> (first source, second or constant, destination, SCC before) -> result."""
STORES = 3


def known(name: str) -> dict[str, tuple[str, int, int, int]]:
    """Return the scalar operations that are executed, by name on gfx11: form, dwords of dst, a and b."""
    found = {}
    family = target(name).family
    for (form, _), opcode in target(name).opcodes.items():
        stem = canonical(opcode.stem, family)
        if form in ("SOP1", "SOP2", "SOPC", "SOPK") and stem in MEANINGS:
            size = {slot.field: slot.dwords for slot in opcode.operands}
            found[stem] = (form, size.get("sdst", 0), size.get("ssrc0", 0), size.get("ssrc1", 0))
    return found


def skipped(stem: str) -> bool:
    """Return whether an operation is tested elsewhere: floats, EXEC, modes, messages, the program counter."""
    ends = ("_f16", "_f32", "_f32_i32", "_f32_u32", "_i32_f32", "_u32_f32", "_hi_f32_f16")
    parts = (
        "saveexec",
        "wrexec",
        "getreg",
        "setreg",
        "getpc",
        "waitcnt",
        "barrier",
        "sendmsg",
        "_f16_",
        "_f32_",
        "gpr_idx",
    )
    return stem.endswith(ends) or any(part in stem for part in parts)


@pytest.mark.parametrize("name", NAMES)
def test_every_integer_operation_is_defined_here(name: str) -> None:
    missing = [stem for stem in known(name) if stem not in DEFINITIONS and not skipped(stem)]
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_scalar_operations_with_their_flag(name: str) -> None:
    """s[4:5] and s[6:7] are the sources, s[12:13] is what the destination s[8:9] holds before, s14 is SCC."""
    operations = {stem: form for stem, form in known(name).items() if stem in DEFINITIONS}
    constants = (0, 1, 0x7FFF, 0x8000, 0xFFFF)
    cases = [(s, f, k) for s, f in operations.items() for k in (constants if f[0] == "SOPK" else (None,))]
    words: list[int] = []
    for number, (stem, (form, *_), constant) in enumerate(cases):
        given = {"sdst": 8, "ssrc0": 4, "ssrc1": 6, "simm16": constant or 0}
        layout = single.find(name, stem, form)[1].form
        words += [
            *encode(name, "s_mov_b64", "SOP1", sdst=8, ssrc0=12),
            *encode(name, "s_cmp_lg_u32", "SOPC", ssrc0=14, ssrc1=128),
            *encode(name, stem, form, **{k: v for k, v in given.items() if k in layout.fields}),
            *encode(name, "s_cselect_b32", "SOP2", sdst=10, ssrc0=129, ssrc1=128),
            *move(name, 1, 255, 4 * STORES * number),
        ]
        for at, register in enumerate((8, 9, 10)):
            words += [*move(name, 2, register), *single.access(name, "global_store_b32", 2, 4 * at, 0)]
    ready, memory = single.program(name, words), AddressSpace()
    out = np.zeros(STORES * len(cases), "u4")
    where = single.mapped(memory, out)
    rng = np.random.default_rng(5)
    for a, b in itertools.product(EDGES, repeat=2):
        high = rng.integers(0, 1 << 32, 3)
        wide_a, wide_b, old = (
            a | int(high[0]) << 32,
            b | int(high[1]) << 32,
            b ^ 0xA5A5_A5A5 | int(high[2]) << 32,
        )
        for scc in (0, 1):
            halves = [part for v in (wide_a, wide_b) for part in (v & 0xFFFF_FFFF, v >> 32)]
            registers = [*where, 0, 0, *halves, 0, 0, 0, 0, old & 0xFFFF_FFFF, old >> 32, scc]
            single.run(ready, memory, registers, 1)
            for (stem, (_, to, *sizes), constant), found in zip(
                cases, out.reshape(-1, STORES).tolist(), strict=True
            ):
                x, y = (
                    v if size == 2 else v & 0xFFFF_FFFF
                    for v, size in zip((wide_a, wide_b), sizes, strict=True)
                )
                mask = (1 << 32 * to) - 1
                d, flag = DEFINITIONS[stem](x, y if constant is None else constant, old & mask, scc)
                wanted = old if d is None or not to else d & mask | old & ~mask
                what = f"{stem} {x:#x} {y:#x} {constant} {old:#x} SCC {scc}"
                assert found == [wanted & 0xFFFF_FFFF, wanted >> 32, scc if flag is None else flag], what


EXEC_OPERATIONS = [
    f"s_{logic}_{kind}"
    for kind in ("saveexec", "wrexec")
    for logic in LOGIC
    if kind == "saveexec" or logic.startswith("and_not")
]


@pytest.mark.parametrize("name", NAMES)
def test_scalar_operations_on_exec(name: str) -> None:
    """s[4:5] is the source, s[6:7] is EXEC before; the destination gets that, or with wrexec the new one."""
    lanes = target(name).lanes
    cases = [f"{stem}_b{lanes}" for stem in EXEC_OPERATIONS]
    words: list[int] = []
    kind = f"s_mov_b{lanes}"
    for number, stem in enumerate(cases):
        words += [
            *encode(name, kind, "SOP1", sdst=EXEC, ssrc0=6),
            *encode(name, stem, "SOP1", sdst=8, ssrc0=4),
            *encode(name, "s_cselect_b32", "SOP2", sdst=10, ssrc0=129, ssrc1=128),
            *encode(name, kind, "SOP1", sdst=12, ssrc0=EXEC),
            *encode(name, kind, "SOP1", sdst=EXEC, ssrc0=129),
            *move(name, 1, 255, 20 * number),
        ]
        for at, register in enumerate((8, 9, 12, 13, 10)):
            words += [*move(name, 2, register), *single.access(name, "global_store_b32", 2, 4 * at, 0)]
    ready, memory = single.program(name, words), AddressSpace()
    out = np.zeros(5 * len(cases), "u4")
    where = single.mapped(memory, out)
    values = (
        0,
        1,
        0xFFFF_FFFF_FFFF_FFFF,
        0x8000_0000_8000_0000,
        0x1234_5678_9ABC_DEF0,
        0xFFFF_FFFF_0000_0000,
    )
    mask = (1 << lanes) - 1
    for source, before in itertools.product(values, repeat=2):
        halves = [part for v in (source, before) for part in (v & 0xFFFF_FFFF, v >> 32)]
        single.run(ready, memory, [*where, 0, 0, *halves], 1)
        for stem, found in zip(cases, out.reshape(-1, 5).tolist(), strict=True):
            logic = stem.removeprefix("s_").split("_saveexec")[0].split("_wrexec")[0]
            after = LOGIC[logic](source & mask, before & mask) & mask
            saved = after if "wrexec" in stem else before & mask
            got = [found[0] | found[1] << 32, found[2] | found[3] << 32]
            assert [v & mask for v in got] == [saved, after], f"{stem} {source:#x} EXEC {before:#x}"
            assert found[4] == int(after != 0), stem
