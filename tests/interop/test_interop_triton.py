"""The Triton plug-in against Triton's interface, and inputs of the kernels that are timed."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.children import alone, python
from tests.guests import more_cases

HERE = Path(__file__).resolve().parent


def test_kernels_launch_through_the_plug_in(tmp_path: Path):
    program = HERE / "triton_program.py"
    done = python("-W", "error", program, tmp_path, status=None, env=alone(HERE / "triton_interface"))
    assert done.stdout == "done\n", done.stderr


def test_the_plug_in_without_triton_names_the_command_that_installs_it():
    program = """import sys
sys.modules["triton"] = None  # as where it is not installed
import hcq, interop.triton_backend
try:
    interop.triton_backend.use("cpu")
except hcq.UnsupportedError as error:
    print(error)
"""
    done = python("-W", "error", "-c", program, status=None, env=alone())
    cure = "hint: pip install 'triton>=3.6' 'nvidia-nvjitlink>=13.0,<14'"
    assert done.stdout == f"Triton is not installed\n{cure}\n", done.stderr


def test_workloads_are_cases_of_the_corpus():
    names = {case.name for case in more_cases.ALL}
    found = [case.name for case in more_cases.workloads()]
    assert len(set(found)) == len(found)
    assert names.issuperset(found)
    assert len(found) >= 35


@pytest.mark.slow
def test_workloads_have_hundreds_of_workgroups_and_the_kernel_of_their_case():
    known = {case.name: case for case in more_cases.ALL}
    for case in more_cases.workloads():
        run, small = case.make(np.random.default_rng(1)), known[case.name].make(np.random.default_rng(1))
        assert 128 <= math.prod(run.grid) <= 256, case.name
        assert case.kernel == known[case.name].kernel
        assert {*run.expected} >= {*small.expected} or case.name == "grouped_gemm"
