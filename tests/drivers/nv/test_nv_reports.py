"""Findings of an emulated GPU in the error that a wait raises, as text and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq
from compiler.targets.nvptx import assembler
from hcq.errors import DeviceFault, FaultKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.limits import HANG_S
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = hcq.BufferSpec(place=hcq.Place.HOST, host_visible=True, coherent=True)
needs_assembler = pytest.mark.skipif(
    not assembler.available(), reason="neither nvJitLink nor ptxas is installed"
)


@pytest.fixture
def device() -> Iterator[hcq.Device]:
    with hcq.open("nv-emu:checked") as opened:
        yield opened


def image(body: str, *, name: str = "wrong") -> KernelImage:
    text = f""".version 8.3
.target sm_90a
.address_size 64
.visible .entry {name}(.param .u64 out)
{{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
.shared .align 4 .b8 s[256];
ld.param.u64 %rd0, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, s;
mad.lo.u32 %r2, %r0, 4, %r1;
mad.wide.u32 %rd1, %r0, 4, %rd0;
{body}
ret;
}}
"""
    return KernelImage(
        name=name,
        arch="sm_90a",
        code=assembler.assemble(text, "sm_90a"),
        args=(ArgSlot("out", ArgKind.POINTER, 0, 8),),
        kernarg_size=8,
        shared_bytes=256,
    )


def fault_of(device: hcq.Device, body: str, *, groups: int = 1, threads: int = 64) -> DeviceFault:
    program = device.load(image(body))
    out = device.alloc(4096, HOST)
    queue = device.compute
    commands = queue.record().exec(program, program.args(out), groups=(groups, 1, 1), threads=(threads, 1, 1))
    with pytest.raises(DeviceFault) as raised:
        queue.submit(commands).wait(timeout_s=HANG_S)
    return raised.value


RACE = """st.shared.u32 [%r2], %r0;
bar.sync 0;
xor.b32 %r3, %r2, 128;
ld.shared.u32 %r4, [%r3];
st.shared.u32 [%r2], %r4;
st.global.u32 [%rd1], %r4;"""


@needs_assembler
def test_a_missing_barrier_is_named_with_its_line_and_both_sides(device: hcq.Device) -> None:
    fault = fault_of(device, RACE)
    assert fault.report.kind is FaultKind.ENGINE_EXCEPTION, "what the kernel driver says of it"
    (report,) = fault.reports
    assert "race" in report
    assert "ld.shared.u32" in report
    assert "st.shared.u32" in report, "the other side"
    assert report.count("thread (") == 4, "of each side of both warps' findings"
    assert "race in shared memory" in str(fault).splitlines()[0], "what happened comes first"
    assert "illegal instruction" not in str(fault)


@needs_assembler
def test_an_instruction_that_is_not_emulated_is_named(device: hcq.Device) -> None:
    fault = fault_of(device, "mov.u32 %r3, %pm0;\nst.global.u32 [%rd1], %r3;")
    assert any("%pm0" in report for report in fault.reports), fault.reports
    assert "%pm0" in str(fault)


def test_a_deadlock_of_two_queues_is_named_and_no_kernel_is_blamed() -> None:
    with hcq.open("nv-emu:checked", validate=False) as device:
        first, second = device.signal(label="first"), device.signal(label="second")
        one, other = device.compute, device.copies[0]
        one.submit(one.record().wait(first, 1).signal(second, 1))
        point = other.submit(other.record().wait(second, 1).signal(first, 1))
        with pytest.raises(DeviceFault) as raised:
            point.wait(timeout_s=HANG_S)
    fault = raised.value
    assert fault.report.kind is FaultKind.HANG
    assert any("deadlock" in report for report in fault.reports), fault.reports
    assert "deadlock" in str(fault)
    assert "no kernel was encoded" in str(fault)


@needs_assembler
def test_a_second_fault_carries_only_its_own_reports(device: hcq.Device) -> None:
    first = fault_of(device, RACE)
    device.recover()
    second = fault_of(device, "mov.u32 %r3, %pm0;\nst.global.u32 [%rd1], %r3;")
    assert not any("%pm0" in report for report in first.reports)
    assert not any("race" in report for report in second.reports)


def test_reports_are_in_the_message_and_in_the_data() -> None:
    kernel = RecordedKernel()
    made = driver_of(kernel).open(0, None)
    kernel.told = ("one: of two\nlines", "other")
    kernel.post_error(109)
    report = made.fault()
    made.close()
    assert report is not None
    assert report.reports == ("one: of two\nlines", "other")
    assert str(report).startswith("nv:0: one: of two\n    lines\n  report: other\n  hang: the kernel driver")
    assert DeviceFault(report).reports == report.reports
