"""The queue benchmarks run, and their rows say what a figure needs to be believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tools.bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("case", ["submit", "replay", "signal", "copy"])
def test_case_prints_a_row_a_figure(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    assert main([case, "--device", "cpu", "--quick", "--json", str(out)]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed
    assert [json.loads(line) for line in out.read_text().splitlines()] == printed
    for row in printed:
        assert row["bench"] == case
        assert row["device"].startswith("cpu:0 ")
        assert row["p25"] <= row["median"] <= row["p75"]
        assert row["count"] > 0
        assert row["commit"]


def test_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the [plot] extra is not installed")
    out = tmp_path / "rows.png"
    assert main(["signal", "--device", "cpu", "--quick", "--plot", str(out)]) == 0
    assert out.read_bytes()[:4] == b"\x89PNG"


def test_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nonsense", "--device", "cpu"])
    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err
