"""The output of `tools.bringup`, the repeats of rungs, and the hardware tools on the emulated kernel."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.nv.layouts.compute import PcasAction
from drivers.nv.quirks import ALTERNATIVES, DEFAULT, NvQuirks, parse
from drivers.shared.choices import value_text
from emulator.shared.surprises import StatusReply
from hcq.errors import UnsupportedError
from tests.limits import HANG_S
from tests.support.nv.recorded import RecordedKernel
from tools.bench.cuda import cuda
from tools.bench.rows import Bench as RowBench
from tools.bringup import command
from tools.bringup.checks import REPEATS, RungError
from tools.bringup.ladder import ONE, Ladder, wanted
from tools.bringup.nv.bench import Bench
from tools.bringup.nv.evidence import memory
from tools.bringup.nv.kernels import ARCHES, KERNELS, ptx
from tools.bringup.nv.table import EXPECTED, NV, RUNGS
from tools.bringup.rung import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--emulate", "foo"], ("no emulated GPU is called 'foo'", "sm_120")),
        (["--device", "nv-emu:sm_70"], ("no emulated GPU is called 'sm_70'",)),
        (["--choices", "bogus=1"], ("'bogus=1' is not an option", "the options are")),
        (["--choices", "stak=low"], ("Did you mean 'stack'?",)),
        (["--from", "3", "--to", "2"], ("--from 3 comes after --to 2", "22, 26, 27, 28, 29, 24, 23, 25")),
        (["--from", "23", "--to", "24"], ("--from 23 comes after --to 24",)),
        (["--to", "99"], ("--to 99: there is no such rung",)),
        (["--device", "nvidia"], ("--device", "nvidia")),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(
    arguments: list[str], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert all(word in said for word in words), said
    assert "Traceback" not in said


def test_emulate_alone_is_the_default_gpu() -> None:
    assert command.parse(["--emulate"]).emulate == ""
    assert command.parse(["--emulate", "--verbose"]).emulate == ""
    assert command.parse(["--emulate", "sm_80+570"]).emulate == "sm_80+570"
    assert command.parse([]).emulate is None
    assert command.parse(["--choices", "hopper-launch"]).choices == "hopper-launch"


def result(*, passed: bool, variant: str = ONE, **more: object) -> Result:
    values: dict[str, object] = {"error": "" if passed else "Kind: it was wrong\nmore", **more}
    made = Result(18, "a kernel stores a token", "pcas=3", passed=passed, seconds=1.0, variant=variant)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def told(capsys: pytest.CaptureFixture[str], one: Result, *, verbose: bool = False) -> str:
    command.ResultPrinter(verbose=verbose)(one)
    return capsys.readouterr().err


def test_a_variant_names_its_rung_and_whether_its_failure_counts(capsys: pytest.CaptureFixture[str]) -> None:
    raw: dict[str, object] = {"calls": ["ioctl(1)"] * 12, "memory": {"ring": "00" * 600}}
    text = told(capsys, result(passed=False, **raw))
    assert text.startswith("no    18  a kernel stores a token, one other value: pcas=3")
    assert "not counted: a variant" in text
    assert "Kind: it was wrong" in text
    assert "ioctl(1)" not in text
    assert len(text.splitlines()) == 3
    text = told(capsys, result(passed=False, expected="nobody does it", **raw))
    assert "expected: nobody does it" in text
    text = told(capsys, result(passed=False, offered=False, **raw))
    assert text.startswith("n/a ")
    assert "not offered by this GPU" in text
    assert "Kind: it was wrong" in text
    assert told(capsys, result(passed=True, variant="preset x")).startswith("pass  18  a kernel stores")
    text = told(capsys, result(passed=False, **raw), verbose=True)
    assert text.count("call ioctl(1)") == 12
    assert text.count("Kind: it was wrong") == 1


def test_a_failure_shows_its_error_and_where_the_raw_evidence_is(capsys: pytest.CaptureFixture[str]) -> None:
    raw: dict[str, object] = {"calls": ["ioctl(1)"] * 12, "memory": {"ring": "00" * 600}}
    text = told(capsys, result(passed=False, variant="", **raw))
    assert text.startswith("FAIL  18  a kernel stores a token")
    assert "more" in text
    assert "13 lines of raw evidence: --verbose" in text
    assert "ioctl(1)" not in text
    assert "ring: 0000" in told(capsys, result(passed=False, variant="", **raw), verbose=True)


def summed(ladder: Ladder) -> str:
    return re.sub(r"\d+ s in total", "N s in total", command.summary(ladder))


def test_the_last_lines_count_the_variants() -> None:
    ladder = Ladder(NV.rungs, command.parse([]), lambda _: None)
    assert summed(ladder) == "no rung passed; N s in total"
    ladder.results += [
        result(passed=True, variant=""), result(passed=True), result(passed=False),
        result(passed=False, expected="why"), result(passed=False, offered=False),
    ]  # fmt: skip
    assert summed(ladder) == (
        "highest rung passed: 18; choices that work: default; N s in total\n"
        "4 variants tried: 1 work, 1 fail as expected, 1 fail, 1 are not offered"
    )


def test_the_last_lines_repeat_the_first_failure_and_its_cure() -> None:
    ladder = Ladder(NV.rungs, command.parse([]), lambda _: None)
    missing = "DriverError: open failed\nhint: load the module: modprobe nvidia"
    ladder.results += [
        Result(0, "environment", "default", passed=True, seconds=0.0),
        Result(1, "nodes open", "default", passed=False, seconds=0.0, error=missing),
        Result(2, "version", "default", passed=False, seconds=0.0, error="not run", tried=False),
    ]
    assert summed(ladder).splitlines() == [
        "highest rung passed: 0; N s in total",  # it used no value in doubt, so none is said to work
        "failed: rung 1, nodes open (the first of 2 that failed or did not run): DriverError: open failed",
        "hint: load the module: modprobe nvidia",
        "again: hcq bringup --device nv:0 --from 1 --to 1 --verbose",
    ]


def test_a_rung_that_passes_with_other_values_did_not_fail() -> None:
    ladder = Ladder(NV.rungs, command.parse([]), lambda _: None)
    ladder.results += [result(passed=False, variant=""), result(passed=True)]
    assert ladder.report()["failed"] == []
    assert "failed" not in summed(ladder)


def test_values_that_are_expected_to_fail_are_choices() -> None:
    known = {f"{name}={value_text(value)}" for name, values in ALTERNATIVES.items() for value in values[1:]}
    assert set(EXPECTED) <= known
    start = parse("qmd_type=0")
    assert NV.reasons(parse("qmd_type=0+vaspace=rm"), start) == EXPECTED["vaspace=rm"]
    assert NV.reasons(parse("pcas=3"), DEFAULT) == ""
    assert int(PcasAction.INVALIDATE_COPY_SCHEDULE) == 3


def bench(choices: str = "default", clock: Callable[[], float] | None = None) -> Bench:
    made = Bench(RecordedKernel(), parse(choices))
    if clock is not None:
        made.clock = clock
    return made


def test_a_rung_passes_only_after_all_its_repeats() -> None:
    seen: list[int] = []
    assert bench().repeat("a copy", seen.append) == REPEATS
    assert seen == list(range(1, REPEATS + 1))


def test_one_repeat_in_four_that_fails_fails_the_rung_and_is_counted() -> None:
    def once(number: int) -> None:
        if number % 4 == 0:
            raise RungError(f"value {number} is old")

    with pytest.raises(RungError, match=r"(?s)a copy: 3 of 12 repeats failed.*repeat 4: value 4 is old"):
        bench().repeat("a copy", once)


class Late:
    """A word that has the expected value from the n-th read on; each read takes a tenth of a second."""

    def __init__(self, looks: int) -> None:
        self._looks, self.seen = looks, 0

    def read(self) -> list[int]:
        self.seen += 1
        return [7 if self.seen >= self._looks else 0]

    def clock(self) -> float:
        return self.seen / 10


def test_without_a_membar_a_store_may_come_late() -> None:
    word = Late(5)
    late = bench("full_descriptor=false", word.clock).check_arrival(word.read, [7], "token")
    assert late == pytest.approx(0.4)


def test_with_a_membar_a_late_store_is_a_failure_of_its_own() -> None:
    word = Late(5)
    with pytest.raises(RungError, match="arrived 400000 us after the release: its membar has no effect"):
        bench("default", word.clock).check_arrival(word.read, [7], "token")


@pytest.mark.parametrize("choices", ["default", "full_descriptor=false"])
def test_a_missing_store_is_distinguished_from_a_late_one(choices: str) -> None:
    word = Late(1000)
    with pytest.raises(RungError, match="element 0 is 0x0, not 0x7"):
        bench(choices, word.clock).check_arrival(word.read, [7], "token")
    assert word.clock() < 2, "about a second is waited"


def test_an_existing_store_is_checked_once() -> None:
    word = Late(1)
    assert bench("default", word.clock).check_arrival(word.read, [7], "token") == 0
    assert word.seen == 1


def test_evidence_holds_the_descriptor_of_a_launch_and_its_constant_bank() -> None:
    made = bench()
    with made.stack:
        device = made.device()
        program, out = made.load(device, "store"), device.alloc(4096)
        queue = device.compute
        commands = queue.record().exec(program, program.args(out), groups=(3, 1, 1), threads=(5, 1, 1))
        queue.submit(commands).wait(timeout_s=HANG_S)
        seen = memory(made)
    (text,) = [value for name, value in seen.items() if name.startswith("descriptor at")]
    assert "GRID_WIDTH=3" in text
    assert "CTA_THREAD_DIMENSION0=5" in text
    assert "QMD_MAJOR_VERSION=4" in text
    (bank,) = [value for name, value in seen.items() if name.startswith("after the descriptor")]
    assert bank.startswith("05000000010000000100000003000000")


@pytest.mark.parametrize(
    ("value", "text"),
    [(16460.29299, "16,460"), (0.5, "0.500"), ({"up": 1.23456, "n": 2}, "up 1.235, n 2"), ("0x6", "0x6")],
)
def test_facts_are_shown_with_four_digits(value: object, text: str) -> None:
    assert command.readable(value) == text


def test_the_deliberate_fault_precedes_only_the_check_after_it():
    order = [rung.number for rung in RUNGS]
    assert order[-2:] == [23, 25]
    assert sorted(order) == list(range(30))


def test_every_doubtful_value_is_tried_by_some_rung():
    tried = {name for rung in RUNGS for name in rung.quirks}
    assert tried == set(ALTERNATIVES) == set(NvQuirks.__dataclass_fields__)
    for name, values in ALTERNATIVES.items():
        assert values[0] == getattr(DEFAULT, name)
        assert len(values) > 1


def test_a_failed_rung_reports_the_status_and_the_last_calls(capsys: pytest.CaptureFixture[str]):
    refusing = RecordedKernel(surprises={"UVM_REGISTER_GPU_VASPACE": StatusReply(0x5D)})
    assert command.run_child(command.parse(["--child", "9", "--dry"]), refusing) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["passed"]
    assert "UVM_REGISTER_GPU_VASPACE" in told["error"]
    assert "0x5d" in told["error"]
    assert told["calls"]


def test_the_second_process_gets_the_choices_and_kernels_of_the_first(tmp_path: Path):
    bench = Bench(RecordedKernel(), parse("stack=low+pcas=3"), index=1, dry=True, kernels=tmp_path)
    options = command.parse(bench.store_again()[3:])
    assert (options.child, options.device, options.kernels) == (18, 1, tmp_path)
    assert options.choices == "stack=low+pcas=3"


def test_from_and_to_follow_the_order_in_which_rungs_run():
    options = command.parse(["--from", "22", "--to", "24"])
    assert [r.number for r in RUNGS if wanted(RUNGS, r, options)] == [22, 26, 27, 28, 29, 24]
    options = command.parse(["--from", "23"])
    assert [r.number for r in RUNGS if wanted(RUNGS, r, options)] == [23, 25]


def test_kernels_name_their_target():
    for arch in ARCHES:
        for name in KERNELS:
            assert f".target {arch}\n" in ptx(name, arch)


def test_the_comparison_with_cuda_reports_what_it_needs():
    if find_spec("torch") is not None:
        pytest.skip("PyTorch is installed: the case runs")
    with hcq.open("cpu") as device, pytest.raises(UnsupportedError, match="needs PyTorch"):
        cuda(RowBench(device, quick=True, name="cuda", commit="", report=lambda _: None))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "first"),
    [
        pytest.param("nv-emu", 23, marks=pytest.mark.landing),
        pytest.param("nv-emu:checked", 0, marks=pytest.mark.landing),
        pytest.param("amd-emu:checked", 0, marks=pytest.mark.landing),
        ("amd-emu:checked", 23),
    ],
)
def test_the_ladder_climbs_an_emulated_gpu_and_recovers_from_its_fault(
    device: str, first: int, capsys: pytest.CaptureFixture[str]
):
    """Each rung, without checks, and other choices: `tests/tools/test_bringup_quirks.py`."""
    status = command.main(["--device", device, "--from", str(first), "--variants", "none", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["failed"] == []
    assert (status, report["passed"]) == (0, True)
    fault = next(r for r in report["rungs"] if r["rung"] == 23)
    assert "wild" in fault["facts"]["report"]
    assert fault["facts"]["recovered"]
