"""Numbers and places of parts that differ from launch to launch: the values of plain calls, in one kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import frontend as torch
from frontend import Tensor
from frontend.evaluation import plan, varying
from frontend.evaluation.expr import TABLE
from frontend.stats import stats
from tests.oracles.edges import record
from tests.oracles.programs import run, wrong
from tests.oracles.recording import recorded

F = torch.nn.functional
EDGES, PROGRAMS = recorded("edges.json"), recorded("programs.json")
ROUNDS = 9
"""More than the numbers that become part of a structure."""
Case = Callable[[Tensor, int], Tensor]


def _c(i: int) -> float:
    return 0.3 + i * 0.37


def _written(x: Tensor, key: Any, value: Any) -> Tensor:
    y = x.clone()
    y[key] = value
    return y


CASES: dict[str, Case] = {
    "clamp": lambda x, i: x.clamp(-_c(i), _c(i)),
    "clamp of one side": lambda x, i: x.clamp(max=i),
    "masked_fill": lambda x, i: x.masked_fill(x > 0, _c(i)),
    "where": lambda x, i: torch.where(x > 0, x, _c(i)),
    "lerp": lambda x, i: torch.lerp(x, x + 1, _c(i)),
    "addcmul": lambda x, i: torch.addcmul(x, x, x, value=_c(i)),
    "leaky_relu": lambda x, i: F.leaky_relu(x, _c(i)),
    "threshold": lambda x, i: F.threshold(x, _c(i), i),
    "softplus": lambda x, i: F.softplus(x, beta=_c(i)),
    "layer_norm": lambda x, i: F.layer_norm(x, (x.shape[-1],), eps=_c(i)),
    "full": lambda x, i: torch.full(x.shape, _c(i)) * x,
    "full of integers": lambda x, i: torch.full(x.shape, 3 * i - 7),
    "a number as a tensor": lambda x, i: torch.tensor(_c(i)) * x,
    "fill_": lambda x, i: x.clone().fill_(_c(i)),
    "tril": lambda x, i: x.tril(i - 3),
    "a row": lambda x, i: x[i % x.shape[0]],
    "rows": lambda x, i: x[i % 3 : i % 3 + 2],
    "every second column": lambda x, i: x[:, i % 2 : i % 2 + 3 : 2],
    "columns, backwards": lambda x, i: x.flip(1)[..., -1 - i % x.shape[1]],
    "a part of a part": lambda x, i: x[i % 2 :, i % 3 : i % 3 + 1][0],
    "narrow": lambda x, i: x.narrow(0, i % 4, 1),
    "select": lambda x, i: x.select(1, i % x.shape[1]),
    "pad": lambda x, i: F.pad(x, (i, 9 - i, 9 - i, i), value=1.0),
    "writing a row": lambda x, i: _written(x, i % x.shape[0], _c(i)),
    "writing an element": lambda x, i: _written(x, (i % x.shape[0], i % x.shape[1]), _c(i)),
    "writing rows": lambda x, i: _written(x, slice(i % 2, i % 2 + 2), x[1:3] * 2),
    "writing into zeros": lambda _, i: _written(torch.zeros(7, 9), (i % 7, i % 9), 1.5),
    "a product of a part": lambda x, i: x[i % 3 : i % 3 + 2] @ x.T,
    "a number of values": lambda x, i: x / (x.abs().max().item() + i),
    "a loss with a weight": lambda x, i: F.huber_loss(x, x * 2, delta=_c(i)),
    "labels made smooth": lambda x, i: F.cross_entropy(x, torch.tensor([1] * len(x)), label_smoothing=i / 10),
}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8")
NARROW = ("a row", "rows", "clamp", "writing a row", "full of integers", "pad", "masked_fill", "tril")


@pytest.fixture
def each_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass each number and place that differs from an earlier one in memory, without a limit."""
    monkeypatch.setattr(varying, "CONSTANT_LIMIT", 0)
    monkeypatch.setattr(plan, "CONSTANT_LIMIT", 0)
    TABLE.clear()


