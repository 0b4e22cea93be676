"""Kernels that another kernel's descriptor starts, instead of a barrier and a launch by words."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from drivers.kernel import view_at
from drivers.nv.layouts.qmd import QMDS
from drivers.nv.layouts.qmd_values import DependentAction
from drivers.nv.quirks import parse
from hcq.commands import Scope, Write
from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.errors import UsageError
from tests.limits import HANG_S
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.commandbuffer import CommandBuffer
    from hcq.program import Program

LAYOUT = QMDS["V04"]


class Lab:
    """A GPU: what a recording sends, as text of k (launch), > (started by k), | (idle), w (wait)."""

    def __init__(self, choices: str = "default") -> None:
        self.kernel = RecordedKernel()
        driver = driver_of(self.kernel)
        self.device = Device(driver.open(0, None, choices=parse(choices)))
        self.program: Program = self.device.load(sample("sm_90a", 90))
        self.memory = self.device.alloc(4096, BufferSpec(place=Place.HOST, host_visible=True, coherent=True))
        self.signal = self.device.signal()

    def record(self, text: str) -> CommandBuffer:
        """Return k: a kernel, |: a barrier, w: a wait that is over, c: a copy."""
        commands = self.device.compute.record()
        for letter in text:
            if letter == "k":
                args = self.program.args(self.memory, self.memory, 3)
                commands.exec(self.program, args, groups=(2, 1, 1), threads=(32, 1, 1))
            elif letter == "|":
                commands.barrier(Scope.DEVICE)
            elif letter == "w":
                commands.wait(self.signal, 0)
            else:
                commands.copy(self.memory, self.memory.view(2048, 64), 64)
        return commands

    def sent(self, text: str) -> str:
        """Return what the words of a recording do, without the end of the submission."""
        self.kernel.doorbells.streams.clear()
        self.device.compute.submit(self.record(text)).wait(timeout_s=HANG_S)
        out = ""
        for line in itertools.chain.from_iterable(self.kernel.doorbells.streams):
            if "SEND_PCAS_A" in line:
                out += "k" + self._followers(int(line.rsplit("=", 1)[1], 16))
            elif "WAIT_FOR_IDLE" in line:
                out += "|"
            elif "ACQ" in line:
                out += "w"
            elif "LAUNCH_DMA" in line and "SRC" in line:
                out += "c"
        return out

    def _followers(self, va: int) -> str:
        out = ""
        while True:
            descriptor = LAYOUT.from_bytes(view_at(va, LAYOUT.SIZE))
            assert descriptor.check() == []
            if not descriptor.DEPENDENT_QMD_ENABLE[0]:
                return out
            assert descriptor.DEPENDENT_QMD_ACTION[0] is DependentAction.QMD_INVALIDATE_COPY_SCHEDULE
            va, out = descriptor.DEPENDENT_QMD0_POINTER << 8, out + ">"

    def close(self) -> None:
        self.device.close()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


@pytest.mark.parametrize(
    ("recorded", "sent"),
    [
        ("k", "k"),
        ("k|k", "k>"),
        ("k|k|k", "k>>"),
        ("k|", "k|"),
        ("k|k|", "k>|"),
        ("k||k", "k>"),
        ("kk|k", "kk|k"),
        ("k|kk", "k|kk"),
        ("k|k|kk|k", "k>|kk|k"),
        ("k|wk", "k|wk"),
        ("k|kwk", "k>w|k"),
        ("kw|k", "kw|k"),
        ("|k|k", "|k>"),
    ],
)
def test_a_barrier_between_two_single_kernels_is_a_dependent_launch(lab: Lab, recorded: str, sent: str):
    assert lab.sent(recorded) == sent


def test_a_copy_waits_for_kernels_and_kernels_behind_it_are_launched_by_words(lab: Lab):
    sent = lab.sent("k|k|c|k")
    assert sent.startswith("k>|")
    assert sent.endswith("k")


def test_without_dependent_launches_each_barrier_waits():
    lab = Lab("dependent_launch=off")
    assert lab.sent("k|k|k") == "k|k|k"
    lab.close()


def test_a_recording_that_fails_leaves_nothing_for_the_next(lab: Lab):
    commands = lab.record("k|")
    commands.commands.append(Write(lab.memory, 1 << 80, 64))  # recording refuses it
    with pytest.raises(UsageError):
        lab.device.compute.submit(commands)
    assert lab.sent("k|k") == "k>"
