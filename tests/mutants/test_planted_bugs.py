"""Bugs planted between a driver and the emulated kernel: each has its place, and each is reported.

All of them with figures by `python -m tests.mutants.planted`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.mutants.planted.catalogs import WIRES
from tests.mutants.planted.run import Wired, evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutants.planted.wire import WireBug

BUGS = [(folder, bug) for folder, wires in WIRES.items() for bug in wires.bugs]
DEVICES = sorted({(folder, bug.device) for folder, bug in BUGS})


@pytest.fixture(scope="module")
def wired() -> Iterator[Wired]:
    with Wired() as process:
        yield process


def test_quoted_arguments_of_a_call_name_no_mistake() -> None:
    text = "CREATE failed with EINVAL (0x16): too small; arguments: args(size=7, inner=part(size=1))"
    assert evidence(text) == "CREATE failed with EINVAL (0x16): too small; arguments: "
    assert evidence(r"arguments: outer(uuid=part(b'\xbc)('), count=3)") == "arguments: "


@pytest.mark.parametrize("folder", list(WIRES))
def test_at_least_60_bugs_have_names_of_their_own(folder: str) -> None:
    names = [bug.name for bug in WIRES[folder].bugs]
    assert len(set(names)) == len(names) >= 60
    assert all(
        re.compile(bug.names) and set(bug.parts) <= {*WIRES[folder].parts} for bug in WIRES[folder].bugs
    )


@pytest.mark.landing
@pytest.mark.parametrize(("folder", "device"), DEVICES, ids=[device for _, device in DEVICES])
def test_the_driver_passes_behind_an_interposed_kernel(wired: Wired, folder: str, device: str) -> None:
    seen = wired.run(folder, device)
    assert seen.outcome == "passed", seen


@pytest.mark.sampled(144)
@pytest.mark.parametrize(("folder", "bug"), BUGS, ids=[bug.name for _, bug in BUGS])
def test_a_bug_on_the_wire_is_reported_to_the_user(wired: Wired, folder: str, bug: WireBug) -> None:
    verdict = wired.judge(folder, bug)
    assert verdict.word == "named", verdict
