"""Addresses of kernel parameters (cvta.param), the pool of registers (setmaxnreg), folding by nvJitLink."""

# ruff: noqa: E501 - lines of PTX read best unbroken

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from compiler.targets.nvptx.assembler import assemble, available
from drivers.elf import Elf
from emulator.ir.report import ReportKind
from emulator.nv.ptx.module import launch, load_ptx
from emulator.nv.ptx.statements import PtxError
from emulator.simt.work import LaunchOptions
from tests.emulator.nv.test_ptx_tensor import place_of_map, replaces
from tests.facts import ptx_table
from tests.facts.ptx_answers import chosen, kept
from tests.facts.ptx_form import folded, kernel_name

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGS = ".reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;"


def kernel(body: str) -> str:
    """Return a kernel of `out` (%rd0) and a structure `c` of 128 bytes, by value."""
    return f"""{HEAD}.visible .entry k(.param .u64 out, .param .align 64 .b8 c[128]) {{ {REGS}
    .shared .align 1024 .b8 s[1024]; .shared .align 8 .b64 b;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd4, %r0, 4, %rd0; mov.b64 %rd1, c; cvta.param.u64 %rd2, %rd1;
    {body} ret; }}"""


def run(bench: Any, body: str, structure: bytes, *, threads: int = 32) -> Any:
    """Run a kernel; return its output and the result."""
    out = bench.new(np.zeros(1024), "u4")
    place = 48  # aligned to 64 from the start of the bank, in which the parameters begin at 0x210
    params = struct.pack("<Q", out.ctypes.data).ljust(place, b"\0") + structure
    module = load_ptx(kernel(body), arch="sm_90a", settings=bench.settings)
    return out, launch(module.kernel("k"), (1, 1, 1), (threads, 1, 1), params, memory=bench.memory)


WORDS = np.arange(32, dtype="u4") * 3 + 1


def test_loads_through_a_generic_address_of_a_parameter(any_bench: Any) -> None:
    body = """mad.wide.u32 %rd3, %r0, 4, %rd2; ld.u32 %r1, [%rd3]; cvta.to.param.u64 %rd5, %rd3; ld.param.u32 %r2, [%rd5]; shl.b32 %r2, %r2, 16;
    cvta.param.u64 %rd6, c; ld.v2.u32 {%r3, %r4}, [%rd6+8]; add.u32 %r2, %r2, %r4; add.u32 %r1, %r1, %r2; st.global.u32 [%rd4], %r1;"""
    out, result = run(any_bench, body, WORDS.tobytes())
    assert result.fault is None, result.fault
    assert np.array_equal(out[:32], WORDS + (WORDS << 16) + WORDS[3])


def test_spaces_of_the_address_of_a_parameter(bench: Any) -> None:
    body = """isspacep.param::entry %p0, %rd2; isspacep.global %p1, %rd2; isspacep.shared %p2, %rd2; isspacep.param %p3, %rd0;
    selp.u32 %r1, 1, 0, %p0; @%p1 add.u32 %r1, %r1, 2; @%p2 add.u32 %r1, %r1, 4; @%p3 add.u32 %r1, %r1, 8; st.global.u32 [%rd4], %r1;"""
    assert run(bench, body, bytes(128))[0][0] == 1


def test_parameters_are_read_only_and_bounded(bench: Any) -> None:
    for line, kind in (
        ("st.u32 [%rd2], %r0;", ReportKind.FORBIDDEN),
        ("ld.u32 %r1, [%rd2+128]; st.global.u32 [%rd4], %r1;", ReportKind.OUT_OF_BOUNDS),
    ):
        assert run(bench, line, bytes(128))[1].fault.kind is kind


def test_a_tensor_map_by_value_loads_a_box(bench: Any) -> None:
    """The map is written on the device first, then passed as a grid constant, as one made on the host is."""
    tensor, map_ = bench.new(np.arange(64 * 32).reshape(32, 64), "u4"), place_of_map(bench)
    text = f"""{HEAD}.visible .entry k(.param .u64 map, .param .u64 data) {{ {REGS} ld.param.u64 %rd1, [map]; ld.param.u64 %rd2, [data];
    {replaces((64, 32), (256,), (32, 8), "u4", 0)} ret; }}"""
    assert bench.run(text, "k", 1, 1, map_, tensor, arch="sm_90a").fault is None
    body = """mov.u32 %r1, s; setp.ne.u32 %p0, %r0, 0; @%p0 bra J; mbarrier.init.shared.b64 [b], 1; mbarrier.arrive.expect_tx.shared.b64 _, [b], 1024;
    prefetch.param.tensormap [%rd1]; cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [s], [%rd2, {16, 4}], [b];
    W: mbarrier.try_wait.parity.shared.b64 %p2, [b], 0; @!%p2 bra W; J: bar.sync 0;
    mad.lo.u32 %r1, %r0, 4, %r1; ld.shared.u32 %r2, [%r1+128]; st.global.u32 [%rd4], %r2;"""
    out, result = run(bench, body, map_.tobytes())
    assert result.fault is None, result.fault
    assert np.array_equal(out[:32], tensor[5, 16:48])


