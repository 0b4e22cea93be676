"""The counters of AMD's machine code against numbers that are known on paper."""

# ruff: noqa: E501, PLR0917 - lines of IR and tables read best on one line; cases have that many parts

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emulator.amd.isa import counted, programs
from emulator.amd.profiles import GPUS
from emulator.shared.counts import Resources, counters
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions, LaunchWork
from hcq.config import config
from tests.emulator.amd_isa.conftest import compiled

if TYPE_CHECKING:
    from emulator.simt.engine import TranslatedProgram
    from hcq.counters import KernelCounters

HEAD = """target triple = "amdgcn-amd-amdhsa"
declare i32 @llvm.amdgcn.workitem.id.x()
declare float @llvm.fma.f32(float, float, float)
declare void @llvm.amdgcn.s.barrier()
declare float @llvm.amdgcn.rcp.f32(float)
@lds = internal addrspace(3) global [4096 x i32] poison, align 16
define amdgpu_kernel void @k(ptr addrspace(1) %a, i32 %s, i32 %o) "amdgpu-flat-work-group-size"="32,256" {
entry:
  %t = call i32 @llvm.amdgcn.workitem.id.x()
"""
GFX1100, GFX1201, GFX942 = ("gfx1100", 32), ("gfx1201", 32), ("gfx942", 64)


@functools.cache
def kernel(body: str, processor: str) -> tuple[TranslatedProgram, programs.KernelCode]:
    """Return a counted kernel whose body reads %a (memory), %t (thread) and %s, %o (numbers)."""
    found = programs.kernels(compiled(HEAD + body + "\n  ret void\n}\n", processor), processor)["k"]
    return programs.program(found, Settings(cache=config().cache), counts=True), found


def count(body: str, target: tuple[str, int], first: int = 0, second: int = 0, *, waves: int = 1) -> KernelCounters:
    """Run a kernel of some waves on 16 KiB of zeros, aligned to 256 bytes; return its counts."""
    processor, lanes = target
    program, found = kernel(body, processor)
    memory, data = AddressSpace(), np.zeros(16384 + 512, "u1")
    memory.map(data.ctypes.data, data.nbytes)
    arguments = np.zeros(512, "u1")
    raw = struct.pack("<QII", data.ctypes.data + -data.ctypes.data % 256, first, second)
    arguments[: len(raw)] = np.frombuffer(raw, "u1")
    memory.map(arguments.ctypes.data, arguments.nbytes)
    grid, block = (1, 1, 1), (waves * lanes, 1, 1)
    done = programs.run(program, found, grid, block, arguments.ctypes.data, memory, LaunchOptions(tier="quick"))
    assert done.fault is None, done.fault
    slots = program.translation.counted
    assert slots is not None
    assert done.counts is not None
    assert found.lanes == lanes
    work = LaunchWork(grid=grid, block=block, params=b"", shared_bytes=16384)
    gpu = GPUS[processor]
    what = Resources(
        kernel="k", arch=processor, limits=gpu.limits, boards=gpu.boards, lanes=lanes, registers=32, shared_bytes=16384
    )
    return counters(slots, done.counts, work, what)


def place(type_: str, index: str = "%i") -> str:
    return f"  %p = getelementptr {type_}, ptr addrspace(1) %a, i32 {index}\n"


INDEX = "  %m = mul i32 %t, %s\n  %i = add i32 %m, %o\n"
STRIDED = INDEX + place("i32") + "  %v = load volatile i32, ptr addrspace(1) %p\n  store volatile i32 %v, ptr addrspace(1) %p\n"
WIDE = INDEX + place("<4 x i32>") + "  %v = load volatile <4 x i32>, ptr addrspace(1) %p, align 16\n"
NARROW = INDEX + place("i8") + "  %v = load volatile i8, ptr addrspace(1) %p\n"
TILE = (
    "  %r = lshr i32 %t, 4\n  %c = and i32 %t, 15\n  %m = mul i32 %r, %s\n  %i = add i32 %m, %c\n"
    + place("i32")
    + "  %v = load volatile i32, ptr addrspace(1) %p\n"
)
"""Rows of 16 words at a pitch."""
REVERSED = "  %i = xor i32 %t, %s\n" + place("i64") + "  %v = load volatile i64, ptr addrspace(1) %p\n"


