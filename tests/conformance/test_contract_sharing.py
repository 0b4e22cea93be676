"""Buffers and signals that two processes share: this one and a child with a device of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import hcq
from hcq.hostpool import SEALS
from tests.conformance.conftest import Lab, read
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = """
import os, socket, sys
import hcq
with socket.socket(fileno=int(sys.argv[1])) as link, hcq.open("cpu") as device:
    if sys.argv[2] == "theirs":
        own, turn = device.alloc(4096, hcq.BufferSpec(shared=True)), device.signal(shared=True)
        fds = [own.export(), turn.export()]
        socket.send_fds(link, [b"x"], fds)
    else:
        _, fds, _, _ = socket.recv_fds(link, 16, 2)
        own, turn = device.import_buffer(fds[0]), device.import_signal(fds[1])
    with own as data:
        for fd in fds:
            os.close(fd)
        queue, lap = device.compute, 0
        while True:
            part = data.view(4 * lap, 4)
            queue.submit(queue.record().wait(turn, 2 * lap + 1).copy(data.view(4 * lap + 4, 4), part)
                         .signal(turn, 2 * lap + 2))
            turn.wait(2 * lap + 2)
            lap += 1
"""


@pytest.fixture(params=["ours", "theirs"])
def shared(
    lab: Lab, request: pytest.FixtureRequest
) -> Iterator[tuple[hcq.Buffer, hcq.Signal, subprocess.Popen[bytes]]]:
    """A buffer, a signal, and a child that copies word n to word n + 1 when the signal is 2 n + 1.

    This process exports the two, or the child does.
    """
    try:
        buffer = lab.device.alloc(4096, hcq.BufferSpec(shared=True), label="ours")
        descriptors = [buffer.export()]
    except hcq.UnsupportedError as error:
        assert "hint: share memory of a cpu device" in str(error)  # noqa: PT017 - or the test goes on
        pytest.skip(f"{lab.device.name} shares no memory")
    turn = lab.device.signal(shared=True, label="turn")
    descriptors.append(turn.export())
    mine, theirs = socket.socketpair()
    with mine, theirs:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(theirs.fileno()), request.param], pass_fds=[theirs.fileno()]
        )
        if request.param == "ours":
            socket.send_fds(mine, [b"x"], descriptors)
        else:
            received = socket.recv_fds(mine, 16, 2)[1]
            buffer, turn = (
                lab.device.import_buffer(received[0]),
                lab.device.import_signal(received[1], label="turn"),
            )
            descriptors += received
        for fd in descriptors:
            os.close(fd)
        yield buffer, turn, child
        child.kill()
        child.wait()


def lap(lab: Lab, turn: hcq.Signal, number: int) -> None:
    """Let the child copy one word, and wait for it."""
    lab.queue.submit(lab.queue.record().signal(turn, 2 * number + 1))
    lab.queue.submit(lab.queue.record().wait(turn, 2 * number + 2)).wait(timeout_s=HANG_S)


def test_two_processes_share_a_buffer_and_a_signal_and_survive_a_kill(
    lab: Lab, shared: tuple[hcq.Buffer, hcq.Signal, subprocess.Popen[bytes]]
) -> None:
    buffer, turn, child = shared
    lab.queue.submit(lab.queue.record().fill(buffer, 0).fill(buffer, 7, 4)).wait(timeout_s=HANG_S)
    for number in range(3):
        lap(lab, turn, number)
    assert read(buffer)[:5] == [7, 7, 7, 7, 0]
    killer = threading.Timer(0.05, child.send_signal, [signal.SIGKILL])
    killer.start()
    with pytest.raises(hcq.SignalTimeout, match="turn"):
        turn.wait(99, timeout_s=0.5)  # the child is killed meanwhile
    killer.join()
    child.wait()
    assert read(buffer)[:5] == [7, 7, 7, 7, 0]
    with pytest.raises(hcq.SignalTimeout):
        turn.wait(99, timeout_s=0.01)
    again = lab.device.import_buffer(fd := buffer.export())
    os.close(fd)
    lab.queue.submit(lab.queue.record().fill(buffer.view(4, 4), 9)).wait(timeout_s=HANG_S)
    assert read(again)[1] == 9
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are counted
    again.close()
    lab.device.sync()
    assert len(os.listdir("/proc/self/fd")) == files - 1  # noqa: PTH208
    assert lab.device.memory().deferred == 0


def test_other_descriptors_are_refused(lab: Lab) -> None:
    words, own = lab.words(1), lab.device.signal()
    for label in ("a\0b", "a" * 1000):
        assert lab.device.signal(shared=True, label=label).label == label
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    left, right = os.pipe()
    odd = [os.memfd_create("odd", os.MFD_ALLOW_SEALING) for _ in range(3)]
    for fd, size in zip(odd, (0, 4, 100), strict=True):
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    for fd in (left, 12345, "no", -1, 1 << 40, *odd):
        with pytest.raises((hcq.UsageError, hcq.UnsupportedError)):
            lab.device.import_buffer(fd)  # type: ignore[arg-type]  # the wrong class is the point
        with pytest.raises(hcq.UsageError, match="no shared memory"):
            lab.device.import_signal(fd)  # type: ignore[arg-type]
    with pytest.raises(hcq.UsageError, match="shares its pages"):
        words.export()
    with pytest.raises(hcq.UsageError, match="of this process alone"):
        own.export()
    for fd in (left, right, *odd):
        os.close(fd)
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
