"""Child processes of the ladder: the command that runs one rung, and two processes at once.

Not here: the order of rungs and their time limits (`ladder`). Next: `run`, what the child process does.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.bringup.checks import Checks


def child_command(
    device: str, number: int, *, choices: str, emulate: str | None, kernels: Path | None
) -> list[str]:
    """Return the command that runs rung `number` on a device, for example "nv:0".

    `choices` has the form of --choices. `emulate` is the variant of an emulated GPU, None for a real one.
    `kernels` is the folder of prepared kernels, if there is one.
    """
    packed = "bundled" in Path(__file__).parts  # the installed command alone finds the modules there
    command = [sys.executable, "-m", *(("hcq", "bringup") if packed else ("tools.bringup",))]
    command += ["--child", str(number)]
    command += ["--device", device, "--choices", choices]
    command += ["--emulate", emulate] if emulate is not None else []
    return command + (["--kernels", str(kernels)] if kernels is not None else [])


def two_at_once(bench: Checks, command: list[str]) -> list[int]:
    """Run a command in two processes at once; return their exit codes.

    Raises `RungError` unless both are 0, and `subprocess.TimeoutExpired` after 30 s times `bench.patience`.
    """
    with contextlib.ExitStack() as stack:
        both = []
        for _ in range(2):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            stack.callback(process.kill)  # has no effect after its end
            both.append(process)
        output = [process.communicate(timeout=30 * bench.patience)[0] for process in both]
    codes = [process.returncode for process in both]
    bench.check(codes == [0, 0], f"two processes at once ended with {codes}: {' '.join(output)[-1000:]}")
    return codes
