"""The counters of PTX kernels against numbers that are known on paper."""

# ruff: noqa: E501 - lines of PTX and tables read best on one line

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emulator.nv.profiles import PROFILES
from emulator.nv.ptx import counted
from emulator.nv.ptx.module import PtxKernel, launch, load_ptx, work_of
from emulator.nv.ptx.statements import PtxInstruction
from emulator.shared.counts import Resources, counters
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config

if TYPE_CHECKING:
    from hcq.counters import KernelCounters

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p0, .param .u32 p1, .param .u32 p2) {
.reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<16>; .reg .pred %p<4>;
.shared .align 16 .b8 s[16384];
ld.param.u64 %rd0, [p0]; ld.param.u32 %r1, [p1]; ld.param.u32 %r2, [p2];
mov.u32 %r0, %tid.x;
"""
BEFORE = 4
"""Instructions of the head."""


@functools.cache
def kernel(body: str, arch: str = "sm_80") -> PtxKernel:
    """Return a counted kernel whose body reads %rd0 (memory), %r0 (thread) and %r1, %r2 (numbers)."""
    text = HEAD.replace("sm_80", arch) + body + "\nret;\n}\n"
    return load_ptx(text, arch=arch, settings=Settings(cache=config().cache)).kernel("k", counts=True)


def count(body: str, first: int = 0, second: int = 0, *, threads: int = 32, groups: int = 1, arch: str = "sm_80") -> KernelCounters:  # fmt: skip
    """Run a kernel on 16 KiB of zeros aligned to 256 bytes; return its counts."""
    one, memory = kernel(body, arch), AddressSpace()
    data = np.zeros(16384 + 512, "u1")
    memory.map(data.ctypes.data, data.nbytes)
    base = data.ctypes.data + -data.ctypes.data % 256
    params = struct.pack("<QII", base, first, second)
    grid, block = (groups, 1, 1), (threads, 1, 1)
    done = launch(one, grid, block, params, memory=memory, options=LaunchOptions(tier="quick"))
    assert done.fault is None, done.fault
    slots, work = one.program.translation.counted, work_of(one, grid, block, params)
    assert slots is not None
    assert done.counts is not None
    gpu = PROFILES["sm_80"]
    what = Resources(
        kernel="k", arch="sm_80", limits=gpu.limits, boards=gpu.boards, lanes=32, registers=32, shared_bytes=16384
    )
    return counters(slots, done.counts, work, what)


STRIDED = """mul.lo.u32 %r3, %r0, %r1; add.u32 %r3, %r3, %r2;
mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1;
ld.global.f32 %f0, [%rd1]; st.global.f32 [%rd1], %f0;"""
WIDE = """mul.lo.u32 %r3, %r0, %r1; mul.wide.u32 %rd1, %r3, 16; add.u64 %rd1, %rd0, %rd1;
ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1];"""
NARROW = """mul.lo.u32 %r3, %r0, %r1; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd0, %rd1;
ld.global.u8 %h0, [%rd1];"""
TILE = """shr.u32 %r3, %r0, 4; and.b32 %r4, %r0, 15; mad.lo.u32 %r3, %r3, %r1, %r4;
mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1; ld.global.f32 %f0, [%rd1];"""
"""Two rows of 16 words at a pitch."""
REVERSED = """xor.b32 %r3, %r0, %r1; mul.wide.u32 %rd1, %r3, 8; add.u64 %rd1, %rd0, %rd1;
ld.global.b64 %rd2, [%rd1];"""


@pytest.mark.parametrize(
    ("body", "first", "second", "sectors", "size"),
    [
        # coalesced
        (STRIDED, 1, 0, 4, 4),
        (STRIDED, 1, 3, 5, 4),  # begins in the middle of a sector
        (WIDE, 1, 0, 16, 16),
        (NARROW, 1, 0, 1, 1),
        (REVERSED, 31, 0, 8, 8),
        # strided
        (STRIDED, 2, 0, 8, 4),
        (STRIDED, 8, 0, 32, 4),
        (STRIDED, 64, 0, 32, 4),
        (STRIDED, 0, 5, 1, 4),  # all lanes at one address
        (WIDE, 3, 0, 32, 16),
        (NARROW, 16, 0, 16, 1),
        (TILE, 64, 0, 4, 4),
        (TILE, 5, 0, 3, 4),  # the rows overlap
    ],
)
def test_sectors_of_a_request(body: str, first: int, second: int, sectors: int, size: int):
    found = count(body, first, second)
    load = found.global_["load"]
    assert (load.requests, load.lanes, load.bytes, load.units) == (1, 32, 32 * size, sectors)
    stores = body is STRIDED
    assert found.global_["store"].units == stores * sectors
    assert found.moved == 32 * sectors * (1 + stores)
    assert found.coalescing == 32 * size / (32 * sectors)
    assert (found.read, found.written) == (32 * sectors, 32 * sectors * stores)


def test_footprint_counts_a_sector_once():
    found = count(STRIDED, 0, 0, threads=128, groups=3)
    assert found.global_["load"].units == 12
    assert (found.read, found.written) == (32, 32)
    assert (found.groups, found.warps, found.threads) == (3, 12, 384)


SHARED = """mul.lo.u32 %r3, %r0, %r1; and.b32 %r3, %r3, 1023; add.u32 %r3, %r3, %r2; shl.b32 %r3, %r3, 2;
mov.u32 %r4, s; add.u32 %r4, %r4, %r3; st.shared.f32 [%r4], %f0; ld.shared.f32 %f1, [%r4];"""
SHARED2 = """mul.lo.u32 %r3, %r0, %r1; shl.b32 %r3, %r3, 3; mov.u32 %r4, s; add.u32 %r4, %r4, %r3;
st.shared.v2.f32 [%r4], {%f0, %f1};"""
SHARED4 = """mul.lo.u32 %r3, %r0, %r1; shl.b32 %r3, %r3, 4; mov.u32 %r4, s; add.u32 %r4, %r4, %r3;
st.shared.v4.f32 [%r4], {%f0, %f1, %f2, %f3};"""
SHARED_BYTES = """mul.lo.u32 %r3, %r0, %r1; mov.u32 %r4, s; add.u32 %r4, %r4, %r3; st.shared.u8 [%r4], %r2;"""


@pytest.mark.parametrize(
    ("body", "stride", "cycles", "least"),
    [
        (SHARED, 1, 1, 1),
        (SHARED, 2, 2, 1),
        (SHARED, 32, 32, 1),  # a column of a matrix of 32 x 32
        (SHARED, 33, 1, 1),  # with a column of padding
        (SHARED, 0, 1, 1),  # a broadcast
        (SHARED, 3, 1, 1),
        (SHARED2, 1, 2, 2),
        (SHARED2, 2, 4, 2),
        (SHARED2, 16, 32, 2),
        (SHARED4, 1, 4, 4),
        (SHARED4, 2, 8, 4),
        (SHARED4, 8, 32, 4),
        (SHARED_BYTES, 1, 1, 1),  # four lanes a word
        (SHARED_BYTES, 128, 32, 1),
    ],
)
def test_cycles_of_an_access_to_shared_memory(body: str, stride: int, cycles: int, least: int):
    found = count(body, stride)
    store = found.shared["store"]
    assert (store.requests, store.lanes, store.units, store.least) == (1, 32, cycles, least)
    loads = body is SHARED
    assert found.conflicts == (cycles - least) * (1 + loads)


DIVERGENT = """setp.lt.u32 %p0, %r0, %r1; @%p0 bra L; add.u32 %r3, %r0, 1; add.u32 %r3, %r3, 1; bra E;
L: add.u32 %r3, %r0, 2; E: add.u32 %r4, %r3, 1;"""
LOOP = """and.b32 %r3, %r0, %r1; L: sub.u32 %r3, %r3, 1; setp.ge.s32 %p0, %r3, 0; @%p0 bra L;"""


@pytest.mark.parametrize(("below", "divergent"), [(0, 0), (16, 1), (32, 0), (31, 1)])
def test_divergent_branches(below: int, divergent: int):
    """A warp whose lanes divide executes both sides: two additions and a branch, or one addition."""
    found = count(DIVERGENT, below)
    assert found.divergent == divergent
    others = 32 - below
    assert found.instructions["integer"] == 2 + 2 * bool(others) + bool(below)
    assert found.lane_instructions["integer"] == 32 * 2 + 2 * others + below
    assert found.branches == 2 + bool(others)


NESTED = """and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; @%p0 bra C; and.b32 %r4, %r0, 2; setp.eq.u32 %p1, %r4, 0; @%p1 bra B;
add.u32 %r5, %r0, 1; bra E; B: add.u32 %r5, %r0, 2; bra E; C: add.u32 %r5, %r0, 3; E: add.u32 %r6, %r5, 1;"""
FOUR_WAYS = """and.b32 %r3, %r0, 3; setp.eq.u32 %p0, %r3, 0; @%p0 bra A; setp.eq.u32 %p1, %r3, 1; @%p1 bra B;
setp.eq.u32 %p2, %r3, 2; @%p2 bra C; add.u32 %r5, %r0, 4; bra E; A: add.u32 %r5, %r0, 1; bra E;
B: add.u32 %r5, %r0, 2; bra E; C: add.u32 %r5, %r0, 3; E: add.u32 %r6, %r5, 1;"""


@pytest.mark.parametrize(
    ("body", "divergent", "branches", "instructions", "lanes"),
    [
        (NESTED, 2, 5, 8, 2 * 32 + 2 * 16 + 8 + 8 + 16 + 32),  # halves, then quarters
        (FOUR_WAYS, 3, 7, 9, 32 + 32 + 24 + 16 + 4 * 8 + 32),  # a quarter leaves at each test
    ],
)
def test_nested_and_chained_branches(body: str, divergent: int, branches: int, instructions: int, lanes: int):
    """Branches that no lane divides count, too, and the return."""
    found = count(body)
    assert (found.divergent, found.branches) == (divergent, branches)
    assert (found.instructions["integer"], found.lane_instructions["integer"]) == (instructions, lanes)


@pytest.mark.parametrize(("mask", "rounds", "lanes"), [(0, 1, 32), (1, 2, 48), (3, 4, 80), (31, 32, 528)])
def test_a_loop_that_lanes_leave_one_by_one(mask: int, rounds: int, lanes: int):
    found = count(LOOP, mask)
    assert found.divergent == rounds - 1
    assert found.instructions["branch"] == rounds + 1
    assert found.lane_instructions["branch"] == lanes + 32
    assert found.active_lanes == pytest.approx((BEFORE + 2) / (BEFORE + 2 + 3 * rounds) + 3 * lanes / 32 / (BEFORE + 2 + 3 * rounds))  # fmt: skip


ATOMIC = """and.b32 %r3, %r0, %r1; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1;
atom.global.add.u32 %r4, [%rd1], 1;"""
SHARED_ATOMIC = """and.b32 %r3, %r0, %r1; mul.lo.u32 %r3, %r3, %r2; shl.b32 %r3, %r3, 2; mov.u32 %r4, s;
add.u32 %r4, %r4, %r3; red.shared.add.u32 [%r4], 1;"""


@pytest.mark.parametrize(("mask", "serial", "sectors"), [(31, 1, 4), (7, 4, 1), (15, 2, 2), (0, 32, 1)])
def test_atomics_of_global_memory(mask: int, serial: int, sectors: int):
    found = count(ATOMIC, mask, threads=64)
    atomic = found.global_["atomic"]
    assert (atomic.requests, atomic.lanes, atomic.serial, atomic.units) == (2, 64, 2 * serial, 2 * sectors)
    assert (found.read, found.written) == (32 * sectors, 32 * sectors)


HISTOGRAM = """mul.lo.u32 %r3, %r0, %r0; and.b32 %r3, %r3, 7; mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd0, %rd1;
red.global.add.u32 [%rd1], 1;"""
"""The bins are squares modulo 8, of which half are 1."""
SWAP = """shr.u32 %r3, %r0, 3; mul.wide.u32 %rd1, %r3, 128; add.u64 %rd1, %rd0, %rd1;
atom.global.cas.b32 %r4, [%rd1], 0, 1;"""
WIDE_SUM = """mul.wide.u32 %rd1, %r0, 8; add.u64 %rd1, %rd0, %rd1; mov.u64 %rd2, 1; atom.global.add.u64 %rd3, [%rd1], %rd2;"""


@pytest.mark.parametrize(
    ("body", "serial", "sectors", "size"), [(HISTOGRAM, 16, 1, 4), (SWAP, 8, 4, 4), (WIDE_SUM, 1, 8, 8)]
)
def test_other_atomics_of_global_memory(body: str, serial: int, sectors: int, size: int):
    atomic = count(body).global_["atomic"]
    assert (atomic.requests, atomic.lanes, atomic.bytes) == (1, 32, 32 * size)
    assert (atomic.serial, atomic.units) == (serial, sectors)


@pytest.mark.parametrize(
    ("mask", "stride", "serial", "cycles"),
    [(31, 1, 1, 1), (0, 1, 32, 32), (3, 1, 8, 8), (31, 32, 1, 32), (1, 32, 16, 32)],
)
def test_atomics_of_shared_memory(mask: int, stride: int, serial: int, cycles: int):
    atomic = count(SHARED_ATOMIC, mask, stride).shared["atomic"]
    assert (atomic.requests, atomic.serial, atomic.units) == (1, serial, cycles)


def test_shared_memory_of_a_cluster_counts_as_shared_memory():
    found = count(SHARED.replace("ld.shared", "ld.shared::cluster"), 2, arch="sm_90")
    assert (found.shared["load"].units, found.shared["store"].units) == (2, 2)


def test_generic_addresses_count_where_they_lie():
    body = """cvta.shared.u64 %rd1, 0; mov.u32 %r3, s; cvt.u64.u32 %rd2, %r3; cvta.shared.u64 %rd2, %rd2;
    setp.lt.u32 %p0, %r0, 16; selp.b64 %rd3, %rd2, %rd0, %p0; ld.f32 %f0, [%rd3];"""
    found = count(body.replace("cvta.shared.u64 %rd1, 0; ", ""))
    assert found.shared["load"].lanes == 16
    assert found.global_["load"].lanes == 16
    assert found.global_["load"].units == 1


MATH = """cvt.rn.f32.u32 %f0, %r0; fma.rn.f32 %f1, %f0, %f0, %f0; add.f32 %f2, %f1, %f0; rcp.approx.f32 %f3, %f2;
bar.sync 0; setp.lt.u32 %p0, %r0, %r1; @%p0 mul.f32 %f4, %f3, %f3;"""


def test_operations_barriers_and_predicated_lanes():
    found = count(MATH, 8, threads=64)
    assert found.flops == {"f32": 64 * 3 + 8}
    assert found.special == 64
    assert found.barriers == 2
    assert found.instructions["float"] == 3 * 2
    assert sum(found.instructions.values()) == 2 * (BEFORE + 8)


COPY = """mul.wide.u32 %rd1, %r0, 16; add.u64 %rd1, %rd0, %rd1; mov.u32 %r4, s; mad.lo.u32 %r4, %r0, 16, %r4;
cp.async.cg.shared.global [%r4], [%rd1], 16; cp.async.commit_group; cp.async.wait_group 0;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r5, %r6, %r7, %r8}, {%r5, %r6}, {%f0, %f1, %f2, %f3};"""


def test_copies_matrix_loads_and_products():
    found = count(COPY)
    assert found.copied == 512
    assert found.global_["load"].units == 16
    assert (found.shared["store"].units, found.shared["load"].units) == (4, 4)
    assert found.matrix == {"f16": 2 * 16 * 8 * 16}


@pytest.mark.parametrize(
    ("text", "kind", "flops", "matrix", "type_"),
    [
        ("fma.rn.f16x2", "float", 4, 0, "f16"),
        ("mul.rn.f64", "float", 1, 0, "f64"),
        ("min.f32", "float", 0, 0, "f32"),
        ("add.s32", "integer", 0, 0, ""),
        ("div.rn.f32", "special", 0, 0, ""),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "matrix", 0, 2 * 16 * 128 * 16, "bf16"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "matrix", 0, 8192, "f16"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "load", 0, 0, ""),
        ("wgmma.commit_group.sync.aligned", "barrier", 0, 0, ""),
    ],
)
def test_operations_of_an_instruction(text: str, kind: str, flops: int, matrix: int, type_: str):
    opcode, *words = text.split(".")
    found = counted.operation(PtxInstruction(opcode, tuple(words), (), None, False, 1, text))
    assert (found.kind, found.flops, found.matrix, found.type) == (kind, flops, matrix, type_)


def test_a_translation_without_counters_contains_none():
    module = load_ptx(HEAD + STRIDED + "ret;\n}\n", arch="sm_80", settings=Settings(cache=config().cache))
    plain: Any = module.kernel("k").program.translation
    assert plain.counted is None
    assert "emu.count" not in plain.text
    assert not [name for name in plain.called if "count" in name]
    with_counters: Any = module.kernel("k", counts=True).program.translation
    assert "emu.count.global" in with_counters.text


PRODUCT = """.reg .f32 %g<64>; .reg .b32 %q<4>;
mov.u32 %r3, s; shr.u32 %r3, %r3, 4; cvt.u64.u32 %rd1, %r3; or.b64 %rd1, %rd1, DESCRIPTOR;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64nCOLUMNSk16.f32.f16.f16 {SUMS}, A, %rd1, 0, 1, 1TURNS;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
SWIZZLES = (0, 3, 2, 1)
"""Of 0, 32, 64 and 128 bytes, as a descriptor has them."""


