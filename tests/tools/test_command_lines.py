"""Wrong values on command lines of tools and of what verifies: refused with status 2 and a line, at once."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hcq import cli
from hcq.errors import UnsupportedError
from tests.guests import build, build_bad, corpus
from tools import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

NOWHERE = "/nowhere/file"
ROOT = Path(__file__).parents[2]
VERIFY = ("foreign", "fuzz", "guests", "mutants", "oracles", "support")
FOLDERS = ("tools", *(f"tests/{name}" for name in (*VERIFY, "facts", "emulator", "drivers")))
STARTED_BY_OTHERS = ("program.py", "wired.py", "walked.py", "worker.py", "cell.py", "collectives.py")
"""Programs that another tool starts."""
COMMANDS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if '\nif __name__ == "__main__"' in path.read_text() and path.name not in STARTED_BY_OTHERS
)
"""Every module that is a command."""

WRONG = [
    ("tools.bench.__main__", ["submit", "--device", "foo"], "no device is called 'foo'; drivers: nv, amd"),
    ("tools.bench.__main__", ["submit", "--against", NOWHERE], "wanted a checkout of this project"),
    ("tools.bench.__main__", ["submit", "--output", NOWHERE], "in '/nowhere', which is no folder"),
    ("tools.bench.__main__", ["submit", "--output", "/"], "wanted a file to write, '/' is a folder"),
    ("tools.calibrate", ["--device", "foo"], "no device is called 'foo'"),
    ("tests.fuzz.interrupts", ["--every", "0"], "wanted a whole number of at least 1, saw '0'"),
    ("tests.fuzz.interrupts", ["--bound", "-1"], "wanted a number above 0, saw '-1'"),
    ("tools.gpu_kernels", ["--arch", "foo"], "wanted some of sm_80"),
    ("tools.gpu_kernels", ["--kernel", "foo"], "separated by commas; saw foo"),
    ("tools.gpu_kernels", ["--size", "0"], "wanted a whole number of at least 1, saw '0'"),
    ("tools.gpu_kernels", ["--count", "-5"], "wanted a whole number of at least 0, saw '-5'"),
    ("tests.guests.bad_run", ["--only", "zzz"], "--only: no archive's and no kernel's name contains"),
    ("tests.guests.corpus", ["--only", "zzz"], "--only: no kernel's name contains 'zzz'"),
    ("tests.guests.tutorials", ["--device", "foo"], "no device is called 'foo'"),
    ("tests.support.kernel_corpus", ["compile", NOWHERE, "sm_80"], "wanted a file, '/nowhere/file' is not"),
    ("tests.support.kernel_corpus", ["merges", "/", "sm_80"], "wanted a file, '/' is a folder"),
    ("tests.mutants.__main__", ["--sample", "-1"], "wanted a whole number of at least 0, saw '-1'"),
    ("tests.mutants.__main__", ["--minimum", "2"], "wanted a number from 0 to 1, saw '2'"),
    ("tests.mutants.__main__", ["--json", NOWHERE], "which is no folder"),
    ("tools.view.__main__", [NOWHERE], "wanted a file, '/nowhere/file' is not there"),
    ("tools.view.__main__", ["--output", NOWHERE, __file__], "which is no folder"),
    ("tools.performance.__main__", ["--threads", "0"], "wanted a whole number of at least 1, saw '0'"),
    ("tools.performance.__main__", ["--torch", NOWHERE], "wanted a program"),
    ("tools.record.__main__", ["--shards", "3/2"], "wanted a part as 1/2 or 2/2, saw '3/2'"),
    ("tests.fuzz.plans.__main__", ["--device", "foo"], "no device is called 'foo'"),
    ("tests.oracles.torch_models", ["--models", "foo"], "wanted some of AlexNet"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "argv", "words"), WRONG)
def test_a_wrong_value_is_refused_before_anything_runs(
    module: str, argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    main: Callable[[list[str]], int] = import_module(module).main
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == arguments.REFUSED
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("module", COMMANDS)
def test_help_names_the_command_and_keeps_the_lines_of_the_docstring(
    module: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        import_module(module).main(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert text.startswith(f"usage: python -m {module.removesuffix('.__main__')} [-h]")
    assert not re.search(r"Not here:|\bNext: ", text)
    assert len(text.splitlines()) > 4


@pytest.mark.parametrize("module", COMMANDS)
def test_an_unknown_option_is_refused(module: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        import_module(module).main(["--no-such-option"])
    assert ended.value.code == arguments.REFUSED
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(("page", "package"), [("tools.md", "tools"), ("verification.md", "tests")])
def test_every_command_is_on_its_page(page: str, package: str):
    text = (ROOT / "docs" / page).read_text()
    named = set(re.findall(r"^\| `python -m ((?:tools|tests)\.[\w.]*)", text, re.MULTILINE))
    short = {f"hcq {one.name}": one.module for one in cli.COMMANDS}
    named |= {short[name] for name in re.findall(r"^\| `(hcq [a-z-]+)", text, re.MULTILINE) if name in short}
    named = {name.removesuffix(".__main__").removesuffix(".command") for name in named}
    every = {name.removesuffix(".__main__") for name in COMMANDS if name.startswith(package)}
    assert {name for name in named if name.startswith(package)} == every


def test_archives_stay_where_triton_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "triton", None)  # as where it is not installed
    archives = {path: path.stat().st_mtime_ns for path in build.DATA.glob("*.tar.xz")}
    for main, argv in ((build.main, []), (build_bad.main, ["--triton"]), (corpus.main, ["--rebuild"])):
        with pytest.raises(UnsupportedError, match=r"needs triton, (?s:.*)hint: pip install 'triton>=3.6'"):
            main(argv)
    assert archives
    assert {path: path.stat().st_mtime_ns for path in archives} == archives


def test_a_missing_library_is_named_with_its_cure():
    with pytest.raises(UnsupportedError, match=r"needs no_such_library, (?s:.*)hint: pip install it"):
        arguments.library("no_such_library", cure="pip install it")


def test_right_values_are_taken(tmp_path: Path):
    assert arguments.natural("0") == 0
    assert arguments.positive("7") == 7
    assert arguments.above_zero("0.5") == 0.5
    assert arguments.share("1") == 1
    assert arguments.device_name("nv-emu:sm_80:1") == "nv-emu:sm_80:1"
    assert arguments.device_name("auto") == "auto"
    assert arguments.existing(__file__).name == "test_command_lines.py"
    assert arguments.folder(str(tmp_path)) == tmp_path
    assert arguments.output(str(tmp_path / "new")) == tmp_path / "new"
    assert arguments.part("2/3") == (2, 3)
    assert arguments.some_of(("a", "b"))("a,b") == ["a", "b"]


@pytest.mark.parametrize("text", ["nan", "inf", "0", "x"])
def test_times_are_finite_numbers_above_zero(text: str):
    with pytest.raises(Exception, match="wanted a number above 0"):
        arguments.above_zero(text)


def test_an_error_of_this_project_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]):
    def main() -> int:
        raise UnsupportedError("there is no GPU\nhint: buy one")

    assert arguments.reported(main) == arguments.REFUSED
    assert capsys.readouterr().err == "error: there is no GPU\nhint: buy one\n"


def test_other_exceptions_are_not_hidden():
    def main() -> int:
        raise KeyError("a mistake of the tool")

    with pytest.raises(KeyError):
        arguments.reported(main)