def _values(case: Case, data: Tensor, *, limit: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(varying, "CONSTANT_LIMIT", limit)
    TABLE.clear()
    return [case(data, i).tolist() for i in range(ROUNDS)]


@pytest.mark.parametrize("shape", [(5, 4), (6, 5)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numbers_in_the_structure(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (torch.arange(shape[0] * shape[1]).reshape(shape) - 9) * 0.25
    data.realize()
    plain = _values(CASES[name], data, limit=10**6, monkeypatch=monkeypatch)
    assert _values(CASES[name], data, limit=4, monkeypatch=monkeypatch) == plain
    before = stats.plans
    more = [CASES[name](data, i).tolist() for i in range(ROUNDS)]
    assert more == plain
    assert len({str(value) for value in plain}) > 1
    assert stats.plans - before <= 1  # those of the first numbers are known


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NARROW)
def test_values_in_other_dtypes(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = torch.arange(20).reshape(5, 4).to(getattr(torch, dtype)).realize()
    case = CASES[name] if dtype[0] in "fb" else _whole(name)
    plain = _values(case, data, limit=10**6, monkeypatch=monkeypatch)
    assert _values(case, data, limit=4, monkeypatch=monkeypatch) == plain


def _whole(name: str) -> Case:
    """Return a case with whole numbers, as integers take them."""
    cases: dict[str, Case] = {
        "clamp": lambda x, i: x.clamp(i, i + 3),
        "masked_fill": lambda x, i: x.masked_fill(x > 7, i),
        "where": lambda x, i: torch.where(x > 7, x, i),
        "pad": lambda x, i: F.pad(x, (i, 9 - i), value=i),
        "writing a row": lambda x, i: _written(x, i % 5, i),
    }
    return cases.get(name, CASES[name])


@pytest.mark.parametrize("name", [n for n in CASES if "full" not in n and "writing into" not in n])
def test_gradients_are_those_of_numbers_in_the_structure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slope(i: int) -> Any:
        x = ((torch.arange(20).reshape(5, 4) - 9) * 0.25).realize().requires_grad_()
        y = CASES[name](x, i)
        if not y.requires_grad:
            return []
        (y * y).sum().backward()
        return x.grad.tolist()

    monkeypatch.setattr(varying, "CONSTANT_LIMIT", 10**6)
    TABLE.clear()
    plain = [slope(i) for i in range(ROUNDS)]
    monkeypatch.setattr(varying, "CONSTANT_LIMIT", 4)
    TABLE.clear()
    assert [slope(i) for i in range(ROUNDS)] == plain
    assert [slope(i) for i in range(ROUNDS)] == plain


def test_batches_of_a_loop_share_kernels() -> None:
    data, labels = torch.rand(240, 8).realize(), torch.randint(0, 3, (240,)).realize()
    model = torch.nn.Linear(8, 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    counts = []
    for i in range(0, 240, 12):
        before = stats.plans
        loss = F.cross_entropy(model(data[i : i + 12]), labels[i : i + 12])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        loss.item()
        counts.append(stats.plans - before)
    assert sum(counts[:5]) > 0
    assert sum(counts[6:]) == 0


def test_a_loop_within_one_launch_keeps_its_places() -> None:
    x = torch.rand(40, 3).realize()
    for _ in range(3):
        rows = [x[i] for i in range(40)]
        assert all(len(row.leaves) == 1 for row in rows)
        assert torch.stack(rows).tolist() == x.tolist()


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize("home", [False, True], ids=["new memory", "a store"])
def test_each_tensor_of_a_number_has_its_own_memory(shape: tuple[int, ...], home: bool) -> None:  # noqa: FBT001 - a case
    for i in range(ROUNDS + 4):
        a, b, kept = [torch.full(shape, _c(i)) for _ in range(3)]
        if home:
            a, b = torch.zeros(shape).realize().copy_(a), torch.zeros(shape).realize().copy_(b)
        for t in (a, b, kept):
            t.realize()
        a += 1
        b.mul_(3)
        each = [a.flatten()[0].item(), b.flatten()[0].item(), kept.flatten()[0].item()]
        assert each == pytest.approx([_c(i) + 1, _c(i) * 3, _c(i)])
        c, d = torch.tensor(_c(i), requires_grad=True), torch.tensor(_c(i), requires_grad=True)
        (c * 2 + d * 3).backward()
        assert (c.grad.item(), d.grad.item()) == (2, 3)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("text", EDGES)
def test_gradients_at_edges_with_each_number_in_memory(text: str, each_in_memory: None) -> None:
    for got, want in zip(record(torch, text), EDGES[text], strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_pytorch_with_each_number_in_memory(name: str, each_in_memory: None) -> None:
    assert not wrong(name, run(name, torch, ours=True), PROGRAMS[name])


@pytest.mark.parametrize("limited", [False, True])
def test_numbers_that_are_few_at_many_places_make_few_plans(*, limited: bool):
    """Signs of six steps, as of actions: 64 combinations. With a `gather`, whose indices have limits."""
    rng, x, before = np.random.default_rng(4), Tensor.arange(4, dtype="float32").realize(), 0
    for turn in range(32):
        signs, total, want = rng.choice([-0.3, 0.3], 6), x.clone(), np.arange(4, dtype=np.float32)
        for sign in signs:
            total, want = (total + sign).tanh() * 2, np.tanh(want + np.float32(sign)) * 2
        if limited:
            total, want = total.gather(0, Tensor([3, 1])), want[[3, 1]]
        np.testing.assert_allclose(total.numpy(), want, rtol=1e-5)
        before = stats.plans if turn == 23 else before
    assert stats.plans == before
