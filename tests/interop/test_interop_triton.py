"""The Triton plug-in against Triton's interface, of which `triton_interface` has the part that it uses."""

import subprocess
import sys
from pathlib import Path

from tests.limits import CHILD_S

HERE = Path(__file__).resolve().parent


def test_kernels_launch_through_the_plug_in(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "triton_program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_S,
        env={"PYTHONPATH": f"{HERE.parents[1]}:{HERE / 'triton_interface'}", "PATH": "/usr/bin:/bin"},
    )
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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_S,
        env={"PYTHONPATH": str(HERE.parents[1]), "PATH": "/usr/bin:/bin"},
    )
    cure = "hint: pip install 'triton>=3.6' 'nvidia-nvjitlink>=13.0,<14'"
    assert done.stdout == f"Triton is not installed\n{cure}\n", done.stderr
