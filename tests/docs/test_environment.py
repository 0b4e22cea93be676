"""The page of environment variables lists what is declared, with defaults and meanings."""

import re
import tomllib
from pathlib import Path

from hcq.doctor import examine

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "environment.md"
ROW = re.compile(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\| (.*) \|$", re.MULTILINE)


def test_the_page_lists_every_declared_variable(tmp_path: Path):
    report = examine(entries=(), environment={"HCQ_CACHE": str(tmp_path)})
    declared = [(item.name, item.default, item.meaning) for item in report.settings]
    assert ROW.findall(PAGE.read_text()) == declared


def test_every_cure_that_installs_packages_names_requirements_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {line for lines in project["optional-dependencies"].values() for line in lines}
    known |= set(project["dependencies"])
    names = "|".join({re.split("[<>=[]", line)[0] for line in known})
    package = re.compile(f"'((?:{names})[<>=][^']*)'")
    named = {
        cure
        for folder in ("hcq", "drivers", "emulator", "compiler", "interop")
        for path in (ROOT / folder).rglob("*.py")
        for cure in package.findall(path.read_text())
    }
    assert "nvidia-nvjitlink>=13.0,<14" in named
    assert named <= known
