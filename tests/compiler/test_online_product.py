# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test
"""Attention on GPUs: one kernel with both products on matrix units, with the values of three kernels."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

import hcq
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import ordered
from compiler.nest.merge_check import verify_merged
from compiler.pipeline import planned, steps
from compiler.plan import online_product
from compiler.rewrite.online_softmax import merged
from compiler.schedule.scheduler import ScheduleItem, limits_on, schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops
from frontend.tuning.space import Space
from frontend.tuning.trial import Trial
from hcq.errors import CompileError

DEVICES = {
    "sm_80": "nv-emu:sm_80", "sm_90a": "nv-emu", "sm_120a": "nv-emu:sm_120",
    "gfx942": "amd-emu:gfx942", "gfx1100": "amd-emu:gfx1100", "gfx1201": "amd-emu:gfx1201",
}  # fmt: skip
ULP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def leaf(*shape: int, dtype: str = "float16") -> Tensor:
    return Tensor.ones(*shape).contiguous().cast(dtype).realize()


def scheduled(result: Tensor, arch: str = "sm_80") -> list[ScheduleItem]:
    (graph,) = uops([(result.expr, tuple(range(len(result.leaves))))])
    return schedule([graph], limits=limits_on(target_of(arch)), verify=True)


def attention(n: int, m: int, d: int, width: int | None = None, heads: int = 2, **options: Any) -> Tensor:
    own = options.pop("own", heads)
    dtype = options.pop("dtype", "float16")
    q, k = leaf(1, heads, n, d, dtype=dtype), leaf(1, own, m, d, dtype=dtype)
    v = leaf(1, own, m, width or d, dtype=dtype)
    return q.scaled_dot_product_attention(k, v, enable_gqa=own != heads, **options)


ONE: dict[str, Any] = {
    "plain": lambda: attention(40, 48, 64),
    "bfloat16": lambda: attention(40, 48, 128, dtype="bfloat16"),
    "causal": lambda: attention(40, 40, 64, is_causal=True),
    "added mask": lambda: attention(40, 48, 64, attn_mask=leaf(40, 48)),
    "bool mask": lambda: attention(40, 48, 64, attn_mask=leaf(1, 1, 40, 48) > 0),
    "grouped heads": lambda: attention(40, 48, 64, heads=6, own=2),
    "odd lengths": lambda: attention(37, 41, 64),
    "two rows and keys": lambda: attention(2, 2, 16),
    "by hand": lambda: ((leaf(3, 40, 64) @ leaf(3, 64, 48)) * 0.1).softmax(-1) @ leaf(3, 48, 64),
    "heads side by side": lambda: attention(40, 48, 64).transpose(1, 2).reshape(1, 40, 128),
    "residual": lambda: attention(40, 48, 64) + leaf(1, 2, 40, 64),
}  # fmt: skip
THREE: dict[str, Any] = {
    "float32": lambda: attention(40, 48, 64, dtype="float32"),
    "long heads": lambda: attention(40, 48, 320),
    "rows that are no whole pieces": lambda: attention(40, 48, 60),
}


@pytest.mark.parametrize("name", ONE)
def test_attention_on_gpus_is_one_kernel(name) -> None:
    (item,) = scheduled(ONE[name]())
    assert planned(item.ast, target_of("sm_80"))[1].online is not None


@pytest.mark.parametrize("name", THREE)
def test_attention_without_a_plan_stays_three_kernels(name) -> None:
    assert len(scheduled(THREE[name]())) == 3


@pytest.mark.parametrize("arch", DEVICES)
def test_both_products_are_on_matrix_units(arch) -> None:
    (item,) = scheduled(attention(64, 64, 64), arch)
    made = steps(item.ast, target_of(arch))
    shapes = [math.prod(line.arg.shape) for line in made.lines if line.op == "matrix"]
    rows = next(a for a in made.plan.axes if a.size == 64 and a.range.arg[0] == 1)
    warps = made.plan.threads // made.plan.matrix.lanes
    assert sum(shapes) == rows.block // warps * 64 * (64 + 64)


def exact(q, k, v, mask, causal) -> np.ndarray:
    """Return attention in float64. A bool mask is of keys that are seen; rows that see none are 0."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (x.repeat(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    return (
        np.where(np.isneginf(top), 0 if mask is not None else np.nan, e / np.where(total == 0, 1, total)) @ v
    )


