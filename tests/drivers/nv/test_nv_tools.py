"""The hardware tools on the emulated kernel."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import hcq
from drivers.nv.quirks import ALTERNATIVES, DEFAULT, NvQuirks, parse
from emulator.shared.surprises import StatusReply
from hcq.errors import UnsupportedError
from tests.support.nv.recorded import RecordedKernel
from tools.bench.cuda import cuda
from tools.bench.rows import Bench
from tools.bringup import command
from tools.bringup.ladder import wanted
from tools.bringup.nv.bench import Bench as LadderBench
from tools.bringup.nv.kernels import ARCHES, KERNELS, ptx
from tools.bringup.nv.table import RUNGS

if TYPE_CHECKING:
    from pathlib import Path


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
    bench = LadderBench(RecordedKernel(), parse("stack=low+pcas=3"), index=1, dry=True, kernels=tmp_path)
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
        cuda(Bench(device, quick=True, name="cuda", commit="", report=lambda _: None))


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
