"""Training with divided parameters equals one device: tensor-parallel, fully sharded, and restarted."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, TinyJit, nn, optim
from frontend.distributed import layout_of, shards
from frontend.evaluation.plan import PLANS
from tests.children import python
from tests.frontend.meshes import (
    CPUS,
    closed,  # noqa: F401 - a fixture
    divide_all,
    four_cpus,  # noqa: F401 - a fixture
    numbers,
    same,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SHAPE = (3, 5, 8)
"""Batch, positions, width."""


class Block(nn.Module):
    """A transformer block with four heads of causal attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.v, self.out = [nn.Linear(width, width) for _ in range(3)]
        self.k = nn.Linear(width, width, bias=False)  # a bias of keys has a gradient of rounding errors
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        y = self.norm(x)
        heads = [
            f(y).reshape(batch, positions, 4, width // 4).permute(0, 2, 1, 3)
            for f in (self.q, self.k, self.v)
        ]
        found = heads[0].scaled_dot_product_attention(*heads[1:], is_causal=True)
        x += self.out(found.permute(0, 2, 1, 3).reshape(*x.shape))
        return x + self.down(self.up(self.norm2(x)).gelu())


def divide_heads(net: Block, devices: Sequence[str]) -> None:
    """Divide heads and hidden units: by columns into them, by rows out of them."""
    for layer in (net.q, net.k, net.v, net.up):
        for p in layer.parameters():
            p.shard_(devices, 0)
    for layer in (net.out, net.down):
        layer.weight.shard_(devices, 1)


class Run:
    """A model, its optimiser, and a step in float64."""

    def __init__(
        self, devices: Sequence[str], divide: Callable[[Any, Sequence[str]], None] | None = None
    ) -> None:
        Tensor.manual_seed(3)
        self.devices = devices
        self.net = Block(SHAPE[2]).double()
        if devices:
            self.net.to(",".join(devices))
        if divide is not None:
            divide(self.net, devices)
        self.adam = optim.Adam(self.net.parameters(), lr=1e-2)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        loss = (self.net(x) - y).square().mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.detach()

    def steps(
        self, first: int, last: int, how: Callable[[Any], Any] = lambda fn: fn, *, data: bool = False
    ) -> list[float]:
        """Return the losses of some steps; `data`: the batch is divided."""
        step, losses = how(self.step), []
        for i in range(first, last):
            pair = [Tensor(numbers(SHAPE, seed)) for seed in (2 * i, 2 * i + 1)]
            if self.devices:
                pair = [t.shard(self.devices) if data else t.replicate(self.devices) for t in pair]
            losses.append(step(*pair).item())
        return losses

    def values(self) -> list[Any]:
        return [p.numpy() for p in self.net.parameters()]


@pytest.fixture(scope="module")
def alone() -> tuple[list[float], list[Any]]:
    """The losses and parameters of 20 steps on one device."""
    run = Run(())
    return run.steps(0, 20), run.values()


@pytest.mark.parametrize(
    ("count", "how"),
    [
        pytest.param(2, lambda fn: fn, id="2-plain"),
        pytest.param(2, TinyJit, id="2-captured", marks=pytest.mark.landing),
        pytest.param(4, TinyJit, id="4-captured", marks=pytest.mark.landing),
    ],
)
def test_a_tensor_parallel_block_equals_one_device(alone: Any, count: int, how: Any):
    """A plain step exchanges two sums of activations forward, and two backward; nothing else moves."""
    run = Run(CPUS[:count], divide_heads)
    transport = Device[",".join(CPUS[:count])].transport
    losses, before = run.steps(0, 19, how), transport.peer_bytes
    losses += run.steps(19, 20)
    assert transport.peer_bytes - before == 4 * count * (count - 1) * 8 * np.prod(SHAPE)
    assert [layout_of(p).axis for p in (run.net.q.weight, run.net.out.weight, run.net.norm.weight)] == [
        0,
        1,
        None,
    ]
    same([losses, *run.values()], [alone[0], *alone[1]])


@pytest.mark.landing
def test_a_fully_sharded_block_equals_one_device(alone: Any):
    """Each device keeps its part of the parameters and moments; all of a layer is gathered for its use."""
    count = 2
    run = Run(CPUS[:count], divide_all)
    losses = run.steps(0, 19, TinyJit, data=True) + run.steps(19, 20, data=True)
    same([losses, *run.values()], [alone[0], *alone[1]])
    gradients = [p.grad for p in run.net.parameters()]
    for group in (run.net.parameters(), gradients, run.adam.m, run.adam.v):
        for t in group:
            parts = [part.shape[0] for part in shards(t)]
            assert sum(parts) == t.shape[0]
            assert max(parts) == -(-t.shape[0] // count)


def used(names: Sequence[str]) -> list[int]:
    """Return the bytes that buffers take on each device, without plans, which keep those of a launch."""
    Device[",".join(names)].launches.clear()
    PLANS._measure()  # drops what plans that a captured function keeps have bound
    for name in names:
        PLANS.drop(Device[name].name)
        Device[name].synchronize()
    gc.collect()
    for name in names:
        Device[name].hcq.trim()
    return [Device[name].hcq.memory().used for name in names]


def kept(devices: Sequence[str], width: int, divide: Callable[[Any, Sequence[str]], None]) -> list[int]:
    """Return the bytes that a linear layer and its optimiser keep on each device after a step."""
    net = nn.Linear(width, width).to(",".join(devices))
    divide(net, devices)
    adam = optim.Adam(net.parameters(), lr=1e-2)
    net(Tensor(numbers((4, width)).astype("float32")).shard(devices)).square().sum().backward()
    adam.step()
    before = used(devices)
    del net, adam
    return [then - now for then, now in zip(before, used(devices), strict=True)]


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.landing)])
def test_memory_of_a_fully_sharded_model_is_divided(count: int):
    """Parameters, gradients and two moments of float32, and nothing whole, stay on a device after a step."""
    width, devices = 256, CPUS[:count]
    replicated, divided = kept(devices, width, whole), kept(devices, width, divide_all)
    for all_, part in zip(replicated, divided, strict=True):
        assert all_ >= 4 * 4 * (width * width + width)
        assert part <= all_ / count + 8192


