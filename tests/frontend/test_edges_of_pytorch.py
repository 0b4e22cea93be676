"""Values at edges that PyTorch's own tests of `torch` and `torch.nn` name, as PyTorch 2.13 gives them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import frontend as torch
from frontend.nn import functional as F  # noqa: N812 - PyTorch's name
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

INF = math.inf


def _seeded(dtype: Any) -> list[float]:
    x = torch.ones(3, requires_grad=True)
    (x.to(dtype) * 2).backward(torch.ones(3))
    assert x.grad is not None
    return x.grad.tolist()


def _losses(frames: list[int], targets: list[int]) -> list[float]:
    x = torch.randn(2, 2, 5).log_softmax(2)
    return F.ctc_loss(
        x, torch.ones(2, 2, dtype=torch.int), torch.tensor(frames), torch.tensor(targets), reduction="none"
    ).tolist()


def _inverse(dtype: Any) -> bool:
    small = [1e-30, -1e-20, 1e-8, -0.0]
    found = torch.tensor(small, dtype=dtype).erfinv().tolist()
    wanted = [x * math.sqrt(math.pi) / 2 for x in small]
    near = all(abs(f - w) <= 1e-6 * abs(w) for f, w in zip(found, wanted, strict=True))
    return near and math.copysign(1, found[3]) == -1


EDGES: dict[str, tuple[Callable[[], Any], Any]] = {
    "slopes beside infinities": (
        lambda: next(s.tolist() for s in torch.gradient(torch.tensor([2, -2, INF, INF, 3.0]))),
        [-4.0, INF, INF, -INF, -INF],
    ),
    "float32 gradient of a bfloat16 result": (lambda: _seeded(torch.bfloat16), [2.0] * 3),
    "float64 gradient of a float16 result": (lambda: _seeded(torch.float16), [2.0] * 3),
    "drawn into out": (lambda: torch.bernoulli(torch.ones(3), out=torch.zeros(3)).tolist(), [1.0] * 3),
    "probabilities of another dtype": (
        lambda: torch.zeros(3, dtype=torch.uint8).bernoulli_(torch.tensor([1.0])).tolist(),
        [1, 1, 1],
    ),
    "a half without p": (
        lambda: 400 < torch.zeros(1000, dtype=torch.int).bernoulli_().sum().item() < 600,
        True,
    ),
    "no rows of no size": (lambda: torch.zeros(0, 3).split(0)[0].shape, (0, 3)),
    "mode of distances": (
        lambda: torch.cdist(torch.eye(2), torch.eye(2), compute_mode="use_mm_for_euclid_dist").shape,
        (2, 2),
    ),
    "layout by name": (lambda: torch.ones(3).is_contiguous(memory_format=torch.contiguous_format), True),
    "small numbers of erfinv": (lambda: [_inverse(d) for d in (torch.float32, torch.float64)], [True, True]),
    "no frames, no labels": (lambda: _losses([0, 0], [0, 0]), [0.0, 0.0]),
    "no frames for labels": (lambda: _losses([0, 0], [1, 2]), [INF, INF]),
}


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_has_the_value_of_pytorch(name: str):
    compute, wanted = EDGES[name]
    assert compute() == wanted


def test_parts_of_no_size_of_an_axis_with_elements_are_refused():
    with pytest.raises(UsageError, match="positive size"):
        torch.zeros(2, 3).split(0)
