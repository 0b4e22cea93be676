"""The modules of the product: their files, syntax trees and folders.

Not here: the checks (`arrows`, `names`, `rooms`, `clones`, `errors`).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = ("hcq", "drivers", "emulator", "compiler", "frontend", "interop")


@dataclass(frozen=True)
class Module:
    """A module of the product: dotted `name`, `path` from the repository's root, `text`."""

    name: str
    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @property
    def folder(self) -> str:
        """The room: the path of the module's folder.

        For a module at the root of a package it is the module's path without ".py".
        """
        folder, _, file = self.path.rpartition("/")
        return folder if "/" in folder else self.path.removesuffix(".py") if file != "__init__.py" else folder


def product(root: Path = ROOT, packages: Iterable[str] = PRODUCT) -> dict[str, Module]:
    """Return the modules of packages below a folder, by dotted name, in the order of their paths."""
    found = {}
    for file in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        path = file.relative_to(root).as_posix()
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found[name] = Module(name, path, file.read_text())
    return found
