"""setmaxnreg: the pool of registers of a workgroup, waiting for it, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator.ir.report import ReportKind
from emulator.nv.ptx.statements import PtxError
from emulator.simt.work import LaunchOptions


def run(bench: Any, body: str, *, most: str = ".maxnreg 168", threads: int = 384, **how: Any) -> Any:
    """Run a kernel with its warpgroup's number in %r1; every thread writes %r2 at the end."""
    text = f""".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out) {most} {{
    .reg .pred %p<8>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd0; shr.u32 %r1, %r0, 7; setp.eq.u32 %p0, %r1, 0;
    mov.u32 %r2, 1; {body} st.global.u32 [%rd1], %r2; ret; }}"""  # noqa: E501 - PTX reads best unbroken
    out = bench.new(np.zeros(threads), "u4")
    return out, bench.run(text, "k", 1, threads, out, arch="sm_90a", **how)


SPLIT = """@%p0 bra P; setmaxnreg.inc.sync.aligned.u32 240; bra E;
    P: setmaxnreg.dec.sync.aligned.u32 {}; E: bar.sync 0;"""


@pytest.mark.parametrize("order", ["forward", "reverse", 5])
def test_consumers_take_what_the_producer_releases(any_bench: Any, order: Any) -> None:
    """Three warpgroups of 168 registers: one keeps 24, so two of 240 fit."""
    out, result = run(any_bench, SPLIT.format(24), options=LaunchOptions(warp_order=order))
    assert result.fault is None, result.fault
    assert out.all()


def test_registers_are_returned_and_taken_again(bench: Any) -> None:
    again = "setmaxnreg.dec.sync.aligned.u32 24; bar.sync 0; setmaxnreg.inc.sync.aligned.u32 168;"
    out, result = run(bench, SPLIT.format(24) + again)
    assert result.fault is None, result.fault
    assert out.all()


def test_registers_that_no_warp_releases_are_a_deadlock(bench: Any) -> None:
    _, result = run(bench, SPLIT.format(40))
    assert result.fault.kind is ReportKind.REGISTER_DEADLOCK
    assert result.fault.other == "72 more registers a thread, of which the pool has 8"
    assert "setmaxnreg.inc" in result.fault.instruction


@pytest.mark.parametrize(("action", "count"), [("inc", 160), ("dec", 176)])
def test_more_is_not_less(bench: Any, action: str, count: int) -> None:
    _, result = run(bench, f"setmaxnreg.{action}.sync.aligned.u32 {count};")
    assert result.fault.kind is ReportKind.BAD_REGISTER_COUNT
    assert result.fault.other == "168 registers a thread"


def test_without_a_known_number_nothing_waits(bench: Any) -> None:
    out, result = run(bench, SPLIT.format(40), most="")
    assert result.fault is None, result.fault
    assert out.all()


@pytest.mark.parametrize("count", ["20", "16", "264", "%r1"])
def test_numbers_that_do_not_exist_are_refused(bench: Any, count: str) -> None:
    with pytest.raises(PtxError, match="multiple of 8 from 24 to 256"):
        run(bench, f"setmaxnreg.dec.sync.aligned.u32 {count};")
