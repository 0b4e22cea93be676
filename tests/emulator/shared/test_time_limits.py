"""The time limit of an emulated kernel: CPU time of its host threads, whatever the load of the machine.

No test here depends on time: the clock is injected.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from emulator.ir.report import ReportKind
from emulator.nv.ptx.module import load_ptx, work_of
from emulator.simt.deadline import Deadline, HostTime, thread_seconds
from emulator.simt.slices import SlicedLaunch
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench as AmdBench
from tests.emulator.nv.conftest import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 flag) {\n"
ENDLESS = HEAD + "L: bra L; }"
UNTIL_SET = (
    HEAD
    + """.reg .u64 %p; .reg .u32 %v; .reg .pred %no; ld.param.u64 %p, [flag];
L: ld.volatile.global.u32 %v, [%p]; setp.eq.u32 %no, %v, 0; @%no bra L; ret; }"""
)
POLLED_ON_AMD = (
    ir.HEAD
    + """define amdgpu_kernel void @k(ptr addrspace(1) %flag) {
  br label %poll
poll:
  %seen = load atomic i32, ptr addrspace(1) %flag syncscope("agent") monotonic, align 4
  %no = icmp eq i32 %seen, 0
  br i1 %no, label %poll, label %done
done:
  ret void
}
"""
)
SHORT_S = 1e-9
"""A limit that any kernel exceeds in elapsed time."""


class Clock:
    """A clock of threads: `each` of how often it was called, `called` times so far."""

    def __init__(self, each: Callable[[int], float] = lambda _: 0.0) -> None:
        self.each = each
        self.called = 0

    def __call__(self, thread: int) -> float:
        assert any(thread == one.ident for one in threading.enumerate())
        self.called += 1
        return self.each(self.called)


def sliced(text: str, flag: np.ndarray, clock: Clock, bench: Bench) -> SlicedLaunch:
    module = load_ptx(text, arch="sm_90", settings=bench.settings)
    kernel = module.kernel("k", module.place(bench.memory))
    work = work_of(kernel, (3, 1, 1), (64, 1, 1), flag.ctypes.data.to_bytes(8, "little"), 0)
    return SlicedLaunch(
        kernel.program, work, bench.memory, LaunchOptions(timeout_s=SHORT_S, clock=clock), on_end=lambda: None
    )


def test_time_of_a_thread_is_what_it_computes() -> None:
    own = threading.get_ident()
    before = thread_seconds(own)
    while thread_seconds(own) == before:
        pass
    assert thread_seconds(own) <= time.process_time()


def test_the_host_thread_that_spent_most_counts() -> None:
    now = [10.0]
    times = HostTime(lambda _: now[0])
    times.start(0)
    now[0] += 50
    assert times.most == 0  # it counts from the first look
    now[0] += 2
    assert times.most == 2
    times.start(1)
    now[0] += 3
    times.stop(1)
    times.stop(0)
    assert times.most == 5
    now[0] += 100  # nobody runs the kernel
    assert times.most == 5
    times.start(1)
    now[0] += 4
    assert times.most == 7


def test_a_deadline_passes_when_more_was_spent() -> None:
    stopped, asked = threading.Event(), threading.Event()
    spent = [1.0]

    def seconds() -> float:
        asked.set()
        return spent[0]

    with Deadline(stopped.set, 1.0, seconds) as deadline:
        assert asked.wait(600)
        assert not deadline.passed
        spent[0] = 1.5
        assert stopped.wait(600)
        assert deadline.passed


@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_whose_threads_get_no_cpu_time_is_not_ended(threads: int) -> None:
    """Its flag is set when the limit was checked several times, long after the limit in elapsed time."""
    bench = Bench()
    flag = bench.new([0], "u4")

    def late(calls: int) -> float:
        flag[0] = calls > 4 * threads
        return 0.0

    options = LaunchOptions(timeout_s=SHORT_S, clock=Clock(late), threads=threads)
    assert bench.run(UNTIL_SET, "k", 3, 64, flag, options=options).fault is None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("text", "named"), [(ENDLESS, ""), (UNTIL_SET, "ld.volatile.global.u32 %v, [%p] ")])
def test_a_kernel_beyond_its_limit_is_ended_and_a_loop_that_polls_is_named(
    text: str, named: str, threads: int
) -> None:
    bench = Bench()
    options = LaunchOptions(timeout_s=50.0, clock=Clock(lambda calls: 10.0 * calls), threads=threads)
    fault = bench.run(text, "k", 3, 64, bench.new([0], "u4"), options=options).fault
    assert fault is not None
    assert fault.kind is ReportKind.HANG
    assert not named or (fault.line, fault.instruction) == (6, f"{named}(ended after 50.0 s of CPU time)")
    assert "50.0 s of CPU time" in fault.instruction


def test_the_loop_of_a_sliced_kernel_that_polls_in_vain_is_named() -> None:
    bench = Bench()
    launch = sliced(UNTIL_SET, bench.new([0], "u4"), Clock(float), bench)
    while not launch.advance(turns=2, patience_s=600.0):
        pass
    fault = launch.result().fault
    assert fault is not None
    assert (fault.kind, fault.line) == (ReportKind.HANG, 6)
    launch.close()


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
def test_the_loop_of_an_amd_kernel_that_polls_in_vain_is_named(processor: str) -> None:
    bench = AmdBench(processor)
    options = LaunchOptions(timeout_s=50.0, clock=Clock(lambda calls: 10.0 * calls), threads=1)
    fault = bench.run(POLLED_ON_AMD, 3, 64, bench.new([0], "u4"), options=options).fault
    assert fault is not None
    assert fault.kind is ReportKind.HANG
    assert "load_" in fault.instruction
    assert fault.instruction.endswith("(ended after 50.0 s of CPU time)")


def test_polling_warps_are_no_finding_of_a_kernel_that_faults() -> None:
    bench = Bench()
    text = UNTIL_SET.replace("L: ld", "mov.u32 %v, %tid.x; setp.ge.u32 %no, %v, 32; @%no trap;\nL: ld")
    result = bench.run(text, "k", 1, 64, bench.new([0], "u4"))
    assert result.fault is not None
    assert result.fault.kind is ReportKind.TRAP
    assert result.findings == ()


def test_a_sliced_kernel_without_cpu_time_is_not_ended() -> None:
    bench = Bench()
    flag, clock = bench.new([0], "u4"), Clock()
    launch = sliced(UNTIL_SET, flag, clock, bench)
    for _ in range(5):
        assert not launch.advance(turns=2, patience_s=0.001)
    flag[0] = 1
    while not launch.advance(turns=2, patience_s=0.001):
        pass
    assert clock.called > 0
    assert launch.result().fault is None
    launch.close()


def test_a_sliced_kernel_in_the_background_is_ended_by_its_cpu_time() -> None:
    bench = Bench()
    launch = sliced(ENDLESS, bench.new([0], "u4"), Clock(float), bench)
    while not launch.advance(turns=2, patience_s=0.001):
        pass
    fault = launch.result().fault
    assert fault is not None
    assert fault.kind is ReportKind.HANG
    launch.close()
