"""The number of workgroups of kernels on processors."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from compiler.pipeline import planned
from compiler.targets import target_of
from tests.compiler.kernels import load, loop, op, sink, store

CORES = 2


def groups(count: int) -> tuple[int, float]:
    """Return the workgroups of a kernel over so many elements, and its estimated nanoseconds."""
    i = loop(0, count)
    ast = sink(store(0, i, op("ADD", load(1, i), load(2, i))))
    _, plan = planned(ast, replace(target_of("x86_64-v3"), cores=CORES))
    return prod(plan.launch()[0]), plan.nanoseconds


@pytest.mark.parametrize(("count", "wanted"), [(1 << 10, 1), (1 << 20, 4 * CORES), (1 << 26, 16 * CORES)])
def test_long_kernels_have_more_workgroups_for_each_core(count: int, wanted: int) -> None:
    assert groups(count)[0] == wanted


@pytest.mark.parametrize("count", [1 << n for n in range(21, 27)])
def test_more_than_a_few_workgroups_take_long_each(count: int) -> None:
    number, nanoseconds = groups(count)
    assert number == 4 * CORES or nanoseconds / number >= 100_000
