"""Random tensor programs give what NumPy gives: realized at once or in parts, with assigns, and captured.

A failure prints its program; `make(seed)` with the same arguments makes it again.
"""

from __future__ import annotations

import pytest

from tests.house.random_tensors import check_gradient, make, run_eager, run_states

BATCH = 5
QUICK = range(0, 200, BATCH)
SLOW = range(10_000, 10_250, BATCH)


@pytest.mark.sampled(41)
@pytest.mark.parametrize("first", [*QUICK, *[pytest.param(s, marks=pytest.mark.slow) for s in SLOW]])
def test_small_programs_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + BATCH):
        run_eager(make(seed))


@pytest.mark.sampled(41)
@pytest.mark.parametrize(
    "first", [*QUICK[:20], *[pytest.param(s, marks=pytest.mark.slow) for s in SLOW[::2]]]
)
def test_captured_programs_with_state_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + 2):
        run_states(make(seed, calm=True), 4)


@pytest.mark.sampled(41)
@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(
    "first", [*QUICK[:10], *[pytest.param(s, marks=pytest.mark.slow) for s in SLOW[::4]]]
)
def test_programs_shared_by_threads_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + BATCH):
        run_eager(make(seed, steps=8, large=True))
    run_states(make(first, calm=True, large=True), 4)


@pytest.mark.sampled(41)
@pytest.mark.parametrize(
    "first", [*QUICK[:10], *[pytest.param(s, marks=pytest.mark.slow) for s in SLOW[::4]]]
)
def test_gradients_of_programs_agree_with_differences(first: int) -> None:
    for seed in range(first, first + BATCH):
        check_gradient(seed)
