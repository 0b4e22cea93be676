"""The page of environment variables lists what is declared, with defaults and meanings."""

import re
from pathlib import Path

from hcq.doctor import examine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "environment.md"
ROW = re.compile(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (.*) \|$", re.MULTILINE)


def test_the_page_lists_every_declared_variable(tmp_path: Path):
    report = examine(entries=(), environment={"HCQ_CACHE": str(tmp_path)})
    declared = [(item.name, item.default, item.meaning) for item in report.settings]
    assert ROW.findall(PAGE.read_text()) == declared
