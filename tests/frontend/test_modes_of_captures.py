"""Modes that a captured function reads from outside: a replay in another one raises an error.

Modes of gradients and precision are those of each thread.

Not here: other guarantees of captured functions (`test_tiny_jit`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import frontend
import frontend.nn.functional as F  # noqa: N812 - as programs write it
from frontend import Tensor, TinyJit, nn
from hcq.errors import UsageError
from tests.limits import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable


if TYPE_CHECKING:
    from collections.abc import Callable


X = [[1.0, 2.0], [3.0, 5.0]]


def called(function: Any, *args: Any, times: int = 3) -> Any:
    """Call a function until it is replayed; return the last result."""
    found = None
    for _ in range(times):
        found = function(*args)
    return found


@pytest.mark.parametrize(
    "made",
    [lambda: nn.Dropout(0.5), lambda: nn.BatchNorm1d(2), lambda: nn.Sequential(nn.Dropout2d(0.5))],
    ids=["dropout", "norm", "inner"],
)
def test_a_replay_in_another_mode_of_a_layer_is_refused(made: Callable[[], Any]):
    layer = made()
    x, step = Tensor(X).realize(), TinyJit(lambda x: layer(x).sum().realize())
    called(step, x)
    layer.eval()
    with pytest.raises(UsageError, match=r"training of .* was True when .* captured, and is False"):
        step(x)
    layer.train()
    assert step(x).shape == ()
    step.reset()
    layer.eval()
    assert called(step, x).item() == layer(x).sum().item()


@pytest.mark.parametrize("inside", [True, False])
def test_a_replay_in_another_surrounding_mode_is_refused(inside: bool):  # noqa: FBT001
    layer, x = nn.BatchNorm1d(2), Tensor(X).realize()
    step = TinyJit(lambda x: layer(x).realize())
    with Tensor.train(inside):
        called(step, x)
    with Tensor.train(not inside), pytest.raises(UsageError, match=r"mode of Tensor\.train was"):
        step(x)
    with pytest.raises(UsageError, match="is None now"):
        step(x)
    with Tensor.train(inside):
        step(x)


def test_the_method_dropout_reads_the_surrounding_mode():
    x, step = Tensor.ones(64).realize(), TinyJit(lambda x: x.dropout(0.5).realize())
    with Tensor.train(False):
        assert called(step, x).tolist() == [1.0] * 64
    with Tensor.train(), pytest.raises(UsageError, match=r"Tensor\.train"):
        step(x)


def test_a_replay_under_another_autocast_is_refused():
    layer, x = nn.Linear(2, 2), Tensor(X).realize()
    step = TinyJit(lambda x: layer(x).realize())
    with nn.amp.autocast("float16"):
        assert called(step, x).dtype.name == "float16"
    with pytest.raises(UsageError, match=r"autocast was .*float16.*, and is None"):
        step(x)
    with nn.amp.autocast("float16"):
        assert step(x).dtype.name == "float16"


def test_a_replay_that_would_train_a_frozen_parameter_is_refused():
    w, x = Tensor([2.0, 3.0]), Tensor([1.0, 1.0]).realize()
    sgd = nn.optim.SGD([w], lr=0.5)

    def fn(x: Tensor) -> Tensor:
        loss = (w * x).sum().backward()
        sgd.step()
        return loss

    step = TinyJit(fn)
    called(step, x)
    before = w.tolist()
    w.requires_grad = False
    with pytest.raises(UsageError, match=r"requires_grad of .* was True"):
        step(x)
    assert w.tolist() == before
    w.requires_grad = True
    step(x)
    assert w.tolist() == [v - 0.5 for v in before]


def test_modes_that_the_function_sets_are_those_of_each_replay():
    layer, x = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2)), Tensor(X).realize()

    def fn(x: Tensor) -> Tensor:
        layer.train()
        with Tensor.train(False), nn.amp.autocast("float16"):
            kept = layer(x)
        with Tensor.train():
            return (layer(x) + kept).realize()

    step = TinyJit(fn)
    called(step, x)
    layer.eval()
    with Tensor.train(False):
        step(x)
    assert [m.training for m in layer.modules()] == [True] * 3


def test_a_function_may_freeze_parameters_while_it_runs():
    fixed, w, x = Tensor([2.0]), Tensor([3.0]), Tensor([1.0]).realize()
    both = nn.optim.SGD([fixed, w], lr=0.5)
    only = nn.optim.SGD([w], lr=0.5)

    def fn(x: Tensor) -> Tensor:
        fixed.requires_grad = False
        ((fixed * w) * x).sum().backward()
        only.step()
        fixed.requires_grad = True
        loss = (fixed * w * x).sum().backward()
        both.step()
        fixed.requires_grad = False
        return loss

    step = TinyJit(fn)
    for _ in range(4):
        step(x)
    found = fixed.item(), w.item()
    fixed.assign(2.0).realize()
    w.assign(3.0).realize()
    for _ in range(4):
        fn(x)
    assert found == (fixed.item(), w.item())


def test_modes_are_looked_at_only_after_a_change():
    layer, x = nn.Dropout(0.5).eval(), Tensor(X).realize()
    step = TinyJit(lambda x: (layer(x) + 1).realize())
    called(step, x)
    captured = step.captured
    assert captured is not None
    seen = captured.modes.seen
    layer.__dict__["training"] = True  # no change that is counted
    step(x)
    assert captured.modes.seen == seen


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": frontend.no_grad,
    "of tensors": Tensor.no_grad,
    "inference_mode": frontend.inference_mode,
    "set_grad_enabled": lambda: frontend.set_grad_enabled(False),
    "autocast": lambda: frontend.autocast("cpu", dtype=frontend.bfloat16),
}


def of_mode() -> tuple[bool, Any]:
    """Return whether gradients are on, and the dtype of a product."""
    x = frontend.ones(2, 2, requires_grad=True)
    y = F.gelu(x @ x)
    return y.requires_grad, y.dtype


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_that_of_its_thread(mode: str):
    entered, leave, inside = threading.Event(), threading.Event(), []

    def other() -> None:
        with MODES[mode]():
            inside.append(of_mode())
            entered.set()
            assert leave.wait(HANG_S)
            inside.append(of_mode())

    usual = (True, frontend.float32)
    layer = nn.Linear(2, 2)
    step = TinyJit(lambda x: (layer(x) * 2).realize())
    x = frontend.ones(2, 2)
    called(step, x)
    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(HANG_S)
    here = [of_mode(), step(x).dtype]
    with frontend.no_grad():
        leave.set()
        thread.join()
        here.append(of_mode())
    assert here == [usual, frontend.float32, (False, frontend.float32)]
    assert of_mode() == usual
    assert inside[0] == inside[1] != usual


def test_a_replay_in_a_mode_of_this_thread_is_refused_after_one_of_another_thread():
    layer, x = nn.Linear(2, 2), Tensor(X).realize()
    step = TinyJit(lambda x: layer(x).realize())
    called(step, x)
    with frontend.autocast("cpu", dtype=frontend.bfloat16):
        thread = threading.Thread(target=called, args=(step, x))
        thread.start()
        thread.join()
        with pytest.raises(UsageError, match=r"nn.amp.autocast was None .*, and is torch.bfloat16 now"):
            step(x)


def test_a_decorated_function_keeps_the_mode_of_each_thread():
    barrier = threading.Barrier(2, timeout=HANG_S)
    found = []

    @frontend.no_grad()
    def decorated() -> None:
        barrier.wait()
        found.append(of_mode()[0])
        barrier.wait()

    def one(outside: bool) -> None:  # noqa: FBT001
        with frontend.set_grad_enabled(outside):
            decorated()
            found.append(of_mode()[0] is outside)

    threads = [threading.Thread(target=one, args=(outside,)) for outside in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False, False, True, True]


def test_another_default_dtype_is_seen():
    layer = nn.Linear(2, 2).double()
    ones = frontend.ones
    calls = (lambda x: x + ones(2), lambda x: layer(x + ones(2).double()), lambda x: (x > 1).sum() / 2)
    x = frontend.ones(2, dtype=frontend.float64)
    every = [frontend.compile(f) for f in calls], [TinyJit(lambda x, f=f: f(x).realize()) for f in calls]
    for f in (*every[0], *every[1]):
        called(f, x.half()) if f in {every[0][0], every[1][0]} else called(f, x)
    before = frontend.get_default_dtype()
    frontend.set_default_dtype(frontend.float64)
    try:
        for plain, compiled, strict in zip(calls, *every, strict=True):
            given = x.half() if plain is calls[0] else x
            assert called(compiled, given).dtype is plain(given).dtype is frontend.float64
            with pytest.raises(UsageError, match=r"the default dtype was torch.float32 "):
                strict(given)
    finally:
        frontend.set_default_dtype(before)
