"""Interpreters that tests start: they import what this one does, and the repository."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.limits import CHILD_S, HANG_S

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]


def search_path(*first: Path) -> str:
    """Return PYTHONPATH for a child: `first`, the repository, and what PYTHONPATH of this process names.

    Without the last, packages that lie in a folder beside the interpreter would be missing in the child.
    """
    folders = [*map(str, first), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, folders))


def environment(*first: Path, **settings: str) -> dict[str, str]:
    """Return this process's environment with `search_path(*first)` as PYTHONPATH, and with `settings`."""
    return {**os.environ, "PYTHONPATH": search_path(*first), **settings}


def alone(*first: Path, **settings: str) -> dict[str, str]:
    """Return an environment of `search_path(*first)`, the system's programs and `settings` only."""
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": search_path(*first), **settings}


def python(
    *words: str | Path,
    status: int | None = 0,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout_s: float = CHILD_S,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with `words` and return what it wrote; fail unless it exits with `status`.

    With `status` None every exit passes. The environment is `environment(**settings)` unless `env` is given.
    """
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment(**settings) if env is None else env,
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert status in (None, done.returncode), f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def interrupt(*words: str, last: str) -> None:
    """Interrupt a program that prints "ready" and waits; it must print "interrupted" and `last`, and end."""
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.1)  # it may wait by then, or be about to: nothing else than the interrupt ends that
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert process.stdout.read() == f"{last}\n"  # communicate() leaves out what readline() read ahead
            assert process.wait(timeout=HANG_S) == 0
        except BaseException:
            process.kill()
            raise
