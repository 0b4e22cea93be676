"""PyTorch's `nn.modules`: its names are those of `frontend.nn`, and of the modules beside this one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = ("module", "utils")


def __getattr__(name: str) -> Any:
    """Return a name of `frontend.nn`, or a module. Raises `AbsentNameError`."""
    return (
        import_module(f"{__name__}.{name}")
        if name in _MODULES
        else getattr(import_module("frontend.nn"), name)
    )


def __dir__() -> list[str]:
    return [*_MODULES, *dir(import_module("frontend.nn"))]
