"""The sizes of the rooms, in lines: Python of the packages, tools and tests, and pages of the documentation.

The emulated GPUs are a room of their own, wherever their folders lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.walls.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FOLDERS: Final = ("hcq", "drivers", "compiler", "frontend", "interop", "tools", "tests", "examples")
EMULATOR: Final = "emulator"


def room_of(path: str) -> str:
    """Return the room of a Python file, by its path from the repository's root."""
    parts = path.split("/")
    return EMULATOR if parts[0] == "drivers" and "emu" in parts[1:3] else parts[0]


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of each room."""
    found = dict.fromkeys((*FOLDERS, EMULATOR, "docs"), 0)
    for folder in FOLDERS:
        for file in (root / folder).rglob("*.py"):
            found[room_of(file.relative_to(root).as_posix())] += _lines(file)
    found["docs"] = sum(map(_lines, (root / "docs").rglob("*.md")))
    return found


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")
