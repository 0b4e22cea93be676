"""`item`, `numpy`, ... before `backward`: reading a value keeps the gradient, as in PyTorch."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor, nn, optim
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS: dict[str, Callable[[Tensor], Any]] = {
    "item": Tensor.item,
    "numpy": Tensor.numpy,
    "tolist": Tensor.tolist,
    "tobytes": Tensor.tobytes,
    "float": float,
}


def leaf(*numbers: float) -> Tensor:
    return Tensor(list(numbers), requires_grad=True)


def grad(t: Tensor) -> Any:
    return None if t.grad is None else t.grad.tolist()


@pytest.mark.parametrize("look", LOOKS)
def test_a_value_may_be_read_before_backward(look: str) -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    LOOKS[look](loss)
    loss.backward()
    assert grad(x) == [2.0, 4.0]


def test_reading_a_value_twice_keeps_the_gradient() -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    assert loss.item() == loss.item() == 5.0
    loss.backward()
    assert loss.item() == 5.0
    assert grad(x) == [2.0, 4.0]


@pytest.mark.parametrize("late", [False, True])
def test_gradients_flow_through_an_intermediate_tensor_that_was_read(late: bool) -> None:  # noqa: FBT001 - a case
    x = leaf(1.0, 2.0)
    h = x * 3
    if not late:
        h.numpy()
    loss = (h * h + x).sum()
    h.numpy()
    loss.item()
    loss.backward()
    assert grad(x) == [19.0, 37.0]


def test_gradient_is_the_same_before_and_after_reading_a_value() -> None:
    x = leaf(1.0, 2.0)
    loss = (x.exp() * x).sum()
    before = loss.gradient(x)[0].tolist()
    loss.item()
    assert loss.gradient(x)[0].tolist() == before
    assert loss.gradient(x)[0].square().sum().gradient(x)[0].shape == (2,)


def test_reading_a_same_dtype_cast_or_a_copy_keeps_the_graph() -> None:
    for same in (lambda y: y.cast(y.dtype), lambda y: y.to(y.device), lambda y: y.contiguous()):
        x = leaf(1.0, 2.0)
        y = (x * x).sum()
        same(y).numpy()
        y.backward()
        assert grad(x) == [2.0, 4.0]


def test_a_tensor_detached_before_a_read_stays_constant() -> None:
    x = leaf(1.0, 2.0)
    h = x * 3
    h.numpy()
    y = (h.detach() * x).sum()
    y.item()
    y.backward()
    assert grad(x) == [3.0, 6.0]


def test_realize_ends_the_history() -> None:
    x = leaf(1.0, 2.0)
    loss = (x * x).sum().realize()
    with pytest.raises(UsageError, match="is realized"):
        loss.backward()


def test_in_place_work_on_a_computed_tensor_keeps_its_gradient() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    y *= x
    y.numpy()
    y.sum().backward()
    assert grad(x) == [4.0, 8.0]


def test_a_second_backward_after_a_read_is_refused() -> None:
    x = leaf(1.0, 2.0)
    for looks in (("before",), ("after",), ("before", "after")):
        loss = (x * x).sum()
        if "before" in looks:
            loss.item()
        loss.backward()
        if "after" in looks:
            loss.item()
        with pytest.raises(UsageError, match="backward has run"):
            loss.backward()
        with pytest.raises(UsageError, match="backward has run"):
            (loss * 2 + x.sum()).backward()
        (loss.detach() * 2 + x.sum()).backward()


def train(look: bool) -> tuple[list[float], Any]:  # noqa: FBT001 - a case
    """Return losses and weights of some steps."""
    w = leaf(1.0, -1.0)
    opt = nn.optim.SGD([w], lr=0.1)
    seen: list[float] = []
    kept: list[Tensor] = []
    for step in range(4):
        opt.zero_grad()
        loss = ((w * Tensor([1.0 + step, 2.0])).sum() - 1).square()
        if look:
            seen.append(loss.item())
        loss.backward()
        opt.step()
        kept.append(loss)
    return seen or [t.item() for t in kept], w.tolist()


def test_reading_the_loss_first_does_not_change_training_steps() -> None:
    assert train(look=True) == train(look=False)


def past(t: Tensor) -> Any:
    return t.leaves[0].origin


def test_backward_releases_its_intermediates() -> None:
    x = leaf(1.0, 2.0)
    batch = Tensor([3.0, 4.0])
    loss = (x * batch).sum()
    loss.item()
    memory = weakref.ref(batch.leaves[0])
    loss.backward()
    x.grad = None
    del batch
    gc.collect()
    assert memory() is None


def test_graphs_of_training_steps_are_not_chained() -> None:
    w = leaf(1.0, 2.0)
    total = Tensor([0.0, 0.0])
    leaves = []
    for step in range(4):
        total = total * 0.5 + w * (step + 1)
        total.numpy()
        leaves.append(weakref.ref(total.leaves[0]))
        w.assign(w * 0.5).realize()
    gc.collect()
    assert [ref() is not None for ref in leaves] == [False, False, True, True]
    assert total.numpy().shape == (2,)
    with pytest.raises(UsageError, match="what it was computed from was updated: its history is gone"):
        total.sum().backward()


@pytest.mark.parametrize("updated", ["by an optimiser", "by hand", "by assign"])
@pytest.mark.parametrize("place", ["in place", "as a new tensor"])
@pytest.mark.parametrize("read", [0, 1])
def test_a_mean_over_updated_values_passes_gradients_on(updated: str, place: str, read: int) -> None:
    w, mean = leaf(1.0, 2.0), Tensor([0.0, 0.0])
    optimiser = optim.SGD([w], lr=0.1)
    for step in range(3):
        w.grad = None
        ((w - mean) ** 2).sum().backward()
        now = mean.tolist() if read == step else mean.detach().tolist()
        assert grad(w) == pytest.approx(
            [2 * 0.9**step * (a - b) for a, b in zip(w.tolist(), now, strict=True)], rel=1e-5
        )
        if updated == "by an optimiser":
            optimiser.step()
        elif updated == "by hand":
            with Tensor.no_grad():
                w.sub_(0.1 * w.grad)
        else:
            w.assign((w - 0.1 * w.grad).detach())
        mean = mean.lerp_(w, 0.1) if place == "in place" else mean.lerp(w, 0.1)
        assert mean.requires_grad
        assert not mean.is_leaf


def test_a_step_computes_nothing_of_another_device() -> None:
    w = leaf(1.0, 2.0)
    other = Tensor([0.0, 0.0], device="nv-emu:sm_90")
    other += 1
    (w * w).sum().backward()
    optim.SGD([w], lr=0.1).step()
    assert w.is_realized
    assert not other.is_realized
    assert other.tolist() == [1.0, 1.0]


def test_a_detached_tensor_keeps_no_graph() -> None:
    w = leaf(1.0, 2.0)
    h = w * 1
    leaves = []
    for _ in range(4):
        h = h.detach() * 0.5 + w
        h.numpy()
        leaves.append(weakref.ref(h.leaves[0]))
    gc.collect()
    assert [ref() is not None for ref in leaves] == [False, False, False, True]
    h.sum().backward()
    assert grad(w) == [1.0, 1.0]


def test_no_history_is_kept_without_requires_grad() -> None:
    x, w = Tensor([1.0, 2.0]), leaf(1.0, 2.0)
    for y in (x * 2, w.detach() * 2, (w > 1).float(), w.argmax().float()):
        y.numpy()
        assert past(y) is None
    loss = (w * x).sum()
    loss.backward()
    assert w.grad is not None
    w.grad.numpy()
    assert past(w.grad) is None


def test_an_assigned_tensor_keeps_no_graph() -> None:
    w, state = leaf(1.0, 2.0), Tensor([0.0, 0.0])
    for _ in range(2):
        state.assign(state * 0.5 + w)
        state.numpy()
        assert past(state) is None


def test_a_value_read_without_gradients_keeps_the_history_of_what_it_was_built_from() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y * 3
    with Tensor.no_grad():
        assert y.tolist() == [2.0, 4.0]
        assert (z + 0).tolist() == [6.0, 12.0]
    (z.sum() + (x * 5).sum()).backward()
    assert grad(x) == [11.0, 11.0]


@pytest.mark.parametrize("path", ["alone", "beside another"])
@pytest.mark.parametrize("read", [0, 1, 2])
def test_a_value_that_is_read_after_others_were_computed_from_it_passes_gradients_on(read: int, path: str):
    """As where logits are printed between the loss and its backward: none of their gradient is lost."""
    w = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    steps = [w * 2]
    steps += [steps[0] @ Tensor([[1.0, 0.5], [0.25, 2.0]])]
    steps += [steps[1].square()]
    loss = steps[-1].sum() + (w.sum() if path != "alone" else 0.0)
    steps[read].tolist()
    loss.backward()
    plain = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    again = (plain * 2 @ Tensor([[1.0, 0.5], [0.25, 2.0]])).square().sum()
    (again + (plain.sum() if path != "alone" else 0.0)).backward()
    assert w.grad is not None
    assert plain.grad is not None
    assert w.grad.tolist() == plain.grad.tolist()
