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
PENDING = frozenset(
    {
        "amd no fence before the doorbell",
        "amd pointers of compute queues in bytes",
        "amd doorbells 4 bytes apart",
        "amd control stack of no size",
        "amd context-save header without the exception word",
        "amd event slots of 4 bytes",
        "amd trap with another event",
        "amd poll for equality",
        "amd work-items for workgroups",
        "amd user registers in reverse order",
        "amd privileged waves on gfx12",
        "amd third resource register of gfx9 on gfx12",
        "aql scratch of one XCC for eight",
        "aql queue without the offset of its read index",
        "aql header after the doorbell",
        "dependent launch without invalidation",
        "stamps that wait for no engine",
        "payload of 32 bits for a signal of 64",
        "mapping a page short",
        "no room for the prefetch of code",
    }
)
"""Bugs whose reports do not name them yet."""


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
@pytest.mark.parametrize(
    ("catalog", "bug"),
    [pytest.param(*row, id=row[1].name) for row in BUGS if row[1].name not in PENDING],
)
def test_a_bug_is_reported_to_the_user(catalog: Catalog, bug: Bug) -> None:
    verdict = judge(catalog, bug)
    assert verdict.word == "named", verdict
