"""Accesses of every width to LDS, atomic operations, and scalar loads."""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.shared.memory import AddressSpace
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir, single
from tests.emulator.amd_isa.conftest import Bench

QUICK = LaunchOptions(tier="quick", threads=1)
TARGETS = ["gfx1100", "gfx1201", "gfx942"]


def _exchange(type_: str) -> str:
    return (
        ir.HEAD
        + f"""@lds = internal addrspace(3) global [320 x {type_}] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %pa = getelementptr {type_}, ptr addrspace(1) %a, i32 %i
  %x = load {type_}, ptr addrspace(1) %pa
  %l = getelementptr [320 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %thread
  store {type_} %x, ptr addrspace(3) %l
{ir.SYNC}
  %j = xor i32 %thread, 133
  %m = getelementptr [320 x {type_}], ptr addrspace(3) @lds, i32 0, i32 %j
  %y = load {type_}, ptr addrspace(3) %m
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %y, ptr addrspace(1) %po
  ret void
}}
"""
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("processor", TARGETS)
def test_every_width_goes_through_lds(processor: str) -> None:
    bench = Bench(processor)
    rng = np.random.default_rng(6)
    for type_, dtype, count in (
        ("i8", "u1", 1),
        ("i16", "u2", 1),
        ("i64", "u8", 1),
        ("<3 x i32>", "u4", 4),
        ("<4 x i32>", "u4", 4),
    ):
        values = bench.new(rng.integers(0, 255, 256 * count), dtype)
        out = bench.new(np.zeros(256 * count), dtype)
        done = bench.run(_exchange(type_), 1, 256, out, values, options=QUICK)
        assert done.fault is None, (type_, done.fault)
        kept = 3 if type_.startswith("<3") else count
        moved = values.reshape(256, count)[np.arange(256) ^ 133]
        assert np.array_equal(out.reshape(256, count)[:, :kept], moved[:, :kept]), type_


def _atomic(operation: str, type_: str) -> str:
    """Return a kernel that applies an operation to its element by way of a flat address and keeps the old value."""
    return (
        ir.HEAD
        + f"""define amdgpu_kernel void @k(ptr %a, ptr addrspace(1) %v, ptr addrspace(1) %o) {{
{ir.INDEX}
  %pv = getelementptr {type_}, ptr addrspace(1) %v, i32 %i
  %x = load {type_}, ptr addrspace(1) %pv
  %p = getelementptr {type_}, ptr %a, i32 %i
  {operation}
  %po = getelementptr {type_}, ptr addrspace(1) %o, i32 %i
  store {type_} %w, ptr addrspace(1) %po
  ret void
}}
"""
    )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize("bits", [32, 64])
def test_atomic_operations_give_old_values_back(processor: str, bits: int) -> None:
    bench, type_, dtype = Bench(processor), f"i{bits}", f"u{bits // 8}"
    rng = np.random.default_rng(bits)
    for name in ("sub", "min", "udec_wrap", "cmpxchg"):
        old = rng.integers(0, 2**bits - 1, 64, dtype="u8").astype(dtype)
        given = rng.integers(0, 2**bits - 1, 64, dtype="u8").astype(dtype)
        given[::3] = old[::3]
        old[::7] = 0
        cells, values, out = bench.new(old, dtype), bench.new(given, dtype), bench.new(np.zeros(64), dtype)
        if name == "cmpxchg":
            operation = f'%t = cmpxchg ptr %p, {type_} %x, {type_} 7 syncscope("agent") monotonic monotonic\n  %w = extractvalue {{ {type_}, i1 }} %t, 0'
        else:
            operation = f'%w = atomicrmw {name} ptr %p, {type_} %x syncscope("agent") monotonic'
        done = bench.run(_atomic(operation, type_), 1, 64, cells, values, out, options=QUICK)
        assert done.fault is None, done.fault
        signed = f"i{bits // 8}"
        wanted = {
            "sub": old - given,
            "min": np.minimum(old.view(signed), given.view(signed)).view(dtype),
            "udec_wrap": np.where((old == 0) | (old > given), given, old - old.dtype.type(1)),
            "cmpxchg": np.where(old == given, old.dtype.type(7), old),
        }[name]
        assert np.array_equal(cells, wanted), name
        assert np.array_equal(out, old), name


def _unaligned(space: str, type_: str) -> str:
    """Return a kernel that moves one element a lane between odd addresses, by global memory, LDS or scratch."""
    step = {"i16": 3, "i32": 5, "i64": 9, "<4 x i32>": 17}[type_]
    memory = {
        "global": "  %l = getelementptr i8, ptr addrspace(1) %o, i32 %at\n",
        "lds": "  %l = getelementptr [4480 x i8], ptr addrspace(3) @lds, i32 0, i32 %at\n",
        "scratch": "  %room = alloca [64 x i8], addrspace(5)\n"
        "  %own = and i32 %i, 3\n  %l = getelementptr i8, ptr addrspace(5) %room, i32 %own\n",
    }[space]
    number = {"global": 1, "lds": 3, "scratch": 5}[space]
    back = f"""  %y = load volatile {type_}, ptr addrspace({number}) %l, align 1
  %po = getelementptr i8, ptr addrspace(1) %o, i32 %at
  store {type_} %y, ptr addrspace(1) %po, align 1
"""
    return (
        ir.HEAD
        + f"""@lds = internal addrspace(3) global [4480 x i8] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %from = mul i32 %i, {step}
  %at = add i32 %from, 1
  %pa = getelementptr i8, ptr addrspace(1) %a, i32 %at
  %x = load {type_}, ptr addrspace(1) %pa, align 1
{memory}  store volatile {type_} %x, ptr addrspace({number}) %l, align 1
{back if space != "global" else ""}  ret void
}}
"""
    )


@pytest.mark.sampled(11)
@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize("space", ["global", "lds", "scratch"])
def test_accesses_may_have_any_alignment(processor: str, space: str) -> None:
    bench = Bench(processor)
    rng = np.random.default_rng(3)
    for type_, size in (("i16", 2), ("i32", 4), ("i64", 8), ("<4 x i32>", 16)):
        step = size + 1
        values = bench.new(rng.integers(0, 255, 256 * step + 1), "u1")
        out = bench.new(np.zeros(256 * step + 1), "u1")
        done = bench.run(_unaligned(space, type_), 1, 256, out, values, options=QUICK)
        assert done.fault is None, (type_, done.fault)
        wanted = values.copy()
        wanted[0::step] = 0
        assert np.array_equal(out, wanted), type_


@pytest.mark.parametrize("processor", TARGETS)
def test_one_byte_or_half_for_all_lanes_is_extended(processor: str) -> None:
    """gfx12 loads them with the scalar unit, which the others have for dwords only."""
    for type_, dtype in (("i8", "i1"), ("i16", "i2")):
        bench = Bench(processor)
        values = bench.new([5, -3, 100], dtype)
        for extend, wanted in (("sext", -3), ("zext", (1 << 8 * values.itemsize) - 3)):
            out = bench.new(np.zeros(64), "i4")
            kernel = (
                ir.HEAD
                + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %a) {{
{ir.INDEX}
  %p = getelementptr {type_}, ptr addrspace(4) %a, i32 1
  %x = load {type_}, ptr addrspace(4) %p
  %w = {extend} {type_} %x to i32
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %w, ptr addrspace(1) %po
  ret void
}}
"""
            )
            done = bench.run(kernel, 1, 64, out, values, options=QUICK)
            assert done.fault is None, done.fault
            assert out.tolist() == [wanted] * 64


STRIDED = (
    ir.HEAD
    + "define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a, i32 %n) {\n"
    + ir.INDEX
    + """  %inside = icmp ult i32 %i, %n
  br i1 %inside, label %work, label %end
work:
  %far = mul i32 %i, 37
  %from = and i32 %far, 255
  %pa = getelementptr TYPE, ptr addrspace(1) %a, i32 %from
  %x = load TYPE, ptr addrspace(1) %pa
  %back = sub i32 255, %from
  %po = getelementptr TYPE, ptr addrspace(1) %o, i32 %back
  store TYPE %x, ptr addrspace(1) %po
  br label %end
end:
  ret void
}
"""
)


@pytest.mark.parametrize("processor", ["gfx1100", "gfx942"])
@pytest.mark.parametrize(("type_", "dtype"), [("i8", "u1"), ("i16", "u2"), ("i32", "u4"), ("i64", "u8")])
def test_lanes_far_from_each_other_load_and_store(processor: str, type_: str, dtype: str) -> None:
    """Waves of which all lanes take part, and one of which only some do."""
    bench = Bench(processor)
    rng = np.random.default_rng(3)
    values = bench.new(rng.integers(1, 255, 256), dtype)
    program, kernel = bench.kernel(STRIDED.replace("TYPE", type_))
    places = np.arange(256) * 37 % 256
    for count in (256, 230, 3):
        out = bench.new(np.zeros(256), dtype)
        done = bench.launch(program, kernel, 1, 256, out, values, count, options=QUICK)
        assert done.fault is None, done.fault
        wanted = np.zeros(256, dtype)
        wanted[255 - places[:count]] = values[places[:count]]
        assert np.array_equal(out, wanted), count


COUNTED = (
    ir.HEAD
    + "define amdgpu_kernel void @k(ptr addrspace(1) %o, i64 %n) {\nentry:\n"
    + ir.INDEX
    + """  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %more ]
  %sum = phi i32 [ %i, %entry ], [ %added, %more ]
  %again = icmp slt i64 %k, %n
  br i1 %again, label %more, label %done
