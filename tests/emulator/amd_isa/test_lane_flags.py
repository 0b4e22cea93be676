"""Vector operations with a carry, a selected half or part, or an implicit operand: definitions in Python.

Definitions are those of the ISA documents of CDNA3, RDNA3 and RDNA4; `lane_cases` runs them.
"""

# ruff: noqa: E501 - rows of cases read best on one line

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa.opcodes import target
from tests.emulator.amd_isa import single
from tests.emulator.amd_isa.lane_cases import (
    ACTIVE,
    CARRIES,
    ROW,
    WAVE_MOVES,
    Case,
    Inputs,
    check,
    source_lane,
)
from tests.emulator.amd_isa.single import EXEC, NAMES, VCC, VECTOR, encode, move

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray
EDGES = np.array([0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF, 0x8000_0001], "u4")


def inputs(name: str, seed: int, words: Array | None = None) -> list[Inputs]:
    """Return registers: pairs of edge values in the lower halves, EXEC with and without all lanes."""
    lanes, rng = target(name).lanes, np.random.default_rng(seed)
    found = []
    for turn, (active, vcc) in enumerate(product(ACTIVE, CARRIES)):
        given = rng.integers(0, 1 << 32, (lanes, 8), "u4") if words is None else words
        if words is None:
            pairs = [(a, b) for a in EDGES for b in EDGES]
            for lane in range(lanes):
                given[lane, 0], given[lane, 2] = pairs[(lane + lanes * turn) % len(pairs)]
            given[: lanes // 2, 4:6] = rng.choice(EDGES, (lanes // 2, 2))
        mask = (1 << lanes) - 1
        found.append(Inputs(given, vcc & mask, active & mask, 0x0F1E_2D3C_4B5A_6978 & mask, lanes))
    return found


def lanewise(
    compute: Callable[..., int], *numbers: int, carry: Callable[[Inputs], int] | None = None
) -> Callable[[Inputs], list[int]]:
    """Apply a function of sources of 32 bits, and of a carry, to each lane."""

    def values(one: Inputs) -> list[int]:
        sources = [one.low(n) for n in numbers]
        if carry is not None:
            sources.append(one.bit(carry(one)))
        return [compute(*lane) for lane in zip(*sources, strict=True)]

    return values


SUMS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, c: a + b + c, "sub": lambda a, b, c: a - b - c, "subrev": lambda a, b, c: b - a - c,
}  # fmt: skip


def carries(name: str) -> list[Case]:
    """Return sums and differences with a carry out, and with one in, in every encoding."""
    cases = []
    gfx9 = target(name).family == "gfx9"
    for stem, compute in SUMS.items():

        def out(a: int, b: int, c: int = 0, compute: Callable[..., int] = compute) -> int:
            return int(not 0 <= compute(a, b, c) < 1 << 32)

        def value(a: int, b: int, c: int = 0, compute: Callable[..., int] = compute) -> int:
            return compute(a, b, c)

        three = {"vdst": 12, "src0": VECTOR + 4, "src1": VECTOR + 6}
        two = {"vdst": 12, "src0": VECTOR + 4, "vsrc1": 6}
        words = encode(name, f"v_{stem}_co_u32", "VOP3SD", **three, sdst=10)
        cases.append(Case(words, lanewise(value, 0, 1), other=lanewise(out, 0, 1), text=f"{stem} VOP3"))
        if gfx9:
            words = encode(name, f"v_{stem}_co_u32", "VOP2", **two)
            cases.append(Case(words, lanewise(value, 0, 1), vcc=lanewise(out, 0, 1), text=f"{stem} VOP2"))
        for register, carry in ((VCC, lambda one: one.vcc), (8, lambda one: one.mask)):
            words = encode(name, f"v_{stem}_co_ci_u32", "VOP3SD", **three, sdst=10, src2=register)
            parts = (lanewise(value, 0, 1, carry=carry), lanewise(out, 0, 1, carry=carry))
            cases.append(Case(words, parts[0], other=parts[1], text=f"{stem} with carry, VOP3"))
        words = encode(name, f"v_{stem}_co_ci_u32", "VOP2", **two)
        parts = (
            lanewise(value, 0, 1, carry=lambda one: one.vcc),
            lanewise(out, 0, 1, carry=lambda one: one.vcc),
        )
        cases.append(Case(words, parts[0], vcc=parts[1], text=f"{stem} with carry, VOP2"))
    return cases


