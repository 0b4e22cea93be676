"""Every matrix operation against its sizes in the ISA documents' pseudo-code, on inputs of which every sum is exact, or on any.

The pseudo-code gives the sizes ("D = A (16x4) * B (4x16) + C"), the name the types and blocks. Where elements lie is
`matrix_shapes`, which AMD's calculator confirms element by element (`test_matrix`). Small numbers have no rounding in any
order of the sum; the order and the rounding of others no public source defines, so that they have a bound.

Not here: f64 (`test_doubles`), counting (`pcode_tally`).
"""

# ruff: noqa: E501 - rows of tables and texts read best on one line

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.amd.isa.matrix_shapes import BYTES, MatrixShape, shape_of
from emulator.amd.isa.opcodes import Opcode, target
from emulator.shared.memory import AddressSpace
from tests.emulator.amd_isa import pcode, pcode_small_floats, single
from tests.emulator.amd_isa.single import EXEC, VECTOR, encode, move
from tools.record.amd.encode import packed

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = np.ndarray[Any, Any]
SIZES = re.compile(r"D = A \((?:sparse )?(\d+)x(\d+)\) \* B \((\d+)x(\d+)\) \+ [CD] \((\d+)x(\d+)\)")
A, B, C, INDEX = 16, 32, 48, 12
CHOSEN = ((0, 1), (2, 3), (0, 3), (1, 2), (1, 3), (0, 2))
"""Which two of four rows of B the elements of a sparse A are for."""


@dataclass(frozen=True, eq=False)
class Form:
    """One operation with modifiers."""

    opcode: Opcode
    number: int
    sizes: tuple[int, int, int]
    shape: MatrixShape
    lanes: int
    more: dict[str, int] = field(default_factory=dict)
    """Fields of modifiers."""
    constant: int | None = None
    """C as an encoded inline constant."""

    @property
    def label(self) -> str:
        return f"{self.opcode.stem} of {self.lanes} lanes {self.more or ''} {self.constant or ''}"

    @property
    def set_(self) -> int:
        """Return which set of a register's indices is used."""
        more = self.more
        return more.get("op_sel", 0) if self.opcode.stem.startswith("v_swmmac") else more.get("abid", 0)


def forms(name: str, refused: dict[str, str]) -> Iterator[Form]:
    """Yield every operation with each of its modifiers; put those without a map into `refused`."""
    family, known = target(name).family, pcode.table(name)
    sizes_of = {stem: SIZES.search(text) for stem, text in known.values()}
    for (_, number), opcode in target(name).opcodes.items():
        stem = opcode.stem
        if not re.match(r"v_(mfma|smfmac|wmma|swmmac)_", stem) or "f64" in stem:
            continue
        if found := sizes_of.get(stem):
            m, k, k2, n, *_ = map(int, found.groups())
            assert k == k2, found[0]
        else:  # xf32 has no pseudo-code
            m, n, k = map(int, re.findall(r"\d+", stem.partition("32_")[2])[:3])
        for lanes in (64,) if family == "gfx9" else (32, 64):
            for more, constant in choices(name, opcode):
                signs = (bool(more.get("neg", 0) & 1), bool(more.get("neg", 0) & 2))
                shape = shape_of(stem, family, lanes, signs=signs)
                if shape is None:
                    refused[stem] = "the emulated GPU has no map of it"
                    break
                yield Form(opcode, number, (m, n, k), shape, lanes, more, constant)


