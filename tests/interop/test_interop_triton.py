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
