"""Names of PyTorch's `compiler` that models have at their head; `frontend.compile` captures calls."""

from __future__ import annotations

from typing import Any

__all__ = ["allow_in_graph", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting"]


def disable(fn: Any = None, recursive: bool = True, **_reason: Any) -> Any:  # noqa: FBT001, FBT002 - as given
    """Return a function itself; without one, a decorator that does."""
    del recursive
    return disable if fn is None else fn


allow_in_graph = disable


def is_compiling() -> bool:
    """Return False: a captured function runs as it is written."""
    return False


is_dynamo_compiling = is_exporting = is_compiling
