"""The report of what is not exact: bounds by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emulator.amd.isa import accuracy, programs
from emulator.amd.isa.translate import read_kernel
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import compiled

if TYPE_CHECKING:

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
