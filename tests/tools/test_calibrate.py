"""Calibration kernels beside the estimates of their counters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hcq.counters import KernelCounters
from hcq.errors import UsageError
from tools import calibrate, hardware_run
from tools.hardware.stage import Run

if TYPE_CHECKING:
    from pathlib import Path


def rows(device: str, capsys: pytest.CaptureFixture[str], groups: int = 4) -> dict[str, dict[str, Any]]:
    assert calibrate.main(["--device", device, "--groups", str(groups)]) == 0
    return {row["case"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


@pytest.mark.parametrize(
    "device", ["nv-emu:sm_80", *(pytest.param(f"amd-emu:{t}", marks=pytest.mark.slow) for t in ("gfx1100",
    "gfx942"))]
)  # fmt: skip
def test_each_kernel_is_bound_by_what_it_is_made_for(device: str, capsys: pytest.CaptureFixture[str]):
    found = rows(device, capsys, 8)
    assert list(found) == list(calibrate.KERNELS)
    bounds = [found[name]["bound"] for name in ("fma", "shared", "conflicts")]
    assert bounds == ["compute", "on-chip", "on-chip"]
    assert all(row["emulated"] and row["ratio"] > 0 for row in found.values())
    shared, conflicts = (found[name]["estimated_us"] for name in ("shared", "conflicts"))
    assert 20 < conflicts / shared < 40  # 32 lanes in one bank, and a little global memory


def test_counts_grow_with_the_workgroups():
    one = KernelCounters(kernel="k", arch="sm_80", lanes=32, unit=32, launches=1, groups=4, read=128)
    one.flops["f32"] = 10
    one.shared["load"].units = 3
    many = one.scaled(5)
    assert (many.launches, many.groups, many.read) == (1, 20, 640)
    assert (many.flops, many.shared["load"].units) == ({"f32": 50}, 15)
    assert (one.flops, one.shared["load"].units) == ({"f32": 10}, 3)


def test_a_gpu_without_rates_is_refused_by_name():
    with pytest.raises(UsageError, match="sm_86"):
        calibrate.chip_of(type("Info", (), {"arch": "sm_86", "name": "GPU"})(), ())


def test_the_stage_of_a_dry_hardware_run_has_its_rows(tmp_path: Path):
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    options = hardware_run.parse(["--dry", "--device", "nv", *folders])
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$*" >&2\necho \'{"case": "copy", "ratio": 2}\'\n')
    script.chmod(0o755)
    run = Run(options, python=str(script))
    hardware_run.calibration(run, 60)
    (stage,) = run.stages
    assert (stage.status, stage.facts) == ("passed", {"rows": [{"case": "copy", "ratio": 2}]})
    assert stage.tail.split() == ["-m", "tools.calibrate", "--device", "nv-emu", "--groups", "4"]
