"""Writes in place: values and gradients as PyTorch 2.13 has them (`data/in_place.json`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import frontend
from frontend import Tensor, TinyJit, tensor
from hcq.errors import UsageError
from tests.oracles.in_place import answer
from tests.oracles.recording import recorded

WANT = recorded("in_place.json")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_values_and_gradients_are_those_of_pytorch(part: int):
    for text in list(WANT)[part::4]:
        want = WANT[text]
        if "error" in want:
            with pytest.raises(UsageError):
                answer(text, tensor)
            continue
        found = answer(text, tensor)
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-6, err_msg=text)
        for name, g in want["gradients"].items():  # a tensor whose value was overwritten has none here
            np.testing.assert_allclose(
                found["gradients"].get(name, np.zeros_like(g)), g, rtol=1e-5, err_msg=f"{text}: {name}"
            )


def test_a_leaf_is_changed_without_gradients_or_by_assign():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with Tensor.no_grad():
        x += 1
        x[0] = 5
    x.assign(x * 2)
    assert x.tolist() == [10.0, 6.0]
    x.square().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 12.0]
    x.requires_grad = False
    x.zero_()
    assert x.tolist() == [0.0, 0.0]


def test_values_that_were_used_before_keep_their_gradients():
    """PyTorch raises here: it has not kept the old values."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    (z + y).sum().backward()
    assert x.grad is not None
    assert (y.tolist(), x.grad.tolist()) == ([3.0, 5.0], [10.0, 18.0])


def _leaf() -> Tensor:
    return Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)


def _gradient_of(x: Tensor) -> Any:
    assert x.grad is not None
    return x.grad.tolist()


WRITES: dict[str, Any] = {
    "w.view(-1).mul_(2)": [[2.0, 4.0], [6.0, 8.0]],
    "w.T[0].add_(1)": [[2.0, 2.0], [4.0, 4.0]],
    "w.unsqueeze(0).neg_()": [[-1.0, -2.0], [-3.0, -4.0]],
    "w.diagonal().zero_()": [[0.0, 2.0], [3.0, 0.0]],
    "w.chunk(2)[1].fill_(9)": [[1.0, 2.0], [9.0, 9.0]],
    "w.flatten()[1:3].sub_(1)": [[1.0, 1.0], [2.0, 4.0]],
    "w.select(0, 1).narrow(0, 1, 1).zero_()": [[1.0, 2.0], [3.0, 0.0]],
}
"""Writes through views, and the values afterwards."""


@pytest.mark.parametrize("text", WRITES)
def test_views_of_parameters_are_written_inside_no_grad(text: str):
    w = _leaf()
    with Tensor.no_grad():
        exec(text, {"w": w})
    assert w.tolist() == WRITES[text]
    w.sum().backward()
    assert _gradient_of(w) == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    "write",
    [
        *("w.copy_(w * 2)", "w.copy_(w.flip(0))", "w.mul_(2)", "w.fill_(2)", "w.zero_()", "w.uniform_()"),
        *("w.add_(w, alpha=-0.5)", "w[0] = 5.0", "w[:] = w * 2", "w[0].neg_()", "w.detach().mul_(2)"),
        *("w.clamp_(2, 3)", "w.assign(w * 2)", "w.fill_(1).fill_(2)", "w.mul_(2).numpy(), w.mul_(2)"),
    ],
)
def test_what_was_computed_from_a_parameter_written_inside_no_grad_is_read_before_backward(write: str):
    w = _leaf()
    with Tensor.no_grad():
        exec(write, {"w": w})
    y = w * 3
    read = y.numpy()
    y.sum().backward()
    assert _gradient_of(w) == [[3.0, 3.0], [3.0, 3.0]]
    np.testing.assert_array_equal(read, 3 * w.numpy())


def test_a_value_read_between_two_writes_inside_no_grad_keeps_its_history():
    w = _leaf()
    with Tensor.no_grad():
        w.copy_(w * 2)
    y = w * 3
    y.numpy()
    with Tensor.no_grad():
        w.mul_(2)
    z = y * w
    z.numpy()
    z.sum().backward()  # 3 w + y
    assert _gradient_of(w) == [[18.0, 36.0], [54.0, 72.0]]


@pytest.mark.parametrize(
    ("view", "write", "want"),
    [
        ("w[0]", "v.mul_(2)", [[5.0, 9.0], [1.0, 1.0]]),
        ("w[0]", "w.mul_(2)", [[5.0, 9.0], [1.0, 1.0]]),
        ("w.view(-1)", "w.copy_(o.reshape(2, 2))", [[11.0, 13.0], [15.0, 17.0]]),
        ("w.view(-1)", "w.copy_(o.reshape(2, 2).contiguous().realize())", [[11.0, 13.0], [15.0, 17.0]]),
        ("w.T", "v.copy_(o.reshape(2, 2))", [[11.0, 15.0], [13.0, 17.0]]),
        ("w.T", "v.copy_(o.reshape(2, 2).T)", [[11.0, 13.0], [15.0, 17.0]]),
        ("w.detach().T", "w.mul_(2)", [[1.0, 1.0], [1.0, 1.0]]),
    ],
)
def test_gradients_reach_a_written_parameter_through_its_views(view: str, write: str, want: object):
    w, o = _leaf(), Tensor([5.0, 6.0, 7.0, 8.0])
    v = eval(view, {"w": w})
    with Tensor.no_grad():
        exec(write, {"w": w, "v": v, "o": o})
    ((v * v).sum() + w.sum()).backward()
    assert _gradient_of(w) == want


