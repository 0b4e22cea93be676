"""The benchmark of the comparison of kernels has a row without and one with it."""

from __future__ import annotations

import json

import pytest

from tools.bench.__main__ import main


@pytest.mark.slow
def test_first_runs_are_measured_without_and_with_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "cpu", "--quick"]) == 0
    plain, checked = map(json.loads, capsys.readouterr().out.splitlines())
    assert (plain["case"], checked["case"]) == ("BERT layer", "BERT layer, checked")
    assert plain["unit"] == checked["unit"] == "ms"
    assert " kernels, " in checked["note"]
