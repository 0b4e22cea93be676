"""Bring-up bugs planted in the driver's source: the catalogue fits the source, and each bug is named.

All of them by `python -m tools.mutants.planted`.
"""

from __future__ import annotations

import re

import pytest

from hcq.errors import UsageError
from tools.mutants.planted.catalog import BUGS, Bug
from tools.mutants.planted.run import ROOT, judge, patched, unchanged

SOME = ("barrier that emits nothing", "constant bank not invalidated", "token without its enable bit")


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_bug_changes_one_place_of_the_driver(bug: Bug) -> None:
    source = (ROOT / "drivers" / "nv" / bug.file).read_text()
    assert patched(bug, source) != source
    assert re.compile(bug.names)


def test_a_bug_whose_source_text_is_absent_is_refused() -> None:
    with pytest.raises(UsageError, match="occurs 0 times"):
        patched(BUGS[0], "")


@pytest.mark.slow
@pytest.mark.parametrize("device", sorted({bug.device for bug in BUGS}))
def test_the_driver_passes_as_it_is(device: str) -> None:
    seen = unchanged(device)
    assert seen.outcome == "passed", seen


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_a_bug_is_named_to_the_user(name: str) -> None:
    (bug,) = [bug for bug in BUGS if bug.name == name]
    verdict = judge(bug)
    assert verdict.word == "named", verdict
