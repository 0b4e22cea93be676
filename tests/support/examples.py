"""The programs of examples/ as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.children import ROOT


def example(name: str) -> Any:
    """Return examples/NAME.py as a module that only the caller has."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
