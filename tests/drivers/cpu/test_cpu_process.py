"""The cpu device in a process: idleness, the GIL, threads, forks, exits and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from hcq.driver import BufferSpec
from hcq.errors import UsageError
from tests.drivers.cpu.rig import COMPUTE, Box, exec_, finish, send, set_, wait_

if TYPE_CHECKING:
    from drivers.cpu.device import CpuDevice
    from drivers.cpu.driver import CpuDriver


def test_idle_device_uses_no_cpu(device: CpuDevice, kernels: dict[str, int]) -> None:
    box = Box(device)
    send(device.ring(COMPUTE, 1), wait_(box.va, 1))
    send(device.ring(COMPUTE, 0), exec_(kernels["count"], box.va + 64, 1000), set_(box.va + 128, 1))
    finish(device, box.va + 128, 1)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.005


def test_long_kernel_lets_other_python_threads_run(device: CpuDevice, kernels: dict[str, int]) -> None:
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


def test_fork_is_refused_in_words(device: CpuDevice) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            device.alloc(4096, BufferSpec())
            text = "nothing was refused"
        except UsageError as error:
            text = str(error)
        device.close()
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
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
    child = os.fork()
    if child == 0:
        try:
            device = driver.open(0, None)
            box = Box(device)
            send(device.ring(COMPUTE, 0), set_(box.va, 1))
            finish(device, box.va, 1)
            device.close()
        except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    parent.close()


def test_exit_without_close_is_clean_while_queues_are_busy() -> None:
    text = (
        "from drivers.cpu import DRIVER, layouts\n"
        "from hcq.driver import QueueKind, BufferSpec\n"
        "from hcq.stream import Stream\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(1 << 24, BufferSpec())\n"
        "s = Stream(64, None)\n"
        "s.words += layouts.Copy.pack(dst=a.va, src=a.va + (1 << 23), size=1 << 23) * 2000\n"
        "d.ring(QueueKind.COMPUTE, 0).submit(s)\n"
        "s.words[:] = layouts.Wait.pack(signal=a.va, value=1)\n"
        "d.ring(QueueKind.COMPUTE, 1).submit(s)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_a_wait_at_once() -> None:
    text = (
        "import time\n"
        "from drivers.cpu import DRIVER\n"
        "from hcq.driver import BufferSpec\n"
        "d = DRIVER.open(0, None)\n"
        "a = d.alloc(4096, BufferSpec())\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    while True: d.wait(a.va, 1, 1.0)\n"
        "except KeyboardInterrupt:\n"
        "    d.close()\n"
        "    print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.05)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == b"interrupted\n"
    assert time.monotonic() - start < 1.0


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
