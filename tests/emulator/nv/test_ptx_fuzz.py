"""Random kernels: the emulator and host code agree to the bit, and no setting of the emulator changes one.

`tests.fuzz` writes the kernels; a seed reproduces one. More of them: `python -m tests.fuzz --cases 5000`.
"""

from __future__ import annotations

import pytest

from emulator.simt.engine import Settings
from hcq.config import config
from tests.fuzz.cases import Case, check, check_relations
from tests.fuzz.functions import calls

PLAIN = Settings(cache=config().cache)
NARROW = Settings(cache=config().cache, vector_bits=256)


@pytest.mark.sampled(29)
@pytest.mark.parametrize("seed", range(24))
def test_random_kernels_agree_with_host_code(seed: int):
    assert not check(seed, PLAIN)


@pytest.mark.slow
@pytest.mark.sampled(36)
@pytest.mark.parametrize("first", range(1000, 1138, 23))
def test_many_random_kernels_agree_with_host_code(first: int):
    for seed in range(first, first + 23):
        assert not check(seed, PLAIN), seed


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(3))
def test_no_order_tier_or_number_of_threads_changes_a_bit(seed: int):
    assert not check_relations(seed, (PLAIN,))


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("first", range(2000, 2016, 4))
def test_no_setting_changes_a_bit_of_many(first: int):
    for seed in range(first, first + 4):
        assert not check_relations(seed, (PLAIN, NARROW)), seed


def test_a_seed_is_always_the_same_case():
    assert Case(7).ptx == Case(7).ptx
    assert Case(7).on_host() == Case(7).on_host()


def test_a_difference_is_reported():
    one, two = Case(3).on_host(), Case(4).on_host()
    assert "differ" in one.difference(two)
    assert not one.difference(one)


def test_intrinsics_are_declared_with_their_types():
    text = "  %a = call i32 @llvm.umin.i32(i32 %x, i32 -1)\n"
    text += "  %b = call {i32, i1} @llvm.nvvm.s(i32 1, <2 x i16> %y)\n"
    assert calls(text) == {
        "declare i32 @llvm.umin.i32(i32, i32)",
        "declare {i32, i1} @llvm.nvvm.s(i32, <2 x i16>)",
    }


@pytest.fixture(scope="module")
def sample() -> str:
    return "".join(Case(seed).ptx for seed in range(40))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("all integer widths", ("cvt.s16.s8", "shl.b16", ".s32", "add.s64", "mul.hi.u64")),
        ("floating point", ("add.rn.f16", "fma.rn.f32", "div.rn.f64", "sqrt.rn.f32", "f16x2")),
        ("shared and local memory", ("ld.shared", "st.local", "bar.sync")),
        ("atomics", ("atom.", "red.")),
        ("cross-lane operations", ("shfl.sync", "vote.sync", "match.any", "redux.sync", "bar.red")),
        ("control flow", ("brx.idx", "call", "@%p")),
    ],
)
def test_the_sample_covers(sample: str, what: str, words: tuple[str, ...]):
    assert not [word for word in words if word not in sample], what