def drawn_mask(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a mask for (batch, queries, keys), "bool" or "added", with a row that masks all; else None."""
    batch, n, m = shape
    if kind == "bool":
        mask = rng.random((batch, 1, n, m)) < 0.6
        mask[0, 0, 0] = False
        return mask
    if kind == "added":
        mask = np.where(rng.random((n, m)) < 0.3, -np.inf, rng.standard_normal((n, m))).astype(np.float32)
        mask[-1] = -np.inf
        return mask
    return None


def check(arch: str, sizes: tuple[int, ...], kind: str, dtype: str) -> None:
    """Compare attention of (batch, heads, heads of keys, queries, keys, depth, width) with float64."""
    batch, heads, own, n, m, d, width = sizes
    rng, device = np.random.default_rng(sum(sizes)), DEVICES[arch]
    device += "+checked" if ":" in device else ":checked"
    made = [rng.standard_normal(s, dtype=np.float32) for s in (
        (batch, heads, n, d), (batch, own, m, d), (batch, own, m, width))]  # fmt: skip
    mask = drawn_mask(rng, kind, (batch, n, m))
    q, k, v = (Tensor(x, device=device).cast(dtype).realize() for x in made)
    added = mask is not None and mask.dtype != bool
    given = None if mask is None else Tensor(mask, device=device)
    given = given.cast(dtype).realize() if added else given
    result = q.scaled_dot_product_attention(k, v, given, is_causal=kind == "causal", enable_gqa=heads != own)
    rounded = [x.cast("float32").numpy() for x in (q, k, v)]
    wanted = exact(*rounded, given.cast("float32").numpy() if added else mask, kind == "causal")
    difference = np.abs(result.cast("float32").numpy() - wanted)
    assert difference.max() <= ULP[dtype] * (1 + np.abs(wanted).max()), (sizes, kind)


def check_plans(ast: UOp, arch: str, *, every: int) -> None:
    """Compare each `every`-th move of the estimated plan with that plan."""
    with hcq.open(DEVICES[arch]) as device:
        trial = Trial(device, ast)
        wanted = trial.results(trial.load(None))
        space = Space(ast, target_of(arch))
        found = space.moves(space.estimated().choice)
        assert len(found) > 4
        for one in found[::every]:
            assert not trial.difference(wanted, trial.results(trial.load(one.choice)), least=2.0)
        trial.close()


def with_ones(arch: str, mask: np.ndarray, d: int) -> np.ndarray:
    """Return the attention of float16 ones of `d` a row, but an infinite value, under an added mask."""
    rows = (mask.shape[0], mask.shape[1], mask.shape[1])
    q, k, v = (Tensor.ones(1, 1, n, d, device=DEVICES[arch]).cast("float16").realize() for n in rows)
    v[0, 0, 3, 7] = math.inf
    v.realize()
    given = Tensor(mask, device=DEVICES[arch]).cast("float16").realize()
    return q.scaled_dot_product_attention(k, v, given).cast("float32").numpy()[0, 0]


CASES = [
    ((1, 2, 2, 40, 70, 64, 64), "none", "float16"),
    ((2, 1, 1, 37, 130, 64, 32), "causal", "bfloat16"),
    ((2, 4, 2, 33, 37, 32, 64), "bool", "float16"),
    ((1, 2, 2, 17, 67, 128, 128), "added", "float16"),
    ((1, 3, 1, 5, 33, 256, 256), "none", "bfloat16"),
    ((1, 1, 1, 2, 3, 16, 8), "none", "float16"),
    ((1, 1, 1, 130, 2, 80, 96), "causal", "float16"),
]


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("arch", "case"), list(product(DEVICES, range(len(CASES)))))
def test_values_are_those_of_float64(arch, case) -> None:
    check(arch, *CASES[case])


LENGTHS = (1, 2, 7, 64)


@pytest.mark.landing
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("arch", ["sm_80", "gfx942", "gfx1100", "gfx1201"])
def test_values_of_every_small_size(arch, n) -> None:
    """Each architecture has all pairs of lengths; together they have every mask with each pair."""
    shift, i = ["sm_80", "gfx942", "gfx1100", "gfx1201"].index(arch), LENGTHS.index(n)
    for j, m in enumerate(LENGTHS):
        k = i + j + shift
        batch, heads = 1 + (i // 2 + j // 2 + shift) % 2, (1, 3)[(i + shift // 2) % 2]
        sizes = (batch, heads, heads, n, m, *[(16, 40)[(j + shift) % 2]] * 2)
        check(arch, sizes, ("none", "causal", "bool", "added")[k % 4], "float16")


@pytest.mark.parametrize("arch", ["sm_80", pytest.param("gfx1201", marks=pytest.mark.landing)])
def test_rows_with_nan_or_infinite_scores_are_nan_as_in_pytorch(arch) -> None:
    """A row without a key is 0, and NaN where a value is infinite."""
    mask = np.zeros((40, 70), np.float32)
    mask[4, 66], mask[5, 2], mask[6], mask[9] = np.nan, np.inf, -np.inf, -np.inf
    mask[6, 69] = np.nan
    wanted = np.ones((40, 64), np.float32)
    wanted[:, 7], wanted[[4, 5, 6]], wanted[9] = np.inf, np.nan, 0
    wanted[9, 7] = np.nan
    np.testing.assert_allclose(with_ones(arch, mask, 64), wanted, rtol=1e-3)


@pytest.mark.landing
@pytest.mark.parametrize("arch", DEVICES)
def test_every_plan_has_the_values_of_the_estimated_one(arch) -> None:
    (item,) = scheduled(attention(37, 70, 64, 40, is_causal=True), arch)
    check_plans(item.ast, arch, every=4)


def swapped(ast: UOp, old: UOp, new: UOp) -> UOp:
    done: dict[UOp, UOp] = {}
    for n in ordered(ast):
        src = tuple([done[s] for s in n.src])
        done[n] = new if n is old else uop(n.op, n.dtype, src, n.arg)
    return done[ast]


@pytest.mark.parametrize("slot", [1, 2, 3])
def test_a_merge_that_reads_other_elements_is_refused(slot) -> None:
    (item,) = scheduled(attention(40, 48, 64))
    ast, plan = planned(item.ast, target_of("sm_80"))
    verify_merged(item.ast, ast, plan.online)
    load = next(n for n in ordered(item.ast) if n.op is Ops.LOAD and n.src[0].arg == slot)
    x = load.src[1]
    turned = uop(x.op, x.dtype, x.src[::-1], x.arg)
    chain = swapped(item.ast, load, uop(load.op, load.dtype, (load.src[0], turned), None))
    with pytest.raises(CompileError, match="the merged kernel is wrong"):
        verify_merged(chain, ast, plan.online)


def test_a_chain_without_a_plan_is_refused() -> None:
    (item,) = scheduled(attention(40, 48, 64))
    assert merged(item.ast) is not None
    assert online_product.parts(item.ast, target_of("gfx1030")) == 0
    with pytest.raises(CompileError, match="wanted a chain that fits"):
        planned(item.ast, target_of("gfx1030"))
