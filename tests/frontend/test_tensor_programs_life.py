"""A program of tensors at the end of the interpreter, at Ctrl-C, after forks, and without memory.

Each case has a process of its own.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.children import interrupt, python

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

START = """
import gc, os, resource, signal, sys, threading, time
from pathlib import Path
import numpy as np
import hcq
from frontend import Device, Tensor, TinyJit

def long(turns, n=700):
    "Some milliseconds a turn, all in one launch."
    y = x
    for _ in range(turns):
        y = ((y @ x) / (n / 2)).contiguous()
    return y

def closed_gate():
    "Have what is launched from now on wait until this signal is 1."
    queue = Device[Device.DEFAULT].queue
    gate = queue.device.signal(host_set=True)
    queue.submit(queue.record().wait(gate, 1))
    return gate

x = Tensor(np.random.default_rng(0).random((700, 700), "f"))
"""


def child(body: str, *, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program; `first` comes before anything is imported."""
    return python("-W", "error", "-c", first + START + textwrap.dedent(body), status=None)


@pytest.mark.slow
def test_interpreter_ends_while_tensors_are_computed() -> None:
    """The work takes minutes, and is not complete when the device is closed."""
    last = "import atexit\natexit.register(lambda: print(last.passed()))\n"
    done = child(
        """
        x = Tensor(np.random.default_rng(0).random((2000, 2000), "f"))
        for _ in range(6):
            long(200, 2000).realize()
        last = Device[Device.DEFAULT].queue.timeline.last
        print("end")
        """,
        first=last,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\nFalse\n", "")


HANDLER = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Python installs none where SIGINT is ignored, as under nohup."""


def interrupted(body: str) -> None:
    """Run a program that prints "ready" and waits forever; interrupt it.

    It must say so, go on to what is then right, and end well.
    """
    interrupt("-W", "error", "-c", HANDLER + START + textwrap.dedent(body), last="True")


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_for_a_value() -> None:
    interrupted("""
        gate = closed_gate()
        y = long(3).realize()
        try:
            print("ready", flush=True)
            y.numpy()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        gate.value = 1
        print(bool(np.isfinite(y.numpy()).all()) and (Tensor([2.0]) + 1).tolist() == [3.0])
    """)


@pytest.mark.slow
def test_ctrl_c_ends_launches_that_wait_for_earlier_ones() -> None:
    """More launches of one structure than it has replay slots wait inside `realize`."""
    interrupted("""
        one = long(30)
        one.realize()
        gate = closed_gate()
        try:
            print("ready", flush=True)
            while True:
                y = long(30).realize()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        gate.value = 1
        print(bool(np.all(long(30).numpy() == one.numpy())))
    """)


@pytest.mark.slow
def test_interrupts_at_any_time_leave_correct_results() -> None:
    done = child("""
        import random
        from compiler import llvm, pipeline
        from compiler.schedule import scheduler
        llvm.host()  # an interrupted import of somebody else's package may leave it in halves
        r = random.Random(7)
        small = np.random.default_rng(1).standard_normal((60, 60), "f") / 8
        S = Tensor(small)
        f = TinyJit(lambda a: (a @ S).relu() @ S)
        for _ in range(3):
            f(S)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        sys.unraisablehook = lambda *_: None  # an interrupt inside a finaliser is dropped by Python
        interrupts = wrong = 0
        k = 0
        while interrupts < 100 or k - interrupts < 100:
            k += 1
            a = np.full((60, 60), k % 17, "f")
            try:
                signal.setitimer(signal.ITIMER_REAL, r.random() * r.choice([2e-4, 1e-3, 4e-3, 60]) + 1e-6)
                A = Tensor(a)
                if k % 2:
                    found, wanted = [f(A) for _ in range(8)][-1], np.maximum(a @ small, 0) @ small
                else:
                    n = k % 50 + 1
                    found, wanted = (A[:n] * 0.5 + n).sum(0), (a[:n] * 0.5 + n).sum(0)
                values = found.numpy()
                signal.setitimer(signal.ITIMER_REAL, 0)
                wrong += not np.allclose(values, wanted, atol=1e-3, rtol=1e-3)
            except KeyboardInterrupt:
                interrupts += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(wrong)
    """)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.slow
def test_forked_child_is_refused_and_its_parent_continues() -> None:
    """Also while another thread is in the middle of a launch."""
    done = child("""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        y = (Tensor(np.arange(10.0)) + 1).realize()
        f = TinyJit(lambda t: t * 2)
        for _ in range(3):
            f(y)
        going = True

        def work():
            while going:
                ((Tensor(np.arange(10.0)) * 3).sum() + 1).realize()

        thread = threading.Thread(target=work)
        thread.start()
        uses = [y.numpy, lambda: (y * 2 - 3).sum().item(), lambda: Tensor([1, 2]), lambda: f(y),
                lambda: y.assign(y * 2).realize(), lambda: (Tensor(3.0) + 2).item(),
                lambda: Tensor.rand(3).numpy(), lambda: Tensor.zeros(3).numpy(),
                lambda: Device["cpu"].synchronize(), lambda: Device["cpu"].alloc(10)]
        for turn in range(5):
            child = os.fork()
            if not child:
                signal.alarm(1000)
                for number, use in enumerate(uses):
                    try:
                        use()
                    except hcq.UsageError as error:
                        if "its fork" not in str(error) or "hint: " not in str(error):
                            os._exit(2 + number)
                    else:
                        os._exit(50 + number)
                os._exit(1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        going = False
        thread.join()
        print(f(y).tolist() == [2.0 * i for i in range(1, 11)])
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n" * 5 + "True\n", "")


def test_fork_waits_for_modules_that_another_thread_loads(tmp_path: Path) -> None:
    (tmp_path / "loaded_slowly.py").write_text(
        "import gate\ngate.begun.set()\ngate.go_on.wait()\nvalue = 7\n"
    )
    (tmp_path / "gate.py").write_text(
        "import threading\nbegun, go_on = threading.Event(), threading.Event()\n"
    )
    done = child(f"""
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        sys.path.insert(0, {str(tmp_path)!r})
        import gate
        from frontend.later import later

        class Members:
            value = later("loaded_slowly").value

        threads = [threading.Thread(target=lambda: Members.value)]
        threads[0].start()
        gate.begun.wait()
        threads.append(threading.Timer(0.1, gate.go_on.set))
        threads[1].start()
        child = os.fork()
        if not child:
            signal.alarm(1000)
            os._exit(Members.value)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        for thread in threads:
            thread.join()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")


@pytest.mark.slow
def test_out_of_memory_in_a_program_leaks_nothing_and_the_next_call_works() -> None:
    done = child("""
        n = 8 << 20
        data = bytes(4 * n)
        big = Tensor.zeros(n).contiguous().realize()
        state = Tensor.zeros(n).contiguous().realize()
        f = TinyJit(lambda t: t + 1)
        def calls():
            return (big + 1).realize(), f(big), state.assign(state + 1).realize()
        for _ in range(3):
            calls()
        (state + 0).realize()
        print(big.sum().item(), state.max().item(), Tensor(data).sum().item())
        device = Device["cpu"].hcq
        from compiler import llvm
        llvm.host()  # its library is mapped before the limit, whatever the cache holds
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + (300 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        held = []
        for turn in range(3):
            for make in (lambda: (big + 1).realize(), lambda: f(big), lambda: Tensor(data)):
                kept = []
                try:
                    while len(kept) < 40:
                        kept.append(make())
                except hcq.OutOfMemoryError as error:
                    assert isinstance(error, MemoryError) and "hint: " in str(error), error
                else:
                    raise AssertionError("no lack of memory")
                value = kept[0].sum().item()
                del kept
                gc.collect()
                assert value == make().sum().item()
                (big + 1).realize()
            held.append(device.driver._allocated)
        print(held[0] == held[1] == held[2])
        kept = []
        try:
            while len(kept) < 40:
                kept.append(state + 0)       # means the value before the next line
                state.assign(state + 1).realize()
        except hcq.OutOfMemoryError:
            pass
        count = len(kept)
        kept.clear()
        print(state.max().item() == 3 + count)
        try:
            Tensor.zeros(1 << 40).contiguous().realize()
        except hcq.OutOfMemoryError as error:
            print("this process may use" in str(error))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0.0 3.0 0\nTrue\nTrue\nTrue\n", "")
