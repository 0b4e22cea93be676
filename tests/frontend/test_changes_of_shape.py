"""Methods that change the shape of their tensor, reading by strides, and Python functions of elements.

Their values are compared with PyTorch's by `test_answers_of_pytorch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit
from hcq.errors import UsageError, UsageIndexError


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,), (2, 3), (1, 3), (3, 1), (0, 3), (2, 0)])
def test_a_tensor_of_another_shape_can_be_written(shape: tuple[int, ...]):
    array = np.arange(1.0, 1 + np.prod(shape)).reshape(shape).astype("float32")
    x = Tensor(array)
    assert x.t_() is x
    assert x.shape == array.T.shape
    x += 1
    x.unsqueeze_(0)
    x.mul_(2)
    np.testing.assert_array_equal(x.numpy(), (array.T + 1)[None] * 2)
    x.squeeze_().resize_(2)
    flat = ((array.T + 1) * 2).reshape(-1)
    np.testing.assert_array_equal(x.numpy(), [*flat, 0.0, 0.0][:2])


def test_a_shape_changes_with_the_history_and_without_other_views():
    w = Tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    y = w * 2
    y.t_()
    (y * Tensor([[1.0], [10.0], [100.0]])).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[2.0, 20.0, 200.0]]
    x = Tensor([[1.0, 2.0]])
    row = x[0]
    for t in (w, x, row):
        with pytest.raises(UsageError, match="in place"):
            t.unsqueeze_(0)
    assert Tensor([[1.0, 2.0]]).transpose_(0, 1).tolist() == [[1.0], [2.0]]
    turned = TinyJit(lambda t: (t * 2).t_())
    with pytest.raises(UsageError, match="captured"):
        [turned(Tensor([[float(k)]]).realize()) for k in range(3)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x.as_strided((2,), (4,), 2), UsageIndexError),
        (lambda x: x.as_strided((2,), (1, 1)), UsageError),
        (lambda x: x.as_strided((1,), (1,), -1), UsageError),
        (lambda x: x.as_strided((1,), (-1,)), UsageError),
        (lambda x: x[1].as_strided((2,), (1,)), UsageError),
        (lambda x: x.as_strided_scatter(Tensor([1.0]), (2,), (1,)), UsageError),
        (lambda x: x.stride(2), UsageIndexError),
        (lambda x: x.apply_(3), UsageError),
        (lambda x: (x.requires_grad_() * 2).resize_(2), UsageError),
        (lambda x: x.requires_grad_().detach().lu_solve(x, x[0]), UsageError),
        (lambda x: (x.requires_grad_() * 2).apply_(abs), UsageError),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type[Exception]):
    with pytest.raises(error):
        call(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def test_a_hook_after_the_gradient_may_take_the_step():
    w, seen = Tensor([1.0, 2.0], requires_grad=True), []
    handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    (w * 2).sum().backward()
    (w * 3).sum().backward()
    handle.remove()
    (w * 3).sum().backward()
    assert seen == [[2.0, 2.0], [5.0, 5.0]]
    with pytest.raises(UsageError, match="leaf"):
        (w * 2).register_post_accumulate_grad_hook(print)
