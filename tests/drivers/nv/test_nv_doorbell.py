"""The usermode page: doorbells through BAR1 if the class supports it, the clock always through BAR0."""

from __future__ import annotations

import contextlib

import pytest

from drivers.nv.driver import NvDriver
from drivers.nv.quirks import parse
from tests.support.nv.script import Script
from tests.support.nv.scripted import ScriptedKernel
from tests.support.scripted.host import RefusedError

HOPPER, BLACKWELL, AMPERE = 0xCBC0, 0xCEC0, 0xC6C0


def pages(kernel: ScriptedKernel) -> list[str]:
    """Return the parameters with which each usermode object was allocated."""
    lines = [line for line in kernel.calls if line.startswith("RM_ALLOC ") and "_USERMODE_A " in line]
    return [line.split(" ", 4)[4] if line.count(" ") > 3 else "" for line in lines]


def opened(kernel: ScriptedKernel, choices: str = "default"):
    return contextlib.closing(NvDriver("nv", lambda _: kernel).open(0, None, choices=parse(choices)))


@pytest.mark.parametrize("compute", [HOPPER, BLACKWELL])
def test_the_clock_is_read_from_a_page_of_its_own(compute: int):
    kernel = ScriptedKernel(Script(compute_class=compute))
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["bBar1Mapping=1", "0"]
    assert kernel.leaks() == []


def test_one_page_serves_both_where_doorbells_go_through_bar0():
    kernel = ScriptedKernel()
    with opened(kernel, "doorbell_bar1=false") as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == ["0"]


def test_classes_before_hopper_take_no_parameters_and_have_one_page():
    kernel = ScriptedKernel(Script(compute_class=AMPERE))
    with opened(kernel) as device:
        assert device.clock().ticks > 0
        assert pages(kernel) == [""]


def test_the_scripted_kernel_refuses_reads_of_the_doorbell_page():
    with opened(ScriptedKernel()) as device, pytest.raises(RefusedError, match="write-only page"):
        device._doorbell.registers.read32(0x80)
