"""Histories of detached tensors that are written: values and gradients as PyTorch 2.14 has them.

Where PyTorch raises an error because a value that its gradient needs was overwritten, the old value counts
here. Not here: writes to tensors that are not detached (`test_gradients_in_place`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frontend import Tensor, nn
from frontend.autograd.engine import gradients_or_none

NONE: Any = [0.0, 0.0]
PROGRAMS: dict[str, tuple[list[float], Any, Any]] = {
    "y = w.detach(); y += v": ([7.0, 10.0], NONE, [1.0, 1.0]),
    "y = w.detach(); y += w; w.mul_(2)": ([8.0, 12.0], [1.0, 1.0], NONE),
    "y = w.detach(); y *= w; w.mul_(2)": ([8.0, 18.0], [2.0, 3.0], NONE),
    "y = w.detach(); y += w; w.mul_(2); w.mul_(2)": ([16.0, 24.0], [1.0, 1.0], NONE),
    "y = w.detach(); y += w; w.assign(w * 2)": ([8.0, 12.0], [1.0, 1.0], NONE),
    "y = w.detach(); y += w; w[0] = 9.0": ([9.0, 6.0], [1.0, 1.0], NONE),
    "d = w.detach(); y = d[:]; d += v": ([7.0, 10.0], NONE, [1.0, 1.0]),
    "d = w.detach(); d += v; y = d[:]; w.mul_(2)": ([14.0, 20.0], NONE, [1.0, 1.0]),
    "y = w.detach(); e = y[0]; e += v[1]": ([9.0, 3.0], NONE, [0.0, 1.0]),
    "y = w.detach(); e = y[0]; e += v[1]; f = y[1:]; f *= v[0]": ([9.0, 15.0], NONE, [3.0, 1.0]),
    "y = w.detach(); y += v; y.zero_()": ([0.0, 0.0], NONE, NONE),
    "y = w.detach(); d = w.detach(); d += v": ([7.0, 10.0], NONE, NONE),
    "y = w.detach(); d = y.detach(); y += v; d += v * 2": ([17.0, 24.0], NONE, [1.0, 1.0]),
    "d = w.detach(); y = d.detach(); d += v; y += v * 2": ([17.0, 24.0], NONE, [2.0, 2.0]),
    "x = w * 3; y = x.detach(); y += w; x += 1": ([9.0, 13.0], [1.0, 1.0], NONE),
    "x = w * 3; d = x.detach(); d += v; x *= w; y = x": ([22.0, 48.0], [17.0, 25.0], NONE),
    "x = T([1.0, 2.0]); y = x.detach(); y += v; x += 1": ([7.0, 10.0], NONE, [1.0, 1.0]),
    "d = w.detach(); e = d[:1]; y = d[:]; del d; e += v[0]; w.mul_(2)": ([14.0, 6.0], NONE, [1.0, 0.0]),
    "d = w.detach(); d += v; e = d[:1]; y = d[:]; del d; e *= 2": ([14.0, 10.0], NONE, [2.0, 1.0]),
    "x = T([1.0, 2.0]); d = x.detach(); e = d[1:]; y = d[:]; del d, x; e *= v[1]": (
        [1.0, 14.0],
        NONE,
        [0.0, 2.0],
    ),
}
"""Programs over w = [2, 3] and v = [5, 7], with requires_grad: y, and the gradients of its sum for w and v.

Writes to w are inside `no_grad`; in PyTorch they are the writes of an optimiser.
"""


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("text", PROGRAMS)
def test_a_detached_tensor_has_the_history_of_what_is_written_to_it(text: str, *, computed: bool):
    w, v = (Tensor(x, requires_grad=True) for x in ([2.0, 3.0], [5.0, 7.0]))
    space = {"w": w, "v": v, "T": Tensor}
    for line in text.split("; "):
        if line.startswith(("w.", "w[")):
            with Tensor.no_grad():
                exec(line, space)
        else:
            exec(line, space)
    y: Any = space["y"]
    value, *want = PROGRAMS[text]
    if computed:
        assert y.tolist() == value
    found = gradients_or_none(y.sum(), [w, v])
    assert [[0.0, 0.0] if g is None else g.tolist() for g in found] == want
    assert y.tolist() == value
    del space["y"]


def test_writes_do_not_lengthen_the_history_of_a_detached_tensor():
    w = Tensor([2.0, 3.0], requires_grad=True)
    d, h = w.detach(), w * 3
    d += w
    sizes = []
    for _ in range(4):
        with Tensor.no_grad():
            w.mul_(2).realize()
            h.mul_(2)
            h += 1
        sizes.append((len(d.leaves), d.expr.op, d.expr.src[-1]))
    assert len(set(sizes)) == 1
    (g,) = (d.sum() + h.sum()).gradient(w)
    assert g.tolist() == [4.0, 4.0]
    assert (d.tolist(), h.tolist()) == ([64.0, 96.0], [111.0, 159.0])


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("pick", [lambda x: x, lambda x: x * 2, lambda x: x[1:]], ids=["leaf", "sum", "view"])
@pytest.mark.parametrize(
    "make",
    [
        lambda b: b.detach(),
        lambda b: b.clone().detach(),
        lambda b: b.detach() * 2,
        lambda b: nn.Parameter(b.detach()),
    ],
    ids=["detach", "clone", "product", "parameter"],
)
def test_leaves_of_one_detached_value_have_gradients_of_their_own(make: Any, pick: Any, *, read: bool):
    """Nodes of equal structure are one: the gradient of the first leaf also went to the second."""
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    source = pick(x)
    if read:
        source.sum().item()
    first, second = (make(source).requires_grad_() for _ in range(2))
    (first * 3).sum().backward()
    assert first.grad is not None
    assert first.grad.tolist() == [3.0] * first.numel()
    assert second.grad is None
    assert x.grad is None
    (source * first + second * second).sum().backward()
    np.testing.assert_allclose(first.grad.numpy(), 3 + source.detach().numpy())
    np.testing.assert_allclose(second.grad.numpy(), 2 * second.detach().numpy())
    np.testing.assert_allclose(first.detach().numpy(), second.detach().numpy())
