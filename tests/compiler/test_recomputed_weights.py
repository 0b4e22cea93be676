# ruff: noqa: ANN001  # parametrised arguments: their values are listed at the test
"""Gradients of attention on GPUs: three kernels beside that of the results, without a matrix of weights."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import ordered
from compiler.nest.merge_check import verify_recomputed
from compiler.schedule.item import TempRef
from compiler.schedule.scheduler import ScheduleItem, limits_on, schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops
from frontend.nn import functional
from hcq.errors import CompileError
from tests.compiler.test_online_product import DEVICES, ULP, drawn_mask, exact, leaf
from tests.compiler.test_online_product import scheduled as online_scheduled

if TYPE_CHECKING:
    from collections.abc import Callable

F32 = dtypes.float32


def scheduled(arch: str, sizes: tuple[int, ...], kind: str = "none", **options: Any) -> list[ScheduleItem]:
    """Return the kernels of attention and its three gradients; `results=False`: of the gradients alone."""
    batch, heads, own, n, m, d, width = sizes
    dtype = options.get("dtype", "float16")
    q, g = leaf(batch, heads, n, d, dtype=dtype), leaf(batch, heads, n, width, dtype=dtype)
    k, v = leaf(batch, own, m, d, dtype=dtype), leaf(batch, own, m, width, dtype=dtype)
    mask = {"bool": lambda: leaf(batch, 1, n, m) > 0, "added": lambda: leaf(n, m)}.get(kind, lambda: None)()
    result, gradients = attended(q, k, v, g, mask, causal=kind == "causal")
    every = [result, *gradients] if options.get("results", True) else gradients
    leaves: dict[int, int] = {}
    graph = [(x.expr, tuple([leaves.setdefault(id(y), len(leaves)) for y in x.leaves])) for x in every]
    return schedule(uops(graph), limits=limits_on(target_of(arch)), verify=True)


def attended(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, mask: Tensor | None, *, causal: bool
) -> tuple[Tensor, list[Tensor]]:
    for x in (q, k, v):
        x.requires_grad_()
    grouped = q.shape[1] != k.shape[1]
    result = q.scaled_dot_product_attention(k, v, mask, is_causal=causal, enable_gqa=grouped)
    (result * g).sum().backward()
    return result, [cast("Tensor", x.grad) for x in (q, k, v)]


COUNTS: list[tuple[tuple[int, ...], str, int]] = [
    ((1, 2, 2, 64, 80, 64, 64), "none", 4),
    ((2, 2, 2, 33, 37, 64, 64), "causal", 4),
    ((2, 4, 4, 33, 37, 32, 32), "bool", 4),
    ((1, 1, 1, 17, 67, 128, 128), "added", 4),
    ((2, 4, 2, 33, 37, 64, 64), "causal", 6),  # two kernels add the gradients of the heads of a group
    ((1, 2, 2, 64, 64, 320, 320), "none", 10),  # heads too long for a plan
]


@pytest.mark.parametrize("results", [True, False])
@pytest.mark.parametrize("case", range(len(COUNTS)))
def test_gradients_of_attention_are_three_kernels(case, results) -> None:
    sizes, kind, wanted = COUNTS[case]
    items = scheduled("sm_80", sizes, kind, results=results)
    assert len(items) == wanted - (wanted == 10 and not results)


@pytest.mark.parametrize("of", [0, 1])
def test_one_gradient_alone_is_three_kernels(of) -> None:
    q, k, v, g = (leaf(1, 2, n, 64) for n in (40, 48, 48, 40))
    _, gradients = attended(q, k, v, g, None, causal=True)
    assert [len(item.stores) for item in online_scheduled(gradients[of])] == [3, 1, 1]


def test_gradients_that_are_added_to_each_other_are_not_read_where_they_are_stored() -> None:
    for first, second in ((1, 2), (2, 1), (0, 1)):
        parts = [leaf(1, 2, 40, 64) for _ in range(3)]
        _, gradients = attended(*parts, leaf(1, 2, 40, 64), None, causal=False)
        items = online_scheduled(gradients[first] + gradients[second])
        assert len(items) == 4
        stored: set[Any] = set()
        for item in items:
            own = {item.bufs[slot] for slot in item.stores}
            loads = {item.bufs[n.src[0].arg] for n in ordered(item.ast) if n.op is Ops.LOAD}
            assert own.isdisjoint(loads)
            assert {ref for ref in loads if isinstance(ref, TempRef)} <= stored
            stored |= own


@pytest.mark.parametrize("arch", DEVICES)
def test_no_kernel_of_gradients_stores_a_matrix_of_weights(arch) -> None:
    items = scheduled(arch, (2, 8, 8, 512, 768, 64, 64), dtype="bfloat16")
    assert len(items) == 4
    assert max([ref.nbytes for item in items for ref in item.bufs]) <= 2 * 8 * 768 * 64 * 2


def check(arch: str, sizes: tuple[int, ...], kind: str, dtype: str) -> None:
    """Compare attention and its gradients with float64: at most one ulp of the largest value beyond 1."""
    batch, heads, own, n, m, d, width = sizes
    rng, device = np.random.default_rng(sum(sizes)), DEVICES[arch]
    device += "+checked" if ":" in device else ":checked"
    shapes = ((batch, heads, n, d), (batch, own, m, d), (batch, own, m, width), (batch, heads, n, width))
    q, k, v, g = (
        Tensor(rng.standard_normal(s, dtype=np.float32), device=device).cast(dtype).realize() for s in shapes
    )
    mask = drawn_mask(rng, kind, (batch, n, m))
    rounded = [x.cast("float32").numpy() for x in (q, k, v, g)]
    given = None if mask is None else Tensor(mask, device=device)
    given = given if given is None or kind == "bool" else given.cast(dtype).realize()
    result, gradients = attended(q, k, v, g, given, causal=kind == "causal")
    shown = mask if given is None or kind == "bool" else given.cast("float32").numpy()
    wanted = (
        exact(*rounded[:3], shown, kind == "causal"),
        *exact_gradients(*rounded, mask=shown, causal=kind == "causal"),
    )
    Tensor.realize(result, *gradients)
    for name, x, y in zip(("result", "dq", "dk", "dv"), (result, *gradients), wanted, strict=True):
        difference = np.abs(x.cast("float32").numpy() - y).max()
        assert difference <= ULP[dtype] * (1 + np.abs(y).max()), (name, sizes, kind, difference)


def exact_gradients(q, k, v, g, *, mask, causal) -> tuple[np.ndarray, ...]:
    """Return the gradients for queries, keys and values in float64; masks are those of `exact`."""
    group, own, scale = q.shape[1] // k.shape[1], k.shape, 1 / math.sqrt(q.shape[-1])
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    k, v = (x.repeat(group, 1) for x in (k, v))
    eye = np.broadcast_to(np.eye(k.shape[2]), (*k.shape[:2], k.shape[2], k.shape[2]))
    weights = exact(q, k, eye, mask, causal)
    of_weights = g @ v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
    gradients = of_scores @ k, of_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g
    shared = [x.reshape(own[0], own[1], group, *x.shape[2:]).sum(2) for x in gradients[1:]]
    return gradients[0], *shared


CASES = [
    ((1, 2, 2, 40, 70, 64, 64), "none", "float16"),
    ((2, 1, 1, 37, 130, 64, 32), "causal", "bfloat16"),
    ((2, 4, 2, 33, 37, 32, 64), "bool", "float16"),
    ((1, 2, 2, 17, 67, 64, 64), "added", "float16"),
    ((1, 3, 1, 5, 33, 64, 64), "none", "bfloat16"),
    ((1, 1, 1, 2, 3, 16, 8), "none", "float16"),
    ((1, 1, 1, 130, 20, 40, 48), "causal", "float16"),
]


@pytest.mark.sampled(200)
@pytest.mark.parametrize(("arch", "case"), list(product(DEVICES, range(len(CASES)))))
def test_gradients_are_those_of_float64(arch, case) -> None:
    check(arch, *CASES[case])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": functional.cross_entropy,
    "weighted": lambda x, y: functional.cross_entropy(x, y, x[0].detach().exp()),
    "smooth": lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1),
    "scaled": lambda x, y: (x.softmax(1) / x.softmax(1).square().sum()).gather(1, y[:, None]).sum(),
}


@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_of_classifiers_are_those_of_the_host(loss: str, device: str) -> None:
    """A softmax between products whose gradient has a sum of all rows, such as that of the weights."""
    rng = np.random.default_rng(5)
    made = [rng.standard_normal(shape, dtype=np.float32) for shape in ((9, 5), (5, 7), (7, 4))]

    def slopes(device: str) -> list[Any]:
        x, *weights = [Tensor(a, device=device, requires_grad=True) for a in made]
        LOSSES[loss](
            (x @ weights[0]).relu() @ weights[1], Tensor([3, 1, 2, 0] * 2 + [1], device=device)
        ).backward()
        return [w.grad.numpy() for w in (x, *weights)]

    for found, wanted in zip(slopes(device), slopes("cpu"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("device", "function"),
    [("amd-emu", "sin"), ("amd-emu:gfx942", "lgamma"), ("amd-emu:gfx942", "erfinv"), ("nv-emu", "sin")],
)
def test_factors_computed_of_their_places(device: str, function: str) -> None:
    """Vectors of lanes take a branch, a table, and more of the stack than a thread of the host has."""
    other = np.random.default_rng(5).standard_normal((32, 16), dtype=np.float32)

    def result(device: str) -> Any:
        place = (Tensor.arange(32, device=device) % 50 + 1)[:, None] * (Tensor.arange(16, device=device) + 1)
        return (getattr(place / 700, function)().T @ Tensor(other, device=device)).numpy()

    np.testing.assert_allclose(result(device), result("cpu"), rtol=1e-4, atol=1e-5)


SIZES = list(product((1, 2), ((1, 1), (2, 1), (3, 3)), (1, 7, 64), (1, 7, 64), (16, 40)))
random.Random(1).shuffle(SIZES)  # each architecture gets a quarter of them, of all kinds
SMALL = ("sm_80", "gfx942", "gfx1100", "gfx1201")


@pytest.mark.landing
@pytest.mark.parametrize("arch", SMALL)
@pytest.mark.parametrize("part", range(9))
def test_gradients_of_every_small_size(arch, part) -> None:
    for k, (b, heads, n, m, d) in enumerate(SIZES[len(SMALL) * part + SMALL.index(arch) :: 9 * len(SMALL)]):
        check(arch, (b, *heads, n, m, d, d), ("none", "causal", "bool", "added")[(k + part) % 4], "float16")


def load(name: str, *index: tuple[UOp, int]) -> UOp:
    at = symbolic.dot([r for r, _ in index], [c for _, c in index])
    return uop(Ops.LOAD, F32, (uop(Ops.BUFFER, F32, (), name), at))


def store(name: str, at: UOp, value: UOp) -> UOp:
    return uop(Ops.STORE, dtypes.void, (uop(Ops.BUFFER, F32, (), name), at, value))


def total(x: UOp, y: UOp, r: UOp) -> UOp:
    return uop(Ops.REDUCE, F32, (uop(Ops.MUL, F32, (x, y)),), ("ADD", (r.arg[0],)))


@pytest.mark.parametrize("wrong", ["", "row", "column", "depth", "mask", "result"])
def test_a_kernel_that_reads_other_elements_is_refused(wrong) -> None:
    i, c, k, d, r, s = (symbolic.loop(n, size) for n, size in enumerate((6, 6, 6, 6, 6, 6)))
    scores = store(
        "s", symbolic.dot((r, s), (6, 1)), total(load("q", (r, 6), (d, 1)), load("k", (s, 6), (d, 1)), d)
    )
    at = symbolic.dot((i, c), (6, 1))
    value = load("v", (k, 6), (c, 1))
    old = store("o", at, total(load("s", (i, 6), (k, 1)), value, k))
    row, column = (c if wrong == "row" else i), (c if wrong == "column" else k)
    inner = total(load("q", (row, 6), (d, 1)), load("k", (column, 6), (d, 2 if wrong == "depth" else 1)), d)
    if wrong == "mask":
        low = uop(Ops.IVALUE, dtypes.bool, (symbolic.lt(symbolic.add(k, symbolic.mul(i, -1)), 1),))
        inner = uop(Ops.WHERE, F32, (low, inner, uop(Ops.CONST, F32, (), 0.0)))
    new = store("p" if wrong == "result" else "o", at, total(inner, value, k))
    if wrong:
        with pytest.raises(CompileError, match="the merged kernel is wrong"):
            verify_recomputed(old, new, k, {"s": scores}, set())
    else:
        verify_recomputed(old, new, k, {"s": scores}, set())
