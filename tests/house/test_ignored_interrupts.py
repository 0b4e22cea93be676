"""Tests that interrupt themselves also pass where interrupts are ignored, as in a run under `nohup`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = (
    "tests/frontend/test_tensor_programs_life.py::test_ctrl_c_ends_the_wait_for_a_value",
    "tests/conformance/test_contract_process.py::test_ctrl_c_ends_a_wait_immediately[cpu]",
)
IGNORING = 'trap "" HUP INT; exec "$@"'


@pytest.mark.slow
def test_interrupting_tests_pass_when_interrupts_are_ignored():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *INTERRUPTED]
    done = subprocess.run(
        ["/bin/sh", "-c", IGNORING, "sh", *command],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(INTERRUPTED)} passed" in done.stdout
