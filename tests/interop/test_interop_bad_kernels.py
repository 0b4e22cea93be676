"""Kernels of CUDA C++ and Triton with one mistake each: checked devices name its line, and no right kernel.

The kernels are compiled before (`tests.guests.build_bad`). The quick run takes a sample.
"""

from __future__ import annotations

import pytest

from hcq.config import override
from tests.guests import bad_cases, bad_run, build_bad

TWINS = [(name, kernel) for name in bad_cases.ARCHIVES for kernel in bad_cases.launches_of(name)]


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("name", "kernel"), TWINS, ids=map("-".join, TWINS))
def test_mistakes_are_named_with_their_line_and_right_kernels_are_not(name: str, kernel: str):
    broken = bad_run.findings(name, kernel, fixed=False)
    assert bad_run.named(bad_cases.source_of(name), kernel, broken), broken
    assert not bad_run.findings(name, kernel, fixed=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_writer_of_a_sequence_lock_meets_its_readers_in_every_order(seed: int):
    with override(seed=seed):
        found = bad_run.findings("patterns", "sequence_lock", fixed=False)
        assert bad_run.named("patterns", "sequence_lock", found), found
        assert not bad_run.findings("patterns", "sequence_lock", fixed=True)


@pytest.mark.parametrize("name", bad_cases.ARCHIVES)
def test_every_kernel_has_a_launch_a_mark_and_compiled_code(name: str):
    source = bad_cases.source_of(name)
    marks = bad_cases.marks(bad_cases.path_of(source).read_text())
    assert set(marks) == set(bad_cases.LAUNCHES[source])
    assert all(marks.values())
    kept = bad_run.archive(name)
    assert set(kept) == {one + suffix for one in bad_cases.launches_of(name) for suffix in ("", ".fixed")}
    assert {facts["source"] for facts, _ in kept.values()} == {build_bad.digest(source)}
    assert {facts["target"] for facts, _ in kept.values()} == {bad_cases.ARCHIVES[name]}


def test_kernels_that_are_left_out_are_named():
    every = {
        f"{name} {kernel}"
        for name in bad_cases.ARCHIVES
        for kernel in bad_cases.LAUNCHES[bad_cases.source_of(name)]
    }
    assert every.issuperset(bad_cases.LEFT_OUT)
