"""`torch.compile(model, backend="hcq")` gives what PyTorch gives, forward and in training.

Not here: PyTorch's names of the frontend (`test_programs_of_pytorch`).
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'hcq[torch]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch deprecates parts of itself while it compiles

from frontend import Tensor  # noqa: E402 - as below
from frontend.torch_compile import graph_breaks, hcq  # noqa: E402 - needs PyTorch
from frontend.torch_compile.functions import grouped  # noqa: E402 - as above
from frontend.torch_compile.memory import Form, form_of, given_back, in_order, shared  # noqa: E402 - as above

nn: Any = torch.nn
F = nn.functional


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(3)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = self.all(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 5, 16)
        )


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.head = (
            nn.Embedding(20, 8, padding_idx=3),
            nn.LayerNorm(8),
            nn.Linear(8, 20),
        )

    def forward(self, ids: Any) -> Any:
        logits = self.head(self.norm(self.table(ids)))
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten().roll(1)).reshape(1)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)

    def forward(self, x: Any) -> Any:
        h = c = x.new_zeros(2, 6)
        for t in range(3):
            h, c = self.cell(x[:, t], (h, c))
        return h


class Stores(nn.Module):
    """Writes in place: a buffer, rows and columns of a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 8)
        self.register_buffer("sums", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        self.sums.add_(x.detach().sum(0))
        x = x.clone()
        x[0] = self.sums
        x[:, 1] += 2
        x[torch.tensor([1, 3]), 2] = 5
        return self.head(x).relu_()


class Moved(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.permute(0, 3, 1, 2)


def convolutions(*more: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2), *more, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


MODELS = {
    "perceptron": lambda: (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(5, 8)),
    "convolutions": lambda: (convolutions(), torch.randn(2, 3, 16, 16)),
    "channels last": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 2, 2)).to(
            memory_format=torch.channels_last
        ),
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
    ),
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True),
        torch.randn(2, 5, 16),
    ),
    "attention": lambda: (Attention(), torch.randn(2, 5, 16)),
    "words": lambda: (Words(), torch.randint(0, 20, (3, 7))),
    "cells": lambda: (Cells(), torch.randn(2, 3, 4)),
    "stores": lambda: (Stores(), torch.randn(4, 8)),
    "axes moved before a pool": lambda: (
        nn.Sequential(nn.Linear(3, 3), Moved(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        torch.randn(2, 4, 4, 3),
    ),
    "dropout": lambda: (nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 2)), torch.randn(6, 8)),
}
PLAIN = ("perceptron", "convolutions", "stores")


def near(a: Any, b: Any, tolerance: float = 1e-4) -> bool:
    """Return whether b differs from a by less than a part of the largest of a."""
    return a.shape == b.shape and bool((a - b).abs().max() <= tolerance * a.abs().max().clamp_min(1e-2))


def pair(name: str) -> tuple[Any, Any, Any]:
    """Return a model, an equal one that is compiled, and an input."""
    model, x = MODELS[name]()
    other, _ = MODELS[name]()
    other.load_state_dict(model.state_dict())
    return model, torch.compile(other, backend=hcq), x


@pytest.mark.parametrize(
    "name", [n if n in PLAIN else pytest.param(n, marks=pytest.mark.landing) for n in MODELS]
)
def test_training_is_that_of_pytorch(name: str):
    model, compiled, x = pair(name)
    steps = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, compiled)]
    for step in range(3):
        found = []
        for m, optimiser in zip((model, compiled), steps, strict=True):
            torch.manual_seed(step)
            out = m(x)
            optimiser.zero_grad()
            out.square().mean().backward()
            optimiser.step()
            found.append(out.detach())
        assert near(*found)
    for a, b in zip(model.state_dict().values(), compiled.state_dict().values(), strict=True):
        assert near(a.double(), b.double())
    assert near(model.eval()(x).detach(), compiled.eval()(x).detach())


