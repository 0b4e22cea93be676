"""Folders and versions of installed packages, found without importing them, for keys of compiled code.

Not here: the packages of this machine as a report (`doctor`). Next: `compiler.cache`, the keys.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path


@functools.cache
def folder_of(package: str) -> Path | None:
    """Return the folder of a top-level package; None when it is not installed."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@functools.cache
def version_of(package: str) -> str:
    """Return a package's version as its installation records it, or "unknown"."""
    folder = folder_of(package)
    records = [] if folder is None else folder.parent.glob(f"{package}-*.dist-info")
    found = sorted(path.name for path in records)
    return found[-1].removeprefix(f"{package}-").removesuffix(".dist-info") if found else "unknown"
