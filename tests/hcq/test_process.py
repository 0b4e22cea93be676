"""Devices and the process: leaks, exits, forks, Ctrl-C, threads. Each hostile case runs in a child of its
own."""

from __future__ import annotations

import ast
import gc
import textwrap
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError
from hcq.process import OPEN
from hcq.registry import wrap
from tests.children import python
from tests.hcq.fake import FakeDevice
from tests.limits import HANG_S

if TYPE_CHECKING:
    import subprocess

    from hcq.device import Device

START = """
import os, signal, sys, threading, time
from hcq.registry import wrap
from hcq.errors import UsageError
from tests.hcq.fake import *
from tests.limits import HANG_S
fake = FakeDevice()
device = wrap(fake)
queue = device.compute
"""


def child(body: str) -> subprocess.CompletedProcess[str]:
    program = START + textwrap.dedent(body)
    return python("-X", "dev", "-W", "error", "-c", program, status=None, timeout_s=HANG_S)


def test_an_exit_waits_for_work_that_ends():
    done = child("""
        gate = device.signal(host_set=True)
        buffer = device.alloc(64)
        queue.submit(queue.record().fill(buffer, 7), after=[gate.at(1)])
        threading.Timer(0.2, lambda: setattr(gate, "value", 1)).start()
        fake.close = lambda: print(buffer.size, fake.encoded[-1], fake.rings[0].packets)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "64 SetSignal deque([])\n", "")


def test_a_forked_child_is_refused_and_its_parent_continues():
    done = child("""
        buffer, signal_, program = device.alloc(64), device.signal(host_set=True), device.load(ADD)
        executable = __import__("hcq").Graph()
        node = executable.add(queue, queue.record().fill(buffer, 3))
        executable = executable.compile()
        queue.lock.acquire()
        pid = os.fork()
        if not pid:
            calls = [lambda: device.alloc(64), lambda: queue.submit(queue.record()), device.sync, queue.sync,
                     lambda: device.signal(), lambda: signal_.wait(1), lambda: buffer.host(), lambda:
                     executable.replay(), lambda: device.load(ADD)]
            for call in calls:
                try:
                    call()
                except UsageError as error:
                    assert "cannot be used in its fork" in str(error), error
                else:
                    os._exit(3)
            device.close()
            del buffer, signal_, program, executable
            with wrap(FakeDevice()) as mine:
                mine.compute.submit(mine.compute.record()).wait()
            assert fake.closes == 0
            sys.exit(0)
        queue.lock.release()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        executable.replay().wait()
        print(buffer.host()[0])
        device.close()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n3\n", "")


def test_a_forked_child_has_signals_of_its_own():
    done = child("""
        mine = device.signal()
        pid = os.fork()
        if not pid:
            other = wrap(FakeDevice())
            theirs = [other.signal(9) for _ in range(3000)]
            del mine
            more = [other.signal(9) for _ in range(100)]
            other.close()
            os._exit(0)
        os.waitpid(pid, 0)
        print(mine.value)
        device.close()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_child_forked_during_validation_validates():
    done = child("""
        import warnings
        from hcq.validate.validator import _SHARED
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+ tells of threads at each fork
        device.close()
        validated = wrap(FakeDevice(), validate=True)
        held, over = threading.Event(), threading.Event()

        def judge():
            with _SHARED.lock:
                held.set()
                over.wait()

        thread = threading.Thread(target=judge)
        thread.start()
        held.wait()
        pid = os.fork()
        if not pid:
            signal.alarm(HANG_S)
            with wrap(FakeDevice(), validate=True) as mine:
                mine.compute.submit(mine.compute.record()).wait()
            os._exit(0)
        over.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        validated.compute.submit(validated.compute.record()).wait()
        validated.close()
    """)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_child_forked_during_an_open_opens_devices():
    done = child("""
        import warnings
        import hcq
        from drivers.cpu.driver import CpuDriver
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12+ tells of threads at each fork
        device.close()
        inside, over = threading.Event(), threading.Event()
        real = CpuDriver.open

        def slow(*args):
            inside.set()
            over.wait()
            return real(*args)

        CpuDriver.open = slow
        thread = threading.Thread(target=lambda: hcq.open("cpu").close())
        thread.start()
        inside.wait()
        pid = os.fork()
        if not pid:
            signal.alarm(HANG_S)
            CpuDriver.open = real
            with hcq.open("cpu") as mine:
                mine.compute.submit(mine.compute.record()).wait()
            os._exit(0)
        over.set()
        thread.join()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_leaked_device_is_reported_and_closed():
    fake = FakeDevice()

    def drop() -> None:
        device = wrap(fake)
        assert device in OPEN
        del device  # from here on any collection tells it
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"<Device fake:0 .*> was never closed"):
        drop()
    assert fake.closes == 1


def test_close_is_idempotent_and_releases_everything():
    fake = FakeDevice()
    device = wrap(fake)
    buffer = device.alloc(64)
    device.close()
    device.close()
    assert (fake.closes, fake.memory, fake.hosts) == (1, {}, {})
    assert all(ring.closed for ring in fake.rings)
    assert device not in OPEN
    with pytest.raises(UsageError, match=r"<Buffer of 64 bytes .* cannot be used: fake:0 is closed"):
        buffer.host()
    buffer.close()
    for call in (
        lambda: device.alloc(64),
        device.sync,
        lambda: device.compute.submit(device.compute.record()),
    ):
        with pytest.raises(UsageError, match="fake:0 is closed"):
            call()


def test_close_stops_work_that_does_not_end_with_a_warning():
    fake = FakeDevice()
    device = wrap(fake)
    gate = device.signal(host_set=True, label="gate")
    device.compute.submit(device.compute.record(), after=[gate.at(1)])
    with pytest.warns(
        ResourceWarning, match="fake:0 was closed while work was in flight: compute 0 of fake:0 stuck"
    ):
        device.close(timeout_s=0.02)
    assert fake.closes == 1


def test_a_failed_open_undoes_everything():
    class Broken(FakeDevice):
        def encoder(self, _kind: object, _index: object) -> object:
            raise UsageError("no encoder today")

    fake = Broken()
    with pytest.raises(UsageError, match="no encoder today"):
        wrap(fake)
    gc.collect()
    assert (fake.closes, fake.memory, fake.hosts) == (1, {}, {})
    assert all(ring.closed for ring in fake.rings[:-1])


def test_a_closed_device_ends_waits_for_its_signals():
    one, two = FakeDevice(), FakeDevice(index=1)
    with wrap(one) as first:
        second = wrap(two)
        gate = second.signal(host_set=True)
        point = first.compute.submit(first.compute.record(), after=[gate.at(1)])
        second.close()
        with pytest.raises(UsageError, match="fake:1 is closed"):
            point.wait(timeout_s=HANG_S)
        gate._words[gate._index] = 1


def test_closing_while_other_threads_submit_is_clean():
    for _ in range(5):
        fake = FakeDevice()
        device = wrap(fake)
        errors: list[BaseException] = []

        def work(device: Device = device, errors: list[BaseException] = errors) -> None:
            try:
                while True:
                    device.compute.submit(device.compute.record())
            except UsageError as error:
                if "is closed" not in str(error):
                    errors.append(error)
            except BaseException as error:  # noqa: BLE001 - told below
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            device.close()
        for thread in threads:
            thread.join()
        assert errors == []
        assert not fake.rings[0].packets


def test_importing_hcq_loads_no_module_of_it():
    program = "import sys; before = set(sys.modules); import hcq; print(sorted(set(sys.modules) - before))"
    done = python("-c", program)
    new = set(ast.literal_eval(done.stdout))
    assert "hcq" in new
    assert not {name for name in new if name.startswith("hcq.")} | new & {
        "ctypes",
        "dataclasses",
        "threading",
    }
