"""Tutorials that need more than their page: the race of a Triton kernel, the table of tinygrad's names."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT, alone, python

if TYPE_CHECKING:
    from pathlib import Path

PAGES = ROOT / "docs/tutorials"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs the extra triton")


def kernels() -> list[str]:
    """The program of the page as it is first, and with its cure."""
    text = (PAGES / "find-a-race.md").read_text()
    program, cured = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    replaced = re.findall(r"<!-- instead of: (.*?) -->", text)
    assert program.count(f"    {replaced[0]}\n") == 1
    return [program, program.replace(f"    {replaced[0]}\n", cured)]


def test_the_cure_of_the_race_replaces_a_line_of_the_program():
    for program in kernels():
        compile(program, "triton_race.py", "exec")


@needs_triton
@pytest.mark.parametrize("cured", [False, True])
def test_the_sanitizer_finds_the_race_until_it_is_cured(tmp_path: Path, *, cured: bool):
    (tmp_path / "triton_race.py").write_text(kernels()[cured])
    settings = alone(HOME=str(tmp_path), HCQ_CACHE=str(tmp_path))
    done = python("-m", "interop.sanitize", "triton_race.py", status=None, cwd=tmp_path, env=settings)
    assert done.returncode == (0 if cured else 1), done.stdout + done.stderr
    assert ("race in global memory" in done.stdout) is not cured
    assert cured or "triton_race.py:" in done.stdout


def test_the_table_of_tinygrad_has_the_rows_of_the_coverage():
    text = (ROOT / "docs/coverage.md").read_text().partition("## tinygrad\n")[2].partition("\n## ")[0]
    wanted = [line for line in text.splitlines() if line.startswith(("| differs", "| missing"))]
    shown = (PAGES / "coming-from-tinygrad.md").read_text().splitlines()
    assert wanted
    assert [line for line in shown if line.startswith(("| differs", "| missing"))] == wanted
