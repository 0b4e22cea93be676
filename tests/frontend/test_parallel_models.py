"""Training of a character GPT on several devices equals one device, in float64: each way to divide it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, TinyJit, nn, optim
from frontend.nn import functional
from hcq.config import override
from tests.children import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CPUS = ("cpu:0", "cpu:1", "cpu:2", "cpu:3")
WORDS, WIDTH, HEADS, CONTEXT = 11, 8, 4, 5


def made() -> Any:
    """Return the model of the example, in float64."""
    spec = importlib.util.spec_from_file_location("char_gpt_example", ROOT / "examples" / "char_gpt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CharGPT(WORDS, WIDTH, HEADS, 1, CONTEXT).double()


@pytest.fixture(autouse=True)
def four_cpus() -> Iterator[None]:
    """Four cpu devices."""
    with override(cpu_devices=4):
        yield


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """Open cpu:0 with all cores, which other modules use, and close the other devices after this module."""
    Device["cpu"].synchronize()
    yield
    for name in CPUS[1:]:
        found = Device._open.get(Device.canonical(name))
        if found is not None:
            found.synchronize()  # work that no test waited for
            found.close()


def whole(_net: nn.Module, _devices: Sequence[str]) -> None:
    """Data parallel: each device keeps all parameters."""


def divided(net: nn.Module, devices: Sequence[str]) -> None:
    """Fully sharded: each parameter is divided along its first axis."""
    for p in net.parameters():
        if p.requires_grad:
            p.shard_(devices, 0)


def tensor_parallel(net: Any, devices: Sequence[str]) -> None:
    """Divide the linear layers by columns into heads and hidden units, by rows out of them."""
    for block in net.blocks:
        for layer in (block.qkv, block.up):
            for p in layer.parameters():
                p.shard_(devices, 0)
        for layer in (block.out, block.down):
            layer.weight.shard_(devices, 1)


WAYS = {"data": whole, "sharded": divided, "tensor": tensor_parallel}


def trained(devices: Sequence[str], way: str) -> list[Any]:
    """Return the losses of 20 captured steps, and the parameters after them."""
    Tensor.manual_seed(5)
    net = made()
    if devices:
        net.to(",".join(devices))
        WAYS[way](net, devices)
    parameters = [p for p in net.parameters() if p.requires_grad]
    descent = optim.SGD(parameters, lr=0.1, momentum=0.9)
    ids = np.random.default_rng(1).integers(0, WORDS, (3, 5, CONTEXT + 1))

    @TinyJit
    def step(given: Tensor, wanted: Tensor) -> Tensor:
        loss = functional.cross_entropy(net(given).flatten(0, 1), wanted.flatten())
        descent.zero_grad()
        loss.backward()
        descent.step()
        return loss.detach()

    losses = []
    with Tensor.train():
        for i in range(20):
            pair = [Tensor(ids[i % 3][:, :-1]), Tensor(ids[i % 3][:, 1:])]
            if devices:
                pair = [t.replicate(devices) if way == "tensor" else t.shard(devices) for t in pair]
            losses.append(step(*pair).item())
    return [np.array(losses), *[p.numpy() for p in parameters]]


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    """The losses and parameters of 20 steps on one device."""
    return trained((), "data")


@pytest.mark.landing
@pytest.mark.parametrize(
    ("way", "count"), [("data", 2), ("sharded", 2), ("tensor", 2), ("data", 4), ("tensor", 4)]
)
def test_a_character_gpt_equals_one_device(alone: list[Any], way: str, count: int):
    """A batch of 5 is divided unevenly."""
    for got, want in zip(trained(CPUS[:count], way), alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
