"""CUDA C++ kernels with one mistake each: a checked device names it with its line, and no right kernel.

The kernels are compiled before (`tools.guests.build_bad`). The quick run takes a sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.config import override
from tools.guests import bad_cases, bad_run, build_bad

if TYPE_CHECKING:
    from collections.abc import Iterator

    import hcq

TWINS = {kernel: source for source, launches in bad_cases.LAUNCHES.items() for kernel in launches}


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, hcq.Device]]:
    opened: dict[str, hcq.Device] = {}
    yield opened
    for device in opened.values():
        device.close()


@pytest.mark.sampled(13)
@pytest.mark.parametrize("kernel", TWINS)
def test_mistakes_are_named_with_their_line_and_right_kernels_are_not(
    kernel: str, devices: dict[str, hcq.Device]
):
    source = TWINS[kernel]
    target = bad_run.archive(source)[kernel][0]["target"]
    if target not in devices:
        devices[target] = bad_run.opened(target)
    broken = bad_run.findings(devices[target], source, kernel, fixed=False)
    assert bad_run.named(source, kernel, broken), broken
    assert not bad_run.findings(devices[target], source, kernel, fixed=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_writer_of_a_sequence_lock_meets_its_readers_in_every_order(seed: int):
    with override(seed=seed), bad_run.opened("sm_80") as device:
        found = bad_run.findings(device, "patterns", "sequence_lock", fixed=False)
        assert bad_run.named("patterns", "sequence_lock", found), found
        assert not bad_run.findings(device, "patterns", "sequence_lock", fixed=True)


@pytest.mark.parametrize("source", bad_cases.LAUNCHES)
def test_every_kernel_has_a_launch_a_mark_and_compiled_code(source: str):
    marks = bad_cases.marks(bad_cases.path_of(source).read_text())
    assert set(marks) == set(bad_cases.LAUNCHES[source])
    assert all(marks.values())
    kept = bad_run.archive(source)
    assert set(kept) == {name + suffix for name in marks for suffix in ("", ".fixed")}
    assert {facts["source"] for facts, _ in kept.values()} == {build_bad.digest(source)}
