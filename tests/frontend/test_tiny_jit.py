"""Captured functions: results of replays, refused operations, ownership."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, TinyJit, dtypes, nn, stats
from hcq.config import override
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def vec(*values: float) -> Tensor:
    return Tensor(list(values))


def test_the_third_call_replays_one_executable():
    calls = []

    @TinyJit
    def f(a: Tensor, b: Tensor) -> Tensor:
        calls.append(1)
        c = (a + b).realize()
        return (c * 2).realize()

    for i in range(5):
        launches = stats.launches
        assert f(vec(i, 1.0), vec(2.0, 3.0)).tolist() == [2.0 * (i + 2), 8.0]
        if i > 1:
            assert stats.launches == launches + 1
    assert len(calls) == 2
    assert f.captured is not None


def test_inputs_may_be_pending():
    f = TinyJit(lambda a: a + 1)
    for i in range(4):
        assert f(vec(1.0) * i).tolist() == [i + 1.0]


def test_outputs_belong_to_the_caller():
    f = TinyJit(lambda a: (a + 1).realize())
    kept = [f(vec(float(i))) for i in range(6)]
    assert [t.item() for t in kept] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_nests_of_arguments_and_results():
    @TinyJit
    def f(pair: tuple[Tensor, Tensor], *, more: dict[str, Tensor]) -> dict[str, object]:
        a, b = pair
        return {"sum": a + b, "rest": [a * more["x"], None], "again": a}

    for i in range(4):
        a, b, x = vec(1.0 + i), vec(2.0), vec(10.0)
        got = f((a, b), more={"x": x})
        assert got["sum"].item() == 3.0 + i  # type: ignore[attr-defined]
        assert got["rest"][0].item() == 10.0 + 10 * i  # type: ignore[index]
        assert got["rest"][1] is None  # type: ignore[index]
        assert got["again"] is a


def test_the_same_tensor_twice_is_distinguished_at_capture():
    f = TinyJit(lambda a, b: a - b)
    x = vec(1.0)
    assert [f(x, x).item() for _ in range(3)] == [0.0] * 3
    assert f(vec(5.0), vec(2.0)).item() == 3.0


def test_captured_tensors_may_be_assigned_to_outside():
    scale = vec(2.0)
    f = TinyJit(lambda a: a * scale)
    for _ in range(3):
        assert f(vec(3.0)).item() == 6.0
    scale.assign(vec(5.0))
    assert f(vec(3.0)).item() == 15.0
    scale += 1
    assert f(vec(3.0)).item() == 18.0


def test_state_advances_with_every_call():
    count, seen = vec(0.0), []

    @TinyJit
    def step(a: Tensor) -> Tensor:
        count.assign(count + a)
        return count * 10

    seen += [step(vec(1.0)).item() for _ in range(5)]
    assert seen == [10.0, 20.0, 30.0, 40.0, 50.0]
    assert count.item() == 5.0


def test_a_returned_state_is_the_tensor_itself():
    count = vec(0.0)
    step = TinyJit(lambda: count.assign(count + 1))
    for i in range(4):
        assert step() is count
        assert count.item() == i + 1.0


def test_replays_preserve_values_that_other_tensors_alias():
    count = vec(0.0)
    step = TinyJit(lambda: count.assign(count + 1).realize())
    for _ in range(3):
        step()
    old, view = count * 100, Tensor(count).realize()
    step()
    step()
    assert (old.item(), view.item(), count.item()) == (300.0, 3.0, 5.0)


def test_old_values_used_inside_are_recomputed():
    w = vec(1.0)

    @TinyJit
    def f() -> Tensor:
        old = w * 100
        w.assign(w + 1).realize()
        return old

    assert [f().item() for _ in range(5)] == [100.0, 200.0, 300.0, 400.0, 500.0]


def test_a_state_or_a_view_of_it_given_as_argument_is_refused_unless_copied():
    w = vec(1.0)

    @TinyJit
    def f(a: Tensor) -> Tensor:
        w.assign(w + 1).realize()
        return a * 10

    assert [f(w.clone()).item() for _ in range(4)] == [10.0, 20.0, 30.0, 40.0]
    assert w.item() == 5.0
    for same in (w, w[:], w.detach(), w.reshape(1, 1)[0], w.detach().realize()):
        with pytest.raises(UsageError, match="also assigned to"):
            f(same)
    assert w.item() == 5.0
    refused(lambda a: (w.assign(w + 1).realize(), a + 1)[1], w, match="also assigned to")


def test_captured_random_numbers_advance_as_without_capture():
    def draw(x: Tensor) -> Tensor:
        return x + Tensor.rand(3)

    Tensor.manual_seed(5)
    plain = [draw(Tensor.zeros(3).contiguous()).tolist() for _ in range(5)]
    Tensor.manual_seed(5)
    f = TinyJit(draw)
    assert [f(Tensor.zeros(3).contiguous()).tolist() for _ in range(5)] == plain
    assert len({tuple(p) for p in plain}) == 5


def test_unused_draws_count_too():
    def draw() -> Tensor:
        Tensor.rand(2)
        return Tensor.rand(2) + 0

    Tensor.manual_seed(1)
    plain = [draw().tolist() for _ in range(4)]
    Tensor.manual_seed(1)
    f = TinyJit(draw)
    assert [f().tolist() for _ in range(4)] == plain


def test_training_matches_training_without_capture():
    def run(*, captured: bool) -> list[float]:
        Tensor.manual_seed(3)
        model = nn.Linear(4, 2)
        opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.05)

        def step(x: Tensor, y: Tensor) -> Tensor:
            with Tensor.train():
                out = model(x).dropout(0.2)
                loss = out.sparse_categorical_crossentropy(y)
                loss.backward()
                opt.step()
                return loss

        call = TinyJit(step) if captured else step
        rng = np.random.default_rng(0)
        losses = []
        for _ in range(8):
            x, y = (
                Tensor(rng.standard_normal((6, 4), np.float32)),
                Tensor(rng.integers(0, 2, 6).astype(np.int32)),
            )
            losses.append(call(x, y).item())
        return losses

    np.testing.assert_allclose(run(captured=True), run(captured=False), rtol=1e-5)


def captured_once(f: TinyJit[..., object], *args: object) -> None:
    f(*args)
    f(*args)


def test_other_shapes_and_dtypes_are_refused():
    f = TinyJit(lambda a: a + 1)
    captured_once(f, vec(1.0, 2.0))
    home = re.escape(Device.DEFAULT)
    with pytest.raises(UsageError, match=rf"captured as float32\[2\] on {home}, seen float32\[3\] on {home}"):
        f(vec(1.0, 2.0, 3.0))
    with pytest.raises(UsageError, match=r"seen int64\[2\]"):
        f(Tensor([1, 2]))
    with pytest.raises(UsageError, match="captured with arguments"):
        f(vec(1.0, 2.0), vec(1.0))
    assert f(vec(1.0, 2.0)).tolist() == [2.0, 3.0]


def test_other_numbers_are_refused():
    f = TinyJit(lambda a, n: a * n)
    captured_once(f, vec(1.0), 3)
    assert f(vec(2.0), 3).item() == 6.0
    with pytest.raises(UsageError, match="captured with arguments"):
        f(vec(2.0), 4)


def test_arrays_are_refused():
    with pytest.raises(UsageError, match="make it a Tensor"):
        TinyJit(lambda a: a)(np.zeros(2))


def refused(fn: object, *args: object, match: str) -> None:
    f = TinyJit(fn)  # type: ignore[arg-type]
    f(*args)
    with pytest.raises(UsageError, match=match):
        f(*args)
    assert Tensor([1.0]).item() == 1.0  # the capture is over


def test_asking_for_a_value_is_refused():
    refused(lambda a: a * a.sum().item(), vec(1.0), match="inside a captured function")
    refused(lambda a: a + Tensor(a.numpy()), vec(1.0), match="inside a captured function")


def test_host_data_is_refused():
    refused(lambda a: a + Tensor([1.0]), vec(1.0), match="host data")


def test_returning_numbers_is_refused():
    refused(lambda a: (a, 3), vec(1.0), match="returns 3")


def test_assigning_to_an_argument_changes_the_callers_tensor():
    f = TinyJit(lambda a, b: a.assign(a + b))
    for i in range(5):
        x = vec(float(i))
        memory, old, view = x.leaves[0].buffer, x * 10, x[:]
        assert f(x, vec(1.0)) is x
        assert (x.item(), old.item(), view.item()) == (i + 1.0, 10.0 * i, i + 1.0)
        assert x.leaves[0].buffer is memory


def test_an_assigned_argument_that_is_given_twice_is_refused():
    f = TinyJit(lambda a, b: a.assign(a + b))
    for _ in range(3):
        f(vec(1.0), vec(2.0))
    x = vec(3.0)
    for other in (x, x[:], x.detach()):
        with pytest.raises(UsageError, match="argument 1"):
            f(x, other)
    assert x.item() == 3.0
    f(x, Tensor(x))
    assert x.item() == 6.0


def test_an_assigned_argument_that_is_also_used_from_outside_is_refused():
    w = vec(1.0)
    f = TinyJit(lambda a: a.assign(a + w))
    for _ in range(3):
        f(vec(1.0))
    with pytest.raises(UsageError, match="from outside"):
        f(w)


def test_replacing_an_argument_is_refused():
    refused(lambda a: a.replace(a + 1), vec(1.0), match="replaces its argument 0")


NO_OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cast": lambda x: x.float(),
    "bitcast": lambda x: x.bitcast("float32"),
    "same device": lambda x: x.to(x.device),
    "whole slice": lambda x: x[:],
    "reshape": lambda x: x.reshape(x.shape),
    "reshape computed": lambda x: x.reshape(1, 2).realize().reshape(2),
    "permute": lambda x: x.permute(0),
    "expand": lambda x: x.expand(2),
    "shrink": lambda x: x.shrink(((0, 2),)),
    "flip twice": lambda x: x.flip(0).flip(0),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "chain": lambda x: x[:].reshape(2).float().permute(0),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "pad": lambda x: x.pad(((0, 0),)),
    "repeat": lambda x: x.repeat(1),
    "repeat computed": lambda x: x.repeat(1).realize(),
    "constructor": Tensor,
    "times one": lambda x: x * 1.0,
    "gradient": lambda x: (x * Tensor.ones(2).contiguous()).sum().gradient(x)[0],
    "gradient of a product": lambda x: (x * x.detach().contiguous()).sum().gradient(x)[0],
    "the argument": lambda x: x,
}
WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "returned": lambda _, y: y,
    "both returned": lambda x, y: [y, x],
    "used": lambda x, y: x * 3 + y,
    "nested and used": lambda x, y: {"y": (y, y * 2), "x": x + 0.5},
}


@pytest.mark.sampled(31)
@pytest.mark.parametrize("source", ["argument", "closed over"])
@pytest.mark.parametrize("use", WRITES)
@pytest.mark.parametrize("name", NO_OPERATIONS)
def test_a_write_to_a_noop_result_replays_like_the_function(name: str, use: str, source: str):
    def outcome(wrap: Callable[[Any], Any], write: Callable[[Tensor, Tensor], object]) -> list[object]:
        outside = vec(1.0, 2.0)

        def step(x: Tensor) -> object:
            start = x if source == "argument" else outside
            y = NO_OPERATIONS[name](start)
            write(y, x)
            return WRITES[use](start, y)

        run, seen = wrap(step), []
        for i in range(1, 6):
            x = vec(float(i), 1.0)
            seen += [listed(run(x)), x.tolist(), outside.tolist()]
        return seen

    def multiply(y: Tensor, _x: Tensor) -> None:
        y *= 2

    def put(y: Tensor, x: Tensor) -> None:
        y[0] = x[1] + 5.0

    for write in (multiply, put, lambda y, x: y.assign(x + 1)):
        assert outcome(TinyJit, write) == outcome(lambda f: f, write)


def listed(value: Any) -> object:
    if isinstance(value, Tensor):
        return value.tolist()
    return [listed(v) for v in (value.values() if isinstance(value, dict) else value)]


def test_views_from_outside_follow_what_a_replay_assigns():
    w = vec(1.0, 2.0, 3.0)
    part, flat, late = w[1:], w.reshape(3, 1).realize(), None

    @TinyJit
    def step(x: Tensor) -> None:
        middle = w[1:2]
        middle += x

    for i in range(5):
        step(vec(1.0))
        assert w.tolist() == [1.0, 3.0 + i, 3.0]
        assert part.tolist() == [3.0 + i, 3.0]
        assert flat.tolist() == [[1.0], [3.0 + i], [3.0]]
        if i == 2:
            late = w[1].realize()
    assert late is not None
    assert late.item() == 7.0


def test_a_view_given_as_an_argument_is_written_through():
    f = TinyJit(lambda row: row.assign(row * 2))
    for _ in range(4):
        z = Tensor([[1.0, 2.0], [3.0, 4.0]])
        f(z[1])
        assert z.tolist() == [[1.0, 2.0], [6.0, 8.0]]


def test_another_shape_is_refused_with_what_to_do_about_a_last_batch():
    f = TinyJit(lambda a: a + 1)
    for _ in range(3):
        f(vec(1.0, 2.0))
    with pytest.raises(UsageError, match=r"(?s)\[2\].*\[1\].*hint:.*\.fn"):
        f(vec(1.0))
    assert f.fn(vec(1.0)).tolist() == [2.0]


def test_keeping_a_result_outside_is_refused():
    kept = []
    refused(lambda a: kept.append((a + 1).realize()), vec(1.0), match="kept outside")


def test_leaving_a_gradient_outside_is_refused():
    w = Tensor([1.0], requires_grad=True)

    def f(a: Tensor) -> Tensor:
        w.grad = None
        return (a * w).sum().backward()

    refused(f, vec(1.0), match="leaves a gradient")


def test_seeding_is_refused():
    def f(a: Tensor) -> Tensor:
        Tensor.manual_seed(0)
        return a + 1

    refused(f, vec(1.0), match="manual_seed")


def test_an_error_in_the_function_ends_the_capture():
    boom = [False]

    def f(a: Tensor) -> Tensor:
        if boom[0]:
            raise ValueError("boom")
        return a + 1

    g = TinyJit(f)
    g(vec(1.0))
    boom[0] = True
    with pytest.raises(ValueError, match="boom"):
        g(vec(1.0))
    boom[0] = False
    assert [g(vec(float(i))).item() for i in range(3)] == [1.0, 2.0, 3.0]


def test_methods_have_a_capture_for_each_instance():
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = vec(by)

        @TinyJit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.by

    two, three = Scale(2.0), Scale(3.0)
    for _ in range(4):
        assert (two(vec(5.0)).item(), three(vec(5.0)).item()) == (10.0, 15.0)


def test_a_captured_function_inside_another_is_part_of_it():
    inner = TinyJit(lambda a: a + 1)
    outer = TinyJit(lambda a: inner(a) * 2)
    assert [outer(vec(float(i))).item() for i in range(4)] == [2.0, 4.0, 6.0, 8.0]


def test_jit_can_be_turned_off():
    calls = []
    f = TinyJit(lambda a: calls.append(1) or a + 1)  # type: ignore[func-returns-value]
    with override(jit=False):
        for _ in range(4):
            assert f(vec(1.0)).item() == 2.0
    assert len(calls) == 4


def test_reset_captures_again():
    f = TinyJit(lambda a: a.sum())
    captured_once(f, vec(1.0))
    f.reset()
    captured_once(f, vec(1.0, 2.0))
    assert f(vec(3.0, 4.0)).item() == 7.0


def test_a_function_without_kernels():
    f = TinyJit(lambda a: a)
    x = vec(1.0)
    assert [f(x) is x for _ in range(3)] == [True] * 3


def test_scalars_and_other_dtypes_as_arguments():
    f = TinyJit(lambda a, n: a * n.cast(dtypes.float32))
    for i in range(4):
        assert f(vec(1.5), Tensor([i])).item() == 1.5 * i
