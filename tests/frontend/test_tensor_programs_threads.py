"""Threads that share the frontend: right results, no waiting for ever.

Each case has a process of its own, which switches threads as often as it can.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.children import python

if TYPE_CHECKING:
    import subprocess

START = """
import faulthandler, sys, threading, traceback
import numpy as np
from frontend import Tensor, TinyJit
sys.setswitchinterval(1e-5)
faulthandler.dump_traceback_later(400, exit=True)
failures = []

def all_threads(count, work):
    begin = threading.Barrier(count)
    def run(k):
        try:
            begin.wait()
            work(k, np.random.default_rng(k))
        except BaseException:
            failures.append(traceback.format_exc())
    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(failures), *failures[:2])
"""


def child(body: str) -> subprocess.CompletedProcess[str]:
    program = START + textwrap.dedent(body)
    return python("-W", "error", "-c", program, status=None)


@pytest.mark.slow
def test_sixteen_threads_make_realize_and_read_tensors() -> None:
    done = child("""
        shared = Tensor(np.arange(1000, dtype=np.float32))

        def work(k, rng):
            for i in range(12):
                n = (3, 17, 40)[i % 3]
                a, b = rng.standard_normal((n, 8)).astype("f"), rng.standard_normal((8, 5)).astype("f")
                e = np.exp(a @ b + i * 0.37 - 9)
                found = (Tensor(a) @ Tensor(b) + i * 0.37 - 9).softmax()
                assert np.allclose(found.numpy(), e / e.sum(-1, keepdims=True), atol=1e-4)
                total = (shared * (k + 0.5) + i).sum().item()
                assert np.isclose(total, 499500 * (k + 0.5) + 1000 * i, rtol=1e-4)
                t = Tensor(np.zeros(n, "f")).realize()
                for j in range(4):
                    before = t + 1
                    t.assign(t + j).realize()
                    assert np.all(before.numpy() == sum(range(j)) + 1)
                x = Tensor(a, requires_grad=True)
                ((x * x).sum() * 2).backward()
                assert np.allclose(x.grad.numpy(), 4 * a, atol=1e-4)

        all_threads(16, work)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.slow
def test_threads_realize_the_same_tensors() -> None:
    done = child("""
        data = np.arange(512, dtype="f")
        for turn in range(20):
            base = Tensor(data + turn)
            middle = (base * 2 + base.sum()).softmax() * 512
            last = middle + base
            wanted = np.exp(2 * data - 1022)
            wanted = wanted / wanted.sum() * 512

            def work(k, rng):
                first, second = (middle, last) if k % 2 else (last, middle)
                assert np.allclose((first + 0).numpy(), wanted + (0 if k % 2 else data + turn), atol=1e-3)
                assert np.allclose(second.numpy(), wanted + (data + turn if k % 2 else 0), atol=1e-3)

            all_threads(8, work)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n" * 20, "")


@pytest.mark.slow
def test_threads_capture_functions_while_others_compute() -> None:
    """What one thread captures holds nothing of the others, and forbids them nothing."""
    done = child("""
        def work(k, rng):
            for turn in range(3):
                w, kept = Tensor(np.zeros(7 + k, "f")), np.zeros(7 + k, "f")

                @TinyJit
                def step(x):
                    w.assign(w + x * 2)
                    return (w * x).sum()

                for i in range(5):
                    x = rng.integers(-3, 4, 7 + k).astype("f")
                    found = step(Tensor(x))
                    kept += x * 2
                    assert found.item() == (kept * x).sum()
                    pending = Tensor(x).realize()
                    pending.assign(pending + i)
                    assert (Tensor(x) + i).sum().item() == (x + i).sum()
                    assert np.all(pending.numpy() == x + i)
                assert np.all(w.numpy() == kept)

        all_threads(8, work)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.slow
def test_threads_share_one_captured_function() -> None:
    done = child("""
        @TinyJit
        def f(x):
            return (x * 3).sum() + x

        def work(k, rng):
            for i in range(40):
                x = rng.integers(-3, 4, 9).astype("f")
                assert np.all(f(Tensor(x)).numpy() == (x * 3).sum() + x)

        all_threads(8, work)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_threads_that_open_the_default_device_at_once_share_one() -> None:
    done = child("""
        from frontend import Device

        seen = []

        def work(k, rng):
            seen.append(Device[Device.DEFAULT])
            assert Tensor([k]).device == Device.DEFAULT

        all_threads(16, work)
        print(len({id(device) for device in seen}))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n1\n", "")


def test_threads_that_write_other_rows_of_one_tensor_lose_no_write() -> None:
    done = child("""
        rows = Tensor(np.zeros((6, 16), np.float32)).realize()
        masked, listed = Tensor(np.zeros((6, 4), np.float32)), Tensor(np.zeros((6, 4), np.float32))
        counted, summed = Tensor(np.zeros(8, np.float32)), Tensor(np.zeros(4, np.float32))

        def work(k, rng):
            for step in range(20):
                rows[k] = Tensor(np.full(16, step + 1, np.float32))
                rows[k][8:] = step + 2
                masked[Tensor(np.arange(6) == k)] = step + 1
                listed[[k]] = step + 1
                summed.add_(1)
                global counted
                counted[k] += 1

        all_threads(6, work)
        assert (rows.numpy()[:, :8] == 20).all() and (rows.numpy()[:, 8:] == 21).all(), rows.numpy()
        assert (masked.numpy() == 20).all() and (listed.numpy() == 20).all(), (masked.numpy(), listed.numpy())
        assert (summed.numpy() == 120).all(), summed.numpy()
        assert (counted.numpy()[:6] == 20).all(), counted.numpy()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
