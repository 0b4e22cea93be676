"""Bring-up bugs planted in the driver's source and on the wire: each has its place, and each is reported.

All of them with figures by `python -m tests.mutants.planted`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError
from tests.mutants.planted.catalogs import CATALOGS, WIRES
from tests.mutants.planted.run import ROOT, evidence, judge, judge_wire, patched, unchanged, wired

if TYPE_CHECKING:
    from tests.mutants.planted.bug import Bug, Catalog
    from tests.mutants.planted.wire import WireBug

BUGS = [(catalog, bug) for catalog in CATALOGS.values() for bug in catalog.bugs]
WIRED = [(folder, bug) for folder, wires in WIRES.items() for bug in wires.bugs]
WIRED_DEVICES = sorted({(folder, bug.device) for folder, bug in WIRED})
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


def test_quoted_arguments_of_a_call_name_no_mistake() -> None:
    text = "CREATE failed with EINVAL (0x16): too small; arguments: args(size=7, inner=part(size=1))"
    assert evidence(text) == "CREATE failed with EINVAL (0x16): too small; arguments: "
    assert evidence(r"arguments: outer(uuid=part(b'\xbc)('), count=3)") == "arguments: "


@pytest.mark.parametrize("folder", list(WIRES))
def test_at_least_32_bugs_on_the_wire_have_names_of_their_own(folder: str) -> None:
    names = [bug.name for bug in WIRES[folder].bugs]
    assert len(set(names)) == len(names) >= 32
    assert all(
        re.compile(bug.names) and set(bug.parts) <= {*WIRES[folder].parts} for bug in WIRES[folder].bugs
    )


@pytest.mark.landing
@pytest.mark.parametrize(("folder", "device"), WIRED_DEVICES, ids=[device for _, device in WIRED_DEVICES])
def test_the_driver_passes_behind_an_interposed_kernel(folder: str, device: str) -> None:
    seen = wired(folder, device)
    assert seen.outcome == "passed", seen


def test_a_bug_on_the_wire_is_named_by_the_reason_of_the_refusal() -> None:
    bug = next(bug for folder, bug in WIRED if folder == "amd" and "control stack" in bug.name)
    verdict = judge_wire("amd", bug)
    assert verdict.word == "named", verdict


@pytest.mark.landing
@pytest.mark.parametrize(("folder", "bug"), WIRED, ids=[bug.name for _, bug in WIRED])
def test_a_bug_on_the_wire_is_reported_to_the_user(folder: str, bug: WireBug) -> None:
    verdict = judge_wire(folder, bug)
    assert verdict.word == "named", verdict
