"""The walk of a tensor operation: it counts calls in four situations, prints them, and refuses a rise."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

from frontend import Tensor
from tools.walk import DEVICES, KEPT, SITUATIONS, Counts, count, main, risen

if TYPE_CHECKING:
    import pytest


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
