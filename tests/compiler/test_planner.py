"""The memory planner: buffers that live together never overlap, others share."""

from __future__ import annotations

import random

import pytest

from compiler import graph as g
from compiler.item import TempRef
from compiler.planner import ALIGNMENT, plan, waves
from compiler.schedule import schedule
from tests.compiler.graphs import F32, Program, conv2d, matmul, relu


def test_a_chain_of_layers_needs_two_buffers() -> None:
    y = g.param(0, (1, 8, 16, 16), F32)
    for i in range(1, 11):
        y = relu(conv2d(y, g.param(i, (8, 8, 3, 3), F32), padding=1))
    items = schedule([y])
    one = 8 * 16 * 16 * 4
    assert plan(items).size == 2 * one


def test_independent_kernels_are_one_wave() -> None:
    x = g.unary("EXP", g.param(0, (8, 8), F32))
    y = matmul(matmul(x, g.param(1, (8, 8), F32)), matmul(x, g.param(2, (8, 8), F32)))
    assert waves(schedule([y])) == (0, 1, 1, 2)


def test_a_schedule_without_temporaries_needs_no_arena() -> None:
    assert plan(schedule([relu(g.param(0, (4,), F32))])).size == 0


@pytest.mark.parametrize("seed", range(40))
def test_buffers_that_live_in_one_wave_do_not_overlap(seed: int) -> None:
    items = schedule(Program(random.Random(seed), length=60).outputs())
    found = plan(items)
    lives: dict[TempRef, list[int]] = {}
    for item, wave in zip(items, found.waves, strict=True):
        for ref in item.bufs:
            if isinstance(ref, TempRef):
                lives.setdefault(ref, []).append(wave)
    for a, at_a in lives.items():
        start = found.offsets[a.n]
        assert start % ALIGNMENT == 0
        assert start + a.nbytes <= found.size
        for b, at_b in lives.items():
            if a is not b and min(at_a) <= max(at_b) and min(at_b) <= max(at_a):
                assert start + a.nbytes <= found.offsets[b.n] or found.offsets[b.n] + b.nbytes <= start
