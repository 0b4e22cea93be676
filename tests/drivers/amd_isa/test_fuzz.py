"""Random kernels as machine code of three targets and as PTX agree with host code.

`tools.fuzz.amd` writes the kernels; a seed reproduces one. More of them: `python -m tools.fuzz.amd --cases 5000`.
"""

# ruff: noqa: E501 - rows of words read best on one line

from __future__ import annotations

import llvmlite.binding
import pytest

from drivers.emu.simt.engine import Settings
from hcq.config import config
from tools.fuzz.amd import LANES, Case, check

SETTINGS = Settings(cache=config().cache)
MISCOMPILED = {48} if llvmlite.binding.llvm_version_info == (22, 1, 0) else set[int]()
"""Cases whose machine code for AMD is wrong: LLVM 22.1.0 hoists a free instruction out of a switch and leaves its value
undefined on one of the ways to the merge (as llvm-project pull request 183792 describes). PTX is still compared."""
AMD = tuple(target for target in LANES if target.startswith("gfx"))


@pytest.mark.parametrize("target", LANES)
def test_a_random_kernel_agrees_with_host_code(target: str) -> None:
    assert not check(1, (target,), SETTINGS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_many_random_kernels_agree_with_host_code(first: int) -> None:
    for seed in range(first, first + 20):
        targets = tuple(target for target in LANES if target not in AMD or seed not in MISCOMPILED)
        assert not check(seed, targets, SETTINGS), seed


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("seed", sorted(MISCOMPILED))
def test_a_case_set_aside_is_still_miscompiled(seed: int, target: str) -> None:
    assert check(seed, (target,), SETTINGS), "LLVM compiles the case right now: take it off the list"


def test_a_seed_is_always_the_same_case() -> None:
    assert [Case(7).text(target) for target in LANES] == [Case(7).text(target) for target in LANES]
    assert len({Case(7).text(target) for target in LANES}) == 2


def test_the_sample_covers_every_exchange_and_wave() -> None:
    texts = "".join(Case(seed).text("gfx942") for seed in range(40))
    wanted = ("ds.bpermute", "atomicrmw umax", "atomicrmw add", "atomicrmw xor", "urem i32", "switch", "phi half", "double", "i128")
    assert not [word for word in wanted if word not in texts]
    assert {Case(seed).threads for seed in range(40)} == {32, 64, 96, 128}
