"""Queues and the interpreter: its lock, threads, end and forks."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hcq
from tests.children import interrupt, python
from tests.conformance.conftest import Lab, opened, read
from tests.limits import HANG_S
from tests.together import together

if TYPE_CHECKING:
    import subprocess

KERNELS = 1000
LOOK_US = 1000


def test_dependent_kernels_finish_while_python_holds_its_lock(native: str) -> None:
    """1,000 kernels alternate on two queues while this thread holds Python's lock and sleeps."""
    lab = Lab(opened(native, validate=False))
    total, gate = lab.words([0]), lab.device.signal(host_set=True)
    begin, end = lab.device.stamp(), lab.device.stamp()
    queues = (lab.queue, lab.device.computes[-1])
    point = lab.queue.submit(lab.queue.record().wait(gate, 1).timestamp(begin))
    for k in range(KERNELS):
        queue = queues[k % 2]
        commands = lab.run(queue.record(), "affine", total, 1, 1)
        if k == KERNELS - 1:
            commands.timestamp(end)
        point = queue.submit(commands, after=[point])
    sleep = ctypes.PyDLL(None).usleep  # keeps the lock
    time.sleep(0.05)  # what must not happen has so long to happen
    assert (begin.ticks, end.ticks) == (0, 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(10 * HANG_S)  # nobody is given the lock, should anybody ask
    try:
        gate.value = 1
        for _ in range(HANG_S * 1_000_000 // LOOK_US):
            if end.ticks:
                break
            sleep(LOOK_US)
    finally:
        sys.setswitchinterval(before)
    assert 0 < begin.ticks < end.ticks
    point.wait(timeout_s=HANG_S)
    assert read(total) == [KERNELS]
    lab.close()


def test_waiting_lets_other_threads_run(name: str) -> None:
    """A wait ends after another thread has executed its steps."""
    lab = Lab(opened(name))
    gate = lab.device.signal(host_set=True)
    point = lab.queue.submit(lab.queue.record().wait(gate, 1))
    steps: list[int] = []

    def work() -> None:
        for _ in range(5):
            steps.append(1)
            time.sleep(0.001)
        gate.value = 1

    thread = threading.Thread(target=work)
    thread.start()
    point.wait(timeout_s=HANG_S)
    thread.join()
    assert len(steps) == 5
    lab.close()


IDLE = """
import os, threading, time
from pathlib import Path

def spent():
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(threading.get_native_id()):
            lines = (task / "status").read_text().splitlines()
            time_used = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
            found[task.name] = [*time_used, *(line for line in lines if "ctxt_switches" in line)]
    return found

blocked = lab.device.computes[-1].submit(lab.device.computes[-1].record().wait(gate, 1))
lab.copies.submit(lab.copies.record().write(out, 1)).wait(timeout_s=1000)
end = time.monotonic() + 1000
while time.monotonic() < end:
    before = spent()
    time.sleep(0.3)
    if spent() == before:
        print("at rest")
        break
gate.value = 1
blocked.wait(timeout_s=1000)
lab.close()
"""


def test_idle_device_uses_no_cpu(native: str, lab: Lab) -> None:
    """With one queue idle and one asleep in a wait, no thread of the process is scheduled any more."""
    del lab  # only to skip where the device is absent
    done = run(script(native, IDLE))
    assert (done.returncode, done.stdout, done.stderr) == (0, "at rest\n", "")


def test_blocked_wait_sleeps(name: str) -> None:
    """Threads of earlier tests may be busy, and slow machines poll long: one of many tries suffices."""
    lab = Lab(opened(name, validate=False))
    gate, least = lab.device.signal(host_set=True), 1.0
    for value in range(1, 21):
        point = lab.queue.submit(lab.queue.record().wait(gate, value))
        timer = threading.Timer(0.5, setattr, (gate, "value", value))
        timer.start()
        waited, used = time.monotonic(), time.process_time()
        point.wait(timeout_s=HANG_S)
        least = min(least, (time.process_time() - used) / (time.monotonic() - waited))
        timer.join()
        if least < 0.9:
            break
    lab.close()
    assert least < 0.9, "a wait that does not sleep uses all of a core"


def test_close_ends_a_queue_that_waits_forever(name: str) -> None:
    lab = Lab(opened(name, validate=False))
    gate = lab.device.signal(host_set=True)
    lab.queue.submit(lab.queue.record().wait(gate, 1))
    with pytest.warns(ResourceWarning, match="in flight"):
        lab.device.close(timeout_s=0.2)


def test_wait_in_one_thread_ends_when_another_closes_the_device(name: str) -> None:
    lab = Lab(opened(name, validate=False))
    gate = lab.device.signal(host_set=True)
    point = lab.queue.submit(lab.queue.record().wait(gate, 1))
    errors: list[Exception] = []

    def work() -> None:
        try:
            point.wait(timeout_s=HANG_S)
        except hcq.HcqError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)  # it may wait by then, or begin to wait for a closed device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        lab.device.close(timeout_s=0.1)
    thread.join(timeout=HANG_S)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [hcq.UsageError]


def script(name: str, body: str) -> str:
    """Return a program that has the suite's kernels and a device."""
    head = (
        "import sys, time, hcq\n"
        f"sys.path.insert(0, {str(Path.cwd())!r})\n"
        "from tests.conformance.conftest import Lab\n"
        f"lab = Lab(hcq.open({name!r}, validate=False))\n"
        "out = lab.words(1)\n"
        "gate = lab.device.signal(host_set=True)\n"
    )
    return head + body


def run(text: str) -> subprocess.CompletedProcess[str]:
    return python("-c", text, status=None, timeout_s=HANG_S)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("busy", ["waiting", "computing", "copying"])
def test_interpreter_ends_cleanly_while_queues_are_busy(name: str, lab: Lab, busy: str) -> None:
    if busy == "computing":
        lab.load("spin")  # only to skip where that cannot be
    del lab
    body = {
        "waiting": "lab.queue.submit(lab.queue.record().wait(gate, 1))\n",
        "computing": "commands = lab.run(lab.queue.record(), 'spin', out, 1000, groups=(2000, 100, 1))\n"
        "lab.queue.submit(commands)\n",
        "copying": "a, b = lab.device.alloc(1 << 24), lab.device.alloc(1 << 24)\n"
        "for _ in range(300): lab.copies.submit(lab.copies.record().copy(a, b))\n",
    }[busy]
    done = run(script(name, body + "print('end')\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_device_dropped_without_close_is_reported(name: str, lab: Lab) -> None:
    del lab
    done = run(script(name, "import gc\ndel lab.device, lab, out, gate\ngc.collect()\n").replace(
        "import sys", "import warnings; warnings.simplefilter('always')\nimport sys", 1
    ))  # fmt: skip
    assert done.returncode == 0
    assert "never closed" in done.stderr


def test_ctrl_c_ends_a_wait_immediately(name: str, lab: Lab) -> None:
    del lab
    text = script(
        name,
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # left out where SIGINT is ignored
        "point = lab.queue.submit(lab.queue.record().wait(gate, 1))\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    point.wait()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "gate.value = 1\n"
        "point.wait(timeout_s=1000)\n"
        "lab.close()\n"
        "print('closed')\n",
    )
    interrupt("-c", text, last="closed")


def test_forked_child_is_refused_while_the_parent_continues(name: str, lab: Lab) -> None:
    out, gate = lab.words(1), lab.device.signal(host_set=True)
    ends = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+ tells of threads at each fork
        child = os.fork()
    if child == 0:
        text = "nothing was refused"
        try:
            signal.alarm(HANG_S)
            with suppress(hcq.UsageError):
                gate.value = 1
            lab.queue.submit(lab.queue.record().fill(out, 1))
        except BaseException as error:  # noqa: BLE001 - the child must not run the parent's tests
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(ends[1], text.encode())
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    text = os.read(ends[0], 2000).decode()
    for end in ends:
        os.close(end)
    assert text.startswith("UsageError: ")
    assert "fork" in text
    assert gate.value == 0
    assert "hint: " in text
    lab.queue.submit(lab.queue.record().fill(out, 2)).wait(timeout_s=HANG_S)
    assert read(out) == [2]


def test_sixteen_threads_use_one_device(name: str, lab: Lab) -> None:
    out = lab.words(1)
    lab.load("count")
    queues = lab.device.computes

    def work(seed: int) -> None:
        for k in range(15):
            mine = lab.words([seed] * 4)
            copy = lab.words(4)
            queue = queues[(seed + k) % len(queues)]
            lab.copies.submit(lab.copies.record().copy(copy, mine)).wait(timeout_s=HANG_S)
            assert read(copy) == [seed] * 4
            queue.submit(lab.run(queue.record(), "copy", copy, mine)).wait(timeout_s=HANG_S)

    lab.load("copy")
    together(work, 16)
    assert read(out) == [0]


@pytest.mark.usefixtures("kernels")
def test_sixteen_threads_open_use_and_close(name: str, lab: Lab) -> None:
    del lab

    def work(_: int) -> None:
        for _ in range(2):
            mine = Lab(opened(name))
            out = mine.words(4)
            for _ in range(5):
                point = mine.queue.submit(mine.run(mine.queue.record(), "count", out))
            point.wait(timeout_s=HANG_S)
            assert read(out)[0] == 5
            mine.close()

    together(work, 16)


@pytest.mark.usefixtures("kernels")
def test_two_devices_wait_for_each_other(name: str) -> None:
    one, other = Lab(opened(name)), Lab(opened(name))
    out = one.words([1])
    point: list[hcq.Point] = []
    for k in range(50):
        point = [one.queue.submit(one.run(one.queue.record(), "affine", out, 1, k), after=point)]
        point = [other.queue.submit(other.queue.record(), after=point)]
    point[0].wait(timeout_s=HANG_S)
    assert read(out) == [1 + sum(range(50))]
    one.close()
    other.close()
