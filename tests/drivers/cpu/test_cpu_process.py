"""The cpu device in a process: idleness, the GIL, threads, forks, exits and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.cpu.driver import CpuDriver
from drivers.cpu.image import HostCode, compile_object, nothing_from_outside
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.kernel import LinuxKernel
from hcq.driver import BufferSpec
from hcq.errors import UsageError
from tests.drivers.cpu.rig import (
    COMPUTE,
    KERNELS,
    Box,
    exec_,
    finish,
    send,
    set_,
    until,
    wait_,
)
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.cpu.device import CpuDevice


def spend_nothing() -> None:
    """Leave one queue idle after work and one in a wait; print the number of sleeping threads.

    Each thread's time and its switches are looked at, so it is one that polls seldom that shows.
    """
    device = CpuDriver().open(0, None)
    box, machine = Box(device), os.uname().machine
    image = HostImage(compile_object(translate(KERNELS, machine)), machine)
    code = HostCode(LinuxKernel(), image, nothing_from_outside)
    send(device.ring(COMPUTE, 1), wait_(box.va, 1))
    send(device.ring(COMPUTE, 0), exec_(code.address["count"], box.va + 64, 1000), set_(box.va + 128, 1))
    finish(device, box.va + 128, 1)
    until(lambda: spent() == (time.sleep(0.3), spent())[1], spent)
    print(len(device._threads) == len(spent()))  # noqa: T201 - read by the test
    device.close()


def spent() -> dict[str, list[str]]:
    """Return for each other thread its number of context switches, and its CPU time in ticks."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if task.name != str(threading.get_native_id()):
            lines = (task / "status").read_text().splitlines()
            time_used = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
            found[task.name] = [*time_used, *(line for line in lines if "ctxt_switches" in line)]
    return found


def test_idle_device_uses_no_cpu() -> None:
    """Run in a separate process, which has no other threads."""
    text = "from tests.drivers.cpu.test_cpu_process import spend_nothing as run; run()"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_long_kernel_lets_other_python_threads_run(device: CpuDevice, kernels: dict[str, int]) -> None:
    """The kernel ends when another thread has run fifty times."""
    box = Box(device)
    send(device.ring(COMPUTE, 0), exec_(kernels["spin"], box.va + 64), set_(box.va, 1))
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(50):
            ticks.append(time.monotonic())
            time.sleep(0.001)
        box.words[8] = 1

    thread = threading.Thread(target=tick)
    thread.start()
    finish(device, box.va, 1)
    thread.join()
    assert len(ticks) == 50


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


def test_exit_without_close_is_clean_while_queues_are_busy() -> None:
    text = (
        "from drivers.cpu import DRIVER, layouts\n"
        "from hcq.driver import QueueKind, BufferSpec\n"
        "from hcq.pushbuffer import PushBuffer\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(1 << 24, BufferSpec())\n"
        "s = PushBuffer(64, None)\n"
        "s.words += layouts.Copy.pack(dst=a.va, src=a.va + (1 << 23), size=1 << 23) * 2000\n"
        "d.ring(QueueKind.COMPUTE, 0).submit(s)\n"
        "s.words[:] = layouts.Wait.pack(signal=a.va, value=1)\n"
        "d.ring(QueueKind.COMPUTE, 1).submit(s)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_a_wait_at_once() -> None:
    """A wait that lasted until its time limit would take hours."""
    text = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # left out where SIGINT is ignored
        "from drivers.cpu import DRIVER\n"
        "from hcq.driver import BufferSpec\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(4096, BufferSpec())\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    while True: d.wait(a.va, 1, 10000.0)\n"
        "except KeyboardInterrupt:\n"
        "    d.close()\n"
        "    print('interrupted', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.05)  # it may interrupt the wait then, or what comes before
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=HANG_S)[0] == b"interrupted\n"


def test_sixteen_threads_open_use_and_close(driver: CpuDriver, kernels: dict[str, int]) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(3):
                device = driver.open(0, None)
                box = Box(device)
                for k in range(1, 20):
                    send(
                        device.ring(COMPUTE, (seed + turn) % 2),
                        exec_(kernels["count"], box.va + 64, 1 + k % 3),
                        set_(box.va, k),
                    )
                finish(device, box.va, 19)
                assert box.words[8] == sum(1 + k % 3 for k in range(1, 20))
                device.close()
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
