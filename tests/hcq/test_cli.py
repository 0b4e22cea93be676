"""The command `hcq`: its table, its completion, and the wheel that brings it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hcq import cli
from tests.children import python
from tools.check import PACKAGES, ROOT

NAMES = [
    "doctor", "devices", "bringup", "hardware-run", "bench", "top", "trace", "view", "sanitize", "counters",
    "llm",
]  # fmt: skip
BUNDLED = "hcq/bundled/"
OF_A_CHECKOUT = "hardware-run"
RUN_EACH = """
import sys
sys.path[:], sys.argv[0] = {path}, "hcq"
from hcq.cli import main
for words in ([name, "--help"] for name in {names}):
    try:
        main(words)
    except SystemExit as end:
        assert end.code == 0, words
sys.exit(main(["devices"]))
"""
"""The help of each command, then `hcq devices`, with the packages of the path alone."""


def test_help_has_each_command_with_an_example_and_its_time(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [one.name for one in cli.COMMANDS] == NAMES
    for one in cli.COMMANDS:
        assert one.example.startswith(f"hcq {one.name}")
        assert f"{one.example}   ({one.takes})" in text


def test_the_version_and_the_help_of_a_command(capsys: pytest.CaptureFixture[str]):
    for words in (["--version"], ["-V"]):
        assert cli.main(words) == 0
        assert capsys.readouterr().out.startswith("hcq ")
    assert cli.main(["help"]) == 0
    assert capsys.readouterr().out.startswith("usage: hcq COMMAND")
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", "top"])
    assert ended.value.code == 0
    assert "--once" in capsys.readouterr().out
    assert cli.main(["help", "tpo"]) == cli.REFUSED
    assert "did you mean 'top'?" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "meant"), [("snaitize", "sanitize"), ("device", "devices"), ("lm", "llm")])
def test_an_unknown_command_names_the_nearest(typed: str, meant: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main([typed]) == cli.REFUSED
    assert f"saw {typed!r}\nhint: did you mean {meant!r}?" in capsys.readouterr().err


def test_completion_names_all_commands(capsys: pytest.CaptureFixture[str]):
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        assert " ".join(NAMES) in capsys.readouterr().out
    assert cli.main(["completion", "tcsh"]) == cli.REFUSED


def test_completion_of_bash_is_taken_by_bash(capsys: pytest.CaptureFixture[str]):
    cli.main(["completion", "bash"])
    script = capsys.readouterr().out + "complete -p hcq\n"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True)
    assert "sanitize" in done.stdout


def built(folder: Path) -> Path:
    """Return a wheel that is built into a folder, with the dates of the environment."""
    words = ["hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    python("-m", *words)
    (path,) = folder.glob("*.whl")
    return path


@pytest.mark.landing
def test_two_wheels_are_equal_and_bring_the_command(tmp_path: Path):
    first, second = built(tmp_path / "a"), built(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    kept = {str(path.relative_to(ROOT)) for top in PACKAGES for path in (ROOT / top).rglob("*.py")}
    packed = {name for name in names if name.endswith(".py") and not name.startswith(BUNDLED)}
    assert packed == kept
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]

    site = tmp_path / "site"
    zipfile.ZipFile(first).extractall(site)
    # An editable installation leaves hcq/bundled beside the libraries: only the package itself counts.
    others = [
        part
        for part in sys.path
        if part and Path(part).exists() and not (Path(part) / "hcq" / "__init__.py").is_file()
    ]
    program = RUN_EACH.format(path=[str(site), *others], names=NAMES)
    settings = {"PATH": "/usr/bin:/bin", "HCQ_CACHE": str(tmp_path / "cache")}
    done = python("-I", "-S", "-c", program, cwd=tmp_path, env=settings)
    for name in NAMES:
        assert name == OF_A_CHECKOUT or f"usage: hcq {name} " in done.stdout, name
    assert done.stderr.count("error: ") == 1
    assert f"`hcq {OF_A_CHECKOUT}` needs the files of a checkout" in done.stderr
    assert "cpu:0     yes" in done.stdout
