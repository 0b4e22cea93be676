"""The report of what is not exact: bounds by name, and what such results decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import hcq
from emulator.amd.isa import accuracy, programs
from emulator.amd.isa.translate import read_kernel
from emulator.shared.accuracy import AccuracyLedger, AccuracyStep, steerings
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


def kernel(body: str, processor: str) -> tuple[list[Instruction], str, int]:
    data = compiled(ir.elementwise("float", body, extra=INEXACT), processor)
    found = programs.kernels(data, processor)["k"]
    return (
        read_kernel(found.code, found.target, lanes=found.lanes, kernel="k"), found.target.family, found.lanes
    )  # fmt: skip


@pytest.mark.parametrize("processor", TARGETS)
def test_instructions_are_counted_by_their_bound(processor: str) -> None:
    instructions, family, _ = kernel(COMPUTED + "  %r = fadd float %q, %y\n", processor)
    found = accuracy.counts(instructions, family)
    assert set(found["1 ulp"]) == {"v_rcp_f32"}
    assert "v_add_f32" in found["exact"]
    assert set(found) == {"exact", "1 ulp"}


@pytest.mark.parametrize("processor", TARGETS)
def test_results_that_are_only_stored_decide_nothing(processor: str) -> None:
    body = COMPUTED + "  %c = fcmp ogt float %q, %y\n  %r = select i1 %c, float %q, float %z\n"
    assert accuracy.decided(*kernel(body, processor)) == ()


BRANCH = """  %c = fcmp ogt float %q, %y
  br i1 %c, label %yes, label %no
yes:
  store volatile float %z, ptr addrspace(1) %px
  br label %no
no:
  %r = phi float [ %x, %yes ], [ %y, %0 ]
"""
ADDRESS = """  %n = fptosi float %q to i32
  %pn = getelementptr float, ptr addrspace(1) %xs, i32 %n
  %r = load float, ptr addrspace(1) %pn
"""


@pytest.mark.parametrize("processor", TARGETS)
@pytest.mark.parametrize(("body", "decides"), [(BRANCH, "which lanes run"), (ADDRESS, "an address")])
def test_what_an_inexact_result_decides_is_found(processor: str, body: str, decides: str) -> None:
    found = accuracy.decided(*kernel(COMPUTED + body, processor))
    assert decides in {one.decides for one in found}
    assert {one.origins for one in found} == {("v_rcp_f32",)}


@pytest.mark.parametrize("processor", TARGETS)
def test_quotients_are_exact_though_a_reciprocal_is_not(processor: str) -> None:
    floats = "  %q = fdiv float %x, %y\n"
    assert accuracy.decided(*kernel(floats + ADDRESS, processor)) == ()
    integers = """  %a = bitcast float %x to i32
  %b = bitcast float %y to i32
  %n = udiv i32 %a, %b
  %pn = getelementptr float, ptr addrspace(1) %xs, i32 %n
  %r = load float, ptr addrspace(1) %pn
"""
    assert accuracy.decided(*kernel(integers, processor)) == ()


def step(address: int, reads: str, writes: str, **more: object) -> AccuracyStep:
    return AccuracyStep(
        address=address,
        name=f"i{address}",
        text=f"i{address}",
        reads=frozenset(reads),
        writes=frozenset(writes),
        **more,  # type: ignore[arg-type]  # of any field
    )


BRANCHES = (("a branch", frozenset("a")),)


def test_a_write_of_other_lanes_keeps_what_the_rest_hold() -> None:
    """Both sides of an if write the same register, one after the other."""
    then = [step(0, "", "a", inexact=True, masked=True), step(1, "", "e", masks=True)]
    other = [step(2, "", "a", masked=True), step(3, "a", "", steers=BRANCHES)]
    (found,) = steerings([(then + other, ())])
    assert found.origins == ("i0",)
    again = [step(1, "", "a", masked=True), step(3, "a", "", steers=BRANCHES)]
    assert steerings([([then[0], *again], ())]) == ()


def test_results_are_followed_round_a_loop() -> None:
    blocks = [
        ([step(0, "", "x")], (1,)),
        ([step(1, "a", "", steers=BRANCHES), step(2, "x", "a"), step(3, "", "x", inexact=True)], (1, 4)),
        ([step(4, "", "")], ()),
    ]
    (found,) = steerings(blocks)
    assert (found.address, found.decides, found.origins) == (1, "a branch", ("i3",))


def test_a_ledger_counts_launches_by_bound(tmp_path: Path) -> None:
    ledger = AccuracyLedger("gpu")
    ledger.write(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for _ in range(2):
        ledger.launched("k", {"exact": {"add": 3}, "1 ulp": {"rcp": 1}}, ())
    ledger.launched("l", {"exact": {"add": 1}}, ())
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
    assert report["unsupported"] == report["steered"] == []