@pytest.mark.parametrize(
    ("target", "body", "first", "second", "lines", "size"),
    [
        # coalesced
        (GFX1100, STRIDED, 1, 0, 1, 4),
        (GFX1100, STRIDED, 1, 3, 2, 4),  # begins in the middle of a line
        (GFX1100, WIDE, 1, 0, 4, 16),
        (GFX1100, NARROW, 1, 0, 1, 1),
        (GFX1100, REVERSED, 31, 0, 2, 8),
        (GFX1201, STRIDED, 1, 3, 2, 4),
        (GFX942, STRIDED, 1, 0, 2, 4),
        (GFX942, STRIDED, 1, 1, 3, 4),
        # strided
        (GFX1100, STRIDED, 2, 0, 2, 4),
        (GFX1100, STRIDED, 32, 0, 32, 4),
        (GFX1100, STRIDED, 0, 5, 1, 4),  # all lanes at one address
        (GFX1100, WIDE, 3, 0, 12, 16),
        (GFX1100, NARROW, 64, 0, 16, 1),
        (GFX942, STRIDED, 8, 0, 16, 4),
        (GFX942, STRIDED, 64, 0, 64, 4),
        (GFX1100, TILE, 64, 0, 2, 4),
        (GFX942, TILE, 64, 0, 4, 4),
        (GFX942, TILE, 5, 0, 1, 4),  # the rows overlap
    ],
)  # fmt: skip
def test_lines_of_a_request(target: tuple[str, int], body: str, first: int, second: int, lines: int, size: int):
    found = count(body, target, first, second)
    load, lanes = found.global_["load"], target[1]
    assert (load.requests, load.lanes, load.bytes, load.units) == (1, lanes, lanes * size, lines)
    stores = body is STRIDED
    assert found.global_["store"].units == stores * lines
    assert found.moved == 128 * lines * (1 + stores)
    assert (found.read, found.written) == (128 * lines, 128 * lines * stores)


def shared(type_: str, value: str) -> str:
    return INDEX + f"  %l = getelementptr {type_}, ptr addrspace(3) @lds, i32 %i\n  store volatile {type_} {value}, ptr addrspace(3) %l, align 16\n"


SHARED = shared("i32", "%t").replace("align 16", "align 4")
SHARED2 = shared("<2 x i32>", "splat (i32 1)").replace("align 16", "align 8")
SHARED4 = shared("<4 x i32>", "splat (i32 1)")
SHARED_BYTES = shared("i8", "1").replace("align 16", "align 1")


@pytest.mark.parametrize(
    ("target", "body", "stride", "cycles", "least"),
    [
        (GFX1100, SHARED, 1, 1, 1),
        (GFX1100, SHARED, 2, 2, 1),
        (GFX1100, SHARED, 32, 32, 1),
        (GFX1100, SHARED, 33, 1, 1),
        (GFX1100, SHARED, 0, 1, 1),
        (GFX1100, SHARED2, 1, 2, 2),
        (GFX1100, SHARED2, 4, 8, 2),
        (GFX1100, SHARED4, 1, 4, 4),
        (GFX1100, SHARED4, 8, 32, 4),
        (GFX1100, SHARED_BYTES, 1, 1, 1),
        (GFX1201, SHARED, 32, 32, 1),
        (GFX942, SHARED, 1, 2, 2),
        (GFX942, SHARED, 2, 4, 2),
        (GFX942, SHARED, 32, 64, 2),
        (GFX942, SHARED4, 1, 8, 8),
    ],
)
def test_cycles_of_an_access_to_lds(target: tuple[str, int], body: str, stride: int, cycles: int, least: int):
    store = count(body, target, stride).shared["store"]
    assert (store.requests, store.lanes, store.units, store.least) == (1, target[1], cycles, least)
    assert store.conflicts == cycles - least


DIVERGENT = """  %c = icmp ult i32 %t, %s
  br i1 %c, label %then, label %end
then:
  store volatile i32 %t, ptr addrspace(1) %a
  br label %end
end:"""
LOOP = """  %n = and i32 %t, %s
  br label %loop
loop:
  %k = phi i32 [ %n, %entry ], [ %less, %loop ]
  store volatile i32 %k, ptr addrspace(1) %a
  %less = sub i32 %k, 1
  %c = icmp sge i32 %less, 0
  br i1 %c, label %loop, label %end
end:"""