def multiplications(name: str) -> list[Case]:
    """Return 32 x 32 + 64 bits, whose mask is bit 64 of the sum in numbers of 65 bits."""

    def signed(value: int, bits: int) -> int:
        return value - (value >> bits - 1 << bits)

    def plain(one: Inputs) -> list[int]:
        return [a * b + c for a, b, c in zip(one.low(0), one.low(1), one.wide(2), strict=True)]

    def signs(one: Inputs) -> list[int]:
        return [
            signed(a, 32) * signed(b, 32) + signed(c, 64)
            for a, b, c in zip(one.low(0), one.low(1), one.wide(2), strict=True)
        ]

    fields = {"vdst": 12, "sdst": 10, "src0": VECTOR + 4, "src1": VECTOR + 6, "src2": VECTOR + 8}
    return [
        Case(encode(name, "v_mad_u64_u32", "VOP3SD", **fields), plain, wide=True, text="v_mad_u64_u32",
             other=lambda one: [int(v >= 1 << 64) for v in plain(one)]),
        Case(encode(name, "v_mad_i64_i32", "VOP3SD", **fields), signs, wide=True, text="v_mad_i64_i32",
             other=lambda one: [int(v < 0) for v in signs(one)]),
    ]  # fmt: skip


COMPARES: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def comparisons(name: str) -> list[Case]:
    """Return comparisons into VCC, another mask and EXEC; v_cmpx of gfx9 writes a mask, too."""
    cases = []
    gfx9 = target(name).family == "gfx9"
    for (stem, compare), sign in product(COMPARES.items(), "ui"):

        def bit(a: int, b: int, compare: Callable[[int, int], bool] = compare, sign: str = sign) -> int:
            flip = 1 << 31 if sign == "i" else 0
            return int(compare(a ^ flip, b ^ flip))

        bits = lanewise(bit, 0, 1)
        three = {"src0": VECTOR + 4, "src1": VECTOR + 6}
        two = {"src0": VECTOR + 4, "vsrc1": 6}
        what = f"{stem}_{sign}32"
        cases += [
            Case(encode(name, f"v_cmp_{what}", "VOPC", **two), vcc=bits, text=f"v_cmp_{what}"),
            Case(encode(name, f"v_cmp_{what}", "VOP3", vdst=10, **three), other=bits, text=f"v_cmp_{what} VOP3"),
            Case(encode(name, f"v_cmpx_{what}", "VOPC", **two), vcc=bits if gfx9 else None, active=bits, text=f"v_cmpx_{what}"),
            Case(encode(name, f"v_cmpx_{what}", "VOP3", vdst=10 if gfx9 else EXEC, **three), other=bits if gfx9 else None,
                 active=bits, text=f"v_cmpx_{what} VOP3"),
        ]  # fmt: skip
    return cases


