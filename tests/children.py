"""Interpreters that tests start: they import what this one does, and the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.limits import CHILD_S

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
