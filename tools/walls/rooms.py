"""The sizes of the rooms, in lines: Python of the packages, tools, tests and examples, and pages of the docs.

Not here: the ceilings (tools/walls/limits.toml).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.walls.source import PRODUCT, ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS: Final = (*PRODUCT, "tools", "tests", "examples")


WINGS: Final = tuple(
    f"frontend/{wing}" for wing in ("distributed", "llm", "onnx", "torch", "torch_compile", "tuning")
)
"""Folders of a package that are rooms of their own: each stands behind its own import."""


def room_of(path: str) -> str:
    """Return the room of a Python file, by its path from the repository's root."""
    return next((wing for wing in WINGS if path.startswith(f"{wing}/")), path.partition("/")[0])


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of each room by its name; a room without files has 0."""
    found = dict.fromkeys((*FOLDERS, *WINGS, "docs"), 0)
    for folder in FOLDERS:
        for file in (root / folder).rglob("*.py"):
            found[room_of(file.relative_to(root).as_posix())] += _lines(file)
    found["docs"] = sum(map(_lines, (root / "docs").rglob("*.md")))
    return found


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")