more:
  %next = add i64 %k, 1
  %added = add i32 %sum, 3
  br label %loop
done:
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %sum, ptr addrspace(1) %po
  ret void
}
"""
)


@pytest.mark.parametrize("processor", TARGETS)
def test_a_loop_over_a_64_bit_number_that_all_lanes_share(processor: str) -> None:
    """The comparison is a vector instruction of scalar operands."""
    bench = Bench(processor)
    out = bench.new(np.zeros(256), "u4")
    program, kernel = bench.kernel(COUNTED)
    for low, high, rounds in ((5, 0, 5), (0, 0, 0), (-3, -1, 0)):
        done = bench.launch(program, kernel, 1, 256, out, low, high, options=QUICK)
        assert done.fault is None, done.fault
        assert np.array_equal(out, np.arange(256) + 3 * rounds)


LOADS = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %a) {
  %x = load <COUNT x i32>, ptr addrspace(4) %a, align 4
  store <COUNT x i32> %x, ptr addrspace(1) %o, align 4
  ret void
}
"""
BUFFER = """target triple = "amdgcn-amd-amdhsa"
declare <4 x i32> @llvm.amdgcn.s.buffer.load.v4i32(<4 x i32>, i32, i32)
define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(4) %descriptor, i32 %at) {
  %d = load <4 x i32>, ptr addrspace(4) %descriptor, align 16
  %x = call <4 x i32> @llvm.amdgcn.s.buffer.load.v4i32(<4 x i32> %d, i32 %at, i32 0)
  store <4 x i32> %x, ptr addrspace(1) %o, align 16
  ret void
}
"""


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_dwords_go_to_registers_in_order(processor: str, count: int) -> None:
    bench = Bench(processor)
    a = bench.new(np.arange(1, count + 1), "u4")
    out = bench.new(np.zeros(count), "u4")
    done = bench.run(LOADS.replace("COUNT", str(count)), 2, 64, out, a, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == a.tolist()


def test_a_load_that_reaches_beyond_an_allocation_is_reported() -> None:
    bench = Bench()
    a, out = bench.new(np.zeros(6), "u4"), bench.new(np.zeros(8), "u4")
    done = bench.run(LOADS.replace("COUNT", "8"), 1, 32, out, a, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert done.fault.address == a.ctypes.data + 24


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize(("stride", "records", "left"), [(0, 40, 2), (0, 64, 4), (8, 5, 2)])
def test_a_buffer_reads_zero_behind_its_end(processor: str, stride: int, records: int, left: int) -> None:
    """`records` are bytes, or structures of `stride` bytes; dwords 8 to 11 are loaded."""
    bench = Bench(processor)
    data = bench.new(np.arange(100, 116), "u4")
    low, high = data.ctypes.data & 0xFFFF_FFFF, data.ctypes.data >> 32
    descriptor = bench.new(np.array([low, high | stride << 16, records, 0]), "u4")
    out = bench.new(np.zeros(4), "u4")
    done = bench.run(BUFFER, 1, 32, out, descriptor, 32, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == [*range(108, 108 + left), *[0] * (4 - left)]


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
def test_a_constant_and_a_register_below_the_base_are_reported(name: str) -> None:
    """AMD's documents call it undefined; the register is s2."""
    more = {"imm": 1, "soffset_en": 1} if name == "gfx942" else {}
    words = single.encode(name, "s_load_b32", "SMEM", sdata=4, sbase=0, offset=-8, soffset=2, **more)
    ready, memory, data = single.program(name, words), AddressSpace(), np.zeros(4, "u4")
    low, high = single.mapped(memory, data)
    single.run(ready, memory, [low, high, 8], 1)
    with pytest.raises(AssertionError, match="access outside every allocation"):
        single.run(ready, memory, [low + 8, high, 4], 1)
