"""Mutants follow the layouts and change one field each; the emulated machine notices nearly all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from drivers.nv.layouts.gpfifo import MethodHeader, SecOp, Subchannel
from drivers.nv.layouts.host import HostMethod
from hcq.errors import HcqError
from tests.limits import CHILD_S
from tests.mutants.__main__ import rows_of, sample, score, text
from tests.mutants.corpus import judge
from tests.mutants.devices import Target
from tests.mutants.nv.contents import CHAINED, CODE, SEMAPHORE
from tests.mutants.nv.kernels import Case, written
from tests.mutants.nv.packets import segment
from tests.mutants.sites import DELETE, Mutant, changed, variants
from tests.mutants.verdicts import SEEDS, Outcome, Verdict, overall
from tests.mutants.walk import judge_all, listed

ACQUIRE = [
    int(MethodHeader(ADDRESS=HostMethod.SEM_ADDR_LO, SUBCHANNEL=Subchannel.COMPUTE, COUNT=2,
                     OPCODE=SecOp.INCREMENTING)),
    0x1000,
    0x2,
]  # fmt: skip
SAME, OTHER, REPORTED = (Verdict(one) for one in (Outcome.EQUIVALENT, Outcome.WRONG, Outcome.REPORTED))


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


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        ([SAME], None),
        ([SAME, OTHER], None),
        ([SAME] * 7, None),
        ([SAME] * 8, Outcome.EQUIVALENT),
        ([SAME] * 7 + [OTHER], Outcome.SEEDED),
        ([OTHER, OTHER], Outcome.WRONG),
        ([SAME, REPORTED], Outcome.REPORTED),
    ],
)
def test_only_the_same_bytes_under_all_seeds_are_equivalent(
    seen: list[Verdict], outcome: Outcome | None
) -> None:
    verdict = overall(dict(zip(SEEDS, seen, strict=False)))
    assert (verdict.outcome if verdict else None) == outcome


OWNS = """
import mmap, os, signal
from tests.mutants.ownmemory import Snapshot

