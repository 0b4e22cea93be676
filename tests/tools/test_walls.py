"""The limits of the source tree, and the walk of a tensor operation: what is named, and how limits shrink."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor
from tools.walk import DEVICES, KEPT, SITUATIONS, Counts, count, main, risen
from tools.walls import __main__ as walls
from tools.walls import rooms
from tools.walls.arrows import arrows, knots
from tools.walls.clones import clones, statements
from tools.walls.errors import unnamed_errors
from tools.walls.names import shared_names
from tools.walls.source import ROOT, Module, product

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def modules(files: Mapping[str, str]) -> dict[str, Module]:
    """Return modules of a small product, from path to text."""
    found = [Module(path.removesuffix(".py").replace("/", "."), path, text) for path, text in files.items()]
    return {module.name: module for module in found}


@pytest.mark.skipif(shutil.which("git") is None, reason="git, which lists the files, is not installed")
def test_the_checkout_has_no_folder_beside_the_rooms():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("this folder is no checkout of git")
    folders = {name.partition("/")[0] for name in listed.stdout.decode().split("\0") if "/" in name}
    assert folders == {*rooms.FOLDERS, "docs", ".ci"}


KNOT = {
    "compiler/plan/a.py": "from compiler.emit import maths\n",
    "compiler/emit/maths.py": "def late():\n    from compiler.targets.rows import ROW\n    return ROW\n",
    "compiler/targets/rows.py": "import compiler.plan.a\nROW = 1\n",
    "compiler/schedule/fusion.py": "from compiler.plan.a import x\n",
}


def test_arrows_of_a_circle_are_named_and_the_one_that_leads_to_it_is_not():
    assert knots(arrows(modules(KNOT))) == [
        "compiler/emit -> compiler/targets",
        "compiler/plan -> compiler/emit",
        "compiler/targets -> compiler/plan",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from compiler.plan.a import x\n",
        "from typing import TYPE_CHECKING\n",
    ],
)
def test_imports_for_types_alone_make_no_circle(text: str):
    assert knots(arrows(modules({**KNOT, "compiler/targets/rows.py": text}))) == []


def test_classes_of_one_name_are_named_with_their_modules_except_private_ones_and_layouts():
    found = modules(
        {
            "hcq/queue.py": "class Queue: ...\nclass _Part: ...\n",
            "drivers/cpu/ring.py": "class Queue: ...\nclass _Part: ...\nclass Ring: ...\n",
            "drivers/amd/layouts/aql.py": "class Queue: ...\nclass Ring: ...\n",
        }
    )
    assert shared_names(found) == {"Queue": ["hcq.queue", "drivers.cpu.ring"]}


BODY = "".join(f"value_{n} = first_function(second_name, {n})\n" for n in range(6))


def test_six_statements_that_stand_twice_are_a_clone_whatever_their_strings_and_comments_say():
    first = f'"""A."""\nimport os\n{BODY}left = "a"\n'
    other = f'"""B."""\nimport sys\n# another place\n{BODY}left = "b"\n'
    assert clones(modules({"hcq/a.py": first, "hcq/b.py": other})) == {"hcq/a.py = hcq/b.py": 2}
    assert clones(modules({"hcq/a.py": first, "hcq/b.py": other.replace("value_3", "another")})) == {}
    assert clones(modules({"drivers/nv/layouts/a.py": first, "drivers/nv/layouts/b.py": other})) == {}
    assert statements(first)[0].startswith("value_0")


def test_a_file_lies_in_the_room_of_its_package():
    paths = ("emulator/nv/rm/files.py", "drivers/nv/ring.py", "tests/each.py", "frontend/llm/a.py")
    assert [rooms.room_of(path) for path in paths] == ["emulator", "drivers", "tests", "frontend/llm"]


def test_the_rooms_hold_every_line_once(tmp_path: Path):
    (tmp_path / "hcq/faults").mkdir(parents=True)
    (tmp_path / "hcq/faults/a.py").write_text("1\n2\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("#\n")
    sizes = rooms.sizes(tmp_path)
    assert {room: lines for room, lines in sizes.items() if lines} == {"hcq": 2, "docs": 1}
    assert list(product(tmp_path)) == ["hcq.faults.a"]


def test_an_error_that_no_docstring_names_is_named_with_its_function():
    text = (
        'def f(x):\n    """Raises `UsageError`."""\n    raise UsageTypeError(x)\n'
        "def g(x):\n    if x:\n        raise errors.DriverError(x)\n"
        "def h(x):\n    try:\n        raise KeyError\n    except KeyError:\n        raise OSError from None\n"
        'class A:\n    """Raises `ValueError`."""\n    def __init__(self):\n        raise ValueError\n'
        "    def f(self):\n        raise failure\n    def _f(self):\n        raise KeyError\n"
    )
    wanted = ["hcq/a.py: g raises DriverError", "hcq/a.py: h raises OSError"]
    assert unnamed_errors(modules({"hcq/a.py": text})) == wanted


LIMITS: dict[str, Any] = {
    "arrows": {"cut": ["a -> b"]},
    "names": {"Queue": ["a", "b"]},
    "clones": {"a.py = b.py": 2},
    "rooms": {"hcq": {"ceiling": 10, "goal": 5, "why": "soon"}},
}
SEEN = {
    "arrows": ["a -> b"],
    "names": {"Queue": ["a", "b"]},
    "clones": {"a.py = b.py": 2},
    "rooms": {"hcq": 10},
    "errors": [],
}


def test_what_stands_within_its_limits_is_silent():
    assert walls.beyond(LIMITS, SEEN) == walls.stale(LIMITS, SEEN) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrows": ["a -> b", "b -> a"]}, "arrows: b -> a lies on a circle"),
        ({"names": {"Queue": ["a", "b", "c"]}}, "names: class Queue of c has the name of another"),
        ({"names": {"Queue": ["a", "b"], "Ring": ["a", "b"]}}, "names: class Ring of a, b"),
        ({"clones": {"a.py = b.py": 3}}, "clones: a.py = b.py, 3 runs of six statements, 2 are allowed"),
        ({"rooms": {"hcq": 11}}, "rooms: hcq has 11 lines, 10 are allowed"),
        ({"errors": ["a.py: f raises UsageError"]}, "errors: a.py: f raises UsageError, which no docstring"),
    ],
)
def test_what_is_beyond_a_limit_is_named(change: dict[str, Any], words: str):
    (line,) = walls.beyond(LIMITS, {**SEEN, **change})
    assert line.startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrows": []}, "arrows: a -> b is gone"),
        ({"names": {}}, "names: Queue of a, b is gone, or has its name alone"),
        ({"clones": {"a.py = b.py": 1}}, "clones: a.py = b.py has 1 runs, not 2"),
    ],
)
def test_a_limit_that_is_not_reached_any_more_must_go(change: dict[str, Any], words: str):
    assert walls.stale(LIMITS, {**SEEN, **change}) == [words]


def test_limits_are_written_as_they_are_read():
    text = walls.written(LIMITS, SEEN)
    assert walls.tomllib.loads(text) == LIMITS


def test_the_command_prints_calls_files_and_transitions_of_each_situation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["cpu"]
    assert list(found) == list(SITUATIONS)
    compiled, cached, steady, launch = (found[name] for name in SITUATIONS)
    for column in ("calls", "files", "transitions"):
        assert min(compiled[column], cached[column]) > steady[column] > launch[column] > 0, column
    assert compiled["calls"] > cached["calls"], "the disk cache saves the lowering"


def test_only_functions_of_the_packages_are_counted() -> None:
    assert count(lambda: json.dumps([1, 2])).calls == 0
    lengths = count(lambda: len(Tensor([1, 2])))
    assert lengths.calls > 0
    assert lengths.depth <= lengths.calls


def test_a_count_above_the_kept_one_is_named() -> None:
    found = {"cpu": {"compile": Counts(calls=5, files=3, transitions=2, depth=1, doorbells=0)}}
    kept = {"cpu": {"compile": {"calls": 4, "files": 3, "transitions": 9, "depth": 1, "doorbells": 0}}}
    assert risen(kept, found) == ["cpu, compile: calls 5, kept 4"]
    assert len(risen({}, found)) == 5, "what has no limit is no pass"


def test_every_device_and_situation_has_kept_counts() -> None:
    kept = tomllib.loads(KEPT.read_text(encoding="utf-8"))
    assert {name: list(rows) for name, rows in kept.items()} == {key: list(SITUATIONS) for key in DEVICES}
