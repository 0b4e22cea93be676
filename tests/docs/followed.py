"""A page followed in a copy of packages: files edited as it says, and a program that uses them.

Not here: the pages (`tests/docs/test_how_to_*.py`). Next: `tests.children`, the interpreter's paths.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.children import ROOT, alone, python

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def before(mark: str, row: str) -> Callable[[str], str]:
    """Return the edit that puts `row` before the one place of a file with the text `mark`."""

    def edit(text: str) -> str:
        assert text.count(mark) == 1, mark
        return text.replace(mark, row + mark)

    return edit


def after(mark: str, row: str) -> Callable[[str], str]:
    """Return the edit that puts `row` after the one place of a file with the text `mark`."""

    def edit(text: str) -> str:
        assert text.count(mark) == 1, mark
        return text.replace(mark, mark + row)

    return edit


def output_of(program: str, folder: Path, edits: Mapping[str, Callable[[str], str]]) -> str:
    """Return what a program prints that imports copies, in `folder`, of the packages of the edited files."""
    for package in {name.split("/")[0] for name in edits}:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, edit in edits.items():
        text = (folder / name).read_text()
        assert edit(text) != text, name
        (folder / name).write_text(edit(text))
    (folder / "used.py").write_text(program)
    settings = alone(folder, HCQ_DEVICE="cpu", HCQ_CACHE=str(folder / "cache"))
    return python("-W", "error", "used.py", cwd=folder, env=settings).stdout
