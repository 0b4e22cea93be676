"""Faults of a kernel: they end it, and are reported with kernel, line, thread, address and nearest allocation."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from emulator.ir.library import Sanitizers
from emulator.ir.report import ReportKind
from emulator.nv.ptx.module import load_ptx
from emulator.nv.ptx.statements import PtxError
from emulator.simt.engine import Settings
from hcq.config import config

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
REGS = ".reg .pred %p<16>; .reg .b32 %r<64>; .reg .b64 %rd<32>;\n"
START = "mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out]; mad.wide.u32 %rd1, %r0, 4, %rd0;\n"


def kernel(body: Any, shared: Any = 256):
    return f"{HEAD}.visible .entry k(.param .u64 out) {{ .shared .align 16 .b8 s[{shared}];\n.local .align 8 .b8 depot[32];\n{REGS}{START}{body}\n}}"


@pytest.fixture
def out(bench: Any):
    return bench.map(np.zeros(64, "u4"), label="results")


@pytest.mark.parametrize(
    ("body", "kind", "access"),
    [
        ("st.global.u32 [%rd1+256], %r0; ret;", ReportKind.OUT_OF_BOUNDS, "write"),
        ("ld.global.u32 %r1, [%rd1+-4]; ret;", ReportKind.OUT_OF_BOUNDS, "read"),
        ("mov.u64 %rd2, 0; ld.global.u64 %rd3, [%rd2]; ret;", ReportKind.OUT_OF_BOUNDS, "read"),
        ("mov.u64 %rd2, 0xffffffffffffffff; ld.global.u8 %r1, [%rd2]; ret;", ReportKind.OUT_OF_BOUNDS,
         "read"),
        ("atom.global.add.u32 %r1, [%rd1+512], 1; ret;", ReportKind.OUT_OF_BOUNDS, "atomic"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+248]; ret;", ReportKind.OUT_OF_BOUNDS, "read"),
        ("st.global.u32 [%rd1+2], %r0; ret;", ReportKind.MISALIGNED, "write"),
        ("ld.global.v2.u32 {%r1, %r2}, [%rd0+4]; ret;", ReportKind.MISALIGNED, "read"),
        ("mov.u32 %r1, s; mad.lo.u32 %r2, %r0, 16, %r1; st.shared.u32 [%r2], 0; ret;",
         ReportKind.SHARED_OUT_OF_BOUNDS, "write"),
        ("mov.u32 %r1, s; ld.shared.u32 %r2, [%r1+-4]; ret;", ReportKind.SHARED_OUT_OF_BOUNDS, "read"),
        ("mov.u32 %r1, s; atom.shared.add.u32 %r2, [%r1+1], 1; ret;", ReportKind.MISALIGNED, "atomic"),
        ("mov.u64 %rd2, depot; st.local.u32 [%rd2+32], 0; ret;", ReportKind.LOCAL_OUT_OF_BOUNDS, "write"),
    ],
)  # fmt: skip
def test_wild_accesses_are_faults(bench: Any, out: Any, body: Any, kind: Any, access: Any):
    fault = bench.run(kernel(body), "k", 1, 64, out).fault
    assert fault is not None
    assert (fault.kind, fault.access, fault.kernel) == (kind, access, "k")
    assert fault.instruction.split()[0] in body


def test_a_fault_names_thread_address_line_and_nearest_allocation(bench: Any, out: Any):
    body = "mov.u32 %r5, %ctaid.x; setp.ne.u32 %p0, %r5, 3; @%p0 ret;\nsetp.ne.u32 %p1, %r0, 37; @%p1 ret;\nst.global.u32 [%rd0+300], %r0; ret;"
    fault = bench.run(kernel(body), "k", 5, 64, out).fault
    assert fault.block == (3, 0, 0)
    assert fault.thread == (37, 0, 0)
    assert fault.address == out.ctypes.data + 300
    assert fault.line == kernel(body)[: kernel(body).index("st.global")].count("\n") + 1
    assert (
        "44 bytes past the last byte of results" in fault.nearest
        or "45 bytes past the last byte of results" in fault.nearest
    )
    assert "st.global.u32 [%rd0+300], %r0" in str(fault)


def test_a_freed_allocation_is_remembered(bench: Any, out: Any):
    gone = np.zeros(64, "u4")
    bench.memory.map(gone.ctypes.data, gone.nbytes, label="weights")
    bench.memory.unmap(gone.ctypes.data, freed_at="model.py:12")
    fault = bench.run(kernel("ld.global.u32 %r1, [%rd1]; ret;"), "k", 1, 64, gone).fault
    assert "inside weights" in fault.nearest
    assert "freed model.py:12" in fault.nearest


def test_read_only_memory_refuses_writes_and_atomics(bench: Any):
    data = np.zeros(64, "u4")
    bench.memory.map(data.ctypes.data, data.nbytes, label="constants", writable=False)
    assert bench.run(kernel("ld.global.u32 %r1, [%rd1]; ret;"), "k", 1, 64, data).fault is None
    assert (
        bench.run(kernel("st.global.u32 [%rd1], 1; ret;"), "k", 1, 64, data).fault.kind
        is ReportKind.FORBIDDEN
    )
    assert (
        bench.run(kernel("red.global.add.u32 [%rd1], 1; ret;"), "k", 1, 64, data).fault.kind
        is ReportKind.FORBIDDEN
    )


def test_good_lanes_of_a_faulting_instruction_are_not_written_elsewhere(bench: Any):
    data = np.zeros(96, "u4")
    bench.memory.map(data.ctypes.data, 128, label="first")
    bench.memory.map(data.ctypes.data + 256, 128, label="third")
    fault = bench.run(kernel("st.global.u32 [%rd1], 7; ret;"), "k", 1, 96, data).fault
    assert fault.kind is ReportKind.OUT_OF_BOUNDS
    assert not data[32:64].any()


def test_device_addresses_need_not_be_host_addresses(bench: Any):
    data = np.zeros(64, "u4")
    bench.memory.map(0x7_0000_0000, 256, data.ctypes.data, label="elsewhere")
    from emulator.nv.ptx.module import launch, load_ptx

    k = load_ptx(kernel("st.global.u32 [%rd1], %r0; ret;"), arch="sm_90", settings=bench.settings).kernel("k")
    assert (
        launch(k, (1, 1, 1), (64, 1, 1), (0x7_0000_0000).to_bytes(8, "little"), memory=bench.memory).fault
        is None
    )
    assert data.tolist() == list(range(64))


@pytest.mark.parametrize(
    ("body", "threads", "kind"),
    [
        ("32; @%p0 bra A; bar.sync 1, 64; ret; A: bar.sync 2, 64;", 64, ReportKind.BARRIER_DEADLOCK),
        ("5; @%p0 bra A; barrier.sync 1; ret; A: barrier.sync 2;", 32, ReportKind.DIVERGENT_BARRIERS),
    ],
)
def test_different_barriers_are_reported_at_once(bench: Any, out: Any, body: str, threads: int, kind: Any):
    fault = bench.run(kernel(f"setp.lt.u32 %p0, %r0, {body} ret;"), "k", 1, threads, out).fault
    assert fault.kind is kind
    assert threads == 32 or "barrier" in fault.other


@pytest.mark.parametrize("body", ["bar.sync 16;", "bar.sync 65537;", "bar.sync 0, 33;"])
def test_barriers_that_do_not_exist(bench: Any, out: Any, body: Any):
    assert bench.run(kernel(body + " ret;"), "k", 1, 64, out).fault.kind is ReportKind.BAD_BARRIER


def test_a_trap_ends_the_kernel(bench: Any, out: Any):
    fault = bench.run(kernel("setp.eq.u32 %p0, %r0, 33; @%p0 trap; ret;"), "k", 1, 64, out).fault
    assert fault.kind is ReportKind.TRAP
    assert fault.thread == (33, 0, 0)


def test_a_breakpoint_without_a_debugger_ends_the_kernel(bench: Any, out: Any):
    fault = bench.run(kernel("setp.eq.u32 %p0, %r0, 7; @%p0 brkpt; ret;"), "k", 1, 64, out).fault
    assert (fault.kind, fault.thread) == (ReportKind.TRAP, (7, 0, 0))
    assert "brkpt" in fault.instruction




def test_a_branch_index_outside_its_table(bench: Any, out: Any):
    body = "T: .branchtargets A, B; brx.idx %r0, T; A: ret; B: ret;"
    fault = bench.run(kernel(body), "k", 1, 32, out).fault
    assert fault.kind is ReportKind.BAD_BRANCH_INDEX
    assert fault.thread == (2, 0, 0)


def test_a_shuffle_that_names_absent_lanes(bench: Any, out: Any):
    body = "setp.lt.u32 %p0, %r0, 8; @!%p0 bra E; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; st.global.u32 [%rd1], %r1; E: bar.warp.sync -1; ret;"
    assert bench.run(kernel(body), "k", 1, 32, out).fault.kind is ReportKind.ABSENT_LANE


def test_launches_that_contradict_the_kernel_are_refused(bench: Any, out: Any):
    text = HEAD + ".visible .entry k(.param .u64 out) .reqntid 64, 1, 1 { ret; }"
    assert bench.run(text, "k", 1, 64, out).fault is None
    with pytest.raises(ValueError, match="reqntid"):
        bench.run(text, "k", 1, 32, out)
    with pytest.raises(ValueError, match="1024"):
        bench.run(kernel("ret;"), "k", 1, 1025, out)
    with pytest.raises(ValueError, match="parameters"):
        bench.run(kernel("ret;"), "k", 1, 32, out, out)


@pytest.mark.parametrize("place", [".shared .align 4 .u32 table[4];", ".local .align 4 .u32 table[4];"])
def test_an_element_of_an_array_has_an_address(bench: Any, out: Any, place: str):
    body = f"{place} mov.u64 %rd2, table[3]; mov.u64 %rd3, table[0]; sub.u64 %rd4, %rd2, %rd3;"
    bench.run(kernel(f"{body} cvt.u32.u64 %r1, %rd4; st.global.u32 [%rd1], %r1; ret;"), "k", 1, 64, out)
    assert set(out.tolist()) == {12}


def test_an_element_of_what_is_no_array_is_refused(bench: Any, out: Any):
    with pytest.raises(PtxError, match=r"nothing\[0\]: no array"):
        bench.run(kernel("mov.u64 %rd2, nothing[0]; ret;"), "k", 1, 64, out)


INSTRUCTIONS = """ld.param.u64 %rd1, [out]; bar.red.popc.u32 %r1, 0, %p1; setp.eq.u32 %p0, %r1, %r2; setp.eq.f16x2 %p0|%p1, %r1, %r2
ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r2}, [s]; ex2.approx.f32 %r1, %r2; mov.b64 {%r1, %r2}, %rd1; mov.b64 %rd1, {%r1, %r2}
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4}
wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%rd2}, [%rd1], 8; atom.global.add.f32 %r1, [%rd1], %r2
createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3f800000; .global .u32 v[2] = {1, 2}; .reg .b32 x"""
DAMAGED = [line.strip() for line in INSTRUCTIONS.replace("\n", ";").split(";")]


def test_instructions_with_damaged_operands_are_refused_and_never_fail_otherwise() -> None:
    """Each operand is dropped, emptied and replaced, the types are replaced, and every result is parsed and translated."""
    refused, settings = 0, Settings(cache=config().cache)
    for line in DAMAGED:
        opcode, _, rest = line.partition(" ")
        given = re.split(r", (?![^{]*})", rest)
        lines = [f"{opcode} {', '.join(given[:k] + new + given[k + 1 :])}" for k in range(len(given)) for new in ([], ["{}"], ["[s]"], ["{1, 2, 3}"])]
        lines += [f"{opcode.rsplit('.', 1)[0]}.{type_} {rest}" for type_ in ("u32", "zz")]
        for damaged in lines:
            try:
                load_ptx(kernel(f"{damaged}; ret;"), arch="sm_90", settings=settings).kernel("k")
            except PtxError:
                refused += 1
    assert refused > len(DAMAGED)
    with pytest.raises(PtxError, match=r"unknown register type \.zz"):
        load_ptx(f"{HEAD}.func f(.reg .zz a) {{ ret; }}", arch="sm_90")
    with pytest.raises(PtxError, match="v has 8 bytes, and its initial contents 12"):
        load_ptx(f"{HEAD}.global .u32 v[2] = {{1, 2, 3}};", arch="sm_90")


@pytest.mark.parametrize("checks", [Sanitizers.all(), Sanitizers.all(in_step=False)])
@pytest.mark.parametrize(
    "access", ["st.shared.u32 [%r2], %r0", "ld.shared.u32 %r3, [%r2]", "atom.shared.add.u32 %r3, [%r2], 1"]
)
def test_an_access_that_begins_below_shared_memory_and_ends_in_it_is_a_fault_with_checks(
    bench: Any, out: Any, checks: Sanitizers, access: str
):
    """The end of the access of lane 0, at 2^32 - 1, wraps to 3."""
    settings = Settings(checks=checks, cache=config().cache)
    text = kernel(
        f"mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1; sub.u32 %r2, %r2, 1; {access}; ret;",
        4096,
    )
    result = bench.run(text, "k", 1, 256, out, settings=settings)
    assert result.fault is not None
    assert result.fault.kind in {ReportKind.SHARED_OUT_OF_BOUNDS, ReportKind.MISALIGNED}
