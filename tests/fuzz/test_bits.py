"""Recorded bits: equal in a second run, and one changed digest is found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.fuzz import bits

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_run_agrees_with_itself_and_not_with_a_changed_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bits, "MODES", ("graphs",))
    assert bits.recorded(3, 1, golden=None, folder=str(tmp_path)) == {}
    golden = tmp_path / "3.bits"
    (key, (kernels, code, digests)), *others = map(json.loads, golden.read_text().splitlines())
    assert kernels > 0
    assert others == []
    assert bits.recorded(3, 1, golden=str(golden), folder=str(tmp_path)) == {}
    golden.write_text(json.dumps([key, [kernels, code, [*digests[:-1], "0"]]]))
    assert key in bits.recorded(3, 1, golden=str(golden), folder=str(tmp_path))[3]
