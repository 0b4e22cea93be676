"""Mutants follow the layouts and change one field each; the emulated machine notices nearly all of them."""

from __future__ import annotations

import pytest

from drivers.nv.layouts.gpfifo import MethodHeader, SecOp, Subchannel
from drivers.nv.layouts.host import HostMethod
from hcq.errors import HcqError
from tests.mutants.__main__ import Verdict, judge, listed, sample, score, text
from tests.mutants.nv.packets import segment
from tests.mutants.planted.catalogs import WIRES
from tests.mutants.sites import DELETE, KINDS, Mutant, changed, variants

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


def test_survivors_are_counted_and_listed() -> None:
    verdicts = [
        Verdict("a", "stream", "error", ""),
        Verdict("b", "stream", "passed", ""),
        Verdict("c", "memory", "wrong", "other bytes"),
        Verdict("d", "memory", "hung", "no result"),
    ]
    assert score(verdicts) == 0.5
    shown = text(verdicts, 100)
    assert "without those that change nothing 0.333 of 3" in shown
    assert shown.endswith("wrong: c: other bytes\nhung: d: no result")


@pytest.mark.slow
@pytest.mark.parametrize("driver", sorted(WIRES))
@pytest.mark.parametrize("count", [4, pytest.param(12, marks=pytest.mark.landing)])
def test_emulated_machine_notices_a_sample_of_mutants(driver: str, count: int) -> None:
    device = {"nv": "sm_90", "amd": "gfx1100"}[driver]
    found = listed(driver, device)
    kinds = {one.kind for one in found}
    assert kinds >= {"ioctl", "stream", "memory"}
    chosen = sample(found, count, 7)
    assert len(chosen) == count // len(KINDS) * len(kinds)
    verdicts = [judge(driver, device, one) for one in chosen]
    assert sum(one.outcome == "error" for one in verdicts) >= len(chosen) / 2
    told = [one for one in verdicts if one.kind != "memory" or one.outcome != "wrong"]  # another argument
    assert score(told) == 1.0, text(verdicts, len(found))


@pytest.mark.slow
def test_a_mutant_whose_place_is_not_reached_is_an_error() -> None:
    with pytest.raises(HcqError, match="doorbell 99999: none zero was not reached"):
        judge("amd", "gfx1100", Mutant("word", 99_999, 0, 0, ((0, 32),), "zero", "none"))