fd = os.memfd_create("shared")
os.ftruncate(fd, 3 * mmap.PAGESIZE)
file, anonymous = mmap.mmap(fd, 3 * mmap.PAGESIZE), mmap.mmap(-1, mmap.PAGESIZE)
file[5000], anonymous[1] = 7, 9
snapshot = Snapshot()
child = os.fork()
if not child:
    signal.alarm(1000)  # should it hang, it must not outlive the test
    snapshot.own()
    kept = (file[5000], anonymous[1], os.pread(fd, 1, 5000)) == (7, 9, bytes([7]))
    file[5000] = anonymous[1] = 1
    os._exit(0 if kept and os.pread(fd, 1, 5000) == bytes([1]) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (file[5000], anonymous[1]) == (7, 9)
"""


def test_child_that_owns_its_memory_leaves_the_parents_as_it_was() -> None:
    # In a process of its own: one that has threads, as other tests leave, is not to be forked.
    done = subprocess.run([sys.executable, "-c", OWNS], timeout=CHILD_S, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def found() -> list[Mutant]:
    return listed(Target())


@pytest.mark.slow
def test_arguments_around_structures_are_mutated_too(found: list[Mutant]) -> None:
    parts = {one.label.rsplit(" ", 1)[-1] for one in found if one.space in {"outer", "map"}}
    assert parts == {"number", "type", "size", "direction", "fd", "pointer", "offset", "va", "prot", "flags"}


@pytest.mark.slow
def test_stores_and_fences_around_every_doorbell_are_mutated(found: list[Mutant]) -> None:
    doorbells = {one.index for one in found if one.space == "doorbell"}
    for what in ("token", "offset", "GPPut"):
        assert {one.index for one in found if one.label == f"doorbell {what}"} == doorbells
    assert sum(one.space == "fence" for one in found) >= len(doorbells)


@pytest.mark.slow
def test_launches_that_an_earlier_one_starts_are_mutated_too(found: list[Mutant]) -> None:
    """Each of the two replays of a graph submits the first of ten launches, which start one another."""
    places: dict[int, set[int]] = {}
    for one in found:
        if one.space == "descriptor" or (one.space == "memory" and one.part == 0):
            places.setdefault(one.index, set()).add(one.at // CHAINED)
    assert [len(one) for one in places.values()][-2:] == [10, 10]
    chosen = [one for one in found if "launch 10 " in one.label and "GRID_WIDTH plus" in str(one)][-1:]
    assert [one.outcome for one in judge_all(Target(), chosen, jobs=1)] == [Outcome.REPORTED]


@pytest.mark.slow
def test_a_change_of_a_launch_counts_as_stored_before_the_fence(found: list[Mutant]) -> None:
    """Descriptors and arguments are changed at the doorbell, behind the fence of the driver."""
    wanted = ("QmdV04.CORRELATION_ID plus", "grid bank 3 +0x0 plus", "QmdV04.GRID_WIDTH zero")
    chosen = [next(one for one in found if str(one).endswith(what)) for what in wanted]
    verdicts = judge_all(Target(), chosen, jobs=1, seeds=SEEDS[:2])
    assert [one.outcome for one in verdicts] == [Outcome.EQUIVALENT, Outcome.WRONG, Outcome.REPORTED]
    assert "fence" not in verdicts[-1].detail


@pytest.mark.slow
def test_clock_read_through_the_doorbell_mapping_is_reported(found: list[Mutant]) -> None:
    flags = [one for one in found if one.label.endswith("NV_HOPPER_USERMODE_A_PARAMS.bBar1Mapping")]
    last = max(one.index for one in flags)  # the page of the doorbells is made first, with the flag set
    clock = next(one for one in flags if (one.index, one.operation) == (last, "plus"))
    (verdict,) = judge_all(Target(), [clock], jobs=1, seeds=(1,))
    assert verdict.outcome is Outcome.REPORTED
    assert "read through BAR1, which takes stores only" in verdict.detail


@pytest.mark.slow
def test_memory_behind_launches_and_semaphores_is_mutated(found: list[Mutant]) -> None:
    memory = [one for one in found if one.space == "memory"]
    assert {one.part for one in memory} >= {0, CODE, SEMAPHORE}
    assert len({one.index for one in memory if one.part == 0}) >= 3


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("bar.sync 0;", 1),
        ("@%p1 bar.sync 0;\nfence.acq_rel.gpu; membar.gl;", 3),
        ("cp.async.ca.shared.global [%r1], [%rd1], 16; cp.async.wait_group 0; cp.async.commit_group;", 2),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", 1),
        ("bra barrier_end; barrier_end: ret;", 0),
    ],
)
def test_every_barrier_of_a_kernel_is_omitted_once(text: str, count: int) -> None:
    case = Case(name="some", text=text, entry="some", grid=(1, 1, 1), block=(1, 1, 1), sizes=())
    left = [rest for _, rest in case.without_one()]
    assert len(left) == count
    assert all(len(rest.text) < len(text) for rest in left)


@pytest.mark.slow
def test_child_runs_kernels_after_its_parent_ran_some(found: list[Mutant]) -> None:
    last = [one for one in found if one.label.endswith("GRID_WIDTH")][-1]
    assert [one.outcome for one in judge_all(Target(), [last], jobs=1)] == [Outcome.REPORTED]


@pytest.mark.slow
def test_a_mutant_is_passed_whole_to_another_process(found: list[Mutant]) -> None:
    assert {Mutant.from_json(json.loads(json.dumps(asdict(one)))) for one in found} == set(found)


@pytest.mark.slow
def test_mutant_that_the_walk_does_not_find_is_an_error(found: list[Mutant]) -> None:
    with pytest.raises(HcqError, match=r"a walk ended with 1 (?s:.*)doorbell 999: .* does not exist"):
        judge_all(Target(), [replace(found[-1], space="word", index=999)], jobs=1, seeds=(1,))


@pytest.mark.slow
def test_failed_walk_reports_the_reason(found: list[Mutant]) -> None:
    with pytest.raises(HcqError, match=r"a walk ended with 2 (?s:.*)invalid choice: '999'"):
        judge_all(Target(driver="999"), found[:1], jobs=1, seeds=(1,))


@pytest.mark.slow
def test_emulated_machine_notices_a_sample_of_mutants(found: list[Mutant]) -> None:
    chosen = sample(found, 50, 7, None)
    rows = rows_of(chosen, judge_all(Target(), chosen, jobs=2))
    assert score(rows) >= 0.95, text(rows, len(found))


@pytest.mark.slow
def test_wait_between_a_copy_and_a_kernel_that_is_missing_or_ends_early_is_a_race() -> None:
    """On sm_80 the host engine has addresses of its own for signals, other than copy engines and kernels."""
    target = Target(profile="sm_80")
    wanted = {"doorbell 17: copy word 0 SEM_ADDR_LO delete", "doorbell 16: semaphore of word 2 +0x0 plus"}
    chosen = [one for one in listed(target) if str(one) in wanted]
    verdicts = judge_all(target, chosen, jobs=1, seeds=SEEDS[:2])
    assert [one.outcome for one in verdicts] == [Outcome.REPORTED] * 2
    for one in verdicts:
        assert one.detail.startswith("race on channel")
        assert "transfer on channel" in one.detail
        assert "kernel count on channel" in one.detail


@pytest.mark.slow
def test_sanitizers_notice_every_barrier_that_a_reduction_lacks() -> None:
    case = next(one for one in written() if one.name == "bench reduce")
    _, expected = case.run(1)
    verdicts = [judge(rest, expected).outcome for _, rest in case.without_one()]
    assert verdicts == [Outcome.REPORTED] * 2


ALIKE = """
from tests.mutants.__main__ import sample
from tests.mutants.devices import Target
from tests.mutants.judge import Judge
from tests.mutants.walk import PATIENT_S, judge_all

judge = Judge(Target(), seeds=(1,), timeout_s=PATIENT_S)
chosen = sample(judge.mutants, 6, 11, None)
forked = judge_all(Target(), chosen, jobs=2, seeds=(1,))
assert [one.outcome for one in forked] == [judge.fresh(one, 1).outcome for one in chosen]
"""


@pytest.mark.slow
def test_forked_children_come_to_the_verdicts_of_fresh_machines() -> None:
    # In a process of its own: mutants leave devices open, and may take the process down.
    done = subprocess.run([sys.executable, "-c", ALIKE], timeout=CHILD_S, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
