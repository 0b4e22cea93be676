"""The walk of a tensor operation: it counts calls in three situations, and prints them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from frontend import Tensor
from tools.walk import SITUATIONS, count, main

if TYPE_CHECKING:
    import pytest


def test_the_command_prints_calls_files_and_transitions_of_each_situation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == list(SITUATIONS)
    compiled, cached, steady = (found[name] for name in SITUATIONS)
    for column in ("calls", "files", "transitions"):
        assert min(compiled[column], cached[column]) > steady[column] > 0, column
    assert compiled["calls"] > cached["calls"], "the disk cache saves the lowering"


def test_only_functions_of_the_packages_are_counted() -> None:
    assert count(lambda: json.dumps([1, 2])).calls == 0
    lengths = count(lambda: len(Tensor([1, 2])))
    assert lengths.calls > 0
    assert lengths.depth <= lengths.calls