@pytest.mark.parametrize("target", [GFX1100, GFX1201, GFX942])
@pytest.mark.parametrize(("below", "divergent"), [(0, 0), (16, 1), (64, 0), (31, 1)])
def test_lanes_that_leave_for_a_branch(target: tuple[str, int], below: int, divergent: int):
    found = count(DIVERGENT, target, below)
    below = min(below, target[1])
    assert found.divergent == divergent
    assert found.global_["store"].requests == bool(below)
    assert found.global_["store"].lanes == found.lane_instructions["store"] == below


NESTED = """  %a0 = and i32 %t, 1
  %c = icmp eq i32 %a0, 0
  br i1 %c, label %end, label %odd
odd:
  store volatile i32 %t, ptr addrspace(1) %a
  %b0 = and i32 %t, 2
  %d = icmp eq i32 %b0, 0
  br i1 %d, label %end, label %three
three:
  store volatile i32 %t, ptr addrspace(1) %a
  br label %end
end:"""
CHAIN = """  %c = icmp ult i32 %t, 8
  br i1 %c, label %first, label %next
first:
  store volatile i32 %t, ptr addrspace(1) %a
  br label %next
next:
  %d = icmp ult i32 %t, 24
  br i1 %d, label %second, label %end
second:
  store volatile i32 %t, ptr addrspace(1) %a
  br label %end
end:"""


