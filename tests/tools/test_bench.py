"""The benchmarks: queues, the lowering of models, and the comparison of kernels."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

import hcq
from compiler.ir.serialize import parse_kernel
from compiler.pipeline import steps
from compiler.targets import arch_for, target_of
from frontend import Tensor
from hcq.errors import CompileError
from tests.support.host_time import __main__ as host_time
from tools.bench.__main__ import main
from tools.bench.against import HERE
from tools.bench.collectives import STEPS
from tools.bench.compiled import Measured, works
from tools.bench.lowering import GPUS, kernels_of, lowered
from tools.bench.models import MODELS
from tools.bench.rows import Bench, Report, Row, counted

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", ["submit", "replay", "signal", "copy", "share"])
def test_case_prints_a_row_a_figure(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    assert main([case, "--device", "cpu", "--quick", "--output", str(out)]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed
    assert [json.loads(line) for line in out.read_text().splitlines()] == printed
    for row in printed:
        assert row["bench"] == case
        assert row["device"].startswith("cpu:0 ")
        assert row["p25"] <= row["median"] <= row["p75"]
        assert row["count"] > 0
        assert row["commit"]


@pytest.mark.landing
def test_an_all_reduce_and_steps_are_checked_and_measured_without_peers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("torch", "mpi4py"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["all-reduce", "--device", "cpu", "--quick"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["case"] for row in rows] == ["1 KiB, cpu x 2, captured", "1 KiB, cpu x 2"]
    assert all(row["note"] == "moves 2,048 bytes, the fewest are 2,048" for row in rows)
    assert "pip install torch" in printed.err
    assert main(["overlap", "--device", "cpu", "--quick"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == [f"width 64, {name}" for name in STEPS]


@pytest.mark.landing
def test_ratios_to_a_checkout_are_a_row_a_figure_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["submit", "share", "--device", "cpu", "--quick", "--against", str(HERE), "--pairs", "2"]
    assert main(words) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert {one["bench"] for one in rows} == {"submit", "share"}
    assert {(one["unit"], one["count"]) for one in rows} == {("x", 2)}
    assert all(0 < one["p25"] <= one["median"] <= one["p75"] for one in rows)
    assert "only" not in printed.err


def test_kernels_are_checked_and_measured_by_the_device_s_clock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--device", "cpu", "--quick"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["unit"] for one in rows} == {"GB/s", "TFLOP/s"}
    assert [one["case"] for one in rows] == [work.case for work in works(small=True)]


@pytest.mark.slow
def test_kernels_run_untimed_on_an_emulated_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--device", "nv-emu", "--quick"]) == 0
    assert {json.loads(line)["unit"] for line in capsys.readouterr().out.splitlines()} == {"kernels"}


def test_wrong_results_are_not_measured() -> None:
    wrong = next(works(small=True))
    with pytest.raises(CompileError, match="wanted an error"):
        Measured("cpu:0", wrong, compute=lambda x, y: x - y)


def test_launches_and_replays_say_their_part_of_nvidia_s_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert host_time.main(["--quick"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for case in {one["case"] for one in rows}:
        notes = {one["device"].split(",")[0]: one["note"] for one in rows if one["case"] == case}
        assert set(notes) == {"gfx1100", "gfx942", "nv"}
        assert [name for name, note in notes.items() if " of nv" in note] == ["gfx1100", "gfx942"]


def row(median: float, p25: float = 1.0, p75: float = 1.0, unit: str = "us") -> Row:
    return Row(
        bench="b", case="c", unit=unit, median=median, p25=p25, p75=p75, count=3, device="cpu:0", commit="abc"
    )


@pytest.mark.parametrize("taken", [[0.0, 3510.0], [5.0], [1.0, 2.0, 100.0], [7.0, 7.0]])
def test_no_quartile_lies_outside_of_the_samples(taken: list[float]) -> None:
    rows: list[Row] = []
    with hcq.open("cpu") as device:
        bench = Bench(device, quick=False, name="b", commit="abc", report=rows.append)
        bench.add("case", taken, unit="us")
    (one,) = rows
    assert min(taken) <= one.p25 <= one.median <= one.p75 <= max(taken)


def test_a_table_shows_each_row_once_under_one_header() -> None:
    screen, talk = io.StringIO(), io.StringIO()
    report = Report(screen, talk, lines=False)
    report.progress("[1/1] b")
    report(row(1.5))
    report(row(2.5))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0] == "cpu:0, commit abc"
    assert lines[1].split() == ["bench", "case", "median", "unit", "[quartiles]", "samples"]
    assert lines[2].split()[:4] == ["b", "c", "1.500", "us"]
    assert talk.getvalue() == "[1/1] b\n"


def test_json_lines_reach_stdout_and_the_file_as_they_come() -> None:
    data, talk, file = io.StringIO(), io.StringIO(), io.StringIO()
    report = Report(data, talk, file, lines=True)
    report(row(1.5))
    assert json.loads(file.getvalue())["median"] == 1.5
    assert data.getvalue() == file.getvalue()
    assert talk.getvalue() == ""


def test_a_pipe_gets_json_alone_and_the_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signal", "--device", "cpu", "--quick"]) == 0
    told = capsys.readouterr()
    assert all(json.loads(line)["bench"] == "signal" for line in told.out.splitlines())
    assert told.err == "[1/1] signal\n"


def test_a_slow_row_ends_before_all_its_samples() -> None:
    rows: list[Row] = []
    with hcq.open("cpu") as device:
        bench = Bench(device, quick=False, name="b", commit="abc", report=rows.append, most_s=0.0)
        bench.measure("case", lambda: None, samples=200)
    (one,) = rows
    assert one.count == 3


@pytest.mark.parametrize(
    ("median", "unit", "shown"),
    [
        (627_300, "ns", "627.3 us"),
        (1_755, "us", "1.755 ms"),
        (0.25, "us", "250.0 ns"),
        (0.5, "ns", "0.500 ns"),
        (90_000, "ms", "90.00 s"),
        (12_345.6, "GB/s", "12,346 GB/s"),
        (42.0, "us", "42.00 us"),
    ],
)
def test_a_time_is_shown_in_a_unit_that_fits_it(median: float, unit: str, shown: str) -> None:
    text = row(median, median, median, unit).text()
    assert shown in text
    assert "e+" not in text


@pytest.mark.parametrize(("number", "text"), [(0, "0 kernels"), (1, "1 kernel"), (32, "32 kernels")])
def test_a_count_agrees_with_its_noun(number: int, text: str) -> None:
    assert counted(number, "kernel") == text


def test_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nonsense", "--device", "cpu"])
    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err


PASSES = ("name", "plan", "linearize", "verify", "render")


@pytest.fixture(scope="module")
def arch() -> str:
    with hcq.open("cpu") as device:
        return arch_for(device.info)


def test_each_model_has_a_row_with_shares_and_one_with_llvm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lowering", "--device", "cpu", "--quick"]) == 0
    rows = {row["case"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    host = [*MODELS, "float32 products", "float16 products"]
    gpus = [f"{dtype} products, {gpu}" for dtype in ("float32", "float16") for gpu in GPUS]
    assert set(rows) == {*host, *[f"{name}, with LLVM" for name in host], *gpus}
    for name in (*host, *gpus):
        note = rows[name]["note"]
        shares = [float(note.split(f"{one} ")[-1].split(" %")[0]) for one in PASSES]
        assert sum(shares) == pytest.approx(100, abs=len(PASSES))
        assert rows[name]["unit"] == "ms"
    for name in host:
        assert rows[f"{name}, with LLVM"]["median"] > rows[name]["median"]


def test_kernels_of_pending_tensors_are_found_without_computing_them(arch: str) -> None:
    x = Tensor.ones(8, 8, device="cpu:0").contiguous().realize()
    y = x + 1
    (text,) = kernels_of([[y, y, x]], arch)
    assert "STORE" in text
    assert kernels_of([[x]], arch) == []
    assert y.tolist() == [[2.0] * 8] * 8


def test_pending_assignments_store_in_place(arch: str) -> None:
    x = Tensor.ones(8, device="cpu:0").contiguous().realize()
    x.assign(x * 3)
    (text,) = kernels_of([[x]], arch)
    assert text.count("BUFFER") == 1, "the kernel loads and stores one buffer"
    assert x.tolist() == [3.0] * 8


def test_the_passes_are_those_of_a_compilation(arch: str) -> None:
    x = Tensor.ones(64, 64, device="cpu:0").contiguous().realize()
    texts = kernels_of([[x.softmax(-1)]], arch)
    (found,) = lowered(texts, target_of(arch), 2, llvm=True)
    assert found.name == steps(parse_kernel(texts[0]), target_of(arch)).name
    assert tuple(found.passes) == PASSES
    assert found.total == sum(found.passes.values()) > 0
    assert found.llvm > 0


@pytest.mark.slow
def test_first_runs_are_measured_without_and_with_the_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--device", "cpu", "--quick"]) == 0
    plain, checked = map(json.loads, capsys.readouterr().out.splitlines())
    assert (plain["case"], checked["case"]) == ("BERT layer", "BERT layer, checked")
    assert plain["unit"] == checked["unit"] == "ms"
    assert " kernels, " in checked["note"]