LAYERS, SIDE, BATCH = 8, 120, 4
LAYER = 8 * (SIDE * SIDE + SIDE)
"""Bytes of the weights and biases of a layer, in float64."""


class Layers:
    """Equal linear layers, each with a relu, and a step of Adam in float64 on one batch."""

    def __init__(self, devices: Sequence[str]) -> None:
        Tensor.manual_seed(4)
        made = [f for _ in range(LAYERS) for f in (nn.Linear(SIDE, SIDE), nn.ReLU())]
        self.net = nn.Sequential(*made).double()
        self.x = Tensor(numbers((BATCH, SIDE)))
        if devices:
            self.net.to(",".join(devices))
            divide_all(self.net, devices)
            self.x = self.x.shard(devices)
        self.adam = optim.Adam(self.net.parameters(), lr=1e-3)

    def step(self) -> Tensor:
        loss = (self.net(self.x) - 1).square().mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.detach()

    def run(self, how: Callable[[Any], Any]) -> list[Any]:
        """Return the losses of five steps, then the parameters."""
        step = how(self.step)
        losses = [step().item() for _ in range(5)]
        return [losses, *[p.numpy() for p in self.net.parameters()]]


@pytest.fixture(scope="module")
def layers_alone() -> list[Any]:
    """What the layers give on one device."""
    return Layers(()).run(TinyJit)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.landing)])
def test_fully_sharded_layers_equal_one_device_and_move_the_fewest_bytes(count: int, layers_alone: list[Any]):
    """Weights are gathered forward and, but for the first layer, backward; gradients are reduced once."""
    devices = CPUS[:count]
    transport = Device[",".join(devices)].transport
    before = transport.peer_bytes
    same(Layers(devices).run(lambda fn: fn), layers_alone)
    weights, biases = 8 * SIDE * SIDE * (3 * LAYERS - 1), 8 * SIDE * 2 * LAYERS
    losses = count * 8
    assert transport.peer_bytes - before == 5 * (count - 1) * (weights + biases + losses)


def memory_of_layers(devices: Sequence[str]) -> list[int]:
    """Return the bytes that tensors and temporaries take on each device, once a captured step has run."""
    layers = Layers(devices)
    layers.run(TinyJit)
    used(devices)
    found = []
    for name in devices:
        owners = {label: size for label, size, _ in Device[name].hcq.memory().owners}
        found.append(sum([owners.get(label, 0) for label in ("without a label", "received", "scratch")]))
    return found


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.landing)])
def test_a_captured_fully_sharded_step_keeps_no_more_than_two_layers_whole(count: int):
    """They are the gradient of a layer, the parts of it from other devices, and the layer's new part.

    All else is 1/n of the parameters and of two moments, and activations. Counted in a process of its own,
    whose devices have no memory of other launches; that of temporaries is rounded up to a power of two.
    """
    program = f"""if True:
        from tests.frontend.test_parallel_training import CPUS, memory_of_layers
        print(*memory_of_layers(CPUS[:{count}]))
    """
    done = python("-c", program, HCQ_CPU_DEVICES="4")
    activations = LAYERS * 8 * SIDE * BATCH // count
    temporary = 1 << (2 * LAYER + activations).bit_length()
    for size in map(int, done.stdout.split()):
        assert size <= 3 * LAYERS * LAYER // count + temporary + 4096


@pytest.mark.landing
def test_training_restarts_from_a_checkpoint_on_fewer_devices(tmp_path: Path, alone: Any):
    first = Run(CPUS, divide_all)
    losses = first.steps(0, 9, TinyJit, data=True)
    nn.state.safe_save(nn.state.get_state_dict(first.net), tmp_path / "net.safetensors")
    nn.state.safe_save(nn.state.get_state_dict(first.adam), tmp_path / "adam.safetensors")
    second = Run(CPUS[:2], divide_heads)
    nn.state.load_state_dict(second.net, nn.state.safe_load(tmp_path / "net.safetensors"))
    nn.state.load_state_dict(second.adam, nn.state.safe_load(tmp_path / "adam.safetensors"))
    assert layout_of(second.net.out.weight).axis == 1
    losses += second.steps(9, 20, TinyJit)
    same([losses, *second.values()], [alone[0], *alone[1]])