@pytest.mark.parametrize("target", [GFX1100, GFX1201, GFX942])
def test_nested_branches(target: tuple[str, int]):
    """Half of the lanes store, then half of these."""
    found = count(NESTED, target)
    assert found.divergent == 2
    assert (found.global_["store"].requests, found.global_["store"].lanes) == (2, target[1] * 3 // 4)


@pytest.mark.parametrize("target", [GFX1100, GFX1201, GFX942])
def test_branches_one_after_the_other(target: tuple[str, int]):
    found = count(CHAIN, target)
    assert found.divergent == 2
    assert (found.global_["store"].requests, found.global_["store"].lanes) == (2, 8 + 24)


@pytest.mark.parametrize("target", [GFX1100, GFX942])
@pytest.mark.parametrize(("mask", "rounds"), [(0, 1), (1, 2), (3, 4), (31, 32)])
def test_a_loop_that_lanes_leave_one_by_one(target: tuple[str, int], mask: int, rounds: int):
    found = count(LOOP, target, mask)
    assert found.divergent == rounds - 1
    store = found.global_["store"]
    assert (store.requests, store.lanes) == (rounds, target[1] * (rounds + 1) // 2)


ATOMIC = "  %i = and i32 %t, %s\n" + place("i32") + "  %v = atomicrmw add ptr addrspace(1) %p, i32 %t monotonic\n"
SHARED_ATOMIC = """  %m = and i32 %t, %s
  %i = mul i32 %m, %o
  %l = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %v = atomicrmw umax ptr addrspace(3) %l, i32 %t monotonic
"""


@pytest.mark.parametrize(
    ("target", "mask", "serial", "lines"),
    [(GFX1100, 31, 1, 1), (GFX1100, 7, 4, 1), (GFX1100, 0, 32, 1), (GFX1201, 7, 4, 1), (GFX942, 63, 1, 2), (GFX942, 31, 2, 1)],
)
def test_atomics_of_global_memory(target: tuple[str, int], mask: int, serial: int, lines: int):
    found = count(ATOMIC, target, mask)
    atomic = found.global_["atomic"]
    assert (atomic.requests, atomic.lanes, atomic.serial, atomic.units) == (1, target[1], serial, lines)
    assert found.instructions["atomic"] == 1


HISTOGRAM = (
    "  %q = mul i32 %t, %t\n  %i = and i32 %q, 7\n"
    + place("i32")
    + "  %v = atomicrmw add ptr addrspace(1) %p, i32 %t monotonic\n"
)
"""The bins are squares modulo 8, of which half are 1."""
WIDE_SUM = place("i64", "%t") + "  %v = atomicrmw add ptr addrspace(1) %p, i64 1 monotonic\n"


@pytest.mark.parametrize("target", [GFX1100, GFX1201, GFX942])
def test_other_atomics_of_global_memory(target: tuple[str, int]):
    lanes = target[1]
    for body, serial, lines, size in ((HISTOGRAM, lanes // 2, 1, 4), (WIDE_SUM, 1, lanes * 8 // 128, 8)):
        atomic = count(body, target).global_["atomic"]
        assert (atomic.requests, atomic.lanes, atomic.bytes) == (1, lanes, lanes * size)
        assert (atomic.serial, atomic.units) == (serial, lines)


@pytest.mark.parametrize(
    ("target", "mask", "stride", "serial", "cycles"),
    [
        (GFX1100, 31, 1, 1, 1),
        (GFX1100, 0, 1, 32, 32),
        (GFX1100, 3, 1, 8, 8),
        (GFX1100, 31, 32, 1, 32),
        (GFX942, 63, 1, 1, 2),
        (GFX942, 0, 1, 64, 64),
    ],
)
def test_atomics_of_lds(target: tuple[str, int], mask: int, stride: int, serial: int, cycles: int):
    atomic = count(SHARED_ATOMIC, target, mask, stride).shared["atomic"]
    assert (atomic.requests, atomic.serial, atomic.units) == (1, serial, cycles)


MATH = (
    place("float", "%t")
    + """  %x = load volatile float, ptr addrspace(1) %p
  %y = call float @llvm.fma.f32(float %x, float %x, float 3.0)
  %z = fadd float %y, %x
  %w = call float @llvm.amdgcn.rcp.f32(float %z)
  call void @llvm.amdgcn.s.barrier()
  store volatile float %w, ptr addrspace(1) %p
"""
)


@pytest.mark.parametrize("target", [GFX1100, GFX1201, GFX942])
def test_operations_and_barriers(target: tuple[str, int]):
    found = count(MATH, target, waves=3)
    assert found.flops == {"f32": 3 * target[1] * 3}
    assert found.special == 3 * target[1]
    assert found.instructions["special"] == found.barriers == found.warps == 3
    assert found.instructions["branch"] == 3
    assert found.instructions["scalar load"] >= 3
    assert found.active_lanes == 1
    assert found.estimates[0].bound == "on-chip"


@pytest.mark.parametrize(
    ("stem", "kind", "flops", "matrix", "type_"),
    [
        ("v_fma_f32", "float", 2, 0, "f32"),
        ("v_fmac_f16", "float", 2, 0, "f16"),
        ("v_pk_fma_f16", "float", 4, 0, "f16"),
        ("v_pk_mul_f32", "float", 2, 0, "f32"),
        ("v_subrev_f64", "float", 1, 0, "f64"),
        ("v_dot2_f32_f16", "float", 4, 0, "f16"),
        ("v_max_f32", "float", 0, 0, ""),
        ("v_add_nc_u32", "integer", 0, 0, ""),
        ("v_rcp_iflag_f32", "special", 0, 0, ""),
        ("v_mfma_f32_32x32x8_f16", "matrix", 0, 16384, "f16"),
        ("v_mfma_f32_4x4x4_16b_bf16", "matrix", 0, 2048, "bf16"),
        ("v_mfma_f32_16x16x32_fp8_bf8", "matrix", 0, 16384, "fp8"),
        ("v_wmma_f32_16x16x16_bf16", "matrix", 0, 8192, "bf16"),
        ("v_smfmac_i32_16x16x64_i8", "matrix", 0, 32768, "i8"),
        ("v_readfirstlane_b32", "shuffle", 0, 0, ""),
        ("ds_bpermute_b32", "shuffle", 0, 0, ""),
        ("ds_load_2addr_b32", "load", 0, 0, ""),
        ("ds_storexchg_rtn_b32", "atomic", 0, 0, ""),
        ("global_atomic_add_u32", "atomic", 0, 0, ""),
        ("buffer_gl0_inv", "fence", 0, 0, ""),
        ("s_waitcnt", "wait", 0, 0, ""),
        ("s_barrier_wait", "barrier", 0, 0, ""),
        ("s_barrier_signal", "wait", 0, 0, ""),
        ("s_load_b64", "scalar load", 0, 0, ""),
        ("s_cbranch_execz", "branch", 0, 0, ""),
        ("s_add_u32", "scalar", 0, 0, ""),
        ("v_cvt_f32_f16", "convert", 0, 0, ""),
    ],
)
def test_operations_of_an_instruction(stem: str, kind: str, flops: int, matrix: int, type_: str):
    found = counted.operation(stem)
    assert (found.kind, found.flops, found.matrix, found.type) == (kind, flops, matrix, type_)


def test_a_translation_without_counters_contains_none():
    found = programs.kernels(compiled(HEAD + STRIDED + "\n  ret void\n}\n", "gfx1100"), "gfx1100")["k"]
    plain = programs.program(found, Settings(cache=config().cache)).translation
    assert plain.counted is None
    assert "emu.count" not in plain.text
    assert "emu.count.global" in kernel(STRIDED, "gfx1100")[0].translation.text
