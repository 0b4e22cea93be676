"""Pages: environment variables, the reference, short sentences without commit ids."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hcq.doctor import examine
from hcq.layout import BitStruct, Struct
from tools import reference

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


def test_the_licences_of_all_dependencies_are_listed_each_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lines = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    lines += [line for extra in project["project"]["optional-dependencies"].values() for line in extra]
    wanted = {re.split(r"[<>=\[; ]", line)[0] for line in lines} - {"hcq"}
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Licences of dependencies")[2]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| `")]
    assert sorted(name for row in rows for name in re.findall("`(.*?)`", row[0])) == sorted(wanted)
    assert all(row[2].strip(" |") for row in rows)


def test_reference_pages_are_current():
    wanted = reference.pages()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    gone = [path.name for path in reference.PAGES.glob("*.md") if path not in wanted]
    assert (stale, gone) == ([], []), "run: python -m tools.reference"


def test_pages_that_are_not_kept_name_every_layout_of_their_module(tmp_path: Path):
    assert reference.main(["--pages", str(tmp_path)]) == 0
    written = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert {"hcq", "drivers.cpu.layouts", "drivers.nv.layouts.dma", "drivers.amd.layouts.pm4"} <= {*written}
    for kind in (BitStruct, Struct):
        for layout in kind.__subclasses__():
            if layout.__module__ in written:
                assert layout.__name__ in written[layout.__module__]


MADE = {"docs/performance.md", "docs/coverage.md", "docs/sources.md", "docs/sources-amd.md"}
"""Pages that a command makes from measurements, and lists of sources."""
PAGES = [
    path
    for path in sorted(
        [
            ROOT / "README.md",
            ROOT / "CHANGELOG.md",
            *ROOT.glob("docs/*.md"),
            *ROOT.glob("docs/how-to/*.md"),
            *ROOT.glob("docs/tutorials/*.md"),
        ]
    )
    if str(path.relative_to(ROOT)) not in MADE
]
MOST_WORDS = 22
COMMIT = re.compile(r"(?<![\w./#-])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,8}(?![\w.-])")
BLOCKS = re.compile(r"```.*?```|<!-- made.*?<!-- end -->", re.DOTALL)
NOT_PROSE = re.compile(r"^(?:    | *\||#|[-=]+$).*$", re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences outside of code, tables and headings; an item of a list ends one."""
    text = re.sub(r"\]\([^)]*\)", "]", NOT_PROSE.sub("\n\n", BLOCKS.sub("\n\n", text)))
    text = re.sub(r"`[^`]*`", "code", text)
    pieces = re.split(r"[.!?](?=\s|$)|\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text)
    return [piece for piece in pieces if len(re.findall(r"\w+", piece)) > 1]


def mean_words(text: str) -> float:
    found = sentences(text)
    return sum(len(re.findall(r"\w[\w'/-]*", piece)) for piece in found) / max(1, len(found))


def test_words_are_counted_between_full_stops_outside_code_and_tables():
    text = (
        "# A title\n\nOne two three. Four `a b c` six\nseven.\n\n| a | b c |\n\n- eight nine\n- ten eleven\n"
    )
    assert sentences(text)[0].split() == ["One", "two", "three"]
    assert mean_words(text) == (3 + 4 + 2 + 2) / 4
    assert COMMIT.findall("at 8b383239, or (d7b40d7); 0x1022a05000, 16777216, gfx942, deadbeef.json") == [
        "8b383239",
        "d7b40d7",
    ]


def test_pages_have_short_sentences_and_no_commit_ids():
    faults = []
    for page in PAGES:
        text, name = page.read_text(), page.relative_to(ROOT)
        if (mean := mean_words(text)) >= MOST_WORDS:
            faults.append(f"{name}: {mean:.1f} words a sentence, fewer than {MOST_WORDS} are wanted")
        shown = re.sub(r"\]\([^)]*\)", "]", BLOCKS.sub("", text))
        faults += [f"{name}: commit {commit}; say the command instead" for commit in COMMIT.findall(shown)]
    assert faults == []


def test_an_entry_of_the_changelog_is_one_line():
    lines = (ROOT / "CHANGELOG.md").read_text().partition("## [Unreleased]")[2].splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 50
    assert [line for line in lines if line.startswith(" ") or len(line) > 160] == []
