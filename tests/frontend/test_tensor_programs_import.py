"""The cost of importing the frontend, counted in calls, which do not depend on load."""

from __future__ import annotations

from tests.children import python

IMPORT = """
import sys
events = 0

def seen(*_):
    global events
    events += 1

sys.setprofile(seen)
import frontend
sys.setprofile(None)
heavy = {"numpy", "llvmlite", "cffi", "ctypes", "hcq.device", "drivers.cpu", "compiler.pipeline"}
print(events, *sorted(heavy & set(sys.modules)))
"""
MOST = 150_000
"""Calls and returns, of Python's and of C's functions; 76,000 of them took 34 ms."""


def test_importing_the_frontend_takes_few_calls_and_loads_no_large_module() -> None:
    for _ in range(2):  # the second time with all compiled
        done = python("-c", IMPORT)
        events, *heavy = done.stdout.split()
        assert heavy == []
    assert int(events) <= MOST


def test_a_machine_without_a_gpu_loads_neither_of_their_drivers() -> None:
    text = """
import sys
import frontend
device = frontend.ones(2).device
print(device, *[name for name in ("drivers.nv.device", "drivers.amd.device") if name in sys.modules])
"""
    done = python("-c", text)
    device, *loaded = done.stdout.split()
    assert loaded == ([] if device == "cpu" else [f"drivers.{device.partition(':')[0]}.device"])
