"""BEAM: searches in processes, what fails in them, and that a tensor program uses what they find."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from compiler import stats, winners
from compiler.ir.serialize import kernel_key
from compiler.plan.choice import ProductChoice, SplitChoice, to_text
from compiler.targets import target_of
from frontend import Tensor
from frontend.tuning.count import instructions
from frontend.tuning.process import FailedError, TuningProcess
from frontend.tuning.trial import Trial
from frontend.tuning.tune import tune
from hcq.config import override
from hcq.errors import UsageError
from tests.compiler.kernels import ARCH, dtypes, load, loop, op, reduce, sink, store
from tests.compiler.test_search import rows
from tests.fuzz.plans import small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENT_S = 500.0
"""A limit of time that no plan reaches on a loaded machine."""
PRELUDE = """
import os, time
from compiler import pipeline
real = pipeline.chosen
def chosen(ast, target, choice):
    lanes = dict(getattr(choice, "upcast", ()))
    if lanes.get(0) == 2:
        os.abort()
    if lanes.get(0) == 4:
        time.sleep(600)
    return real(ast, target, choice)
pipeline.chosen = chosen
"""
"""In the process, some choices abort it and some never end."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with override(cache=tmp_path, beam=1):
        yield tmp_path


class Given:
    """A process that answers from a table of ratios by choice; others are 1."""

    def __init__(self, ratio: float, failing: bool = False) -> None:  # noqa: FBT001, FBT002  # a test's stand-in
        self.dead = False
        self.ratio, self.failing = ratio, failing
        self.begun = self.measured = 0

    def __call__(self, device: str) -> Any:
        assert device == "cpu"
        return self

    def begin(self, _text: str) -> dict[str, Any]:
        self.begun += 1
        if self.failing:
            raise FailedError("the kernel cannot be measured")
        return {"cost": 1.0}

    def measure(self, choice: str) -> dict[str, Any]:
        self.measured += 1
        if self.measured == 1:
            self.dead = True
            raise FailedError("the process ended")
        return {"ratio": self.ratio if "[[0,2]]" not in choice else self.ratio / 2}

    def close(self) -> None:
        self.dead = False


@pytest.mark.usefixtures("folder")
def test_a_search_survives_the_end_of_its_process_and_is_made_once() -> None:
    given, before = Given(0.9), stats.failed
    (found,) = tune([rows(), rows()], "cpu", ARCH, start=given)
    assert stats.failed == before + 1
    assert given.begun == 2, "after the end of the process the kernel is sent again"
    assert found.failed == 1
    assert found.choice is not None
    assert winners.get(kernel_key(rows()), target_of(ARCH), 1) == found
    assert tune([rows()], "cpu", ARCH, start=given) == []
    assert given.begun == 2


@pytest.mark.usefixtures("folder")
def test_a_kernel_that_cannot_be_measured_is_counted_and_keeps_its_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = stats.unsearched
    with override(debug=1):
        assert tune([rows()], "cpu", ARCH, start=Given(1.0, failing=True)) == []
    assert stats.unsearched == before + 1
    assert "is not searched: the kernel cannot be measured" in capsys.readouterr().err
    assert winners.get(kernel_key(rows()), target_of(ARCH), 1) is None


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_program_is_planned_by_what_its_search_finds() -> None:
    x = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    before = stats.tried
    with override(debug=0):
        got = (Tensor(x, device="cpu") * 3.0).sum(1).numpy()
    assert stats.tried > before
    np.testing.assert_allclose(got, (x * 3.0).sum(1), rtol=1e-5, atol=1e-5)


