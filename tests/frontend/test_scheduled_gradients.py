"""What the kernels of losses and gradients keep in memory: no transposes, no one-hots, no windows.

A temporary buffer is compared with what the operation has to keep. Not here: the values
(`test_gradient_rules`, `test_gradients_of_pytorch`), fusion itself (`tests/compiler/test_schedule.py`). Next:
`compiler.schedule.fusion`.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.schedule.item import TempRef
from compiler.schedule.scheduler import limits_on, schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops

if TYPE_CHECKING:
    from compiler.schedule.scheduler import ScheduleItem

TARGETS = ["x86_64-v4", "sm_90a", "gfx1100"]


def zeros(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def scheduled(value: Tensor, arch: str) -> list[ScheduleItem]:
    """Return the kernels of a pending tensor on a target."""
    return schedule(uops([(value.expr, tuple(range(len(value.leaves))))]), limits=limits_on(target_of(arch)))


def kept(items: list[ScheduleItem]) -> list[int]:
    """Return the elements of each temporary buffer."""
    return [prod(ref.shape) for item in items for ref in item.writes if isinstance(ref, TempRef)]


def moves_alone(item: ScheduleItem) -> bool:
    """Return whether a kernel stores a value that it loads, and computes nothing: a copy or a transpose."""
    return all(store.src[2].op is Ops.LOAD for part in parts(item) for store in part.src)


def parts(item: ScheduleItem) -> list:  # type: ignore[type-arg]  # nodes
    return [item.ast] if item.ast.src[0].op is Ops.STORE else list(item.ast.src)


@pytest.mark.parametrize("arch", TARGETS)
def test_cross_entropy_and_its_gradient_have_no_one_hot(arch: str) -> None:
    rows, classes = 512, 1000
    x, y = zeros(rows, classes), zeros(rows, dtype="int32")
    loss = x.sparse_categorical_crossentropy(y)
    assert max(kept(scheduled(loss, arch))) <= rows
    items = scheduled(loss.gradient(x)[0], arch)
    large = [n for n in kept(items) if n > rows]
    assert large in ([], [rows * classes]), "at most the exponentials"
    names = [node.dtype.name for item in items for node in postorder((item.ast,)) if node.op is Ops.STORE]
    assert "bool" not in names
    assert not any(moves_alone(item) for item in items)


@pytest.mark.parametrize("arch", TARGETS)
def test_the_gradient_of_an_embedding_keeps_no_more_than_the_rows_it_adds(arch: str) -> None:
    table, places = zeros(4096, 256), zeros(8, 128, dtype="int32")
    (gradient,) = (table[places] * zeros(8, 128, 256)).sum().gradient(table)
    items = scheduled(gradient, arch)
    assert max(kept(items)) == 8 * 128 * 256
    assert len(items) <= 10 if arch != "x86_64-v4" else len(items) == 9


def test_attention_on_the_host_keeps_no_matrix_of_weights() -> None:
    heads, length, width = 4, 128, 32
    q, k, v = (zeros(2, heads, length, width) for _ in range(3))
    (item,) = scheduled(q.scaled_dot_product_attention(k, v, is_causal=True), "x86_64-v4")
    assert not kept([item])


@pytest.mark.parametrize("arch", TARGETS)
def test_gradients_of_attention_transpose_nothing(arch: str) -> None:
    heads, length, width = 4, 128, 32
    q, k, v = (zeros(2, heads, length, width) for _ in range(3))
    out = q.scaled_dot_product_attention(k, v) * zeros(2, heads, length, width)
    for gradient in out.sum().gradient(q, k, v):
        items = scheduled(gradient, arch)
        assert not any(moves_alone(item) for item in items)
        assert max(kept(items)) == 2 * heads * length * length


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize(("stride", "groups"), [(1, 1), (2, 1), (1, 4)])
def test_gradients_of_a_convolution_keep_no_windows(arch: str, stride: int, groups: int) -> None:
    x, w = zeros(4, 16, 20, 20), zeros(32, 16 // groups, 3, 3)
    out = x.conv2d(w, stride=stride, padding=1, groups=groups)
    g = zeros(*out.shape)
    for gradient, least in zip((out * g).sum().gradient(x, w), (prod(x.shape), prod(w.shape)), strict=True):
        items = scheduled(gradient, arch)
        assert not any(moves_alone(item) for item in items)
        assert sum(kept(items)) <= 3 * max(least, prod(x.shape)), "as many elements as a few pictures"


def test_a_pool_stores_the_places_of_its_maxima_for_its_gradient() -> None:
    x, g = zeros(4, 8, 20, 20), zeros(4, 8, 10, 10)
    (gradient,) = (x.max_pool2d(2) * g).sum().gradient(x)
    first, second = scheduled(gradient, "x86_64-v4")
    assert kept([first]) == [4 * 8 * 10 * 10]
    assert [ref.dtype.name for ref in first.writes] == ["int32"]
    assert prod(x.shape) not in [prod(ref.shape) for ref in second.bufs if ref not in second.writes]


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([[1, 5, 5], [2, 5, 0]], [[0, 1, 0], [0, 0, 0]]),
        ([[1, np.nan, 5], [np.nan, 5, 0]], [[0, 0, 0], [1, 0, 0]]),
        ([[np.nan, np.nan, np.nan], [1, 2, 3]], [[0, 0, 1], [0, 0, 0]]),
        ([[1, 2, 3], [4, 5, np.nan]], [[0, 0, 0], [0, 0, 1]]),
    ],
)
def test_a_pool_sends_its_gradient_to_the_first_greatest_or_the_last_nan(
    rows: list[list[float]], wanted: list[list[int]]
) -> None:
    x = Tensor(np.array(rows, np.float32)[None, None]).realize()
    (gradient,) = x.max_pool2d((2, 3)).sum().gradient(x)
    assert gradient.numpy()[0, 0].tolist() == wanted


def test_windows_that_padding_fills_in_part_send_their_gradient_inside() -> None:
    x = Tensor(np.full((1, 1, 2, 2), -np.inf, np.float32)).realize()
    (gradient,) = x.max_pool2d((2, 2), stride=2, padding=1).sum().gradient(x)
    assert gradient.numpy()[0, 0].tolist() == [[1, 1], [1, 1]]
