"""Bring-up bugs planted in the driver's source: the catalog fits the source, and each bug is reported.

All of them with figures by `python -m tools.mutants.planted`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError
from tools.mutants.planted.catalogs import CATALOGS
from tools.mutants.planted.run import ROOT, judge, patched, unchanged

if TYPE_CHECKING:
    from tools.mutants.planted.bug import Bug, Catalog

BUGS = [(catalog, bug) for catalog in CATALOGS.values() for bug in catalog.bugs]
DEVICES = [(one, device) for one in CATALOGS.values() for device in sorted(set(map(one.device_of, one.bugs)))]


@pytest.mark.parametrize(("catalog", "bug"), BUGS, ids=[bug.name for _, bug in BUGS])
def test_a_bug_changes_one_place_of_the_driver(catalog: Catalog, bug: Bug) -> None:
    source = (ROOT / "drivers" / catalog.folder / bug.file).read_text()
    assert patched(bug, source) != source
    assert re.compile(bug.names)


def test_a_bug_whose_source_text_is_absent_is_refused() -> None:
    with pytest.raises(UsageError, match="occurs 0 times"):
        patched(BUGS[0][1], "")


@pytest.mark.slow
@pytest.mark.parametrize(("catalog", "device"), DEVICES, ids=[device for _, device in DEVICES])
def test_the_driver_passes_as_it_is(catalog: Catalog, device: str) -> None:
    seen = unchanged(catalog, device)
    assert seen.outcome == "passed", seen


@pytest.mark.sampled(25)
@pytest.mark.parametrize(("catalog", "bug"), BUGS, ids=[bug.name for _, bug in BUGS])
def test_a_bug_is_reported_to_the_user(catalog: Catalog, bug: Bug) -> None:
    verdict = judge(catalog, bug)
    assert verdict.word == "named", verdict
