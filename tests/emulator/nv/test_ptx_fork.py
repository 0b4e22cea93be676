"""A forked child of a process that ran kernels can also run kernels."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.limits import CHILD_S

PROGRAM = textwrap.dedent(
    """
    import os
    import signal
    from emulator.simt.work import LaunchOptions
    from emulator.ir.report import ReportKind
    from tests.emulator.nv.conftest import Bench

    def run(body, limit):
        head = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {"
        return Bench().run(head + body + "}", "k", 1, 32, options=LaunchOptions(timeout_s=limit)).fault

    assert run("ret;", 200.0) is None
    child = os.fork()
    if not child:
        signal.alarm(1000)  # should it hang, it must not outlive the test
        os._exit(0 if run("L: bra L;", 0.2).kind is ReportKind.HANG else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
)


@pytest.mark.slow
def test_kernel_that_never_ends_is_stopped_in_a_forked_child() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], timeout=CHILD_S, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
