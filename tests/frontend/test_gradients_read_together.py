"""Gradients of one `backward` are computed together when the host reads one, and the forward pass once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, nn, optim
from frontend.autograd import grad
from frontend.stats import stats

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [(1, 1), (1, 3), (4, 1), (3, 5)]


def numbers(*shape: int) -> Tensor:
    flat = np.arange(1, int(np.prod(shape)) + 1, dtype=np.float32)
    return Tensor(np.sin(flat * 1.7).reshape(shape)).realize()


def leaves(*shapes: tuple[int, ...]) -> list[Any]:
    return [numbers(*shape).requires_grad_() for shape in shapes]


def chain(n: int = 3, d: int = 5) -> tuple[list[Any], Callable[[], Any]]:
    x, ws = numbers(n, d), leaves((d, d + 1), (d + 1,), (d + 1, d), (d,))
    return ws, lambda: ((x @ ws[0] + ws[1]).tanh() @ ws[2] + ws[3]).square().mean()


def attention(n: int = 3, d: int = 5) -> tuple[list[Any], Callable[[], Any]]:
    x, ws = numbers(n, d), leaves((d, d), (d, d), (d, d))
    return ws, lambda: (((x @ ws[0]) @ (x @ ws[1]).T).softmax(-1) @ (x @ ws[2])).square().sum()


def shared(n: int = 3, d: int = 5) -> tuple[list[Any], Callable[[], Any]]:
    x, ws = numbers(n, d), leaves((d, d), (d,))
    return ws, lambda: ((x @ ws[0]).sigmoid() @ ws[0] * ws[1]).exp().mean()


MODELS = [chain, attention, shared]


def gradients(ws: list[Any], loss: Callable[[], Any], way: str = "backward") -> list[Any]:
    """Return pending gradients; the loss of `backward` is dropped."""
    if way == "grad":
        return list(grad(loss(), ws))
    if way == "gradient":
        return loss().gradient(*ws)  # type: ignore[no-any-return]  # a list
    for _ in range(2 if way == "two backwards" else 1):
        loss().backward()
    return [w.grad for w in ws]


def doubled(ws: list[Any]) -> None:
    with Tensor.no_grad():
        for w in ws:
            w *= 2  # noqa: PLW2901 - in place


def counted(work: Callable[[], object]) -> list[int]:
    """Return the kernels, launches and new plans of a call."""
    before = stats.kernels, stats.launches, stats.plans
    work()
    return [b - a for a, b in zip(before, (stats.kernels, stats.launches, stats.plans), strict=True)]


def close(found: list[Any], wanted: list[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["backward", "two backwards", "grad", "gradient", "written"])
@pytest.mark.parametrize("make", MODELS)
def test_gradients_that_are_read_are_those_that_are_realized_alone(make: Any, way: str) -> None:
    for size in SIZES:
        values = []
        for read in (True, False):
            ws, loss = make(*size)
            found = gradients(ws, loss, way)
            if way == "written":
                doubled(ws)
            values.append([g.numpy() if read else g.realize().numpy() for g in found])
        close(*values)


@pytest.mark.parametrize("way", ["backward", "two backwards", "grad", "gradient"])
@pytest.mark.parametrize("make", MODELS)
def test_reading_gradients_one_by_one_is_one_launch_of_their_joint_kernels(make: Any, way: str) -> None:
    joint, read = gradients(*make(), way), gradients(*make(), way)
    kernels = counted(lambda: joint[0].realize(*joint[1:]))[0]
    assert counted(lambda: [g.numpy() for g in read])[:2] == [kernels, 1]
    read = gradients(*make(), way)
    assert counted(lambda: [g.isnan().any().item() for g in read])[1] == len(read)
    assert counted(lambda: [g.numpy() for g in read])[0] == 0


def test_gradients_that_were_dropped_are_not_computed() -> None:
    alone, last = gradients(*chain())[2], gradients(*chain())[2]  # a tensor keeps its gradient alive
    assert counted(alone.realize)[0] == counted(last.numpy)[0]


def test_the_loss_and_its_gradients_are_computed_together_whichever_is_read_first() -> None:
    for first in (True, False):
        ws, make = chain()
        loss = make().backward()
        (loss if first else ws[1].grad).numpy()
        assert all(t.is_realized for t in (loss, *[w.grad for w in ws]))
        assert counted(optim.SGD(ws, lr=0.1).step)[:2] == [len(ws), 1]


def test_hooks_that_read_gradients_compute_them_once() -> None:
    ws, make = chain()
    seen: list[Any] = []
    for w in ws:
        w.register_hook(lambda g: seen.append(g.numpy()))
    assert counted(lambda: make().backward())[1] == 1
    close(seen, [g.realize().numpy() for g in gradients(*chain())])


def test_second_gradients_are_the_same_after_first_ones_were_read() -> None:
    for size in SIZES:
        values = []
        for read in (True, False):
            ws, make = chain(*size)
            make().backward(create_graph=True)
            firsts = [w.grad for w in ws]
            for w in ws:
                w.grad = None
            if read:
                firsts[0].numpy()
            sum([(g * g).sum() for g in firsts]).backward()  # type: ignore[union-attr]  # tensors
            values.append([w.grad.realize().numpy() for w in ws])
        close(*values)


def test_a_step_after_the_norm_of_clipping_was_read_computes_no_gradient_again() -> None:
    ws, make = chain()
    make().backward()
    nn.utils.clip_grad_norm_(ws, 0.1).item()
    assert counted(optim.SGD(ws, lr=0.1).step)[0] <= 2 * len(ws) + 1


def stepped(way: str, count: int = 5) -> tuple[list[list[int]], list[Any]]:
    """Train by hand; return the counts of each step, and the parameters at the end."""
    ws, make = chain()
    moments = [0.0 * w.detach() for w in ws]

    def step() -> None:
        loss = make()
        if way == "loss first":
            loss.item()
        loss.backward()
        if way == "norms":
            assert all(w.grad.norm().item() > 0 for w in ws)
        for i, w in enumerate(ws):
            if way == "data":
                w.data -= 0.1 * w.grad
            else:
                with Tensor.no_grad():
                    moments[i] *= 0.0
                    moments[i] += w.grad
                    w -= 0.1 * moments[i]  # noqa: PLW2901 - in place
            w.grad = None
        if way in {"data", "loss last"}:
            loss.item()

    return [counted(step) for _ in range(count)], [w.numpy() for w in ws]


@pytest.mark.parametrize("way", ["data", "loss last", "loss first", "norms", "no reads"])
def test_steps_written_by_hand_do_not_grow(way: str) -> None:
    each, found = stepped(way)
    assert each[2][:2] == each[3][:2] == each[4][:2]
    assert each[3][2] == each[4][2] == 0
    ws, make = chain()
    optimiser = optim.SGD(ws, lr=0.1)
    for _ in each:
        make().backward()
        optimiser.step()
    close(found, [w.numpy() for w in ws])


def test_values_from_before_and_between_writes_by_hand_are_kept() -> None:
    ws, make = chain()
    make().backward()
    values = [make()]
    for _ in range(2):
        doubled(ws)
        values.append(make())
    values[2].backward()
    again, alike = chain()
    wanted = [alike().numpy()]
    for _ in range(2):
        doubled(again)
        _ = [w.realize() for w in again]
        wanted.append(alike().numpy())
    close([v.numpy() for v in reversed(values)], wanted[::-1])
    firsts = [g.realize().numpy() for g in gradients(*chain())]
    lasts = gradients(again, alike)
    close([w.grad.numpy() for w in ws], [g.numpy() + f for g, f in zip(lasts, firsts, strict=True)])
