"""Checkpointed functions: values and gradients of a plain call, in less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compiler.schedule.item import TempRef
from compiler.schedule.memory import place
from compiler.schedule.scheduler import schedule
from frontend import Tensor, TinyJit, checkpoint, checkpoint_sequential, nn
from frontend.evaluation.expr import uops
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, ROWS, DEPTH, LAYERS = 4, 64, 4, 2


def arena(tensors: list[Tensor]) -> int:
    """Return the bytes of the temporaries of the launch that would compute these tensors."""
    index: dict[Any, int] = {}
    parts = [(t.expr, tuple([index.setdefault(leaf, len(index)) for leaf in t.leaves])) for t in tensors]
    lives: dict[TempRef, tuple[int, int, int]] = {}
    for n, item in enumerate(schedule(uops(parts), verify=True)):
        for ref in item.bufs:
            if isinstance(ref, TempRef):
                lives[ref] = ref.nbytes, lives.get(ref, (0, n))[1], n
    return place(lives)[1]


def weights() -> list[Tensor]:
    return [Tensor.randn(WIDTH, WIDTH, requires_grad=True) for _ in range(LAYERS * DEPTH)]


def block(own: list[Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        for w in own:
            x = (x @ w).tanh()
        return x.dropout(0.25)

    return run


def gradients(ws: list[Tensor], x: Tensor, call: Callable[..., Any]) -> list[Tensor]:
    """Return loss and gradients of a chain of blocks, pending."""
    Tensor.manual_seed(7)
    with Tensor.train():
        for k in range(DEPTH):
            x = call(block(ws[LAYERS * k : LAYERS * (k + 1)]), x)
        loss = x.square().mean()
        return [loss, *loss.gradient(*ws)]


def plain(f: Callable[..., Any], *args: Any) -> Any:
    return f(*args)


def test_a_chain_of_segments_needs_less_memory_and_gives_the_same_bits():
    ws, x = weights(), Tensor.randn(ROWS, WIDTH).realize()
    kept, again = gradients(ws, x, plain), gradients(ws, x, checkpoint)
    size = ROWS * WIDTH * 4
    assert arena(kept) >= LAYERS * DEPTH * size
    assert arena(again) <= (DEPTH + 3) * size  # inputs of segments, and the values of one of them
    kept[0].realize(*kept[1:])
    again[0].realize(*again[1:])
    assert [g.tolist() for g in again] == [g.tolist() for g in kept]


def test_gradients_are_those_of_pytorch():
    # torch.utils.checkpoint.checkpoint(f, a, b, k=2.0, use_reentrant=False) with the closure c
    a, b, c = (Tensor(v, requires_grad=True) for v in ([0.5, -1.0], [2.0, 3.0], [1.5, 0.25]))

    def f(p: Tensor, q: Tensor, *, k: float) -> tuple[Tensor, Tensor]:
        return (p * q * c).sin() * k, p.exp() + q

    first, second = checkpoint(f, a, b, k=2.0, use_reentrant=False)
    (first.sum() + (second * Tensor([1.0, -2.0])).sum()).backward()
    expected = [[2.0731444, 0.36177433], [1.1061058, -2.3658445], [0.1414744, -4.3901329]]
    for t, e in zip((a, b, c), expected, strict=True):
        assert t.grad is not None
        assert t.grad.tolist() == pytest.approx(e, rel=1e-6)


def test_segments_inside_segments_and_second_gradients():
    x, w = Tensor([0.3, -0.7], requires_grad=True), Tensor([1.5, 2.0], requires_grad=True)

    def inner(v: Tensor) -> Tensor:
        return (v * w).tanh()

    def outer(v: Tensor, call: Callable[..., Any]) -> Tensor:
        return call(inner, call(inner, v) * v).exp()

    def derivatives(call: Callable[..., Any]) -> list[Any]:
        y = call(outer, x, call).sum()
        dx, dw = y.gradient(x, w)
        return [y.item(), dx.tolist(), dw.tolist(), *[g.tolist() for g in (dx * dw).sum().gradient(x, w)]]

    for found, expected in zip(derivatives(checkpoint), derivatives(plain), strict=True):
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_value_inside_gets_its_gradient_too():
    x, w = Tensor([2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    half = w * 0.5  # pending, used inside and outside
    y = checkpoint(lambda v: (v * half).square(), x) + half
    assert [g.tolist() for g in y.sum().gradient(x, half, w)] == [[9.0], [13.0], [6.5]]


def test_a_captured_step_is_that_of_a_plain_one():
    def losses(call: Callable[..., Any]) -> list[float]:
        Tensor.manual_seed(3)
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
        sgd = nn.optim.SGD(nn.state.get_parameters(net), lr=0.1, momentum=0.9)
        x = Tensor.randn(6, 3).realize()

        @TinyJit
        def step() -> Tensor:
            with Tensor.train():
                loss = call(net, x).square().mean().backward()
                sgd.step()
            return loss

        return [step().item() for _ in range(5)]

    # on a GPU the kernels of another schedule may round otherwise
    assert losses(checkpoint) == pytest.approx(losses(plain), rel=1e-5)


def test_layers_in_a_row_are_checkpointed_in_parts():
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(5)])
    x = Tensor.randn(2, 3).realize()
    ws = nn.state.get_parameters(net)
    y = checkpoint_sequential(net, 2, x, use_reentrant=False)
    assert [g.tolist() for g in y.sum().gradient(*ws)] == [g.tolist() for g in net(x).sum().gradient(*ws)]
    with pytest.raises(UsageError, match="1 to 5 segments"):
        checkpoint_sequential(net, 6, x)


def test_what_cannot_be_checkpointed_is_refused():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(UsageTypeError, match="wanted a function"):
        checkpoint(x, x)  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(UsageTypeError, match="returns"):
        checkpoint(lambda v: v.sum().item(), x)
    with pytest.raises(UsageError, match="argument 0"):
        checkpoint(lambda v: v.mul_(2.0), x)
    with pytest.raises(UsageTypeError):
        checkpoint(lambda v: v, x, preserve_rng_state=3)  # type: ignore[arg-type]  # the mistake that is tested


def test_integers_and_containers_pass_through():
    table, at = Tensor([[1.0], [2.0], [3.0]], requires_grad=True), Tensor([2, 0])
    out = checkpoint(lambda d: {"picked": d["t"][d["i"]].square(), "i": d["i"]}, {"t": table, "i": at})
    assert out["i"].tolist() == [2, 0]
    (g,) = out["picked"].sum().gradient(table)
    assert g.tolist() == [[2.0], [0.0], [6.0]]
    with Tensor.no_grad():
        assert checkpoint(lambda v: v * 2, table).tolist() == [[2.0], [4.0], [6.0]]
