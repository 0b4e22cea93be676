"""The table of models that `tests.oracles.torch_models` compares: its size, its bounds, and what it needs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hcq.errors import UnsupportedError
from tests.oracles.torch_models import FORWARD, GRADIENT, ROWS, Result, Row, main, run


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


def test_an_error_is_measured_against_pytorchs_own_rounding():
    assert Result("a", "torchvision", own={"steps": 0.1}, steps=0.15).right
    assert not Result("a", "torchvision", own={"steps": 0.1}, steps=0.25).right
    assert not Result("a", "torchvision", 2 * FORWARD, own={"steps": 0.1}).right


@pytest.mark.filterwarnings("ignore")  # of PyTorch
def test_a_model_that_cannot_be_made_is_a_row_with_a_fault(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hcq[torch]'")
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=None))
    monkeypatch.setitem(ROWS, "broken", Row("torchvision", lambda v: v.missing(), {}))
    assert run("broken", "cpu").fault.startswith("AttributeError: 'NoneType' object has no attribute")


def test_the_page_states_every_model():
    page = (Path(__file__).parents[2] / "docs" / "torch-compile.md").read_text("utf-8")
    assert [name for name in ROWS if f"\n| {name} | {ROWS[name].library} |" not in page] == []


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as where it is not installed
    with pytest.raises(UnsupportedError, match=r"needs torchvision, (?s:.*)hint: pip install torchvision"):
        main(["--models", "AlexNet"])
