"""The typed program of a user, interrupts that are ignored, and what the distribution ships."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import typed_program
from tools.check import PACKAGES, wheel_packages

STUB = Path(__file__).parents[2] / "frontend/tensor_methods.pyi"


def test_the_typed_program_runs():
    typed_program.main()


def test_comparison_operators_have_tensor_types():
    # pyright keeps the type that `object` declares for a name that is only assigned: `tensor == x` is a bool.
    (one,) = (node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef))
    declared = {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
    targets = [name for node in one.body if isinstance(node, ast.Assign) for name in node.targets]
    assigned = {name.id for name in targets if isinstance(name, ast.Name)}
    assert {"__eq__", "__ne__"} <= declared - assigned
    assert {"__lt__", "__add__"} <= declared | assigned


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
        env={k: value for k, value in os.environ.items() if not k.startswith(("PYTEST_", "HCQ_CONFORMANCE"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(INTERRUPTED)} passed" in done.stdout


def test_wheel_contains_exactly_the_packages():
    assert wheel_packages() == PACKAGES
