"""Plain loads that a compare-and-swap validates do not race with atomics; others do."""

from __future__ import annotations

import pytest

from emulator.amd.isa import programs
from emulator.amd.isa.guesses import guesses
from emulator.amd.isa.translate import cut, read_kernel
from emulator.ir.report import ReportKind
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import compiled
from tests.emulator.amd_isa.test_orders import AGENT, PROCESSORS, found

HEAD = f"""{ir.HEAD}define amdgpu_kernel void @k(ptr addrspace(1) %a) {{
entry:
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %place = and i32 %thread, 3
  %p = getelementptr i32, ptr addrspace(1) %a, i32 %place
  %q = getelementptr i32, ptr addrspace(1) %p, i32 8
  %low = and i32 %thread, 31
  %index = add i32 %low, 16
  %o = getelementptr i32, ptr addrspace(1) %a, i32 %index
"""
LOOP = f"""  %guess = load i32, ptr addrspace(1) %p
  GUESSED
  br label %loop
loop:
  %old = phi i32 [ %guess, %entry ], [ %seen, %loop ]
  %new = mul i32 %old, 3
  %pair = cmpxchg ptr addrspace(1) %AT, i32 %old, i32 %new {AGENT} monotonic monotonic
  %seen = extractvalue {{ i32, i1 }} %pair, 0
  %done = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %done, label %end, label %loop
end:
  ret void
}}
"""


def loop(*, at: str = "p", guessed: str = "") -> str:
    """Multiply by compare-and-swap at %p or %q, with a guess of %p."""
    return HEAD + LOOP.replace("AT", at).replace("GUESSED", guessed)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_first_guess_of_a_compare_and_swap_loop_does_not_race(processor: str) -> None:
    assert found(processor, loop()) == set()


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_guess_of_another_address_races_with_atomics(processor: str) -> None:
    touched = f"%was = atomicrmw add ptr addrspace(1) %p, i32 1 {AGENT} monotonic"
    assert found(processor, loop(at="q", guessed=touched)) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_guess_that_is_stored_races_with_atomics(processor: str) -> None:
    kept = "store i32 %guess, ptr addrspace(1) %o"
    assert ReportKind.GLOBAL_RACE in found(processor, loop(guessed=kept))


@pytest.mark.parametrize("processor", [one for one in PROCESSORS if one != "gfx1100"])
def test_a_guess_races_with_plain_stores(processor: str) -> None:
    """On gfx11 such a store may be atomic."""
    code = loop().replace("  %guess", "  store i32 %group, ptr addrspace(1) %p\n  fence seq_cst\n  %guess", 1)
    assert found(processor, code) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("operation", ["fadd float 1.0", "uinc_wrap i32 7", "fmax float 2.0"])
def test_atomics_that_llvm_expands_do_not_race(operation: str) -> None:
    name, type_, value = operation.split()
    update = (
        f"  %w = atomicrmw {name} ptr addrspace(1) %p, {type_} {value} {AGENT} monotonic\n  ret void\n}}\n"
    )
    assert found("gfx1100", HEAD + update) == set()


def uniform(*, at: str = "a", guessed: str = "") -> str:
    """Multiply by compare-and-swap at %a or %q, with a guess of %a, whose address all lanes share."""
    code = loop(at=at, guessed=guessed).replace(
        "ptr addrspace(1) %p\n  " + guessed, f"ptr addrspace(1) %a\n  {guessed}"
    )
    return code.replace("ptr addrspace(1) %p, i32 8", "ptr addrspace(1) %a, i32 8")


def guessed(processor: str, code: str) -> list[str]:
    """Return the loads of a kernel that a compare-and-swap validates."""
    kernel = programs.kernels(compiled(code, processor), processor)["k"]
    instructions = read_kernel(kernel.code, kernel.target, lanes=kernel.lanes, kernel="k")
    known = guesses(cut(instructions), kernel.target.family)
    return [i.stem for i in instructions if i.address in known]


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_first_guess_by_a_scalar_load_does_not_race(processor: str) -> None:
    (load,) = guessed(processor, uniform())
    assert load.startswith("s_load")
    assert found(processor, uniform()) == set()


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_scalar_guess_of_another_address_races_with_atomics(processor: str) -> None:
    touched = f"%was = atomicrmw add ptr addrspace(1) %a, i32 1 {AGENT} monotonic"
    code = uniform(at="q", guessed=touched)
    assert guessed(processor, code) == []
    assert found(processor, code) == {ReportKind.GLOBAL_RACE}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_scalar_guess_that_is_stored_races_with_atomics(processor: str) -> None:
    kept = "store i32 %guess, ptr addrspace(1) %o"
    assert ReportKind.GLOBAL_RACE in found(processor, uniform(guessed=kept))


@pytest.mark.parametrize(
    "operation", ["fadd float 1.0", "fadd double 1.0", "uinc_wrap i32 7", "fmax float 2.0"]
)
def test_atomics_at_one_address_that_llvm_expands_do_not_race(operation: str) -> None:
    name, type_, value = operation.split()
    update = (
        f"  %w = atomicrmw {name} ptr addrspace(1) %a, {type_} {value} {AGENT} monotonic\n  ret void\n}}\n"
    )
    assert found("gfx1100", HEAD + update) == set()
