"""The bring-up ladder: rungs that a failure skips, trials of other values, results of child processes.

The children here are a shell script in the interpreter's place, which answers what a test wants.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from drivers.nv.quirks import ALTERNATIVES, PRESETS, fitting, parse
from drivers.shared.choices import describe, value_text
from emulator.shared.surprises import StatusReply
from hcq.errors import SignalTimeout
from hcq.registry import wrap
from tests.hcq.fake import FakeDevice
from tests.support.nv.recorded import RecordedKernel
from tools.bringup import command
from tools.bringup import ladder as nv_ladder
from tools.bringup.checks import EMULATED_PATIENCE, wait_while_threads_work
from tools.bringup.ladder import Ladder
from tools.bringup.nv.table import RUNGS as TABLE
from tools.bringup.rung import Result, Rung

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANSWER = """#!/bin/sh
rung=$4 choices=$8 passed=true facts='{{}}'
for word in "$@"; do trace=$word; done
case "$rung $choices" in
{cases}
esac
printf '{{"rung": %s, "name": "n", "choices": "%s", "passed": %s, "seconds": 0, "facts": %s}}' \\
 "$rung" "$choices" $passed "$facts"
"""
Told = list[tuple[int, str, bool]]
RUNGS = {rung.number: rung for rung in TABLE}


@pytest.fixture
def climb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Ladder, Told]]:
    """Climb with child processes that follow the cases of a shell script; return the results in order."""
    monkeypatch.setattr(nv_ladder, "START_S", 100.0)
    monkeypatch.setattr(nv_ladder, "PAIRS_S", 1e6)

    def run(cases: str, *arguments: str, rungs: tuple[Rung, ...] = TABLE) -> tuple[Ladder, Told]:
        fake = tmp_path / "python"
        fake.write_text(ANSWER.format(cases=cases))
        fake.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(fake))
        told: Told = []
        options = command.parse(["--dry", *arguments])
        ladder = Ladder(rungs, options, lambda result: told.append(_short(result)))
        ladder.climb()
        return ladder, told

    return run


def touching(number: int) -> list[str]:
    """Return the presets that change a value in doubt at a rung."""
    return [name for name in PRESETS if set(PRESETS[name].values) & set(RUNGS[number].quirks)]


def _short(result: Result) -> tuple[int, str, bool]:
    return result.rung, result.choices if result.tried else "not tried", result.passed


def test_a_failed_rung_skips_only_its_dependents(climb: Callable[..., tuple[Ladder, Told]]):
    ladder, told = climb('"9 "*|"13 "*) passed=false;;', "--variants", "none")
    assert not ladder.passed
    assert [number for number, how, _ in told if how == "not tried"] == [
        *range(10, 23), 26, 27, 28, 29, 24, 23, 25,
    ]  # fmt: skip
    assert [number for number, how, passed in told if passed] == [*range(9)]
    ladder, told = climb('"13 "*) passed=false;;', "--variants", "none")
    assert [number for number, _, passed in told if not passed] == [13]
    assert told[-1] == (25, "default", True)


def test_a_wait_that_ends_by_standstill_tells_the_seconds_of_all_of_it() -> None:
    still, elapsed = iter((0.0, 3.0, 3.5)), iter((100.0, 142.0))
    with wrap(FakeDevice()) as device:
        point = device.signal(label="never").at(1)
        with pytest.raises(SignalTimeout, match=r"never stuck at 0 of 1 after 42\.0 s") as raised:
            wait_while_threads_work(point, still=still.__next__, elapsed=elapsed.__next__)
    assert raised.value.waited_s == 42.0


def test_every_rung_needs_only_lower_rungs():
    order = [rung.number for rung in TABLE]
    for rung in TABLE:
        assert all(order.index(need) < order.index(rung.number) for need in rung.needs)


def test_other_values_are_tried_at_once_where_a_rung_fails_and_used_above(
    climb: Callable[..., tuple[Ladder, Told]],
):
    ladder, told = climb('"21 stack=low") ;; "21 "*) passed=false;;', "--from", "20", "--variants", "needed")
    assert ladder.passed
    assert ladder.best == parse("stack=low")
    assert told == [
        (20, "default", True), (21, "default", False),
        *((21, describe(parse(name)), False) for name in touching(21)), (21, "stack=low", True),
        *((number, "stack=low", True) for number in (22, 26, 27, 28, 29, 24, 23, 25)),
    ]  # fmt: skip


def test_two_other_values_at_once_are_tried_when_none_alone_works(climb: Callable[..., tuple[Ladder, Told]]):
    cases = '"12 object_buffer=true+push_in_vram=true") ;; "12 "*) passed=false;;'
    ladder, told = climb(cases, "--from", "12", "--to", "13", "--variants", "needed")
    assert ladder.passed
    assert ladder.best == parse("object_buffer=true+push_in_vram=true")
    counts = [how.count("=") for number, how, _ in told if number == 12]
    alone = sum(len(ALTERNATIVES[name]) - 1 for name in RUNGS[12].quirks)
    assert counts[0] == 0
    assert counts[1 + len(touching(12)) :][: alone + 1] == [1] * alone + [2]
    assert told[-1] == (13, "object_buffer=true+push_in_vram=true", True)


LAUNCH = "hopper-launch"
WHOLE = describe(parse(LAUNCH))


def test_the_known_launch_is_tried_first_and_reverted_value_by_value(
    climb: Callable[..., tuple[Ladder, Told]],
):
    """A rung that fails with each single value and each pair passes with a preset."""
    cases = '"18 "*full_descriptor=false*carveout=none*graphics_copy=false*) ;; "18 "*) passed=false;;'
    ladder, told = climb(cases, "--from", "18", "--to", "19", "--variants", "needed")
    at18 = [(how, passed) for number, how, passed in told if number == 18]
    assert at18[:2] == [("default", False), (WHOLE, True)]
    assert at18[2:] == [
        (describe(parse(f"{LAUNCH}+full_descriptor=true")), False),
        (describe(parse(f"{LAUNCH}+carveout=wanted")), False),
        (describe(parse(f"{LAUNCH}+context_share=true")), True),
        (describe(parse(f"{LAUNCH}+context_share=true+graphics_copy=true")), False),
    ]  # fmt: skip
    needed = parse(f"{LAUNCH}+context_share=true")
    assert ladder.best == needed
    assert told[-1] == (19, describe(needed), True), "the rungs above use what is needed"
    assert [r.variant for r in ladder.results][:4] == [
        "", f"preset {LAUNCH}", "without full_descriptor", "without carveout",
    ]  # fmt: skip


def test_presets_are_those_of_the_reported_gpu(
    climb: Callable[..., tuple[Ladder, Told]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nv_ladder, "PAIRS_S", -1.0)
    for compute in ("cbc0", "cec0", "c9c0"):
        facts = f'"5 "*) facts=\'{{"compute class": "{compute}"}}\';;'
        ladder, _ = climb(
            f'{facts} "18 "*) passed=false;;', "--from", "5", "--to", "18", "--variants", "needed",
        )  # fmt: skip
        tried = [r.variant.removeprefix("preset ") for r in ladder.results if r.variant.startswith("preset")]
        assert tried == fitting(int(compute, 16))
        assert not ladder.passed
    assert fitting(None) == list(PRESETS)


def test_presets_that_change_no_doubtful_value_are_skipped(
    climb: Callable[..., tuple[Ladder, Told]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nv_ladder, "PAIRS_S", -1.0)
    ladder, told = climb('"13 "*) passed=false;;', "--from", "13", "--to", "13", "--variants", "needed")
    tried = {how for _, how, _ in told}
    assert describe(parse("tinygrad-blackwell")) in tried, "it has another channel class"
    assert WHOLE not in tried
    assert not ladder.passed


def test_rungs_that_pass_try_other_values_after_all_others_and_before_the_fault(
    climb: Callable[..., tuple[Ladder, Told]],
):
    ladder, told = climb('"21 all_sms=false") passed=false;;', "--from", "16")
    assert ladder.passed, "other values that do not work are no failure"
    assert [number for number, _, _ in told[:12]] == [16, 17, 18, 19, 20, 21, 22, 26, 27, 28, 29, 24]
    assert [number for number, _, _ in told[-2:]] == [23, 25]
    others = [(number, how) for number, how, _ in told[12:-2]]
    assert sorted(others) == sorted(
        (rung.number, f"{name}={value_text(value)}")
        for rung in TABLE if rung.number in {16, 17, 18, 19, 20, 21, 22, 26, 27, 28}
        for name in rung.quirks for value in ALTERNATIVES[name][1:]
    )  # fmt: skip


def test_only_other_values_are_tried_on_request(climb: Callable[..., tuple[Ladder, Told]]):
    ladder, told = climb('"21 "*) passed=false;;', "--to", "24", "--variants", "only")
    assert ladder.passed
    doubts = [name for rung in TABLE for name in rung.quirks]
    assert len(told) == sum(len(ALTERNATIVES[name]) - 1 for name in doubts)
    assert "default" not in {how for _, how, _ in told}


def test_the_report_is_whole_after_every_child(
    tmp_path: Path, climb: Callable[..., tuple[Ladder, Told]], monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "deep.json"
    counts: list[int] = []
    write = Ladder.write

    def counting(ladder: Ladder, *, finished: bool = False) -> None:
        write(ladder, finished=finished)
        report = json.loads(path.read_text())
        assert report["finished"] is finished
        assert report["passed"] is (True if finished else None)
        counts.append(len(report["rungs"]))

    monkeypatch.setattr(Ladder, "write", counting)
    climb("", "--from", "12", "--to", "14", "--variants", "none", "--report", str(path))
    assert counts == [1, 2, 3, 3]
    report = json.loads(path.read_text())
    assert (report["passed"], report["working"]) == (True, "default")


def test_a_child_that_hangs_is_ended_and_tried_once_more_with_twice_the_time(
    climb: Callable[..., tuple[Ladder, Told]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nv_ladder, "START_S", 0.0)
    monkeypatch.setattr(nv_ladder, "_END_S", 100.0)
    rungs = (
        Rung(2, "hangs", lambda _: {}, limit_s=0.5 / EMULATED_PATIENCE),
        Rung(3, "fine", lambda _: {}, needs=(4,), limit_s=100.0),
    )
    ladder, _ = climb('"2 "*) exec sleep 1000;;', "--variants", "none", rungs=rungs)
    hung, fine = ladder.results
    assert (hung.passed, hung.hung, fine.passed) == (False, True, True)
    assert hung.error.startswith("no result in 1 s; the child was killed")


def test_a_child_that_cannot_be_killed_is_abandoned():
    class Stuck:
        pid = 4711
        killed = 0

        def wait(self, timeout: float) -> int:
            raise subprocess.TimeoutExpired("child", timeout)

        def kill(self) -> None:
            self.killed += 1

    ladder, child = Ladder((), command.parse([]), lambda _: None), Stuck()
    text = ladder._wait(child, 0.1)  # type: ignore[arg-type]  # a child that hangs in the kernel
    assert "hangs in the kernel: process 4711" in text
    assert child.killed == 1


def test_a_killed_child_leaves_its_call_trace(tmp_path: Path, climb: Callable[..., tuple[Ladder, Told]]):
    cases = '"8 default") echo "ioctl(4, 0xc0) = 0x0" > "$trace"; kill -SEGV $$;;'
    ladder, _ = climb(
        cases, "--from", "8", "--to", "8", "--variants", "none", "--traces", str(tmp_path / "t")
    )
    (result,) = ladder.results
    assert "SIGSEGV" in result.error
    assert result.calls == ["ioctl(4, 0xc0) = 0x0"]


def test_no_stage_starts_without_time_left(climb: Callable[..., tuple[Ladder, Told]]):
    ladder, told = climb("", "--budget", "0.5", "--to", "3")
    assert not ladder.passed
    assert [how for _, how, _ in told] == ["not tried"] * 4
    assert "the time is used up" in ladder.results[0].error


def test_a_failed_rung_records_its_calls_and_rings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kernel = RecordedKernel(surprises={"RM_CONTROL NV2080_CTRL_CMD_PERF_BOOST": StatusReply(0x56)})
    kernel.doorbells.stalled = True
    trace = tmp_path / "trace.txt"
    assert command.run_child(command.parse(["--child", "12", "--dry", "--trace", str(trace)]), kernel) == 1
    told = json.loads(capsys.readouterr().out)
    assert "the semaphore holds 0x0, 0x12345678 was expected" in told["error"]
    seen = told["memory"]
    assert seen["ladder copy: notifier"] == "00" * 48
    assert len(seen["ladder copy: user area"]) == 1024
    words = [text for what, text in seen.items() if what.startswith("ladder copy: words, segment")]
    assert any("12345678" in text for text in words)
    assert any(what.startswith("semaphore 0 at ") for what in seen)
    calls = trace.read_text()
    assert "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN NV_OK) = 0x0" in calls
    assert "NV_ESC_RM_ALLOC HOPPER_CHANNEL_GPFIFO_A NV_OK" in calls
    assert "write32(0x90, " in calls


def test_the_report_names_commit_device_and_the_command_that_repeats_a_failure(
    climb: Callable[..., tuple[Ladder, Told]],
):
    ladder, _ = climb('"13 "*) passed=false;;', "--from", "12", "--to", "13", "--variants", "none")
    report = ladder.report(finished=True)
    assert report["device"] == "nv:0"
    assert {"written", "commit", "driver", "python", "kernel"} <= set(report)
    (failed,) = report["failed"]
    assert failed["rung"] == 13
    again = command.parse(failed["again"].split()[2:])
    assert (again.first, again.last, again.device, again.dry) == (13, 13, 0, True)