@pytest.mark.landing
def test_a_whole_step_of_adam_is_that_of_pytorch():
    model, _, x = pair("perceptron")
    other, _ = MODELS["perceptron"]()
    other.load_state_dict(model.state_dict())
    steps = [torch.optim.Adam(m.parameters(), 0.01, capturable=False) for m in (model, other)]

    def step(m: Any, optimiser: Any) -> None:
        optimiser.zero_grad()
        m(x).square().mean().backward()
        optimiser.step()

    compiled = torch.compile(other, backend=hcq)
    for _ in range(3):
        step(model, steps[0])
        step(compiled, steps[1])
    assert all(near(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_values_are_stored_at_strides_and_counted_in_parts():
    def function(x: Any, y: Any) -> Any:
        return torch.as_strided_scatter(x * 2, y, (2, 3), (1, 2), 1), torch.histc(x, 4, -1, 1)

    x, y = torch.randn(3, 7).t(), torch.randn(2, 3)
    for a, b in zip(function(x, y), torch.compile(function, backend=hcq)(x, y), strict=True):
        assert torch.equal(a, b)
        assert a.stride() == b.stride()


def test_rows_of_a_group_are_multiplied_by_its_matrix():
    x, weights = torch.randn(6, 3), torch.randn(4, 3, 2)
    found = grouped(*[Tensor(t.numpy()) for t in (x, weights, torch.tensor([2, 2, 5, 5]))])
    want = torch.cat([x[:2] @ weights[0], x[2:5] @ weights[2], torch.zeros(1, 2)])
    assert near(want, torch.from_numpy(found.numpy()))


def test_results_have_memory_of_their_own():
    def function(x: Any) -> Any:
        y = x + 1
        return y, y.clone(), x.clone(), x.t(), (x + 1).t()

    x = torch.randn(3, 4)
    want, found = function(x), torch.compile(function, backend=hcq)(x)
    assert all(torch.equal(a, b) for a, b in zip(want, found, strict=True))
    assert [a.stride() for a in want] == [a.stride() for a in found]
    addresses = [t.data_ptr() for t in found]
    assert len({*addresses[:3]}) == 3
    assert addresses[3] == x.data_ptr()  # a view of the input
    found[0].zero_()
    assert torch.equal(found[1], want[1])
    assert torch.equal(found[4], want[4])


def test_memory_is_used_in_place_where_it_is_dense_and_aligned():
    from frontend.device import Device

    device = Device["cpu"]
    whole = torch.randn(8, 16)
    for t, in_place in [
        (whole, True), (whole.t(), True), (whole[2:], True), (whole[:, 1:], False),
        (whole.flatten()[1:], False), (whole[0].expand(3, 16), False), (torch.tensor(3.0), True),
        (torch.ones(4, dtype=torch.bfloat16), True), (torch.zeros(0, 3), False),
    ]:  # fmt: skip
        form = form_of(t)
        mine = shared(t, form, device)
        assert (in_order(mine, form).numpy() == t.float().numpy()).all()
        assert not in_place or mine.data_ptr() == t.data_ptr()
        assert in_place or not t.numel() or mine.data_ptr() != t.data_ptr()
        assert torch.equal(given_back(mine, form.order), t)
    assert isinstance(form_of(whole), Form)


def test_sizes_that_change_are_captured_each():
    def function(x: Any) -> Any:
        return x * x.shape[0], x.reshape(-1)[:3].sum(), x.shape[0] * 2

    compiled = torch.compile(function, backend=hcq, dynamic=True)
    for n in (3, 4, 7, 3):
        x = torch.randn(n, 3)
        a, b, size = compiled(x)
        assert torch.equal(a, x * n)
        assert near(function(x)[1], b)
        assert size == 2 * n


def views(x: Any) -> Any:
    parts = [
        *x.chunk(2),
        *x.unbind(1),
        x.diagonal(),
        x.unfold(0, 2, 1),
        x.split([1, x.shape[0] - 1])[1],
        x[1:].t(),
    ]
    return [*parts, (x + 1).t(), x.diagonal() * 2, x.chunk(2)[1] + x.stride(0)]


@pytest.mark.parametrize("dynamic", [True, False])
def test_views_of_inputs_are_views_of_their_memory(*, dynamic: bool):
    compiled = torch.compile(views, backend=hcq, dynamic=dynamic)
    for n in (4, 6):
        whole = torch.arange(n * 3.0).view(n, 3)
        for x in (whole, whole.t().contiguous().t()):
            for i, (a, b) in enumerate(zip(views(x), compiled(x), strict=True)):
                assert torch.equal(a, b), i
                assert a.stride() == b.stride(), i
                assert i > 8 or a.data_ptr() == b.data_ptr(), i


def in_place(x: Any) -> Any:
    x.diagonal().add_(2)
    return x * x.copysign(x.flip(0)), torch.fmax(x, -x), x.signbit(), torch.addcmul(x, x, x, value=0.5)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x, n: x * n + n, [2.0, 3.5, 0.25, 7]),
        (lambda x, _: in_place(x.clone()), [0]),
        (lambda x, _: torch._foreach_add(torch._foreach_mul([x, x * 2], [3.0, 4.0]), [x, x], alpha=2), [0]),
        (lambda x, _: torch._foreach_pow(2.0, [x, x + 1]) + torch._foreach_norm([x, x]), [0]),
    ],
)
def test_numbers_change_and_lists_are_computed(function: Any, given: list[float]):
    compiled, x = torch.compile(function, backend=hcq), torch.randn(4, 4)
    for n in given:
        for a, b in zip(function(x, n), compiled(x, n), strict=True):
            torch.testing.assert_close(a, b)


