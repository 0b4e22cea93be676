"""Choices as text, the walk of the beam with given times, the count of operations, and stored winners."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from compiler import show, winners
from compiler.compile import compile_kernel, compile_many, compile_uncached
from compiler.ir.serialize import kernel_key
from compiler.pipeline import planned_by
from compiler.plan.choice import (
    ProductChoice,
    SplitChoice,
    StagedChoice,
    TurnedChoice,
    brief,
    from_text,
    to_text,
)
from compiler.targets import target_of
from compiler.winners import Found
from frontend.tuning.beam import CONFIRMED, TRIES, search
from frontend.tuning.count import instructions
from frontend.tuning.space import Space
from hcq.config import override
from hcq.errors import CompileError, UsageError
from tests.compiler.kernels import ARCH, load, loop, op, reduce, sink, store
from tests.fuzz.plans import exhaustive

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.ir.uop import UOp
    from compiler.plan.proposal import Proposal

LEVEL = "x86_64-v3"


def matmul(m: int = 64, n: int = 64, k: int = 64) -> UOp:
    i, j, r = loop(0, m), loop(1, n), loop(2, k)
    product = op("MUL", load(1, i * k + r), load(2, r * n + j))
    return sink(store(0, i * n + j, reduce(product, "ADD", r)))


def rows() -> UOp:
    i, r = loop(0, 40), loop(1, 96)
    return sink(store(0, i, reduce(load(1, i * 96 + r), "ADD", r)))


@pytest.mark.parametrize(
    "choice",
    [
        SplitChoice(vector=1, upcast=((0, 2), (1, 4)), sums=((2, 4), (-1, 1)), order=(1, 0), form="merged"),
        ProductChoice(role=1, rows=6, vectors=2, staged=True, copied="block", piece=256, groups=4),
        StagedChoice(matrix=True, rows=2, columns=4, high=2, wide=8, words=32),
        TurnedChoice(),
    ],
)
def test_a_choice_is_read_back_from_its_text(choice: SplitChoice) -> None:
    assert from_text(to_text(choice)) == choice
    assert brief(choice).split()[0] in to_text(choice)


@pytest.mark.parametrize("text", ["", "[]", '["split",{}]', '["other",{}]', "7"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="wanted the text of a choice"):
        from_text(text)


def test_a_choice_that_the_kernel_lacks_is_refused() -> None:
    target = target_of(LEVEL)
    with pytest.raises(CompileError, match="wanted a choice with a plan"):
        planned_by(matmul(), target, ProductChoice(rows=16, vectors=6))
    with pytest.raises(CompileError, match="wanted a choice over ranges"):
        planned_by(matmul(), target, SplitChoice(vector=5))


def test_every_candidate_of_a_space_has_another_plan() -> None:
    for ast, arch in ((matmul(), LEVEL), (rows(), LEVEL), (matmul(), "sm_90a")):
        every = exhaustive.every(Space(ast, target_of(arch)))
        texts = [repr((c.ast, c.plan.axes, c.plan.steps, c.plan.reductions)) for c in every]
        assert len(every) == len(set(texts)) > 10


def test_the_beam_finds_the_fastest_choice_along_moves() -> None:
    """The time of a tile grows with its distance from 3 x 3, several moves from the estimated tile."""
    space = Space(matmul(512, 512, 512), target_of(LEVEL))
    measured: list[object] = []

    def measure(candidate: Proposal) -> float:
        measured.append(candidate.choice)
        choice = candidate.choice
        if not isinstance(choice, ProductChoice):
            return 2.0
        return 0.5 + 0.1 * abs(choice.rows - 3) + 0.1 * abs(choice.vectors - 3)

    found = search(space, 4, measure)
    assert isinstance(found.choice, ProductChoice)
    assert (found.choice.rows, found.choice.vectors) == (3, 3)
    assert found.ratio == 0.5
    assert found.failed == 0
    assert found.tries <= 4 * TRIES
    assert len(measured) <= found.tries + CONFIRMED


def test_a_beam_without_gain_keeps_the_estimated_plan() -> None:
    space = Space(rows(), target_of(LEVEL))
    assert search(space, 1, lambda _candidate: 0.99).choice is None
    failing = search(space, 1, lambda _candidate: None)
    assert (failing.choice, failing.ratio) == (None, 1.0)
    assert failing.failed == failing.tries > 0


def test_a_time_that_is_small_only_once_wins_nothing() -> None:
    seen: set[object] = set()

    def measure(candidate: Proposal) -> float:
        first = candidate.choice not in seen
        seen.add(candidate.choice)
        return 0.2 if first else 1.1

    assert search(Space(rows(), target_of(LEVEL)), 1, measure).choice is None


def test_the_count_of_operations_grows_with_the_work() -> None:
    target = target_of("sm_90a")
    small, large = (instructions(matmul(64, 64, k), target, None) for k in (64, 256))
    assert 2 * small < large < 6 * small
    narrow = replace(Space(matmul(), target).estimated().choice, words=8)
    assert instructions(matmul(), target, narrow) > instructions(matmul(), target, None)


def test_a_winner_is_found_by_kernel_target_and_width(tmp_path: Path) -> None:
    target, text = target_of(LEVEL), kernel_key(rows())
    won = Found(SplitChoice(vector=0, sums=((-1, 2),)), 0.75, 24, 1)
    with override(cache=tmp_path):
        winners.put(text, target, 2, won)
        assert winners.get(text, target, 2) == won
        assert winners.get(text, target, 1) is None
        assert winners.get(text, target_of("x86_64-v4"), 2) is None
        assert winners.get(kernel_key(matmul()), target, 2) is None
        assert winners.choice_of(text, target) is None
        with override(beam=2):
            assert winners.choice_of(text, target) == won.choice


def test_kernels_are_compiled_and_shown_by_their_winner_only_with_beam(tmp_path: Path) -> None:
    ast, target = rows(), target_of(ARCH)
    choice = SplitChoice(vector=0, sums=((-1, 2),))
    by_choice = compile_uncached(ast, ARCH, choice).image.code
    with override(cache=tmp_path):
        estimated = compile_kernel(ast, ARCH).image.code
        assert estimated != by_choice
        winners.put(kernel_key(ast), target, 3, Found(choice, 0.5, 1, 0))
        with override(beam=3):
            assert compile_kernel(ast, ARCH).image.code == by_choice
            assert compile_many([ast], ARCH)[0].image.code == by_choice
            assert show.forms(ast, ARCH, level=3).plan == planned_by(ast, target, choice)[1]
        assert compile_kernel(ast, ARCH).image.code == estimated
