"""The report of what is not exact: bounds by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import hcq
from emulator.amd.isa import accuracy, programs
from emulator.amd.isa.translate import read_kernel
from emulator.shared.accuracy import AccuracyLedger
from hcq.config import override
from tests.conformance.kernels import image
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import compiled

if TYPE_CHECKING:
    from pathlib import Path

    from emulator.amd.isa.instruction import Instruction

TARGETS = ["gfx1100", "gfx1201", "gfx942"]
INEXACT = "declare float @llvm.amdgcn.rcp.f32(float)\ndeclare float @llvm.amdgcn.exp2.f32(float)\n"
COMPUTED = "  %q = call float @llvm.amdgcn.rcp.f32(float %x)\n"


def kernel(body: str, processor: str) -> tuple[list[Instruction], str]:
    data = compiled(ir.elementwise("float", body, extra=INEXACT), processor)
    found = programs.kernels(data, processor)["k"]
    return read_kernel(found.code, found.target, lanes=found.lanes, kernel="k"), found.target.family


@pytest.mark.parametrize("processor", TARGETS)
def test_instructions_are_counted_by_their_bound(processor: str) -> None:
    instructions, family = kernel(COMPUTED + "  %r = fadd float %q, %y\n", processor)
    found = accuracy.counts(instructions, family)
    assert set(found["1 ulp"]) == {"v_rcp_f32"}
    assert "v_add_f32" in found["exact"]
    assert set(found) == {"exact", "1 ulp"}


def test_a_ledger_counts_launches_by_bound(tmp_path: Path) -> None:
    ledger = AccuracyLedger("gpu")
    ledger.write(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for _ in range(2):
        ledger.launched("k", {"exact": {"add": 3}, "1 ulp": {"rcp": 1}})
    ledger.launched("l", {"exact": {"add": 1}})
    ledger.refused("k+0x8: v_new: not supported")
    ledger.write(tmp_path / "report")
    report = json.loads((tmp_path / "report").read_text())
    assert report["instructions"] == {"exact": {"add": 3}, "1 ulp": {"rcp": 2}}
    assert report["unsupported"] == ["k+0x8: v_new: not supported"]


def test_a_machine_writes_its_report_when_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with override(emu_report=path), hcq.open("amd-emu:gfx1201") as device:
        program = device.load(image("count", device.info))
        out = device.alloc(4)
        args = program.args(out)
        for _ in range(2):
            device.compute.submit(
                device.compute.record().exec(program, args, groups=(1, 1, 1), threads=(1, 1, 1))
            ).wait()
    (line,) = path.read_text().splitlines()
    report = json.loads(line)
    assert report["device"] == "amd-emu gfx1201"
    assert list(report["launches"].values()) == [2]
    assert report["instructions"]["exact"]["s_endpgm"] == 2
    assert report["unsupported"] == []
