"""Chains: attention is one kernel, whose weights are never whole in memory, with the results of three."""

# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler.ir import index as symbolic
from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.ir.uop import uop
from compiler.ir.verify import verify_kernel
from compiler.ir.walk import ordered, ranges_in
from compiler.pipeline import planned
from compiler.rewrite.range_merging import replace_ranges
from compiler.schedule.chains import _all_stored
from compiler.schedule.item import TempRef
from compiler.schedule.scheduler import FusionLimits, ScheduleItem, schedule
from compiler.targets import target_of
from frontend import Tensor, nn
from frontend.evaluation.expr import uops
from hcq.errors import CompileError

INF, NAN = math.inf, math.nan


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def scheduled(*results: Tensor, rows: int = 1 << 30) -> list[ScheduleItem]:
    """Return the kernels on a host; those of at least `rows` rows are joined also where all is stored."""
    leaves = [tuple(range(len(x.leaves))) for x in results]
    parts = uops([(x.expr, own) for x, own in zip(results, leaves, strict=True)])
    return schedule(parts, limits=FusionLimits(chains=True, rows=rows), verify=True)


def of_one(*shape: int) -> Tensor:
    return Tensor.ones(*shape).contiguous().realize()


def exact(q, k, v, mask=None) -> np.ndarray:
    """Return attention in float64; `mask` is added."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + (0 if mask is None else mask)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def test_attention_is_one_kernel_without_a_buffer_for_its_weights() -> None:
    q = of_one(1, 4, 64, 16)
    items = scheduled(q.scaled_dot_product_attention(of_one(1, 4, 48, 16), of_one(1, 4, 48, 24)))
    assert len(items) == 1
    assert {ref.shape for ref in items[0].bufs} == {
        (1, 4, 64, 24),
        (1, 4, 64, 16),
        (1, 4, 48, 16),
        (1, 4, 48, 24),
    }
    assert kernel_name(items[0].ast).startswith("matmul_softmax_matmul_4x64x24x48_")
    assert parse_kernel(kernel_key(items[0].ast)) is items[0].ast


def test_heads_side_by_side_are_split_into_ranges() -> None:
    q = of_one(1, 4, 64, 16)
    out = q.scaled_dot_product_attention(of_one(1, 4, 64, 16), of_one(1, 4, 64, 16))
    items = scheduled(out.transpose(1, 2).reshape(1, 64, 64).contiguous())
    assert len(items) == 1
    assert not any(n.op in (Ops.IDIV, Ops.IMOD) for n in ordered(items[0].ast.src[-1]))


def test_rows_between_parts_are_in_half_of_the_second_cache() -> None:
    (item,) = scheduled(
        of_one(1, 1, 2048, 32).scaled_dot_product_attention(of_one(1, 1, 512, 32), of_one(1, 1, 512, 32))
    )
    target = target_of("x86_64-v3")
    _, plan = planned(item.ast, target)
    assert len(plan.phases) == 3
    assert 0 < sum(kept.count * kept.dtype.itemsize for kept in plan.kept) <= target.l2_bytes // 2
    assert "part 2:" in plan.text()


def test_rows_that_neither_fit_scratch_memory_nor_have_equal_pieces_are_stored() -> None:
    q, k = of_one(1, 1, 64, 16), of_one(1, 1, 12289, 16)
    assert len(scheduled(q.scaled_dot_product_attention(k, k))) > 1


def test_long_rows_are_cut_into_pieces_with_running_totals() -> None:
    q, k = of_one(1, 1, 256, 16), of_one(1, 1, 1 << 15, 16)
    (item,) = scheduled(q.scaled_dot_product_attention(k, k))
    target = target_of("x86_64-v3")
    _, plan = planned(item.ast, target)
    assert plan.pieces is not None
    assert plan.pieces[1] * plan.pieces[2] == 1 << 15
    assert sum(kept.count * kept.dtype.itemsize for kept in plan.kept) <= target.l2_bytes
    assert "each of 64 pieces" in plan.text()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_pieces_against_float64(*, causal) -> None:
    """The scores grow along a row, so that most pieces have a new maximum."""
    q, k, v = values(1, 2, 100, 16), values(1, 2, 2048, 16, seed=1), values(1, 2, 2048, 24, seed=2)
    k *= np.linspace(0, 4, 2048, dtype=np.float32)[:, None]
    mask = np.where(np.tril(np.ones((100, 2048), bool)), 0, -INF) if causal else None
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=causal).numpy()
    np.testing.assert_allclose(got, exact(q, k, v, mask), atol=2e-5)


def test_special_values_of_pieces_stay_in_their_rows() -> None:
    """The first pieces of row 1 are all -inf; row 2 meets a NaN in the last piece, row 3 has only -inf."""
    q = np.zeros((1, 1, 100, 16), np.float32)
    k, v = np.zeros((1, 1, 2048, 16), np.float32), values(1, 1, 2048, 16, seed=2)
    q[..., :, 0], k[..., 0] = 1, values(2048, seed=3)
    q[..., 1, 1], k[..., :1500, 1] = 3e38, -3e38
    q[..., 2, 2], k[..., 2000, 2] = 1, 0
    k[..., 2000, 3], q[..., 3] = INF, -1
    q[..., 2, 3] = 0
    q[..., 3, 4], k[..., 4] = -INF, 1
    with np.errstate(all="ignore"):
        scores = (q @ k.swapaxes(-1, -2)) / np.float32(4)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True) @ v
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)).numpy()
    assert np.isnan(want[0, 0, 2:4]).all()
    assert np.isfinite(want[0, 0, :2]).all()
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_weights_that_are_also_a_result_are_stored() -> None:
    q, k, v = of_one(1, 4, 64, 16), of_one(1, 4, 64, 16), of_one(1, 4, 64, 16)
    weights = (q @ k.transpose(-1, -2)).softmax()
    assert len(scheduled(weights @ v, weights)) == 3


def test_parts_do_not_wait_for_a_kernel_that_overwrites_what_they_load() -> None:
    q, k, v = (Tensor(values(1, 2, 64, 16, seed=s)).realize() for s in range(3))
    want = exact(*[x.numpy() for x in (q, k, v)])
    out = q.scaled_dot_product_attention(k, v)
    Tensor.realize(out, k.assign(k * 2))
    np.testing.assert_allclose(out.numpy(), want, atol=1e-5)


@pytest.mark.parametrize("mask", ["none", "causal", "added"])
@pytest.mark.parametrize(
    "sizes",
    [((1, 2), 128, 128, 32, 32), ((2, 3), 37, 53, 17, 24), ((1, 1), 300, 1000, 33, 17)],
)
def test_attention_against_float64(sizes, mask) -> None:
    batch, queries, keys, depth, width = sizes
    q, k, v = (
        values(*batch, queries, depth),
        values(*batch, keys, depth, seed=1),
        values(*batch, keys, width, seed=2),
    )
    added, more = None, {}
    if mask == "causal":
        added, more = np.where(np.tril(np.ones((queries, keys), bool)), 0, -INF), {"is_causal": True}
    elif mask == "added":
        added = values(queries, keys, seed=3)
        more = {"attn_mask": Tensor(added)}
    got = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), **more).numpy()
    np.testing.assert_allclose(got, exact(q, k, v, added), atol=2e-6)


BASE = np.array([[((3 * i + 5 * j) % 7 - 3) / 4 for j in range(4)] for i in range(6)], np.float32)
PLAIN = [
    [-0.348201, 0.363309, 0.235694, -0.327709],
    [0.185668, 0.120978, 0.044148, -0.109451],
    [-0.222656, -0.151435, 0.416593, -0.153032],
    [0.187426, 0.156534, 0.038917, -0.162578],
]
MASKED = [-0.106618, 0.412794, 0.1725, -0.217059]
CAUSAL = [[-1.5, 1, 0, -1], [-0.738282, -0.015624, 0.761718, -0.238282], [NAN] * 4, [NAN] * 4]


def changed(array: np.ndarray, *places: tuple[object, float]) -> np.ndarray:
    """Return an array with values at places: (index, value)."""
    array = array.copy()
    for index, value in places:
        array[index] = value
    return array


ZEROS = np.zeros((4, 6), np.float32)
ADDED = changed(ZEROS, (1, -INF), ((2, 3), -INF), ((3, 2), INF))
SEEN = changed(ZEROS == 0, (1, False), ((2, 3), False))


@pytest.mark.parametrize(
    ("query", "key", "value", "more", "want"),
    [
        ((), (), (), {"attn_mask": ADDED}, [PLAIN[0], [0] * 4, MASKED, [NAN] * 4]),
        ((), (), (), {"attn_mask": SEEN}, [PLAIN[0], [0] * 4, MASKED, PLAIN[3]]),
        ((), (), (), {"attn_mask": changed(ZEROS, ((0, 1), NAN))}, [[NAN] * 4, *PLAIN[1:]]),
        ((), (((2, 1), NAN),), (), {}, [[NAN] * 4] * 4),
        ((), (((2, 1), NAN),), (), {"is_causal": True}, CAUSAL),
        ((((1, 0), INF),), (), (), {}, [PLAIN[0], [NAN] * 4, *PLAIN[2:]]),
        ((), (), (((5, 0), INF),), {}, [[INF, *row[1:]] for row in PLAIN]),
    ],
    ids=["added", "bool", "nan-mask", "nan-key", "nan-key-causal", "infinite-query", "infinite-value"],
)  # fmt: skip
def test_special_values_as_pytorch(query, key, value, more, want) -> None:
    """Recorded from PyTorch 2.13 on a CPU: a row in which all is masked gives zeros, a NaN only its rows."""
    q, k, v = changed(BASE[:4], *query), changed(BASE[::-1], *key), changed(BASE * 2, *value)
    more = {name: Tensor(x) if isinstance(x, np.ndarray) else x for name, x in more.items()}
    got = Tensor(q[None]).scaled_dot_product_attention(Tensor(k[None]), Tensor(v[None]), **more)
    np.testing.assert_allclose(got.numpy()[0], want, atol=2e-6)


def test_the_verifier_checks_what_parts_of_a_chain_load() -> None:
    (item,) = scheduled(
        of_one(1, 2, 32, 16).scaled_dot_product_attention(of_one(1, 2, 32, 16), of_one(1, 2, 32, 16))
    )
    verify_kernel(item.ast)
    backwards = uop(Ops.SINK, item.ast.dtype, item.ast.src[::-1], item.ast.arg)
    with pytest.raises(CompileError, match="no part before"):
        verify_kernel(backwards)


def softened(x) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("between", ["nothing", "relu", "softmax"])
@pytest.mark.parametrize("batch", [(), (1,), (2,), (3, 2)], ids=str)
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 2), (1, 5), (2, 1), (3, 4)])
def test_products_of_one_row_in_a_batch_are_those_of_their_own_matrices(between, batch, rows, keys) -> None:
    s, x, p, o = (
        values(*batch, rows, keys),
        values(*batch, keys, 4, seed=1),
        values(4, 4, seed=2),
        values(4, 4, seed=3),
    )
    found, wanted = Tensor(s) @ (Tensor(x) @ Tensor(p)), s.astype(np.float64) @ (x @ p)
    if between == "relu":
        found, wanted = found.relu(), np.maximum(wanted, 0)
    elif between == "softmax":
        found, wanted = found.softmax(-1), softened(wanted)
    np.testing.assert_allclose((found @ Tensor(o)).numpy(), wanted @ o, rtol=1e-4, atol=1e-5)


def test_two_chains_that_would_share_a_product_do_not_lose_it() -> None:
    factors = [values(*size, seed=n) for n, size in enumerate([(5, 8), (8, 3), (3, 4), (4, 4), (4, 2)])]
    found, wanted = Tensor(factors[0]), factors[0].astype(np.float64)
    for factor in factors[1:]:
        found, wanted = found.softmax(-1) @ Tensor(factor), softened(wanted) @ factor
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_each_temporary_that_is_loaded_was_stored() -> None:
    x = of_one(5, 8)
    for size in (3, 4, 4, 2):
        x = x.softmax(-1) @ of_one(x.shape[-1], size)
    stored: set[object] = set()
    for item in scheduled(x):
        loaded = {ref for ref in item.bufs if isinstance(ref, TempRef) and ref not in item.writes}
        assert loaded <= stored
        stored.update(item.writes)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [((4, 6, 2), (2, 2), (1, 16, 1, 3)), ((1, 4), (4, 4), (1, 2, 2)), ((3, 2, 4), (3, 4, 2), (3, 4)),
     ((2, 3), (3, 4), (4, 2)), ((4, 4, 4), (4, 4), (4, 16))],
    ids=str,
)  # fmt: skip
def test_rows_of_a_chain_may_lie_across_the_rows_of_its_parts(left, right, shape) -> None:
    a, b, o = values(*left), values(*right, seed=1), values(shape[-1], 5, seed=2)
    found = (Tensor(a) @ Tensor(b)).softmax(-1).reshape(*shape) @ Tensor(o)
    wanted = softened(a.astype(np.float64) @ b).reshape(shape) @ o
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)


def stored_and_loaded(item: ScheduleItem) -> None:
    """Evaluate all indices of a chain: each load follows a store with the same shared values."""
    externals, shared = item.ast.arg
    stored: dict[tuple[int, int], tuple[int, ...]] = {}
    for part in item.ast.src:
        ranges = sorted({n for n in ordered(part) if n.op is Ops.RANGE}, key=lambda r: r.arg[0])
        accesses = [n for n in ordered(part) if n.op in (Ops.LOAD, Ops.STORE) and n.src[0].arg >= externals]
        for point in np.ndindex(*[r.arg[1] for r in ranges]):
            env = dict(zip(ranges, point, strict=True))
            row = tuple([n for r, n in env.items() if r.arg[0] < shared])
            for n in accesses:
                at = n.src[0].arg, symbolic.evaluate(n.src[1], env)
                if n.op is Ops.STORE:
                    stored[at] = row
                else:
                    assert stored.get(at) == row


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("keys", [1, 2, 3])
def test_each_element_of_a_matrix_is_stored_in_the_row_that_loads_it(batch, heads, rows, keys) -> None:
    q, k, v = of_one(batch, rows, heads, 2), of_one(batch, keys, heads, 2), of_one(batch, keys, heads, 2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    attended = q.scaled_dot_product_attention(k, v)
    merged = attended.transpose(1, 2).reshape(batch, rows, -1) @ of_one(2 * heads, 3)
    chained = of_one(batch, rows, keys) @ (of_one(batch, keys, 2) @ of_one(2, 4)) @ of_one(4, 3)
    for result in (attended, merged, chained):
        for item in scheduled(result):
            if item.ast.src[0].op is Ops.SINK:
                stored_and_loaded(item)


def test_a_chain_whose_parts_share_too_few_elements_is_refused() -> None:
    q = of_one(2, 3, 4, 2)
    (item,) = scheduled(q.scaled_dot_product_attention(q, q))
    externals, shared = item.ast.arg
    assert _all_stored(item.ast.src, externals, shared)
    for n in range(2):
        part = item.ast.src[n]
        inner = next(r for r in ranges_in(part)[part.src[0].src[1]] if r.arg[0] >= shared)
        short = replace_ranges(part, {inner: symbolic.loop(inner.arg[0], inner.arg[1] - 1)})
        parts = [short if k == n else x for k, x in enumerate(item.ast.src)]
        assert not _all_stored(parts, externals, shared)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [2, 3])
def test_attention_of_one_token_is_that_of_each_batch_alone(dtype, training, batch) -> None:
    Tensor.manual_seed(0)
    layer = nn.MultiheadAttention(4, 2, batch_first=True).to(dtype=dtype).train(training)
    x = Tensor(values(batch, 1, 4)).cast(dtype).realize()
    together = layer(x, x, x)[0].float().numpy()
    alone = [layer(x[n : n + 1], x[n : n + 1], x[n : n + 1])[0].float().numpy()[0] for n in range(batch)]
    np.testing.assert_allclose(together, alone, atol={"float32": 1e-6}.get(dtype, 2e-2))


@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("channels", [1, 8, 32])
def test_a_sum_in_parts_within_a_chain_stores_to_the_memory_of_the_chain(size: int, channels: int):
    """The gradient through a strided convolution is a kernel of four parts, and the first part of a chain."""
    x, w, d = (Tensor(values(*s)) for s in ((1, 16, size, size), (channels, 16, 1, 1), (channels, 1, 3, 3)))

    def loss(h: Tensor) -> Tensor:
        y = nn.functional.gelu(nn.functional.batch_norm(h, None, None, training=True))
        return y.conv2d(d, stride=2, padding=1, groups=channels).square().sum()

    h = x.conv2d(w).realize()
    apart = loss(h).gradient(h)[0].numpy().astype(np.float64)
    wanted = np.einsum("bohw, bihw -> oi", apart, x.numpy().astype(np.float64))
    found = loss(x.conv2d(w)).gradient(w)[0].numpy()[:, :, 0, 0]
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()