@pytest.mark.parametrize(
    ("write", "want"),
    [
        ("y.mul_(2)", [[37.0, 73.0], [109.0, 145.0]]),
        ("y[0] = 7.0", [[43.0, 43.0], [55.0, 73.0]]),
        ("y.T[0].zero_()", [[1.0, 37.0], [1.0, 73.0]]),
        ("v.fill_(1)", [[7.0, 7.0], [55.0, 73.0]]),
    ],
)
def test_a_write_inside_no_grad_keeps_the_history_of_a_result(write: str, want: object):
    """As PyTorch: the write is not recorded, so gradients flow as if it were the identity."""
    x = _leaf()
    y = x * 3
    v = y[0]
    with Tensor.no_grad():
        exec(write, {"y": y, "v": v})
    ((y * y).sum() + x.sum()).backward()
    assert _gradient_of(x) == want


def test_no_gradient_flows_through_a_view_taken_inside_no_grad():
    w = _leaf()
    with Tensor.no_grad():
        v = w[0]
        w.mul_(2)
    ((v * v).sum() + w.sum()).backward()
    assert v.tolist() == [2.0, 4.0]
    assert _gradient_of(w) == [[1.0, 1.0], [1.0, 1.0]]


def test_a_result_keeps_its_gradient_where_the_next_operation_undoes_it():
    x = _leaf()
    flat, turned = x.view(-1), -x
    flat.retain_grad()
    turned.retain_grad()
    (flat.view(2, 2).square().sum() + flat.sum() + (-turned).square().sum() + turned.sum()).backward()
    assert _gradient_of(flat) == [3.0, 5.0, 7.0, 9.0]
    assert _gradient_of(turned) == [[-1.0, -3.0], [-5.0, -7.0]]
    assert _gradient_of(x) == [[4.0, 8.0], [12.0, 16.0]]


VALUES: dict[str, Any] = {
    "a.zero_(); b.zero_()": ([2.0, 2.0], [5.0, 5.0]),
    "a.fill_(5); b.fill_(5)": ([2.0, 2.0], [5.0, 5.0]),
    "a.copy_(c); b.copy_(c)": ([2.0, 2.0], [5.0, 5.0]),
    "a.copy_(c * 2); b.copy_(c * 2)": ([2.0, 2.0], [5.0, 5.0]),
    "mean = (a + b) / 2; a.copy_(mean); b.copy_(mean)": ([2.0, 2.0], [5.0, 5.0]),
    "a.assign(0.0); b.assign(0.0)": ([2.0, 2.0], [5.0, 5.0]),
    "a.view(2, 1).fill_(2); b.fill_(2)": ([2.0, 2.0], [5.0, 5.0]),
}
"""Writes that give two parameters one value, and the gradients of a * 2 + b * 5."""


@pytest.mark.parametrize("text", VALUES)
def test_parameters_that_are_given_one_value_keep_gradients_of_their_own(text: str):
    a, b = (Tensor([1.0, n], requires_grad=True) for n in (2.0, 3.0))
    with Tensor.no_grad():
        exec(text, {"a": a, "b": b, "c": Tensor([7.0, 8.0])})
    (a * 2.0 + b * 5.0 + Tensor.full((2,), 5.0) * 3.0 + Tensor.zeros(2)).sum().backward()
    assert (_gradient_of(a), _gradient_of(b)) == VALUES[text]


def test_a_parameter_has_the_gradients_of_what_was_computed_before_a_write():
    """As PyTorch, where the old value is not needed for another gradient."""
    a, c = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0])
    first = (a * c).sum()
    with Tensor.no_grad():
        a.mul_(5)
    second = (a * c).sum()
    with Tensor.no_grad():
        a.view(2, 1).add_(1)
    (first + second + a.sum()).backward()
    assert (a.tolist(), _gradient_of(a)) == ([6.0, 11.0], [7.0, 9.0])


@pytest.mark.parametrize(
    "read", ["a.tolist()", "a.realize()", "loss.item()", "a.tolist(); loss.item()", "None"]
)
def test_reading_a_written_parameter_keeps_its_gradient(read: str):
    a, b = (Tensor([1.0, n], requires_grad=True) for n in (2.0, 3.0))
    early = (a * Tensor([1.0, 2.0])).sum()
    with Tensor.no_grad():
        a.mul_(3)
    loss = early + (a * Tensor([3.0, 4.0])).sum() + b.sum()
    exec(read, {"a": a, "loss": loss})
    loss.backward()
    assert (a.tolist(), _gradient_of(a), _gradient_of(b)) == ([3.0, 6.0], [4.0, 6.0], [1.0, 1.0])