def run_pool(bench: Any, body: str, *, most: str = ".maxnreg 168", threads: int = 384, **how: Any) -> Any:
    """Run a kernel with its warpgroup's number in %r1; every thread writes %r2 at the end."""
    text = f""".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out) {most} {{
    .reg .pred %p<8>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd0; shr.u32 %r1, %r0, 7; setp.eq.u32 %p0, %r1, 0;
    mov.u32 %r2, 1; {body} st.global.u32 [%rd1], %r2; ret; }}"""
    out = bench.new(np.zeros(threads), "u4")
    return out, bench.run(text, "k", 1, threads, out, arch="sm_90a", **how)


SPLIT = """@%p0 bra P; setmaxnreg.inc.sync.aligned.u32 240; bra E;
    P: setmaxnreg.dec.sync.aligned.u32 {}; E: bar.sync 0;"""


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_consumers_take_what_the_producer_releases(any_bench: Any, order: Any) -> None:
    """Three warpgroups of 168 registers: one keeps 24, so two of 240 fit."""
    out, result = run_pool(any_bench, SPLIT.format(24), options=LaunchOptions(warp_order=order))
    assert result.fault is None, result.fault
    assert out.all()


def test_registers_are_returned_and_taken_again(bench: Any) -> None:
    again = "setmaxnreg.dec.sync.aligned.u32 24; bar.sync 0; setmaxnreg.inc.sync.aligned.u32 168;"
    out, result = run_pool(bench, SPLIT.format(24) + again)
    assert result.fault is None, result.fault
    assert out.all()


def test_registers_that_no_warp_releases_are_a_deadlock(bench: Any) -> None:
    _, result = run_pool(bench, SPLIT.format(40))
    assert result.fault.kind is ReportKind.REGISTER_DEADLOCK
    assert result.fault.other == "72 more registers a thread, of which the pool has 8"
    assert "setmaxnreg.inc" in result.fault.instruction


@pytest.mark.parametrize(("action", "count"), [("inc", 160), ("dec", 176)])
def test_more_is_not_less(bench: Any, action: str, count: int) -> None:
    _, result = run_pool(bench, f"setmaxnreg.{action}.sync.aligned.u32 {count};")
    assert result.fault.kind is ReportKind.BAD_REGISTER_COUNT
    assert result.fault.other == "168 registers a thread"


def test_without_a_known_number_nothing_waits(bench: Any) -> None:
    out, result = run_pool(bench, SPLIT.format(40), most="")
    assert result.fault is None, result.fault
    assert out.all()


@pytest.mark.parametrize("count", ["20", "16", "264", "%r1"])
def test_numbers_that_do_not_exist_are_refused(bench: Any, count: str) -> None:
    with pytest.raises(PtxError, match="multiple of 8 from 24 to 256"):
        run_pool(bench, f"setmaxnreg.dec.sync.aligned.u32 {count};")


pytestmark = pytest.mark.skipif(not available(), reason="neither nvJitLink nor ptxas is installed")


def _immediates(code: bytes) -> set[int]:
    """The 32-bit immediates of instructions of 16 bytes: bits 32 to 63."""
    return {struct.unpack_from("<I", code, at + 4)[0] for at in range(0, len(code), 16)}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_assembler_in_process_folds_to_the_kept_answers(arch: str) -> None:
    answers, asked = kept(arch)[1], []
    for family in ("integers", "convert", "floats"):
        for form in ptx_table.of(arch, family)[::3]:
            inputs = chosen(form, 24)
            if answers[form.name].code:
                continue  # not folded alone
            for values, row in zip(inputs, answers[form.name].rows, strict=False):
                if len(row) == 1 and form.outputs == (32,) and (row[0] or 0) & 0xFFFF > 0xFF:
                    asked.append((form, values, row[0]))
                    break
    image = assemble(folded([(form, [values]) for form, values, _ in asked], arch), arch)
    elf = Elf(image)
    code = {section.name: elf.content(section) for section in elf.sections}
    missing = [
        form.name
        for at, (form, _, wanted) in enumerate(asked)
        if wanted not in _immediates(code[f".text.{kernel_name(at)}"])
    ]
    assert len(asked) > 12
    assert not missing