@pytest.mark.parametrize("turns", [", 0, 0", ", 1, 1"], ids=["k", "mn"])
@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("columns", [8, 64])
def test_wgmma_reads_each_tile_once(columns: int, swizzle: int, turns: str) -> None:
    """64 rows of A and the columns of B, of 32 bytes each, in blocks of 128 bytes without bank conflicts."""
    descriptor = swizzle << 62 | 16 << 32 | 16 << 16
    body = PRODUCT.replace("COLUMNS", str(columns)).replace("TURNS", turns).replace("A, ", "%rd1, ")
    body = body.replace("DESCRIPTOR", f"{descriptor - (descriptor >> 63 << 64)}")
    found = count(
        body.replace("SUMS", ", ".join(f"%g{n}" for n in range(columns // 2))), threads=128, arch="sm_90a"
    )
    load = found.shared["load"]
    blocks = (64 + columns) * 32 // 128
    assert (load.requests, load.lanes, load.bytes, load.units) == (blocks, 8 * blocks, 128 * blocks, blocks)
    assert found.conflicts == 0
    assert found.matrix == {"f16": 2 * 64 * columns * 16}


def test_wgmma_with_a_in_registers_reads_b_alone() -> None:
    body = PRODUCT.replace("COLUMNS", "8").replace("TURNS", ", 0").replace("SUMS", "%g0, %g1, %g2, %g3")
    body = body.replace("A, ", "{%q0, %q1, %q2, %q3}, ").replace("DESCRIPTOR", str(16 << 32 | 16 << 16))
    load = count(body, threads=256, arch="sm_90a").shared["load"]
    assert (load.requests, load.bytes, load.units) == (4, 512, 4), "two warp groups"