def test_results_are_compared_by_the_kind_of_kernel() -> None:
    i, r = loop(0, 40), loop(1, 96)
    with hcq.open("cpu") as device:
        doubled = Trial(device, sink(store(0, i, op("MUL", load(1, i), load(1, i)))))
        seen = doubled.results(doubled.load(None))
        assert doubled.difference(seen, seen) == ""
        other = {0: (np.frombuffer(seen[0], np.float32) * np.float32(1 + 2**-22)).tobytes()}
        assert "wanted equal float32s" in doubled.difference(seen, other)
        total = Trial(device, rows())
        seen = total.results(total.load(None))
        assert total.difference(seen, total.results(total.load(SplitChoice(sums=((1, 4),))))) == ""
        off = {0: (np.frombuffer(seen[0], np.float32) + np.float32(1e-3)).tobytes()}
        assert "units in the last place" in total.difference(seen, off)
        lost = {0: np.full(40, np.nan, np.float32).tobytes()}
        assert "units in the last place" in total.difference(seen, lost)
        whole = Trial(device, sink(store(0, i, reduce(load(1, i * 96 + r, dtypes.int32), "ADD", r))))
        seen = whole.results(whole.load(None))
        off = {0: (np.frombuffer(seen[0], np.int32) + 1).tobytes()}
        assert "wanted equal int32s" in whole.difference(seen, off)
        brief = Trial(device, small.ast_of("brain"))
        seen = brief.results(brief.load(None))
        bits = np.frombuffer(seen[0], np.uint16)
        assert np.count_nonzero(bits & 0x7FFF) > bits.size // 2
        assert brief.difference(seen, {0: (bits ^ 1).tobytes()}) == ""
        off = {0: np.where(bits == bits.max(), 0, bits).astype(np.uint16).tobytes()}
        assert "wanted at most 4 units in the last place" in brief.difference(seen, off)
        for trial in (doubled, total, whole, brief):
            trial.close()


def test_computed_indices_cannot_be_measured() -> None:
    x = Tensor.zeros(50, device="cpu").contiguous().realize()
    index = Tensor.zeros(7, device="cpu").cast("int32").contiguous().realize()
    from compiler.schedule.scheduler import schedule
    from frontend.evaluation.expr import uops

    value = x[index]
    ast = schedule(uops([(value.expr, tuple(range(len(value.leaves))))]))[-1].ast
    with hcq.open("cpu") as device, pytest.raises(UsageError, match="computed indices"):
        Trial(device, ast)


def test_a_search_imports_no_module_of_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the working folder ran')\n")
    monkeypatch.chdir(tmp_path)
    with override(cache=tmp_path):
        TuningProcess("cpu").close()


@pytest.mark.parametrize("line", ["no JSON", "[1]", "\\xff"])
def test_an_answer_that_is_no_object_of_json_ends_the_process(line: str) -> None:
    with pytest.raises(FailedError, match="wanted an object of JSON as the answer"):
        TuningProcess("cpu", prelude=f"sys.stdout.buffer.write(b'{line}\\n'); sys.stdout.flush()")


@pytest.mark.slow
def test_aborts_hangs_and_errors_of_one_plan_end_at_most_its_process(tmp_path: Path) -> None:
    ast = small.ast_of("transpose")
    with override(cache=tmp_path):
        process = TuningProcess("cpu", limit_s=PATIENT_S, prelude=PRELUDE)
        assert process.begin(kernel_key(ast))["cost"] > 0
        assert process.measure(to_text(SplitChoice(vector=1)))["ratio"] > 0
        with pytest.raises(FailedError, match="wanted a choice with a plan"):
            process.measure(to_text(ProductChoice()))
        assert not process.dead
        with pytest.raises(FailedError, match="signal 6"):
            process.measure(to_text(SplitChoice(vector=1, upcast=((0, 2),))))
        assert process.dead
        process.close()
        process = TuningProcess("cpu", limit_s=3.0, prelude=PRELUDE)
        process.begin(kernel_key(ast))
        with pytest.raises(FailedError, match="within 3 s"):
            process.measure(to_text(SplitChoice(vector=1, upcast=((0, 4),))))
        assert process.dead
        process.close()


@pytest.mark.slow
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
def test_emulated_gpus_are_searched_by_counts(device: str, tmp_path: Path) -> None:
    i = loop(0, 256)
    ast = sink(store(0, i, op("ADD", load(1, i), load(2, i))))
    with override(cache=tmp_path, beam=1):
        with hcq.open(device) as opened:
            target = target_of(opened.info.arch)
        (found,) = tune([ast], device, target.arch, start=partial(TuningProcess, limit_s=PATIENT_S))
    assert found.tries > 0
    assert found.failed == 0
    if found.choice is not None:
        counts = [instructions(ast, target, choice) for choice in (found.choice, None)]
        assert found.ratio == pytest.approx(counts[0] / counts[1], rel=1e-3)
