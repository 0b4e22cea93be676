"""Mutants are found by the layouts and change what they say; the emulated machine notices nearly all."""

from __future__ import annotations

import pytest

from drivers.nv.layouts.gpfifo import MethodHeader, SecOp, Subchannel
from drivers.nv.layouts.host import HostMethod
from tools.mutants.__main__ import judge_all, sample, score, text
from tools.mutants.judge import Judge
from tools.mutants.sites import DELETE, changed, segment, variants

ACQUIRE = [
    int(MethodHeader(ADDRESS=HostMethod.SEM_ADDR_LO, SUBCHANNEL=Subchannel.COMPUTE, COUNT=2,
                     OPCODE=SecOp.INCREMENTING)),
    0x1000,
    0x2,
]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "value"), [("zero", 0xF00F), ("ones", 0xFFFF), ("plus", 0xF56F), ("minus", 0xF54F)]
)
def test_operation_changes_the_bits_of_its_field_alone(operation: str, value: int) -> None:
    assert changed(0xF55F, ((4, 8),), operation) == value


def test_operation_wraps_within_its_field() -> None:
    assert changed(0xFF, ((0, 4),), "plus") == 0xF0


def test_number_in_two_runs_is_changed_as_one() -> None:
    assert changed(0x0F, ((0, 4), (8, 4)), "plus") == 0x100


def test_mutants_of_a_field_are_different_and_none_is_the_original() -> None:
    assert [one.operation for one in variants("word", 0, 0, 0, ((0, 1),), 0, "bit")] == ["ones"]


def test_every_packet_of_a_segment_is_deleted_once() -> None:
    found = [one for one in segment(ACQUIRE * 2, 0, 0, wide=True) if one.operation == DELETE]
    assert [(one.at, one.runs) for one in found] == [(0, ((0, 96),)), (3, ((0, 96),))]


def test_every_word_of_a_segment_has_mutants() -> None:
    assert {one.at for one in segment(ACQUIRE, 0, 0, wide=True) if one.space == "word"} == {0, 1, 2}


@pytest.mark.slow
def test_emulated_machine_notices_a_sample_of_mutants() -> None:
    mutants = Judge(seeds=(1,)).mutants
    rows = judge_all(mutants, sample(mutants, 16, 7, None), profile="sm_90", jobs=2)
    assert score(rows) >= 0.9, text(rows, len(mutants))