def selections(name: str) -> list[Case]:
    """Return what reads a mask of lanes without writing one: selections, counts of lanes, the first lane."""

    def choose(mask: Callable[[Inputs], int]) -> Callable[[Inputs], list[int]]:
        return lanewise(lambda a, b, c: b if c else a, 0, 1, carry=mask)

    def below(half: int) -> Callable[[Inputs], list[int]]:
        def values(one: Inputs) -> list[int]:
            masks = [((1 << lane) - 1) >> 32 * half & 0xFFFF_FFFF for lane in range(one.lanes)]
            return [(a & m).bit_count() + b for a, b, m in zip(one.low(0), one.low(1), masks, strict=True)]

        return values

    def first(one: Inputs) -> list[int]:
        lane = (one.active & -one.active).bit_length() - 1 if one.active else 0
        return [one.low(0)[lane]] * one.lanes

    three = {"vdst": 12, "src0": VECTOR + 4, "src1": VECTOR + 6}
    two = {"vdst": 12, "src0": VECTOR + 4, "vsrc1": 6}
    return [
        Case(encode(name, "v_cndmask_b32", "VOP2", **two), choose(lambda one: one.vcc), text="v_cndmask_b32"),
        Case(encode(name, "v_cndmask_b32", "VOP3", **three, src2=8), choose(lambda one: one.mask), text="v_cndmask_b32 VOP3"),
        Case(encode(name, "v_mbcnt_lo_u32_b32", "VOP3", **three), below(0), text="v_mbcnt_lo_u32_b32"),
        Case(encode(name, "v_mbcnt_hi_u32_b32", "VOP3", **three), below(1), text="v_mbcnt_hi_u32_b32"),
        Case([*encode(name, "v_readfirstlane_b32", "VOP1", vdst=10, src0=VECTOR + 4), *move(name, 12, 10),
              *encode(name, "s_mov_b64", "SOP1", sdst=10, ssrc0=128)], first, text="v_readfirstlane_b32"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [carries, multiplications, comparisons, selections])
def test_masks_of_lanes(name: str, kind: Callable[[str], list[Case]]) -> None:
    check(name, kind(name), inputs(name, 7))


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


def clamped(a: int, b: int, c: int) -> int:
    return sorted((a, b, c), key=lambda v: signed(v, 16))[1]


HALVES: dict[str, tuple[str, str, Callable[..., int]]] = {
    "v_add_nc_u16": ("hh", "h", lambda a, b: a + b), "v_sub_nc_u16": ("hh", "h", lambda a, b: a - b),
    "v_add_nc_i16": ("hh", "h", lambda a, b: a + b), "v_sub_nc_i16": ("hh", "h", lambda a, b: a - b),
    "v_mul_lo_u16": ("hh", "h", lambda a, b: a * b), "v_lshlrev_b16": ("hh", "h", lambda a, b: b << (a & 15)),
    "v_lshrrev_b16": ("hh", "h", lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16": ("hh", "h", lambda a, b: signed(b, 16) >> (a & 15)),
    "v_max_u16": ("hh", "h", max), "v_min_u16": ("hh", "h", min),
    "v_max_i16": ("hh", "h", lambda a, b: max(a, b, key=lambda v: signed(v, 16))),
    "v_min_i16": ("hh", "h", lambda a, b: min(a, b, key=lambda v: signed(v, 16))),
    "v_and_b16": ("hh", "h", lambda a, b: a & b), "v_or_b16": ("hh", "h", lambda a, b: a | b),
    "v_xor_b16": ("hh", "h", lambda a, b: a ^ b), "v_med3_i16": ("hhh", "h", clamped),
    "v_min3_u16": ("hhh", "h", min), "v_max3_u16": ("hhh", "h", max),
    "v_mad_u16": ("hhh", "h", lambda a, b, c: a * b + c), "v_mad_i16": ("hhh", "h", lambda a, b, c: a * b + c),
    "v_mad_u32_u16": ("hhw", "w", lambda a, b, c: a * b + c),
    "v_mad_i32_i16": ("hhw", "w", lambda a, b, c: signed(a, 16) * signed(b, 16) + c),
    "v_pack_b32_f16": ("hh", "w", lambda a, b: a | b << 16), "v_not_b16": ("h", "h", lambda a: ~a),
}  # fmt: skip
"""Operation -> which sources are halves, whether the destination is one, and what it computes."""


def halves(name: str) -> list[Case]:
    """Return operations of VOP3 on halves with every op_sel; the other half of the destination stays."""
    cases = []
    for stem, (kinds, to, compute) in HALVES.items():
        try:
            _, opcode = single.find(name, stem, "VOP3")
        except KeyError:
            continue
        if "op_sel" not in opcode.modifiers and target(name).family == "gfx9":
            continue
        bits = [1 << n for n, kind in enumerate(kinds) if kind == "h"] + [8] * (to == "h")
        fields = {f"src{n}": VECTOR + 4 + 2 * n for n in range(len(kinds))}
        for chosen in product((0, 1), repeat=len(bits)):
            select = sum(bit for bit, on in zip(bits, chosen, strict=True) if on)

            def value(
                one: Inputs,
                kinds: str = kinds,
                to: str = to,
                select: int = select,
                compute: Callable[..., int] = compute,
            ) -> list[int]:
                found = []
                for lane in range(one.lanes):
                    words = [one.low(n)[lane] for n in range(len(kinds))]
                    parts = [
                        w >> 16 * (select >> n & 1) & 0xFFFF if kinds[n] == "h" else w
                        for n, w in enumerate(words)
                    ]
                    result, old = compute(*parts), one.low(3)[lane]
                    at = 16 * (select >> 3)
                    found.append((result & 0xFFFF) << at | old & ~(0xFFFF << at) if to == "h" else result)
                return found

            words = encode(name, stem, "VOP3", vdst=12, op_sel=select, **fields)
            cases.append(Case(words, value, text=f"{stem} op_sel {select:#x}"))
    return cases


def as_f32(word: int) -> float:
    return float(np.array(word, "u4").view("f4"))


def as_f16(word: int, half: int) -> float:
    return float(np.array(word >> 16 * half & 0xFFFF, "u2").view("f2"))


def mixes(name: str) -> list[Case]:
    """Return fused products of f32 and halves with every selection, and signs on some."""
    cases = []
    selections = [(low, high, 0, 0) for low, high in product(range(8), repeat=2)]
    stems = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
    signs = [("v_fma_mix_f32", (5, 3, n, m)) for n, m in product(range(8), repeat=2) if not n or not m]
    for stem, how in [*product(stems, selections), *signs]:
        low, high, neg, absolute = how

        def value(one: Inputs, stem: str = stem, how: tuple[int, int, int, int] = how) -> list[int]:
            (low, high, neg, absolute), found = how, []
            for lane in range(one.lanes):
                sources = []
                for n in range(3):
                    word = one.low(n)[lane]
                    v = as_f16(word, low >> n & 1) if high >> n & 1 else as_f32(word)
                    v = abs(v) if absolute >> n & 1 else v
                    sources.append(-v if neg >> n & 1 else v)
                result = np.float32(sources[0] * sources[1] + sources[2])  # exact in f64
                old, half = one.low(3)[lane], int(np.float16(result).view("u2"))
                found.append({
                    "v_fma_mix_f32": int(result.view("u4")), "v_fma_mixlo_f16": old & 0xFFFF_0000 | half,
                    "v_fma_mixhi_f16": old & 0xFFFF | half << 16,
                }[stem])  # fmt: skip
            return found

        words = encode(
            name, stem, "VOP3P", vdst=12, src0=VECTOR + 4, src1=VECTOR + 6, src2=VECTOR + 8, op_sel=low,
            op_sel_hi=high & 3, op_sel_hi2=high >> 2, neg=neg, neg_hi=absolute,
        )  # fmt: skip
        cases.append(
            Case(words, value, text=f"{stem} op_sel {low:#x} op_sel_hi {high:#x} neg {neg} abs {absolute}")
        )
    return cases


def part(word: int, select: int, *, sign: bool) -> int:
    """Return what SDWA makes of a source: a byte, a word or the whole, extended."""
    if select == 6:
        return word
    low, bits = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
    value = word >> low & (1 << bits) - 1
    return signed(value, bits) & 0xFFFF_FFFF if sign else value


def placed(result: int, old: int, select: int, unused: int) -> int:
    """Return what SDWA makes of a result: zeros, signs or the old bits around a part."""
    if select == 6:
        return result
    low, bits = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
    mask = (1 << bits) - 1
    value = (result & mask) << low
    if unused == 2:
        return value | old & ~(mask << low)
    return value | (-1 << low + bits if unused == 1 and result >> bits - 1 & 1 else 0)


def parts(name: str) -> list[Case]:
    """Return SDWA of gfx9: parts of the sources, extended, and of the destination, with the rest of it."""
    sources = [
        (s0, x0, s1, x1, 6, 0) for s0, x0 in product(range(7), (0, 1)) for s1, x1 in ((6, 0), (2, 1), (5, 0))
    ]
    sources += [(6, 0, s1, x1, 6, 0) for s1, x1 in product(range(7), (0, 1))]
    sources += [(5, 1, 1, 0, d, u) for d, u in product(range(7), (0, 1, 2))]
    cases = []
    for stem, compute in {"v_add_nc_u32": lambda a, b: a + b, "v_and_b32": lambda a, b: a & b}.items():
        for s0, x0, s1, x1, d, u in sources:

            def value(
                one: Inputs,
                how: tuple[int, ...] = (s0, x0, s1, x1, d, u),
                compute: Callable[[int, int], int] = compute,
            ) -> list[int]:
                s0, x0, s1, x1, d, u = how
                both = zip(one.low(0), one.low(1), one.low(3), strict=True)
                return [
                    placed(
                        compute(part(a, s0, sign=bool(x0)), part(b, s1, sign=bool(x1))) & 0xFFFF_FFFF,
                        old,
                        d,
                        u,
                    )
                    for a, b, old in both
                ]

            extra = 4 | d << 8 | u << 11 | s0 << 16 | x0 << 19 | s1 << 24 | x1 << 27
            words = encode(name, stem, "VOP2", extra, vdst=12, src0=249, vsrc1=6)
            cases.append(Case(words, value, text=f"{stem} {s0} {x0} {s1} {x1} {d} {u}"))
    for scalar in (0, 1):
        bits = lanewise(lambda a, b: int(part(a, 1, sign=True) < part(b, 5, sign=False)), 0, 1)
        extra = 4 | scalar << 15 | (10 if scalar else 0) << 8 | 1 << 16 | 1 << 19 | 5 << 24
        words = encode(name, "v_cmp_lt_u32", "VOPC", extra, src0=249, vsrc1=6)
        cases.append(
            Case(
                words,
                vcc=None if scalar else bits,
                other=bits if scalar else None,
                text=f"v_cmp_lt_u32 {scalar}",
            )
        )
    return cases


@pytest.mark.parametrize("name", NAMES)
def test_halves_of_registers(name: str) -> None:
    check(name, halves(name), inputs(name, 9)[:2])


@pytest.mark.parametrize("name", NAMES)
def test_mixed_products(name: str) -> None:
    """Both halves of each word are f16 from 1.8 to 2.5, and the word is f32 from 1 to 8: sums are exact in f64."""
    rng = np.random.default_rng(3)
    words = rng.integers(0x3F80, 0x4100, (target(name).lanes, 16)).astype("u2").view("u4")
    check(name, mixes(name), inputs(name, 9, words)[1:2])


def test_parts_of_registers() -> None:
    check("gfx942", parts("gfx942"), inputs("gfx942", 11)[1:3])


def moves(name: str) -> list[Case]:
    """Return moves between lanes: every control, rows and banks, lanes that do not execute as sources."""
    gfx9 = target(name).family == "gfx9"
    quads = [0xE4 & ~(3 << 2 * k) | n << 2 * k for k in range(4) for n in range(4)]
    shifts = [kind << 4 | by for kind in (0x10, 0x11, 0x12) for by in range(1, ROW)]
    rows = [0x15 << 4 | by for by in range(ROW)] + ([] if gfx9 else [0x16 << 4 | by for by in range(ROW)])
    controls = [*dict.fromkeys(quads), *shifts, *rows, 0x140, 0x141, *(WAVE_MOVES if gfx9 else ())]
    hows = [(control, bound, 0, 15, 15) for control in controls for bound in (0, 1)]
    hows += [
        (0x111, bound, 0, row, bank)
        for bound in (0, 1)
        for row, bank in ((1, 15), (10, 15), (15, 1), (15, 10), (5, 6))
    ]
    hows += (
        []
        if gfx9
        else [(control, bound, 1, 15, 15) for control in (0x1B, 0x101, 0x12F, 0x140) for bound in (0, 1)]
    )
    cases = []
    for how in hows:

        def value(one: Inputs, how: tuple[int, ...] = how) -> list[int]:
            control, bound, inactive, row_mask, bank_mask = how
            on, old, words, found = one.bit(one.active), one.low(3), one.low(0), []
            for lane in range(one.lanes):
                source = source_lane(control, lane, one.lanes)
                there = source >= 0 and (inactive or on[source])
                writes = row_mask >> lane // ROW & 1 and bank_mask >> lane % ROW // 4 & 1
                moved = words[source] if there else 0
                found.append(moved if writes and (there or bound) else old[lane])
            return found

        control, bound, inactive, row_mask, bank_mask = how
        extra = 4 | control << 8 | inactive << 18 | bound << 19 | bank_mask << 24 | row_mask << 28
        words = encode(name, "v_mov_b32", "VOP1", extra, vdst=12, src0=250)
        cases.append(Case(words, value, text=f"v_mov_b32_dpp {control:#x} {how[1:]}"))
    return cases


@pytest.mark.parametrize("name", NAMES)
def test_moves_between_lanes(name: str) -> None:
    check(name, moves(name), inputs(name, 13)[1:3])
