"""Random queue programs on fixed seeds, and every kind of fault; more by `python -m tests.fuzz.queues`."""

from __future__ import annotations

import pytest

from tests.fuzz import cancelled, queue_calls, stress
from tests.fuzz.queue_faults import FAULTS
from tests.fuzz.queue_kernels import Stage
from tests.fuzz.queue_programs import Maker, apply, conflict, start, touched
from tests.fuzz.queues import Differs, Run, describe, differing, unexpected_calls, unreported


@pytest.mark.sampled(6)
@pytest.mark.parametrize("first", range(0, 150, 25))
def test_programs_of_one_device_agree_with_a_sequential_run(first: int) -> None:
    assert not differing(first, 25, ["cpu"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", range(1000, 1050, 25))
def test_programs_of_two_devices_agree_with_a_sequential_run(first: int) -> None:
    assert not differing(first, 25, ["cpu", "cpu"])


@pytest.mark.parametrize(("first", "count"), [(2000, 3), pytest.param(2003, 7, marks=pytest.mark.slow)])
def test_programs_of_the_emulated_gpu_agree_with_a_sequential_run(first: int, count: int) -> None:
    assert not differing(first, count, ["nv-emu"])


@pytest.mark.parametrize("name", ["amd-emu", "amd-emu:gfx942"])
@pytest.mark.parametrize(("first", "count"), [(3000, 1), pytest.param(3001, 5, marks=pytest.mark.slow)])
def test_programs_of_an_emulated_amd_gpu_agree_with_a_sequential_run(
    name: str, first: int, count: int
) -> None:
    assert not differing(first, count, [name])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
def test_a_planted_fault_is_reported(number: int) -> None:
    assert not unreported(number, 1, ["cpu"])


def test_programs_have_threads_views_of_freed_buffers_and_ranges_of_all_sizes() -> None:
    programs = [Maker(seed, (True, True, False)).program for seed in range(200)]
    assert {program.threads for program in programs} == {True, False}
    submissions = [one for program in programs for one in program.submissions]
    assert {one.drops for one in submissions if one.frees >= 0} == {True, False}
    commands = [command for one in submissions for command in one.commands if command.dst is not None]
    sizes = {(command.kind, command.dst.end - command.dst.begin) for command in commands}
    assert {(kind, size) for kind in ("fill", "copy") for size in (0, 1, 2, 3, 8, 13, 16)} <= sizes
    assert {("fill", 32), ("mix", 1), ("mix", 16)} <= sizes
    assert ("mix", 0) not in sizes


def test_a_changed_byte_in_a_view_of_a_freed_buffer_is_found() -> None:
    stage = Stage(["cpu"], validate=True)
    programs = (Maker(seed, stage.compute).program for seed in range(100))
    program = next(one for one in programs if one.threads and any(s.frees >= 0 for s in one.submissions))
    run = Run(program, stage)
    run.play()
    run.close()
    stage.close()
    run.check_views()
    next(iter(run.views.values()))[3] ^= 1
    with pytest.raises(Differs, match="view of the buffer freed by"):
        run.check_views()


def test_submissions_that_precede_others_are_submitted_first() -> None:
    for seed in range(200):
        program = Maker(seed, (True, True, False)).program
        place = {n: i for i, n in enumerate(program.order)}
        assert all(place[m] < place[n] for n, before in enumerate(program.before) for m in before)


def test_the_order_of_submitting_respects_points() -> None:
    for seed in range(200):
        program = Maker(seed, (True, True, False)).program
        place = {n: i for i, n in enumerate(program.order)}
        for n, one in enumerate(program.submissions):
            assert all(place[m] < place[n] for m in one.after)
            same = [place[m] for m, other in enumerate(program.submissions) if other.queue == one.queue]
            assert same == sorted(same)


def test_conflicts_between_submissions_are_ordered() -> None:
    for seed in range(200):
        program = Maker(seed, (True, True, False)).program
        before: list[set[int]] = []
        seen: set[int] = set()
        for n, one in enumerate(program.submissions):
            direct = {*one.after, *one.awaits, *seen}
            direct |= {m for m in range(n) if program.submissions[m].queue == one.queue}
            before.append(direct.union(*(before[m] for m in direct)))
            own = [entry for command in one.commands for entry in command.touches()]
            conflicting = {m for m in range(n) if conflict(touched(program.submissions[m]), own)}
            assert conflicting <= before[n]
            if one.host_waits:
                seen |= {n, *before[n]}


def test_a_program_is_described_and_changes_memory() -> None:
    program = Maker(3, (True, False)).program
    assert describe(program).count("submission") == len(program.submissions)
    memory = start(program.seed)
    for one in program.submissions:
        apply(one.commands, memory)
    assert any((a != b).any() for a, b in zip(memory, start(program.seed), strict=True))


def test_calls_with_arguments_of_any_class_raise_errors_of_the_project() -> None:
    assert not unexpected_calls(0, 12, ["cpu"])


def test_an_error_that_is_not_the_projects_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_calls, "TABLE", (lambda _: {}["x"],))
    assert "KeyError: 'x'" in unexpected_calls(0, 1, ["cpu"])[0]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["cpu"] * 3, 400),
        pytest.param(["cpu"] * 3, 20_000, marks=pytest.mark.landing),
        pytest.param(["nv-emu", "nv-emu", "cpu"], 2000, marks=pytest.mark.landing),
        pytest.param(["amd-emu", "cpu", "cpu"], 2000, marks=pytest.mark.landing),
    ],
    ids=["cpu", "cpu-long", "nv", "amd"],
)
def test_threads_that_submit_to_all_queues_agree_with_a_sequential_run(names: list[str], count: int) -> None:
    assert not stress.differing(7, 1, names, count, 4)


@pytest.mark.parametrize(
    ("names", "seeds"),
    [
        (["cpu"] * 3, 20),
        pytest.param(["cpu"] * 3, 200, marks=pytest.mark.landing),
        pytest.param(["nv-emu", "cpu"], 10, marks=pytest.mark.landing),
        pytest.param(["amd-emu", "cpu"], 10, marks=pytest.mark.landing),
    ],
    ids=["cpu", "cpu-long", "nv", "amd"],
)
def test_cancelled_submissions_leave_the_memory_of_those_that_ran(names: list[str], seeds: int) -> None:
    stage = Stage(names, validate=True)
    counts = [cancelled.ran(seed, stage) for seed in range(seeds)]
    stage.close()
    assert min(counts) < cancelled.SUBMISSIONS
