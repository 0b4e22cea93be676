"""What it costs to import the frontend, in processor time: other work on the machine does not count."""

from __future__ import annotations

import subprocess
import sys

IMPORT = """
import sys, time
start = time.process_time()
import frontend
spent = time.process_time() - start
heavy = {"numpy", "llvmlite", "cffi", "ctypes", "hcq.device", "drivers.cpu", "compiler.codegen"}
print(spent, *sorted(heavy & set(sys.modules)))
"""


def test_importing_the_frontend_takes_a_tenth_of_a_second_and_loads_nothing_heavy() -> None:
    times = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        spent, *heavy = done.stdout.split()
        assert heavy == []
        times.append(float(spent))
    assert min(times) <= 0.1
