"""Cache instructions: fences of the host where other workgroups take part, none within a workgroup."""

from __future__ import annotations

import pytest

from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench


def _fenced(scope: str) -> str:
    """A kernel with a fence between a store and a load."""
    return (
        ir.HEAD
        + f"""define amdgpu_kernel void @k(ptr addrspace(1) %o, ptr addrspace(1) %a) {ir.BOUNDS} {{
{ir.INDEX}
  %po = getelementptr i32, ptr addrspace(1) %o, i32 %i
  store i32 %i, ptr addrspace(1) %po
  fence {scope} seq_cst
  %pa = getelementptr i32, ptr addrspace(1) %a, i32 %i
  %x = load i32, ptr addrspace(1) %pa
  store i32 %x, ptr addrspace(1) %po
  ret void
}}
"""
    )


@pytest.mark.parametrize("processor", ["gfx1100", "gfx1201", "gfx942"])
def test_only_fences_beyond_a_workgroup_fence_the_host(processor: str) -> None:
    bench = Bench(processor)
    near = bench.kernel(_fenced('syncscope("workgroup")'))[0].translation.text
    agent = bench.kernel(_fenced('syncscope("agent")'))[0].translation.text
    system = bench.kernel(_fenced(""))[0].translation.text
    assert "fence seq_cst" not in near
    assert "fence seq_cst" in agent
    assert "fence seq_cst" in system
