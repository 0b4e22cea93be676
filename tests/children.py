"""The environment of interpreters that tests start: they import what this one does, and the repository."""

from __future__ import annotations

import os
from pathlib import Path

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
