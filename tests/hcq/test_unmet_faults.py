"""Faults of work that nothing waited for: closing a device raises them, the end of the interpreter warns."""

from __future__ import annotations

import gc
import textwrap
from typing import TYPE_CHECKING

import pytest

from hcq.errors import DeviceFault, FaultWarning
from hcq.faults.refusal import collected
from hcq.registry import wrap
from tests.children import python
from tests.hcq.fake import ONE, WILD, FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    from hcq.device import Device


def faulting() -> Device:
    """Return a device that runs a kernel with a wild access, for which nothing has waited."""
    device = wrap(FakeDevice())
    program, a = device.load(WILD), device.alloc(64)
    device.compute.submit(device.compute.record().exec(program, program.args(a), groups=ONE, threads=ONE))
    return device


def dropped() -> None:
    """Open a device, and drop it."""
    device = faulting()
    del device
    gc.collect()


def test_close_raises_a_fault_that_nothing_waited_for_and_releases_all():
    device = faulting()
    with pytest.raises(DeviceFault, match="no such page"):
        device.close()
    assert device.closed
    device.close()


def test_the_end_of_a_block_raises_it_too():
    with pytest.raises(DeviceFault, match="no such page"), faulting():
        pass


def test_close_does_not_raise_a_fault_again():
    with faulting() as device, pytest.raises(DeviceFault):
        device.sync()


def test_a_fault_that_was_collected_is_not_raised():
    with collected() as reports:
        faulting().close()
    assert len(reports) == 1


def test_an_error_in_the_block_has_the_fault_as_a_note():
    with pytest.raises(ZeroDivisionError) as caught, faulting():
        raise ZeroDivisionError
    assert ["no such page" in note for note in caught.value.__notes__] == [True]


def test_the_exit_of_a_program_in_the_block_is_the_fault():
    with pytest.raises(DeviceFault, match="no such page"), faulting():
        raise SystemExit(0)


def test_a_device_that_is_dropped_warns_of_it():
    with pytest.warns((FaultWarning, ResourceWarning)) as caught:
        dropped()
    assert {one.category for one in caught} == {FaultWarning, ResourceWarning}


@pytest.mark.parametrize("wait", [False, True])
def test_the_end_of_the_interpreter_warns_of_it(wait: bool):  # noqa: FBT001 - a parameter of the test
    program = """
        from tests.hcq.test_unmet_faults import *
        device, other = faulting(), wrap(FakeDevice(index=1))
        try:
            if WAIT:
                device.sync()
        except DeviceFault:
            pass
    """
    done = python("-c", textwrap.dedent(program).replace("WAIT", str(wait)), status=None, timeout_s=HANG_S)
    assert (done.returncode, done.stdout) == (0, "")
    assert ("FaultWarning: fake:0" in done.stderr) is not wait
