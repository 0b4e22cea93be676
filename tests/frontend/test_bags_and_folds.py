"""EmbeddingBag, Fold and LBFGS: PyTorch 2.13's answers are written here."""

from __future__ import annotations

from typing import Any

import pytest

from frontend import Tensor, TinyJit, dtypes, nn
from hcq.errors import UnsupportedError, UsageError, UsageTypeError

TABLE = [[1.0, 2.0], [3.0, -4.0], [5.0, 6.0], [-7.0, 8.0]]
ROWS, STARTS = [0, 2, 2, 3, 1], [0, 2, 2]
BAGS: list[tuple[dict[str, Any], tuple[Any, ...], Any, Any]] = [
    # settings, arguments, result, gradient of the table with the weights 1 and 2
    ({}, (ROWS, STARTS), [[3, 4], [0, 0], [1 / 3, 10 / 3]],
     [[0.5, 1], [1 / 3, 2 / 3], [5 / 6, 5 / 3], [1 / 3, 2 / 3]]),
    ({"mode": "sum"}, ([[0, 2], [3, 3]],), [[6, 8], [-14, 16]], [[1, 2], [0, 0], [1, 2], [2, 4]]),
    ({"mode": "max"}, (ROWS, STARTS), [[5, 6], [0, 0], [5, 8]], [[0, 0], [0, 0], [2, 2], [0, 2]]),
    ({"padding_idx": 2}, (ROWS, STARTS), [[1, 2], [0, 0], [-2, 2]], [[1, 2], [0.5, 1], [0, 0], [0.5, 1]]),
    ({"mode": "sum", "include_last_offset": True}, (ROWS, [0, 2, 5]), [[6, 8], [1, 10]],
     [[1, 2], [1, 2], [2, 4], [1, 2]]),
    ({"mode": "sum"}, (ROWS, STARTS, [1.0, 0.5, 2.0, 3.0, 1.0]), [[3.5, 5], [0, 0], [-8, 32]],
     [[1, 2], [1, 2], [2.5, 5], [3, 6]]),
]  # fmt: skip


def test_bags_of_rows_are_those_of_pytorch():
    for settings, args, result, gradient in BAGS:
        layer = nn.EmbeddingBag(4, 2, **settings)
        layer.weight.assign(Tensor(TABLE))
        layer.requires_grad_()
        y = layer(*[Tensor(a) for a in args])
        (y * Tensor([1.0, 2.0])).sum().backward()
        assert y.tolist() == [pytest.approx(row) for row in result], settings
        assert layer.weight.grad is not None
        assert layer.weight.grad.tolist() == [pytest.approx(row) for row in gradient], settings
    assert repr(nn.EmbeddingBag(4, 2, padding_idx=1)) == "EmbeddingBag(4, 2, padding_idx=1, mode='mean')"


def test_what_is_no_bag_or_fold_is_refused():
    bag = nn.EmbeddingBag(4, 2)
    for args in (([0, 1],), ([[0, 1]], [0]), ([0, 1], [[0]]), ([[0, 1]], None, [[1.0, 1.0]])):
        with pytest.raises(UsageError):
            bag(*[a if a is None else Tensor(a) for a in args])
    with pytest.raises(UsageError, match="mode"):
        nn.EmbeddingBag(4, 2, mode="mode")
    with pytest.raises(UsageError, match="no window"):
        nn.Unfold(3)(Tensor.ones(1, 1, 2, 2))
    with pytest.raises(UsageError, match="channels \\* 4, 6"):
        nn.Fold((3, 4), 2)(Tensor.ones(1, 8, 5))


def test_lbfgs_goes_where_that_of_pytorch_does():
    start, target = [[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]], [[0.3, 0.1, -0.7], [0.2, 2.5, 1.0]]
    p, t = Tensor(start, dtype=dtypes.float64), Tensor(target, dtype=dtypes.float64)
    optimiser = nn.optim.LBFGS([p], lr=0.5, max_iter=4, history_size=3)

    def closure() -> Tensor:
        optimiser.zero_grad()
        return (((p - t) ** 4 * (t + 2)).sum() + (p * p).sum()).backward()

    losses = [optimiser.step(closure).item() for _ in range(3)]
    assert losses == pytest.approx([178.12018375, 26.486956474971322, 5.921904051554112], rel=1e-6)
    assert p.tolist()[1] == pytest.approx([0.061456721, 1.888287851, 0.521410652], rel=1e-5)
    with pytest.raises(UsageTypeError, match="function"):
        optimiser.step()
    with pytest.raises(UsageError, match="strong_wolfe"):
        nn.optim.LBFGS([p], line_search_fn="wolfe")
    with pytest.raises(UnsupportedError, match=r"step\(closure\)"):
        optimiser.schedule_step()
    step = TinyJit(lambda: optimiser.step(closure))
    step()
    with pytest.raises(UsageError, match="captured"):
        step()
