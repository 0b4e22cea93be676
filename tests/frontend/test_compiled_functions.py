"""`frontend.compile`: values of the function itself, recompilations with their causes, and plain calls.

Not here: what a function depends on, case by case (`test_captured_dependencies`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import frontend as torch
from frontend import Tensor, nn
from frontend.capture.compiled import Compiled
from hcq.errors import UsageError


def captures(function: Any) -> int:
    return sum(entry.jit.captured is not None for entry in function._entries)


def test_another_shape_or_dtype_is_compiled_anew_and_listed():
    f = torch.compile(lambda x: x * 2 + 1)
    rows = [torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.int32), torch.ones(2), torch.ones(3)]
    for x in rows * 3:
        assert f(x).tolist() == (x * 2 + 1).tolist()
    assert captures(f) == 3
    assert [r.call for r in f.recompilations] == [2, 3]
    assert f.recompilations[0].cause == "tensor 0 was float32[2] on cpu, and is float32[3] on cpu"


def test_a_number_and_a_closure_cell_choose_their_capture():
    scale = 2.0
    f = torch.compile(lambda x, n: x * scale + n)
    seen = []
    for scale in (2.0, 3.0, 2.0, 3.0, 2.0, 3.0):
        seen += [f(torch.ones(2), n).tolist() == [scale + n] * 2 for n in (1, 1.0)]
    assert all(seen)
    assert captures(f) == 4
    assert any("`scale` was 2.0, and is 3.0" in r.cause for r in f.recompilations)


@pytest.mark.parametrize("form", ["if", "item", "index"])
def test_control_flow_by_values_runs_plainly(form: str):
    def by_condition(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 10

    def by_number(x: Tensor) -> Tensor:
        return x * x.sum().item()

    def by_mask(x: Tensor) -> Tensor:
        return x[x > 0]

    f = {"if": by_condition, "item": by_number, "index": by_mask}[form]
    compiled = torch.compile(f)
    for values in ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [-1.0, -2.0], [3.0, -1.0]):
        assert compiled(Tensor(values)).tolist() == f(Tensor(values)).tolist()
    assert captures(compiled) == 0
    assert compiled.plain
    with pytest.raises(UsageError, match=r"cannot be captured: (the value|a bool tensor)"):
        torch.compile(f, fullgraph=True)(torch.ones(2))


def test_printed_text_and_counts_are_those_of_every_call(capsys: pytest.CaptureFixture[str]):
    state = SimpleNamespace(calls=0)

    def f(x: Tensor) -> Tensor:
        print("called")  # noqa: T201 - the case
        return x + 1

    def g(x: Tensor) -> Tensor:
        state.calls += 1
        return x + 1

    for function in (torch.compile(f), torch.compile(g)):
        for _ in range(4):
            function(torch.ones(2))
    assert capsys.readouterr().out == "called\n" * 4
    assert state.calls == 4


def test_after_the_limit_calls_are_plain_and_one_warning_says_so():
    f = torch.compile(lambda x, n: x + n, options={"recompile_limit": 2})
    with pytest.warns(UserWarning, match="compiled anew 2 times(.|\n)*pass what changes as a tensor"):
        found = [f(torch.zeros(1), n).item() for n in range(6)]
    assert found == list(range(6))
    assert len(f.recompilations) == 2


def test_gradients_flow_through_a_compiled_module_and_inference_is_captured():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model = torch.compile(net)
    x = torch.randn(5, 3)
    model.eval()
    for _ in range(3):
        net.zero_grad()
        model(x).sum().backward()
        assert net[0].weight.grad is not None
    with torch.no_grad():
        for _ in range(4):
            assert model(x).tolist() == net(x).tolist()
        net[0].weight.mul_(2.0)
        assert model(x).tolist() == net(x).tolist()
        model.train()
        assert [model(torch.ones(5, 3)).shape for _ in range(3)] == [(5, 2)] * 3
    assert any("training of Dropout was False, and is True" in r.cause for r in model.recompilations)
    assert list(model.state_dict()) == [f"_orig_mod.{name}" for name in net.state_dict()]
    assert next(model.parameters()) is net[0].weight


def test_a_training_step_is_captured_whole():
    def trained(wrap: Any) -> list[float]:
        torch.manual_seed(3)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x) - 1).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        function = wrap(step)
        found = [function(torch.full((4, 3), float(k))).item() for k in range(5)]
        assert not isinstance(function, Compiled) or captures(function) == 1
        return found

    assert trained(torch.compile) == pytest.approx(trained(lambda f: f), rel=1e-6)


def test_a_tensor_passed_twice_that_the_function_assigns_is_computed_plainly():
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x + y

    compiled = torch.compile(f)
    for _ in range(3):
        assert compiled(torch.ones(2), torch.ones(2)).tolist() == [3.0, 3.0]
    both = torch.ones(2)
    assert compiled(both, both).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("form", ["one tensor", "a view", "from outside", "unchanged"])
def test_a_call_whose_arguments_a_capture_refuses_has_its_effects_once(form: str):
    total = Tensor([1.0, 2.0])

    def step(x: Tensor, y: Tensor) -> Tensor:
        total.mul_(2)
        y.mul_(1 if form == "unchanged" else 3)
        return x + 1

    f, seen = torch.compile(step), []
    for _ in range(3):
        a = total if form == "from outside" else torch.ones(2) * 5
        seen.append(f(a.view(2) if form == "a view" else a, a).tolist())
    value = {"from outside": [[7.0, 13.0], [37.0, 73.0], [217.0, 433.0]], "unchanged": [[6.0, 6.0]] * 3}
    assert seen == value.get(form, [[16.0, 16.0]] * 3)
    assert total.tolist() == ([216.0, 432.0] if form == "from outside" else [8.0, 16.0])


def test_disabled_and_decorating_forms():
    def f(x: Tensor) -> Tensor:
        return x + 1

    assert torch.compile(f, disable=True) is f
    decorated = torch.compile(fullgraph=True, dynamic=True)(f)
    assert [decorated(torch.ones(1)).item() for _ in range(3)] == [2.0] * 3
    assert captures(decorated) == 1


def histories(function: Any) -> int:
    return sum(entry.history is not None for entry in function._entries)


def test_results_with_gradients_repeat_the_expression_in_a_training_loop():
    def trained(wrap: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.3))
        model = wrap(net)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for rows in (5, 5, 5, 1, 5, 1, 1):
            optimizer.zero_grad()
            loss = model(torch.randint(0, 5, (rows,))).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert model is net or histories(model) == 2
        return losses, [p.tolist() for p in net.parameters()]

    assert trained(torch.compile) == trained(lambda net: net)


def test_gradients_pass_through_a_compiled_call_to_what_its_arguments_were_computed_from():
    w = torch.randn(3, 3, requires_grad=True)

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ w).tanh() * y, (x * y).sum()

    def found(function: Any) -> list[Any]:
        out = []
        for k, same in enumerate((True, True, True, False, False, True, False)):
            x = torch.full((1, 3), k / 4.0, requires_grad=True)
            h = x * 2
            a, b = function(h, h if same else h + 1)
            loss = a.square().sum() + b
            out += [loss.item() if k % 2 else 0.0]
            loss.backward()
            out += [x.grad.tolist(), a.tolist()]
            with torch.no_grad():
                w.sub_(w.grad * 0.1)
            out += [w.grad.tolist()]
            w.grad = None
        return out

    before = w.tolist()
    plain, compiled = found(f), torch.compile(f)
    with torch.no_grad():
        w.copy_(torch.tensor(before))
    assert found(compiled) == plain
    assert histories(compiled) == 1
    for on in (True, False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            ones = torch.ones(2, 3)
            assert compiled(ones, ones)[0].dtype is f(ones, ones)[0].dtype
    w.requires_grad_(False)
    assert not compiled(torch.ones(2, 3), torch.ones(2, 3))[0].requires_grad


@pytest.mark.parametrize(
    ("case", "cause"),
    [("argument", "from outside, or one that"), ("weight", "from outside, or one that"),
     ("write", "assigns to"), ("hook", "requires_grad or a hook"), ("norm", "assigns to")],
)  # fmt: skip
def test_what_an_expression_would_not_repeat_runs_plainly(case: str, cause: str):
    w, count, seen = torch.ones(3, requires_grad=True), torch.zeros(1), []
    norm = nn.BatchNorm1d(3)

    def f(x: Tensor) -> tuple[Tensor, ...]:
        y = x * w
        if case == "hook":
            y.register_hook(lambda _: seen.append(1))
        if case == "write":
            count.add_(1.0)
        first = {"argument": x, "weight": w, "norm": norm(x) if case == "norm" else y}.get(case, y)
        return first, y.sum()

    compiled, x = torch.compile(f), torch.rand(2, 3)
    for k in range(1, 5):
        first, total = compiled(x)
        total.backward()
        assert w.grad.tolist() == pytest.approx((x.sum(0) * k).tolist())
        assert first is {"argument": x, "weight": w}.get(case, first)
        assert case != "hook" or len(seen) == k
        assert case != "write" or count.item() == k
        assert case != "norm" or norm.num_batches_tracked.item() == k
    assert cause in compiled.plain


def test_a_layer_that_a_compiled_function_calls_first_is_captured():
    layer = nn.Linear(3, 2)
    compiled = torch.compile(lambda x: layer(x).relu())
    for n in range(3):
        x = Tensor([[1.0, -2.0, 3.0 + n]])
        compiled(x).sum().backward()
        assert layer.bias.grad is not None
        got, layer.bias.grad, layer.weight.grad = layer.bias.grad.tolist(), None, None
        layer(x).relu().sum().backward()
        assert got == layer.bias.grad.tolist()
        layer.bias.grad = layer.weight.grad = None
    assert (compiled.plain, compiled.recompilations) == ("", [])
