"""The cpu device and forks of its process. Not here: threads, exits, Ctrl-C (`tests.conformance`)."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hcq.driver import BufferSpec
from hcq.errors import UsageError
from tests.drivers.cpu.rig import (
    COMPUTE,
    Box,
    finish,
    send,
    set_,
)
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice
    from drivers.cpu.driver import CpuDriver


def in_fork(work: Callable[[], object]) -> int:
    """Run a function in a forked child, which always exits afterwards; return its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(HANG_S))
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fork_is_refused_with_a_message(device: CpuDevice) -> None:
    read, write = os.pipe()

    def use() -> None:
        try:
            device.alloc(4096, BufferSpec())
            text = "nothing was refused"
        except UsageError as error:
            text = str(error)
        device.close()
        os.write(write, text.encode())

    assert in_fork(use) == 0
    text = os.read(read, 1000).decode()
    assert "not in this fork" in text
    assert "hint: " in text
    for end in (read, write):
        os.close(end)
    box = Box(device)
    send(device.ring(COMPUTE, 0), set_(box.va, 1))
    finish(device, box.va, 1)


def test_forked_child_can_open_a_device_of_its_own(driver: CpuDriver) -> None:
    parent = driver.open(0, None)

    def use() -> None:
        device = driver.open(0, None)
        box = Box(device)
        send(device.ring(COMPUTE, 0), set_(box.va, 1))
        finish(device, box.va, 1)
        device.close()

    assert in_fork(use) == 0
    parent.close()
