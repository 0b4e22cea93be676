"""Matrix operations beside the dense ones of one block: register maps as AMD's calculator has them, products as matmul."""

# ruff: noqa: E501 - rows of cases read best on one line

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest

from emulator.amd.isa import accuracy
from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.matrix_shapes import MatrixShape, shape_of
from emulator.amd.isa.translate import read_kernel
from tests.emulator.amd_isa.conftest import Bench
from tests.emulator.amd_isa.test_matrix import QUICK, _bits, _meant, _patterns
from tests.facts.amd_matrix_maps import MAPS

Array = np.ndarray
LANES = {"gfx942": 64, "gfx1201": 32}
FAMILY = {"gfx942": "gfx9", "gfx1201": "gfx12"}
RNG_SEED = 3


@pytest.mark.parametrize("row", MAPS, ids=lambda row: " ".join(map(str, row)))
def test_elements_lie_where_the_calculator_says(row: tuple[str, int, str]) -> None:
    family, lanes, name = row
    shape = shape_of(name, family, lanes)
    assert shape is not None
    digest = hashlib.blake2b(digest_size=8)
    for block in range(shape.blocks):
        on = shape.m * block
        for i in range(shape.m):
            for k in range(shape.k):
                register, part, lane = shape.a_place(i, k)
                digest.update(bytes((register, part, lane + on)))
                b_register, b_part, b_lane = (shape.b_place or shape.a_place)(i, k)
                digest.update(bytes((b_register, b_part, b_lane + on)))
                if shape.sparse:
                    digest.update(bytes((2 * (register * (32 // _bits(shape.a_type)) + part), lane)))
            for j in range(shape.n):
                register, part, lane = shape.d_place(i, j)
                registers_on, lanes_on = shape.d_block(block)
                digest.update(bytes((register + registers_on, part, lane + lanes_on)))
    assert digest.hexdigest() == MAPS[row]


@dataclass(frozen=True)
class Case:
    """One operation as LLVM's intrinsic, with the types of its arguments and those behind them."""

    name: str
    intrinsic: str
    types: tuple[str, str, str]
    """A, B, and C with D."""
    tail: str = ""
    processor: str = "gfx942"
    features: str = ""
    index: str = ""
    """The type of the index of a sparse A."""
    signs: bool = False
    set_: int = 0
    """Which set of indices is used, of those that a register holds."""
    cbsz: int = 0
    abid: int = 0
    blgp: int = 0

    @property
    def lanes(self) -> int:
        return 64 if self.features else LANES[self.processor]

    def text(self) -> str:
        a, b, c = self.types
        parts = [f"{a} %x", f"{b} %y", f"{c} %z", *([f"{self.index} %n"] if self.index else [])]
        if self.signs:
            parts = ["i1 true", parts[0], "i1 false", *parts[1:], "i1 false"]
        arguments = ", ".join(parts) + self.tail
        types = ", ".join(part.rsplit(" ", 1)[0] for part in arguments.split(", "))
        index = "  %pn = getelementptr i32, ptr addrspace(1) %n_, i32 %i\n  %all = load i32, ptr addrspace(1) %pn\n"
        if self.index == "i16":
            index += f"  %down = lshr i32 %all, {16 * self.set_}\n  %n = trunc i32 %down to i16\n"
        elif self.index:
            index += "  %n = bitcast i32 %all to i32\n"
        return f"""target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare {c} @llvm.amdgcn.{self.intrinsic}({types})
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %n_) {{
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %pa = getelementptr {a}, ptr addrspace(1) %a, i32 %i
  %pb = getelementptr {b}, ptr addrspace(1) %b, i32 %i
  %po = getelementptr {c}, ptr addrspace(1) %o, i32 %i
  %x = load {a}, ptr addrspace(1) %pa, align 4
  %y = load {b}, ptr addrspace(1) %pb, align 4
  %z = load {c}, ptr addrspace(1) %po, align 4
{index}  %r = call {c} @llvm.amdgcn.{self.intrinsic}({arguments})
  store {c} %r, ptr addrspace(1) %po, align 4
  ret void
}}
"""


def mfma(name: str, intrinsic: str, a: str, c: str, **more: int) -> Case:
    chosen = {"cbsz": 0, "abid": 0, "blgp": 0} | more
    tail = "".join(f", i32 {chosen[one]}" for one in ("cbsz", "abid", "blgp"))
    return Case(f"v_mfma_{name}", f"mfma.{intrinsic}", (a, a, c), tail, **chosen)  # type: ignore[arg-type]  # numbers


def smfmac(name: str, intrinsic: str, types: tuple[str, str, str], set_: int) -> Case:
    return Case(
        f"v_smfmac_{name}", f"smfmac.{intrinsic}", types, f", i32 0, i32 {set_}", index="i32", set_=set_
    )


def swmmac(name: str, intrinsic: str, types: tuple[str, str, str], set_: int = 0, **more: object) -> Case:
    return Case(
        f"v_swmmac_{name}", f"swmmac.{intrinsic}", types, processor="gfx1201", index="i16", set_=set_, **more  # type: ignore[arg-type]
    )  # fmt: skip


H, S, F, W = "<4 x half>", "<4 x i16>", "<4 x float>", "<4 x i32>"
CASES = [
    mfma("f32_4x4x4_16b_f16", "f32.4x4x4f16", H, F),
    mfma("f32_4x4x4_16b_f16", "f32.4x4x4f16", H, F, cbsz=2, abid=3, blgp=6),
    mfma("f32_4x4x4_16b_bf16", "f32.4x4x4bf16.1k", S, F, cbsz=4, abid=9),
    mfma("f32_4x4x1_16b_f32", "f32.4x4x1f32", "float", F, blgp=1),
    mfma("i32_4x4x4_16b_i8", "i32.4x4x4i8", "i32", W, blgp=2),
    mfma("f32_16x16x4_4b_f16", "f32.16x16x4f16", H, "<16 x float>", cbsz=1, abid=1, blgp=3),
    mfma("f32_16x16x1_4b_f32", "f32.16x16x1f32", "float", "<16 x float>"),
    mfma("f32_32x32x4_2b_bf16", "f32.32x32x4bf16.1k", S, "<32 x float>", blgp=7),
    mfma("i32_32x32x4_2b_i8", "i32.32x32x4i8", "i32", "<32 x i32>"),
    mfma("f32_16x16x8_xf32", "f32.16x16x8.xf32", "<2 x float>", F),
    mfma("f32_32x32x4_xf32", "f32.32x32x4.xf32", "<2 x float>", "<16 x float>"),
    smfmac("f32_16x16x32_f16", "f32.16x16x32.f16", (H, "<8 x half>", F), 3),
    smfmac("f32_32x32x16_bf16", "f32.32x32x16.bf16", (S, "<8 x i16>", "<16 x float>"), 1),
    smfmac("i32_16x16x64_i8", "i32.16x16x64.i8", ("<2 x i32>", W, W), 1),
    smfmac("f32_32x32x32_fp8_bf8", "f32.32x32x32.fp8.bf8", ("<2 x i32>", W, "<16 x float>"), 0),
    swmmac("f32_16x16x32_f16", "f32.16x16x32.f16.v8f32.v8f16.v16f16.i16", ("<8 x half>", "<16 x half>", "<8 x float>")),
    swmmac("bf16_16x16x32_bf16", "bf16.16x16x32.bf16.v8i16.v8i16.v16i16.i16", ("<8 x i16>", "<16 x i16>", "<8 x i16>")),
    swmmac("f32_16x16x32_bf8_fp8", "f32.16x16x32.bf8.fp8.v8f32.v2i32.v4i32.i16", ("<2 x i32>", W, "<8 x float>"), 1),
    swmmac("i32_16x16x32_iu8", "i32.16x16x32.iu8.v8i32.v2i32.v4i32.i16", ("<2 x i32>", W, "<8 x i32>"), signs=True),
    swmmac("f32_16x16x32_f16", "f32.16x16x32.f16.v4f32.v4f16.v8f16.i16", (H, "<8 x half>", F), features="+wavefrontsize64"),
]  # fmt: skip


def element_type(type_: str) -> str:
    return "f32" if type_ == "xf32" else type_


def registers_of(shape: MatrixShape, values: Array, side: str, lanes: int, chosen: Array) -> Array:
    """Return the registers (lane, register) of A or B; `values` are patterns [block][i][k]."""
    count = shape.a_registers if side == "a" else shape.b_registers or shape.a_registers
    type_ = shape.a_type if side == "a" else shape.b_type
    bits = _bits(element_type(type_))
    out = np.zeros((lanes, count), "u4")
    for block, i, k in np.ndindex(*values.shape):
        register, part, lane = (shape.a_place if side == "a" else shape.b_place or shape.a_place)(i, k)
        if side == "a" and shape.sparse:
            which = np.flatnonzero(chosen[i, k // 4] == k % 4)
            if not which.size:
                continue
            part += int(which[0])
        out[lane + block * shape.m, register] |= np.uint32(int(values[block, i, k]) << bits * part)
    return out


def indices_of(shape: MatrixShape, lanes: int, chosen: Array, case: Case) -> Array:
    """Return the register of indices: those of the set that is used, and others elsewhere."""
    parts = 32 // _bits(element_type(shape.a_type))
    bits = 2 * shape.a_registers * parts
    out = np.random.default_rng(9).integers(0, 2**32, lanes, dtype="u4")
    at = bits * case.set_ if case.index == "i32" else max(16, bits) * case.set_
    out &= np.uint32(0xFFFF_FFFF ^ ((1 << bits) - 1) << at)
    for i, four in np.ndindex(*chosen.shape[:2]):
        register, part, lane = shape.a_place(i, 4 * four)
        slot = register * parts + part
        for which in (0, 1):
            out[lane] |= np.uint32(int(chosen[i, four, which]) << at + 2 * (slot + which))
    return out


def results_of(shape: MatrixShape, registers: Array) -> Array:
    bits = _bits(shape.d_type)
    found = np.zeros((shape.blocks, shape.m, shape.n), "u4")
    for block, i, j in np.ndindex(*found.shape):
        register, part, lane = shape.d_place(i, j)
        on, lanes_on = shape.d_block(block)
        found[block, i, j] = registers[lane + lanes_on, register + on] >> bits * part & (1 << bits) - 1
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.lanes}-{case.cbsz}{case.blgp}")
def test_products_agree_with_matmul(case: Case) -> None:
    fnuz, lanes = case.processor == "gfx942", case.lanes
    shape = shape_of(case.name, FAMILY[case.processor], lanes, signs=(True, not case.signs))
    assert shape is not None
    rng = np.random.default_rng(RNG_SEED)
    kinds = element_type(shape.a_type), element_type(shape.b_type)
    raw = [_patterns(rng, kind, (shape.blocks, shape.m, shape.k), fnuz=fnuz) for kind in kinds]
    chosen = np.sort(rng.permuted(np.broadcast_to(np.arange(4), (shape.m, shape.k // 4, 4)), axis=2)[..., :2], axis=2)
    bench = Bench(case.processor, case.features)
    sides = [registers_of(shape, r, side, lanes, chosen) for r, side in zip(raw, "ab", strict=True)]
    if case.blgp:
        meant = _meant_of_b(shape, sides[1], case.blgp, kinds[1], fnuz=fnuz)
    else:
        meant = _meant(raw[1], kinds[1], fnuz=fnuz)
    a = _meant(raw[0], kinds[0], fnuz=fnuz)
    if shape.a_type == "xf32":
        a, meant = (_meant(r.astype("u4") & 0xFFFF_E000, "f32") for r in raw)
    if shape.sparse:
        keep = (chosen[..., None] == np.arange(4)).any(axis=2).reshape(shape.m, shape.k)
        a = a * keep
    group = 1 << case.cbsz
    a = a[[block // group * group + case.abid if case.cbsz else block for block in range(shape.blocks)]]
    before = _patterns(rng, shape.d_type, (lanes, shape.d_registers), fnuz=fnuz).astype("u4")
    if shape.packed:
        before |= _patterns(rng, shape.d_type, before.shape, fnuz=fnuz).astype("u4") << 16
    added = _meant(results_of(shape, before), shape.d_type)
    out, index = bench.new(before, "u4"), bench.new(indices_of(shape, lanes, chosen, case), "u4")
    done = bench.run(case.text(), 1, lanes, out, *(bench.new(side, "u4") for side in sides), index, options=QUICK)
    assert done.fault is None, done.fault
    got = _meant(results_of(shape, out), shape.d_type)
    b = meant.transpose(0, 2, 1)
    wanted, size = a @ b + added, np.abs(a) @ np.abs(b) + np.abs(added)
    half_ulp = {"bf16": 2.0**-8}.get(shape.d_type, 0.0) * np.abs(wanted)
    assert np.all(np.abs(got - wanted) <= (0 if shape.d_type == "i32" else size * 2.0**-20 + half_ulp))


def _meant_of_b(shape: MatrixShape, registers: Array, blgp: int, kind: str, *, fnuz: bool) -> Array:
    """Return B as it is after its lanes were moved, from the registers: BLGP as CDNA3's manual lists it."""
    lane = np.arange(64)
    source = {1: lane % 32, 2: 32 + lane % 32, 3: (lane + 16) % 64}.get(blgp, 16 * (blgp - 4) + lane % 16)
    moved, bits = registers[source], _bits(kind)
    out = np.zeros((shape.blocks, shape.m, shape.k), "u4")
    for block, j, k in np.ndindex(*out.shape):
        register, part, at = shape.a_place(j, k)
        out[block, j, k] = moved[at + block * shape.m, register] >> bits * part & ((1 << bits) - 1)
    return _meant(out, kind, fnuz=fnuz)


def test_rows_of_b_that_no_index_names_take_no_part() -> None:
    """Infinities there would make NaNs of 0 * infinity."""
    case = next(one for one in CASES if one.name == "v_smfmac_f32_16x16x32_f16")
    shape = shape_of(case.name, "gfx9", 64)
    assert shape is not None
    chosen = np.broadcast_to(np.array([1, 2]), (16, 8, 2))
    one, infinity = (int(np.float16(v).view("u2")) for v in (1.0, np.inf))
    a, b = (np.full((1, 16, 32), one) for _ in range(2))
    b[:, :, 0::4] = b[:, :, 3::4] = infinity
    bench = Bench("gfx942")
    out = bench.new(np.zeros((64, 4)), "u4")
    sides = [bench.new(registers_of(shape, v, side, 64, chosen), "u4") for v, side in ((a, "a"), (b, "b"))]
    index = bench.new(indices_of(shape, 64, chosen, case), "u4")
    assert bench.run(case.text(), 1, 64, out, *sides, index, options=QUICK).fault is None
    assert np.array_equal(_meant(results_of(shape, out), "f32"), np.full((1, 16, 16), 16.0))


def test_a_set_of_indices_that_a_register_does_not_hold_is_refused() -> None:
    case = next(one for one in CASES if one.name == "v_smfmac_i32_16x16x64_i8")
    with pytest.raises(IsaError, match="2 sets"):
        Bench("gfx942").kernel(case.text().replace("i32 0, i32 1)", "i32 0, i32 2)"))


def test_sums_of_sparse_products_are_counted_as_inexact() -> None:
    case = next(one for one in CASES if one.name == "v_smfmac_f32_16x16x32_f16")
    _, kernel = Bench("gfx942").kernel(case.text())
    found = accuracy.counts(read_kernel(kernel.code, kernel.target, lanes=64, kernel="k"), "gfx9")
    assert "v_smfmac_f32_16x16x32_f16" not in found["exact"]