def test_a_gradient_with_respect_to_a_target_includes_its_earlier_values():
    a = Tensor([1.0, 2.0], requires_grad=True)
    early = (a * a).sum()
    a.assign(a * 10.0)
    (found,) = (early + (a * a).sum()).gradient(a)
    assert found.tolist() == [22.0, 44.0]


_FLAT = "flat = T.zeros(5); a.grad = flat[:2]; b.grad = flat[2:].view(3, 1); loss().backward()"
_TWICE = "loss().backward(); loss().backward()"
SHARED = {
    f"{_FLAT}; show(flat, a.grad)": [[2, 2, 3, 3, 3], [2, 2]],
    f"{_FLAT}; flat.zero_(); show(a.grad); loss().backward(); show(flat)": [[0, 0], [2, 2, 3, 3, 3]],
    f"{_FLAT}; o.zero_grad(set_to_none=False); show(flat)": [[0, 0, 0, 0, 0]],
    f"{_FLAT}; T.nn.utils.clip_grad_value_([a, b], 0.5); show(flat)": [[0.5, 0.5, 0.5, 0.5, 0.5]],
    f"{_FLAT}; T.nn.utils.clip_grad_norm_([a, b], 0.0); show(flat)": [[0, 0, 0, 0, 0]],
    f"{_FLAT}; o.step(); flat.zero_(); loss().backward(); show(flat, a)": [[2, 2, 3, 3, 3], [-1, -1]],
    "loss().backward(); g = a.grad; loss().backward(); show(g); a.grad.zero_(); show(g)": [[4, 4], [0, 0]],
    "loss().backward(); g = a.grad.detach(); o.zero_grad(set_to_none=False); show(g)": [[0, 0]],
    "loss().backward(); g = a.grad; loss().backward(create_graph=True); show(g, a.grad)": [[2, 2], [4, 4]],
    f"l = []; a.register_hook(lambda g: l.append(g)); {_TWICE}; show(*l, a.grad)": [[2, 2], [2, 2], [4, 4]],
    f"k = T.ones(2); a.register_hook(lambda g: k); {_TWICE}; show(k, a.grad)": [[1, 1], [2, 2]],
    "old = a.detach(); a.data = a.data * 5; show(old, a); a.data.mul_(2); show(old, a)": [
        [1, 1], [5, 5], [1, 1], [10, 10],
    ],
    "old = a.detach(); a.data -= 3; show(old, a)": [[-2, -2], [-2, -2]],
    "v = a.view(2, 1); a.data = T.zeros(2); show(v, a)": [[[1], [1]], [0, 0]],
}  # fmt: skip
"""Program -> what it shows in PyTorch 2.13, which adds to gradients and clips them in place."""


@pytest.mark.parametrize("text", SHARED)
def test_tensors_that_share_elements_with_gradients_and_data_follow_as_in_pytorch(text: str):
    a, b = frontend.ones(2, requires_grad=True), frontend.ones(3, 1, requires_grad=True)
    shown: list[Any] = []
    names = {"T": frontend, "a": a, "b": b, "o": frontend.optim.SGD([a, b], lr=1.0)}
    names["show"] = lambda *tensors: shown.extend(t.tolist() for t in tensors)
    exec(text, names | {"loss": lambda: (a * 2).sum() + (b * 3).sum()})
    assert shown == SHARED[text]


@pytest.mark.parametrize("wrap", [TinyJit, frontend.compile])
def test_a_captured_function_adds_to_gradients_that_are_there(wrap: Any):
    w = Tensor([1.0, 2.0], requires_grad=True)

    def micro(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        loss.backward()
        return loss

    captured, total = wrap(micro), np.zeros(2)
    for n in range(6):
        captured(Tensor([1.0, n + 1.0]))
        total += [1.0, n + 1.0]
        assert w.grad is not None
        assert w.grad.tolist() == total.tolist()
        if n == 3:
            w.grad.zero_()
            total[:] = 0


def test_a_captured_update_that_fills_parameters_alike_keeps_their_gradients_apart():
    a, b = (Tensor([1.0, n], requires_grad=True) for n in (2.0, 3.0))

    @TinyJit
    def step(x: Tensor) -> list[Tensor]:
        with Tensor.no_grad():
            a.zero_()
            b.zero_()
        return (a * 2.0 * x + b * 5.0 + a * b).sum().gradient(a, b)

    for n in range(4):
        assert [g.tolist() for g in step(Tensor([1.0, n + 1.0]))] == [[2.0, 2.0 * n + 2.0], [5.0, 5.0]]
