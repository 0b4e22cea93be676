"""The documentation's site: links that leave docs/ have pages, modules are listed, no warning."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT
from tests.limits import CHILD_S
from tools import site

if TYPE_CHECKING:
    from pathlib import Path


def test_files_outside_of_the_docs_have_a_place():
    assert site.place(ROOT / "examples" / "chat.py") == "examples/chat.py.md"
    assert site.place(ROOT / "examples") == "examples/index.md"
    assert site.place(ROOT / "docs" / "cpu.md") == "cpu.md"
    assert site.place(ROOT / "docs" / "adr") == "adr/index.md"
    assert ROOT / "examples" in {*site.outside(ROOT / "docs" / "README.md")}
    assert "```py\n" in site.shown(ROOT / "examples" / "chat.py")
    assert "[`chat.py`](chat.py)" in site.shown(ROOT / "examples")


def test_every_public_name_of_the_modules_is_documented():
    page = site.reference()
    for path in site.MODULES:
        assert f"## `{path}`" in page
    sections = page.split("\n### ")[1:]
    assert len(sections) > 250
    assert not [one for one in sections if not one.partition("\n")[2].strip()]


@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="no mkdocs: pip install 'hcq[docs]'")
@pytest.mark.landing
def test_the_site_builds_without_a_warning(tmp_path: Path):
    run = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    shown = subprocess.run(
        run, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        timeout=CHILD_S, check=False,
    )  # fmt: skip
    assert not shown.returncode, shown.stderr
    for page in ("index", "reference/hcq", "reference/modules", "adr/index", "examples/chat.py"):
        text = (tmp_path / f"{page}.html").read_text()
        assert 'src="http' not in text
    assert "frontend.nn.Linear" in (tmp_path / "reference" / "modules.html").read_text()