OPTIMISERS = {
    "adam": lambda p: torch.optim.Adam(p, 0.1, foreach=False),
    "lists": lambda p: torch.optim.AdamW(p, 0.1, foreach=True, amsgrad=True),
    "momentum": lambda p: torch.optim.SGD(p, torch.tensor(0.1), momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.landing) for n in OPTIMISERS])
def test_steps_of_optimisers_are_compiled(name: str):
    found = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend=hcq)):
        parts = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.arange(4.0).view(2, 2))]
        optimiser = OPTIMISERS[name](parts)
        step = wrap(lambda o=optimiser: o.step())
        for k in range(4):
            for p in parts:
                p.grad = p.detach() * (k + 1) + 1
            nn.utils.clip_grad_norm_(parts, 2.0)
            step()
        found.append(parts)
    assert all(near(a.detach(), b.detach()) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "x.clone().uniform_(2, 3)", "x.clone().normal_(1, 2)", "x.clone().exponential_(2)",
        "x.clone().geometric_(0.3)", "x.clone().cauchy_()", "x.clone().log_normal_()", "torch.normal(x, 2.0)",
        "torch.normal(1.0, 2.0, (3,))", "torch.rand_like(x.t())", "torch.randn_like(x.t())",
        "torch.randint_like(x, 3)", "torch.randint_like(x, 2, 9)", "torch.randint(-3, 9, (5,))",
        "F.gumbel_softmax(x)", "F.dropout(x, 1.0)", "F.dropout(x.t(), 0.5)", "x.clone().bernoulli_(0.3)",
    ],
)  # fmt: skip
def test_random_values_are_those_without_compilation(text: str):
    def function(x: Any) -> Any:
        return eval(text)

    x = torch.rand(2, 3)
    torch.manual_seed(5)
    want, after = function(x), torch.rand(3)
    torch.manual_seed(5)
    assert torch.allclose(want, torch.compile(function, backend=hcq)(x), 1e-5)
    assert torch.equal(after, torch.rand(3))


def test_operators_without_a_row_are_named():
    def function(x: Any) -> Any:
        return torch.linalg.eigvalsh(x) + 1

    with pytest.raises(Exception, match="hcq lacks") as caught:
        torch.compile(function, backend=hcq)(torch.eye(3))
    assert "aten._linalg_eigh.default, node _linalg_eigh" in str(caught.value)
    assert "return torch.linalg.eigvalsh(x) + 1" in str(caught.value)


def test_complex_numbers_are_refused():
    with pytest.raises(Exception, match="no dtype complex64"):
        torch.compile(lambda x: x * 2, backend=hcq)(torch.ones(2, dtype=torch.complex64))


def test_unknown_options_are_refused():
    with pytest.raises(Exception, match="wanted device, saw devise"):
        torch.compile(lambda x: x * 2, backend=hcq, options={"devise": "cpu"})(torch.ones(2))


@pytest.mark.landing
def test_another_device_computes():
    x = torch.randn(4, 5)
    compiled = torch.compile(
        lambda x: (x.softmax(-1) @ x.t()).sum(0), backend=hcq, options={"device": "nv-emu"}
    )
    assert near((x.softmax(-1) @ x.t()).sum(0), compiled(x))


def test_graph_breaks_are_listed():
    def function(x: Any) -> Any:
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    (found,) = graph_breaks(function, torch.ones(2))
    assert Path(found.where.rpartition(":")[0]).name == Path(__file__).name
    assert "graph_break" in found.reason
    assert graph_breaks(lambda x: x + 1, torch.ones(2)) == []


def test_pytorch_finds_the_back_end_by_its_entry_point():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch_dynamo_backends"] == {"hcq": "frontend.torch_compile:hcq"}
