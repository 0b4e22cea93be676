# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test
"""Attention of few rows on GPUs: keys divided among workgroups, with the values of float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from compiler.pipeline import planned
from compiler.schedule.item import TempRef
from compiler.targets import target_of
from frontend import Tensor
from frontend.device import Device
from hcq.counters import counting
from tests.compiler.test_online_product import DEVICES, attention, check, check_plans, scheduled, with_ones

CASES: list[tuple[tuple[int, ...], str]] = [
    ((1, 4, 1, 1, 1024, 16, 16), "none"),  # one query, four heads beside one of keys
    ((2, 6, 2, 1, 1001, 64, 40), "bool"),  # parts of different lengths; a row that sees no key
    ((1, 8, 1, 1, 513, 64, 64), "causal"),  # all parts but the first are masked
    ((1, 4, 2, 3, 601, 128, 128), "added"),  # -inf among the scores, and a row of nothing else
    ((1, 1, 1, 2, 520, 16, 64), "none"),
    ((1, 2, 2, 15, 521, 32, 32), "causal"),
]


@pytest.mark.parametrize("arch", DEVICES)
def test_decoding_has_a_workgroup_for_every_processor(arch) -> None:
    target = target_of(arch)
    parts, join = scheduled(attention(1, 4096, 128, heads=32, own=8), arch)
    (x, y, z), _ = planned(parts.ast, target)[1].launch()
    assert x * y * z >= target.cores
    assert planned(join.ast, target)[1].online is None
    assert [ref.shape[:2] for ref in parts.writes] == [(32, x * y * z // 8)] * 3


@pytest.mark.parametrize("name", ["16 rows", "512 keys", "many heads"])
def test_other_attention_stays_one_kernel(name) -> None:
    sizes = {"16 rows": (16, 4096), "512 keys": (2, 512), "many heads": (4, 1024)}
    (item,) = scheduled(attention(*sizes[name], 64, heads=200 if name == "many heads" else 2))
    assert not any(isinstance(ref, TempRef) for ref in item.bufs)


@pytest.mark.parametrize(
    ("arch", "case"),
    [
        pytest.param(arch, (n + k) % 6, marks=[] if (n + k, k) in {(0, 0), (4, 0)} else pytest.mark.landing)
        for (n, arch), k in product(enumerate(DEVICES), (0, 3))
    ],
)
def test_values_are_those_of_float64(arch, case) -> None:
    check(arch, *CASES[case], "float16" if case else "bfloat16")


def test_parts_with_infinite_scores_are_nan_as_in_pytorch() -> None:
    mask = np.zeros((5, 600), np.float32)
    mask[0, 599], mask[1, 2], mask[2], mask[3, :599] = np.nan, np.inf, -np.inf, -np.inf
    wanted = np.ones((5, 16), np.float32)
    wanted[:, 7], wanted[:2], wanted[2] = np.inf, np.nan, 0
    wanted[2:4, 7] = np.nan  # weights of 0 and an infinite value
    np.testing.assert_allclose(with_ones("sm_80", mask, 16), wanted, rtol=1e-3)


@pytest.mark.landing
@pytest.mark.parametrize("arch", DEVICES)
def test_every_plan_has_the_values_of_the_estimated_one(arch) -> None:
    item, _ = scheduled(attention(3, 601, 32, 40, is_causal=True), arch)
    check_plans(item.ast, arch, every=8)


@pytest.mark.landing
def test_decoding_moves_the_cache_once() -> None:
    device, rng = DEVICES["sm_90a"], np.random.default_rng(0)
    q, k, v = (
        Tensor(rng.standard_normal((1, h, n, 128), np.float32), device=device).cast("float16").realize()
        for h, n in ((32, 1), (8, 4096), (8, 4096))
    )
    result = q.scaled_dot_product_attention(k, v, enable_gqa=True)
    with counting(Device[device].hcq) as kernels:
        result.realize()
    assert len(kernels) == 2
    assert sum(one.moved for one in kernels) <= 1.07 * 2 * 8 * 4096 * 128 * 2
