"""A defect of the emulator itself stops the channel and is reported as such."""

from __future__ import annotations

from typing import Any

from drivers.nv.layouts.fault import RcCode
from tests.emulator.nv_machine.client import Client, sem


class Defective:
    """A host engine that fails at every method."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was thought impossible")


def test_an_error_inside_the_emulator_stops_the_channel_and_shows_where_it_was(up: Client) -> None:
    ring = up.copy_channel()
    memory = up.memory(4096, system=True)
    broken: Any = Defective()
    up.kernel.machine.channels[-1].run.host = broken
    ring.push(sem(memory.va, 1))
    assert ring.wait_error()
    assert ring.error() == RcCode.GR_EXCEPTION
    assert memory.view[0] == 0
    report = up.reports()[0]
    assert report.startswith("defect of the emulator")
    assert "was thought impossible" in report
    assert "channel.py" in report


def test_other_channels_go_on_after_a_defect(up: Client) -> None:
    first, second = up.copy_channel(), up.copy_channel()
    memory = up.memory(4096, system=True)
    broken: Any = Defective()
    up.kernel.machine.channels[0].run.host = broken
    first.push(sem(memory.va, 1))
    assert first.wait_error()
    second.push(sem(memory.va, 2))
    while memory.view[0] != 2:
        assert second.error() == 0
