"""First-run mistakes and surprises, made by the emulated kernels: errors have cause, evidence and cure.

Each case also looks for what is left behind, at a device of another process or GPU, and at work after
the cure.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator.shared.surprises import LOST, StatusReply, Surprises
from hcq.errors import DriverError
from tests.support.surprises import amd, nv
from tests.support.surprises.row import Row, run

if TYPE_CHECKING:
    from types import ModuleType

CASES = [
    pytest.param(vendor, row, id=f"{vendor.DEVICE}-{row.name}") for vendor in (nv, amd) for row in vendor.ROWS
]
PAGE = Path("docs/first-run.md")


@pytest.mark.parametrize(("vendor", "row"), CASES)
def test_an_error_has_cause_evidence_and_cure(vendor: ModuleType, row: Row) -> None:
    assert row.wrong(run(row, vendor.machine)) == []


@pytest.mark.parametrize("vendor", [nv, amd])
def test_a_machine_without_surprises_fails_a_row(vendor: ModuleType) -> None:
    row = next(row for row in vendor.ROWS if row.name == "seccomp")
    healthy = Row(name="healthy", what="", cause=row.cause, evidence=row.evidence, cure=row.cure)
    wrong = healthy.wrong(run(healthy, vendor.machine))
    assert [line.partition(" (")[0] for line in wrong[:3]] == ["no cause", "no evidence", "no cure"]
    assert "saw no error" in wrong[3]


@pytest.mark.parametrize("vendor", [nv, amd])
def test_the_page_has_every_row_once(vendor: ModuleType) -> None:
    text = PAGE.read_text()
    names = [row.name for row in vendor.ROWS]
    assert len(names) == len(set(names)) >= 30
    assert [row.name for row in vendor.ROWS if text.count(f"\n{row.line(vendor.DEVICE)}\n") != 1] == []


def test_a_place_is_named_by_text_pattern_or_number() -> None:
    found = Surprises({"open /dev/a*": errno.EACCES, "doorbell #2": LOST, "RM_ALLOC X": StatusReply(3)})
    with pytest.raises(DriverError, match="open failed with EACCES"):
        found.call("open /dev/ab")
    assert found.call("open /dev/b") is None
    assert [found.doorbell(None, None) for _ in range(3)] == [True, False, True]
    assert found.call("RM_ALLOC X") == StatusReply(3)


def test_files_and_folders_are_replaced_changed_or_gone() -> None:
    table = {"read a": b"new", "read b": lambda text: text + b"!", "read c": errno.EIO, "list d": ["x"]}
    found = Surprises(table)
    assert found.file("a", lambda: b"old") == b"new"
    assert found.file("b", lambda: b"old") == b"old!"
    assert found.file("z", lambda: b"old") == b"old"
    with pytest.raises(DriverError, match="EIO"):
        found.file("c", lambda: b"old")
    assert found.folder("d/", None) == ["x"]
    assert found.folder("e", ["y"]) == ["y"]
    with pytest.raises(DriverError, match="ENOENT"):
        found.folder("f", None)
