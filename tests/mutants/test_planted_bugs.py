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
HARMLESS = [(folder, bug.on(gpu)) for folder, bug in BUGS for gpu in bug.harmless]
CHIPS = {
    "nv": ("sm_80", "sm_86", "sm_89", "sm_100", "sm_120"),
    "amd": ("gfx942", "gfx950", "gfx1151", "gfx1200", "gfx1201"),
}
"""Emulated GPUs other than the default of a driver."""
EVERYWHERE = {
    "nv": ("the ring's size in bytes", "no fences", "GPPut is one entry ahead", "the carve-out in KiB",
           "dimensions 0 and 2 of a group swapped"),
    "amd": ("the ring's size in dwords", "a control stack of a page more", "system memory without WRITABLE",
            "a fill that goes on at once", "copies count their bytes"),
}  # fmt: skip
"""Bugs that each emulated GPU can have."""
PAIRS = [
    (folder, next(bug for bug in WIRES[folder].bugs if bug.name == name).on(gpu))
    for folder, gpus in CHIPS.items()
    for at, gpu in enumerate(gpus)
    for name in (EVERYWHERE[folder] * 2)[at : at + 3]
]
"""Three bugs for each GPU, each bug on three GPUs."""


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


@pytest.mark.parametrize(("folder", "bug"), PAIRS, ids=[f"{bug.device}: {bug.name}" for _, bug in PAIRS])
def test_bugs_are_reported_on_every_emulated_gpu(wired: Wired, folder: str, bug: WireBug) -> None:
    verdict = wired.judge(folder, bug)
    assert verdict.word == "named", verdict


@pytest.mark.landing
@pytest.mark.parametrize(("folder", "bug"), HARMLESS, ids=[f"{b.device}: {b.name}" for _, b in HARMLESS])
def test_a_mistake_that_is_none_on_a_gpu_passes_there(wired: Wired, folder: str, bug: WireBug) -> None:
    verdict = wired.judge(folder, bug)
    assert (verdict.word, verdict.text) == ("harmless", bug.reason), verdict


def test_a_bug_on_another_gpu_keeps_the_version_that_it_needs() -> None:
    ours = next(bug for bug in WIRES["nv"].bugs if bug.device.endswith("+native"))
    assert ours.on("sm_100").device == "sm_100+native"
    assert ours.on("sm_100+595").device == "sm_100+595"


@pytest.mark.sampled(144)
@pytest.mark.parametrize(("folder", "bug"), BUGS, ids=[bug.name for _, bug in BUGS])
def test_a_bug_on_the_wire_is_reported_to_the_user(wired: Wired, folder: str, bug: WireBug) -> None:
    verdict = wired.judge(folder, bug)
    assert verdict.word == "named", verdict
