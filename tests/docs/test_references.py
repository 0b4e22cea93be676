"""What the documentation and the docstrings name is there: pages, files, modules, commands."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from hcq.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
VERIFY = [f"tests/{name}" for name in ("foreign", "fuzz", "guests", "mutants", "oracles", "support")]
PACKAGES = ("hcq", "drivers", "emulator", "compiler", "frontend", "interop", "tools", *VERIFY)
SOURCES = sorted([path for package in PACKAGES for path in (ROOT / package).rglob("*.py")])
PATH = re.compile(rf"`((?:{'|'.join((*PACKAGES, 'tests', 'examples', 'docs'))})/[\w./-]+)`")
DOTTED = re.compile(rf"`((?:{'|'.join(name.replace('/', '[.]') for name in PACKAGES)})(?:\.\w+)+)`")
FILE = re.compile(r"`(\w+\.py)`")
FILES = {path.name for folder in (*PACKAGES, "tests", "examples") for path in (ROOT / folder).rglob("*.py")}
COMMAND = re.compile(r"python -m ([a-z_]\w*(?:\.[a-z_]\w*)*)")
SUBCOMMAND = re.compile(r"(?:\n|\$ )hcq ([a-z][a-z-]*)")
"""In a block of commands."""
KNOWN = {"help", "completion", *[command.name for command in COMMANDS]}
HAVE = {command.module.removesuffix(".__main__").removesuffix(".command") for command in COMMANDS} - {
    "hcq",
    "tools.hardware_run",
}
"""Modules that have a subcommand of `hcq`, which works from a wheel, too."""
TESTS = re.compile(r"pytest (tests/[\w./-]+)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)")


@cache
def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError as error:
            module = ".".join(parts[:n])
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                return n == len(parts)  # it is there, and imports a package that is not installed
            continue
        for name in parts[n:]:
            if not hasattr(found, name) and name not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, name, None)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_pages_exist(page: Path):
    text = page.read_text()
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [path for path in (*PATH.findall(text), *TESTS.findall(text)) if not (ROOT / path).exists()]
    missing += [name for name in DOTTED.findall(text) if not exists(name)]
    missing += [name for name in COMMAND.findall(text) if importlib.util.find_spec(name) is None]
    missing += [f"hcq {name}" for name in SUBCOMMAND.findall(text) if name not in KNOWN]
    missing += [f"python -m {name}: hcq has it" for name in COMMAND.findall(text) if name in HAVE]
    if page.name != "sources.md":  # which names files of other projects
        missing += [name for name in FILE.findall(text) if name not in FILES]
    assert not missing


@pytest.mark.parametrize("package", PACKAGES)
def test_names_in_docstrings_exist(package: str):
    missing = []
    for source in SOURCES:
        if not source.is_relative_to(ROOT / package):
            continue
        text = source.read_text()
        names = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
        names += [name for name in DOTTED.findall(text) if not exists(name)]
        names += [name for name in COMMAND.findall(text) if importlib.util.find_spec(name) is None]
        have = HAVE if source.name != "cli.py" else set[str]()  # the table of both
        names += [f"{name}: hcq has it" for name in COMMAND.findall(text) if name in have]
        missing += [f"{source.relative_to(ROOT)}: {name}" for name in names]
    assert not missing


POINTERS = re.compile(r"(?:Not here|Next): (.*?)(?=\n\n|\. Next:|\Z)", re.DOTALL)
PLAIN = re.compile(r"`([a-z_]\w*(?:\.\w+)*)`")
"""A plain name in a pointer: a module of the same folder or of one above, or a name in the module itself."""


def found_from(source: Path, name: str) -> bool:
    """Whether a name in a module's docstring leads to a module, or to something in that module."""
    for folder in source.parents:
        if folder == ROOT:
            break
        if (folder / f"{name.replace('.', '/')}.py").exists() or (folder / name.replace(".", "/")).is_dir():
            return True
        dotted = ".".join((*folder.relative_to(ROOT).parts, name))
        if "." in name and exists(dotted):
            return True
    here = ".".join(source.relative_to(ROOT).with_suffix("").parts)
    return exists(name) or exists(f"{here}.{name}")


@pytest.mark.parametrize("package", PACKAGES)
def test_references_in_module_docstrings_exist(package: str):
    lost = []
    for source in SOURCES:
        if not source.is_relative_to(ROOT / package):
            continue
        text = source.read_text()
        if not POINTERS.search(text):
            continue
        text = ast.get_docstring(ast.parse(text)) or ""
        names = [name for pointer in POINTERS.findall(text) for name in PLAIN.findall(pointer)]
        lost += [f"{source.relative_to(ROOT)}: {name}" for name in names if not found_from(source, name)]
    assert not lost, "\n".join(lost)


SECTION = re.compile(r"\bnv\.md (\d+(?:\.\d+)?)")
DECISION = re.compile(r"\bADR (\d+)\b")
SHEET = re.compile(
    r"design §|\bfacts? [A-Z]\d+\b|\([KR]\d+[,)]|(?<!ISA, )(?<!AAELF64, )\bsection \d+\.\d+\)?(?= [|)]|\.$)"
)
"""Numbers of sheets that are not in the repository."""
TEXTS = sorted({*PAGES, *SOURCES, *(ROOT / "tests").rglob("*.py")})


def sections() -> set[str]:
    """The sections of docs/facts/nv.md: rows name one, two or a range; a chapter is the first number."""
    found: set[str] = set()
    for cell in re.findall(r"^\| (\d[\d., -]*) \|", (ROOT / "docs/facts/nv.md").read_text(), re.MULTILINE):
        for part in cell.split(", "):
            first, _, last = part.partition("-")
            chapter, _, number = first.partition(".")
            numbers = range(int(number), int(last.partition(".")[2]) + 1) if last else [number]
            found |= {chapter, *(f"{chapter}.{n}" if n != "" else chapter for n in numbers)}
    return {*found, "9"}


def test_sections_decisions_and_sheets_that_are_named_exist():
    known = sections()
    decisions = {int(path.name[:4]) for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    lost = []
    for path in TEXTS:
        if path == Path(__file__):
            continue
        text = path.read_text()
        lost += [
            f"{path.relative_to(ROOT)}: nv.md {n}"
            for n in SECTION.findall(text)
            if n not in known and not n.startswith("9.")
        ]
        lost += [
            f"{path.relative_to(ROOT)}: ADR {n}" for n in DECISION.findall(text) if int(n) not in decisions
        ]
        lost += [f"{path.relative_to(ROOT)}: {words}" for words in SHEET.findall(text)]
    assert lost == []


def test_doubts_that_are_named_exist():
    text = (ROOT / "docs/facts/nv.md").read_text().partition("## 9. Doubts")[2]
    doubts = set(re.findall(r"^(\d+)\. ", text, re.MULTILINE))
    named = {n for path in TEXTS for n in re.findall(r"\bnv\.md 9\.(\d+)", path.read_text())}
    assert named - doubts == set()
    rows = set(re.findall(r"^\| (D\d+) \|", (ROOT / "docs/sources-amd.md").read_text(), re.MULTILINE))
    named = {n for path in TEXTS for n in re.findall(r"(?:\(|sources-amd\.md, )(D\d+)\)", path.read_text())}
    assert named
    assert named - rows == set()


def test_every_page_is_in_the_index():
    folder = ROOT / "docs"
    named = set(LINK.findall((folder / "README.md").read_text()))
    pages = {
        str(path.relative_to(folder))
        for part in (".", "how-to", "tutorials")
        for path in (folder / part).glob("*.md")
    }
    assert pages - named == {"README.md"}
