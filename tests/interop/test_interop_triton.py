"""The Triton plug-in against Triton's interface."""

from pathlib import Path

from tests.children import alone, python

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
