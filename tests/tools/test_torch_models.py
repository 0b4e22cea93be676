"""The table of models that `tools.torch_models` compares: its size, its bounds, and what it needs."""

from __future__ import annotations

import sys

import pytest

from hcq.errors import UnsupportedError
from tools.torch_models import FORWARD, GRADIENT, ROWS, Result, main


def test_the_table_has_models_of_both_libraries_and_trains_some():
    assert len(ROWS) >= 30
    assert sum(row.trains for row in ROWS.values()) >= 10
    assert {row.library for row in ROWS.values()} == {"torchvision", "transformers"}
    assert all(row.inputs for row in ROWS.values())


def test_a_result_is_right_within_its_bounds():
    assert Result("a", "torchvision", FORWARD).right
    assert not Result("a", "torchvision", 2 * FORWARD).right
    assert not Result("a", "torchvision", FORWARD, 2 * GRADIENT, 0.0).right
    assert not Result("a", "torchvision", FORWARD, fault="an operator is missing").right


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as where it is not installed
    with pytest.raises(UnsupportedError, match=r"needs torchvision, (?s:.*)hint: pip install torchvision"):
        main(["--models", "AlexNet"])