def choices(name: str, opcode: Opcode) -> Iterator[tuple[dict[str, int], int | None]]:
    """Yield modifiers with C as registers or a constant."""
    stem, sparse = opcode.stem, bool(re.search("smfmac|swmmac", opcode.stem))
    yield {}, None
    if not sparse:
        yield {}, 129 if "_i32_" in stem else 242
    if "_iu" in stem:
        yield from (({"neg": n}, None) for n in (1, 2, 3))
    if name == "gfx1100" and re.match(r"v_wmma_b?f16", stem):
        yield {"op_sel": 4}, None
    if target(name).family == "gfx9" and not sparse and "xf32" not in stem:
        yield from (({"blgp": n}, None) for n in range(1, 8))
        blocks = int((re.search(r"_(\d+)b_", stem) or [1, 1])[1])
        for cbsz in range(1, blocks.bit_length()):
            yield from (({"cbsz": cbsz, "abid": n}, None) for n in range(1 << cbsz))
    if sparse:
        bits = (
            2
            * opcode.operands[1].dwords
            * 4
            // (1 if re.search("8", stem.rpartition("x")[2].partition("_")[2]) else 2)
        )
        field_ = "abid" if target(name).family == "gfx9" else "op_sel"
        yield from (({field_: n}, None) for n in range(1, 32 // bits))


def pair(i: int, k: int) -> tuple[int, int]:
    """Return which two of four rows of B are those of a sparse A's row i, from the fours that k is one of."""
    return CHOSEN[(i + k // 4) % len(CHOSEN)]


def any_patterns(
    rng: np.random.Generator, type_: str, shape: tuple[int, ...], *, fnuz: bool
) -> tuple[Array, Array]:
    """Return numbers and their patterns: of floats all of 8 bits that are finite, and a normal distribution."""
    if type_ in ("fp8", "bf8"):
        known = pcode_small_floats.values(type_, fnuz=fnuz)
        bits = rng.choice(np.flatnonzero(np.isfinite(known)), shape)
        return known[bits], bits
    if type_[-2:] not in ("16", "32") or type_ == "i32":
        return patterns(rng, type_, shape, fnuz=fnuz)
    floats = rng.standard_normal(shape).astype("f4")
    bits = floats.astype("f2").view("u2") if type_ == "f16" else floats.view("u4")
    bits = (bits >> 16 if type_ == "bf16" else bits).astype("i8")
    return number(bits & (~0x1FFF if type_ == "xf32" else ~0), type_), bits


def patterns(
    rng: np.random.Generator, type_: str, shape: tuple[int, ...], *, fnuz: bool
) -> tuple[Array, Array]:
    """Return numbers and their patterns: all integers of a type, small ones of floats."""
    if type_ in ("i8", "u8"):
        bits = rng.integers(0, 256, shape)
        return bits.astype("u1").astype("i1" if type_ == "i8" else "u1").astype("i8"), bits
    if type_ == "i32":
        bits = rng.integers(0, 1 << 32, shape)
        return bits, bits
    values = rng.integers(-2, 3, shape)
    if type_ in ("fp8", "bf8"):
        mantissa, bias = {"fp8": (3, 7 + fnuz), "bf8": (2, 15 + fnuz)}[type_]
        size = np.select([values == 0, abs(values) == 1], [0, bias << mantissa], bias + 1 << mantissa)
        return values, np.where(values < 0, size | 128, size)
    floats = values.astype("f4")
    bits = (
        floats.astype("f2").view("u2")
        if type_ == "f16"
        else floats.view("u4") >> (16 if type_ == "bf16" else 0)
    )
    return values, bits.astype("i8")


def spread(one: Form, bits: Array, side: str) -> Array:
    """Return the registers (register, lane) of A or B from patterns [block][i][k]."""
    shape = one.shape
    place, type_ = shape.a_place, shape.a_type
    count = shape.a_registers
    if side == "b":
        place, type_ = shape.b_place or shape.a_place, shape.b_type
        count = shape.b_registers or count
    out = np.zeros((count, one.lanes), "u4")
    for block, i, k in np.ndindex(*bits.shape):
        if side == "a" and shape.sparse and k % 4 not in pair(i, k):
            continue
        register, part, lane = place(i, k)
        if side == "a" and shape.sparse:
            part += pair(i, k).index(k % 4)
        out[register, lane + block * shape.m] |= np.uint32(int(bits[block, i, k]) << 8 * BYTES[type_] * part)
    return np.tile(out[:, :16], shape.copies) if shape.copies > 1 else out


def indices(one: Form) -> Array:
    """Return the register that says which rows of B a sparse A is for; other sets of it are random."""
    shape, parts = one.shape, 4 // BYTES[one.shape.a_type]
    bits = 2 * shape.a_registers * parts
    out = np.random.default_rng(9).integers(0, 1 << 32, one.lanes, "u8") & ~np.uint64(
        ((1 << bits) - 1) << bits * one.set_
    )
    for i in range(shape.m):
        for four in range(shape.k // 4):
            register, part, lane = shape.a_place(i, 4 * four)
            for which, row in enumerate(pair(i, 4 * four)):
                out[lane] |= np.uint64(row << bits * one.set_ + 2 * (register * parts + part + which))
    return out.astype("u4")


def moved(one: Form, registers: Array) -> Array:
    """Return the lanes of B as BLGP has them: CDNA3's manual, "Broadcasting Values"."""
    blgp, lane = one.more.get("blgp", 0), np.arange(one.lanes)
    source = {0: lane, 1: lane % 32, 2: 32 + lane % 32, 3: (lane + 16) % 64}.get(
        blgp, 16 * (blgp - 4) + lane % 16
    )
    return registers[:, source]


def gathered(one: Form, registers: Array, side: str) -> Array:
    """Return patterns of D [block][i][j], or of a dense B [block][j][k]."""
    shape = one.shape
    size = (shape.blocks, shape.m, shape.n) if side == "d" else (shape.blocks, shape.n, shape.k)
    bits = 8 * BYTES[shape.b_type] if side == "b" else 32 if shape.d_type[-2:] == "32" else 16
    high = bits if side == "d" and one.more.get("op_sel") == 4 and not shape.sparse else 0
    found = np.zeros(size, "i8")
    for block, i, j in np.ndindex(*size):
        register, part, lane = shape.d_place(i, j) if side == "d" else shape.a_place(i, j)
        on, lanes_on = shape.d_block(block) if side == "d" else (0, block * shape.m)
        found[block, i, j] = (
            int(registers[register + on, lane + lanes_on]) >> bits * part + high & (1 << bits) - 1
        )
    return found


def number(bits: Array, type_: str) -> Array:
    """Return what patterns of C, D and a moved B mean."""
    if type_ in ("i32", "i8", "u8"):
        return bits.astype("u1").view("i1").astype("i8") if type_ == "i8" else bits
    if type_ == "f16":
        return bits.astype("u2").view("f2").astype("f8")
    return (bits.astype("u4") << (16 if type_ == "bf16" else 0)).view("f4").astype("f8")


def words_of(name: str, one: Form) -> list[int]:
    """Return code: registers of A, B, C and the index from memory, the operation, D to memory."""
    shape, step = one.shape, 4 * one.lanes
    b_count = shape.b_registers or shape.a_registers
    places = [
        *range(A, A + shape.a_registers),
        *range(B, B + b_count),
        *range(C, C + shape.d_registers),
        INDEX,
    ]
    words = encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=128 + 2, vsrc1=0)
    ahead = encode(name, "v_add_nc_u32", "VOP2", step, vdst=1, src0=255, vsrc1=1)
    for register in places:
        words += [*single.access(name, "global_load_b32", register, 0, 0), *ahead]
    third = INDEX if shape.sparse else C
    fields = {"vdst": C, "src0": VECTOR + A, "src1": VECTOR + B, "op_sel_hi": 3, "op_sel_hi2": 1,
              "src2": VECTOR + third if one.constant is None else one.constant} | one.more  # fmt: skip
    executes = f"s_mov_b{one.lanes}"  # the operation sets EXEC itself
    words += [single.WAIT[target(name).family], *encode(name, executes, "SOP1", sdst=EXEC, ssrc0=129)]
    words += [*packed(one.opcode, one.number, fields), *encode(name, executes, "SOP1", sdst=EXEC, ssrc0=193)]
    words += [*encode(name, "v_lshlrev_b32", "VOP2", vdst=1, src0=128 + 2, vsrc1=0)]
    for n in range(shape.d_registers):
        words += [*single.access(name, "global_store_b32", C + n, 0, 2), *ahead]
    return [*words, *move(name, 2, 128)]


def computed(name: str, one: Form, a: Array, b: Array, before: Array) -> Array:
    """Return the registers (register, lane) of D; `before` are those of C."""
    given = np.concatenate([a, b, before, indices(one)[None] if one.shape.sparse else before[:1]])
    memory, out = AddressSpace(), np.zeros_like(before)
    ready = single.program(name, words_of(name, one), one.lanes)
    single.run(ready, memory, [*single.mapped(memory, given), *single.mapped(memory, out)], one.lanes)
    return out


def difference(name: str, one: Form, *, exact: bool = True) -> str:
    """Run one form; return how it differs from the product of matrices, or an empty text.

    If not `exact`, any finite numbers are multiplied, and a sum may differ by 2**-20 of its parts' sizes.
    """
    shape, fnuz = one.shape, name == "gfx942"
    if (shape.m, shape.n, shape.k) != one.sizes:
        return f"{one.label}: {(shape.m, shape.n, shape.k)}, the pseudo-code has {one.sizes}"
    rng = np.random.default_rng(7)
    drawn = patterns if exact else any_patterns
    (a, a_bits), (b, b_bits) = (
        drawn(rng, type_, (shape.blocks, shape.m, shape.k), fnuz=fnuz)
        for type_ in (shape.a_type, shape.b_type)
    )
    parts = 1 if shape.d_type[-2:] == "32" else 2
    c = sum(
        drawn(rng, shape.d_type, (shape.d_registers, one.lanes), fnuz=fnuz)[1] << 16 * n for n in range(parts)
    )
    before = np.asarray(c).astype("u4")
    out = computed(name, one, spread(one, a_bits, "a"), spread(one, b_bits, "b"), before)
    if one.more.get("blgp"):
        bits = gathered(one, moved(one, spread(one, b_bits, "b")), "b")
        table = dict(zip(b_bits.ravel().tolist(), b.ravel().tolist(), strict=True))
        b = np.vectorize(table.__getitem__)(bits)
    if shape.sparse:
        keep = np.array([[k % 4 in pair(i, k) for k in range(shape.k)] for i in range(shape.m)])
        a = a * keep
    if "cbsz" in one.more:
        group = 1 << one.more["cbsz"]
        a = a[[n // group * group + one.more["abid"] for n in range(shape.blocks)]]
    added = number(gathered(one, before, "d"), shape.d_type) if one.constant is None else 1
    total: Array = a @ b.transpose(0, 2, 1) + added
    got = number(gathered(one, out, "d"), shape.d_type)
    if shape.d_type == "i32":
        total = total.astype("i8") & 0xFFFF_FFFF
    rounding = {"f16": 2.0**-11, "bf16": 2.0**-8}.get(shape.d_type, 0.0) * np.abs(total)
    size = np.abs(a) @ np.abs(b).transpose(0, 2, 1) + np.abs(added)
    bound = 0 if exact or shape.d_type == "i32" else 2.0**-20 * size + rounding
    wrong = np.argwhere(np.abs(got - total) > bound)
    if not len(wrong):
        other = 0xFFFF if one.more.get("op_sel") == 4 else 0xFFFF_0000
        kept = shape.packed or parts == 1 or not np.any((out ^ before) & np.uint32(other))
        return "" if kept else f"{one.label}: the other halves of registers change"
    at = tuple(wrong[0])
    return f"{one.label}: {len(wrong)} elements, first {at}: {got[at]}, wanted {total[at]}"
