"""Random kernels as machine code of three targets and as PTX agree with host code.

`tests.fuzz` compares them; a seed reproduces one. More of them: `python -m tests.fuzz --small --cases 5000`.
"""

# ruff: noqa: E501 - rows of words read best on one line

from __future__ import annotations

from typing import Any

import llvmlite.binding
import pytest

from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from hcq.config import config
from tests.fuzz.__main__ import check, check_relations, check_small, compare, disagreements
from tests.fuzz.exchanges import KINDS, LANES
from tests.fuzz.functions import calls
from tests.fuzz.kernels import TOGETHER, Case

SETTINGS = Settings(cache=config().cache, strips=True)
NARROW = Settings(cache=config().cache, strips=True, vector_bits=256)
MISCOMPILED = {48} if llvmlite.binding.llvm_version_info == (22, 1, 0) else set[int]()
"""Cases whose machine code for AMD is wrong: LLVM 22.1.0 hoists a free instruction out of a switch and leaves its value
undefined on one of the ways to the merge (as llvm-project pull request 183792 describes). PTX is still compared."""
WHOLE, SMALL = 300, 50
"""Cases of the slow tests: whole kernels, and small ones."""
AMD = tuple(target for target in LANES if target.startswith("gfx"))


@pytest.mark.parametrize("target", LANES)
def test_a_random_kernel_agrees_with_host_code(target: str) -> None:
    assert not check(1, (target,), SETTINGS)


@pytest.mark.slow
@pytest.mark.sampled(225)
@pytest.mark.parametrize("first", range(0, WHOLE, 20))
def test_many_random_kernels_agree_with_host_code(first: int) -> None:
    for seed in range(first, first + 20):
        targets = tuple(target for target in LANES if target not in AMD or seed not in MISCOMPILED)
        assert not check(seed, targets, SETTINGS), seed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SMALL, TOGETHER))
def test_many_small_kernels_agree_with_host_code(first: int) -> None:
    assert not check_small(range(first, first + TOGETHER), LANES, SETTINGS)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 9))]
)
def test_no_setting_order_tier_or_number_of_threads_changes_a_bit(seed: int) -> None:
    assert not check_relations(seed, ("sm_80", "gfx1100"), (SETTINGS, NARROW))


class _WrongHost(Case):
    """A kernel of which the host computes one value of the second case otherwise."""

    def on_host(self) -> list[tuple[Any, Any]]:
        results = super().on_host()
        results[1][0][1, 2] ^= 1
        return results


def test_a_case_that_differs_is_found_among_those_of_its_kernel() -> None:
    found = compare(_WrongHost.small((3, 4, 5)), ("sm_80",), [(SETTINGS, LaunchOptions())])
    assert list(found) == [4]
    assert "1 of " in found[4]
    assert "[1, 2]" in found[4]


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("seed", sorted(MISCOMPILED))
def test_a_case_set_aside_is_still_miscompiled(seed: int, target: str) -> None:
    assert disagreements(seed, 1, targets=(target,)).keys() == {seed}, (
        "LLVM compiles the case right now: take it off the list"
    )


def test_a_seed_is_always_the_same_case() -> None:
    assert [Case.whole(7).text(target) for target in LANES] == [
        Case.whole(7).text(target) for target in LANES
    ]
    assert len({Case.whole(7).text(target) for target in LANES}) == 2


def test_a_small_case_is_the_same_alone_and_among_others() -> None:
    alone, among = Case.small([27]).chains[0], Case.small(range(25, 50)).chains[2]
    assert (alone.functions, alone.exchanges, alone.body) == (among.functions, among.exchanges, among.body)
    assert alone.x.tolist() == among.x.tolist()


@pytest.mark.parametrize(
    "text", ["".join(Case.whole(seed).text("gfx942") for seed in range(40)), Case.small(range(25)).text("gfx942") + Case.small(range(25, 50)).text("gfx942")],
    ids=["whole", "small"],
)  # fmt: skip
def test_the_sample_covers_every_exchange(text: str) -> None:
    wanted = ("ds.bpermute", "atomicrmw umax", "atomicrmw add", "atomicrmw xor", "urem i32", "switch", "phi half", "double", "i128")  # fmt: skip
    assert not [word for word in wanted if word not in text]
    assert {one.kind for seed in range(100) for one in Case.whole(seed).chains[0].exchanges} == set(KINDS)


def test_the_sample_covers_every_workgroup() -> None:
    assert {Case.whole(seed).threads for seed in range(40)} == {32, 64, 96, 128, 50, 100}
    assert {Case.small([seed]).threads for seed in range(0, 500, TOGETHER)} == {32, 64, 96, 128}


def test_intrinsics_are_declared_with_their_types() -> None:
    text = "  %a = call i32 @llvm.umin.i32(i32 %x, i32 -1)\n  %b = call {i32, i1} @llvm.nvvm.s(i32 1, <2 x i16> %y)\n"
    assert calls(text) == {
        "declare i32 @llvm.umin.i32(i32, i32)",
        "declare {i32, i1} @llvm.nvvm.s(i32, <2 x i16>)",
    }
