"""The Python blocks of the documentation run, page by page, from top to bottom, and print what is shown."""

import re
from pathlib import Path

import pytest

from tests.children import ROOT, alone, python

FOUND = [
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs/tutorials").glob("*.md"),
    *(ROOT / "docs/how-to" / f"{name}.md" for name in ("add-a-command", "test-your-driver")),
    *ROOT.glob("[RS]*.md"),
]
SHOWN = sorted(path for path in FOUND if "```text\n" in path.read_text())
SILENT = sorted(path for path in FOUND if "```python\n" in path.read_text() and path not in SHOWN)
"""Pages that show no output; the others run where their outputs are compared."""


def slow_but_the_readme(page: Path) -> object:
    return pytest.param(
        page, marks=[] if page.stem == "README" else [pytest.mark.slow], id=f"{page.parent.name}-{page.stem}"
    )


@pytest.mark.parametrize("page", [slow_but_the_readme(page) for page in SILENT])
def test_python_blocks_of_the_page_run(page: Path, tmp_path: Path):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    script = tmp_path / f"{page.stem}.py"
    script.write_text("\n".join(blocks))
    settings = alone(HCQ_DEVICE="cpu", HCQ_CACHE=str(tmp_path / "cache"))
    python("-W", "error", script, cwd=tmp_path, env=settings)


def without_machine(text: str) -> str:
    """Leave out what differs from machine to machine: addresses, sizes and costs of code."""
    return re.sub(r"0x[0-9a-f]{6,}|\d+ bytes|group_ns=\d+", "#", text)


@pytest.mark.parametrize("page", [slow_but_the_readme(page) for page in SHOWN])
def test_shown_outputs_equal_the_printed_ones(page: Path, tmp_path: Path):
    copy = tmp_path / page.name
    copy.write_text(page.read_text())
    settings = alone(HCQ_DEVICE="cpu", HCQ_CACHE=str(tmp_path))
    python("-W", "error", "-m", "tools.docs", copy, cwd=tmp_path, env=settings)
    assert without_machine(copy.read_text()) == without_machine(page.read_text())
