"""Training of a character GPT and of a ResNet-18 on several devices equals one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Tensor, TinyJit, nn, optim
from frontend.distributed import layout_of
from frontend.nn import functional
from tests.frontend.meshes import (
    CPUS,
    closed,  # noqa: F401 - a fixture
    divide_all,
    four_cpus,  # noqa: F401 - a fixture
    same,
    whole,
)
from tests.support.examples import example

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORDS, WIDTH, HEADS, CONTEXT = 11, 8, 4, 5
Trained = tuple[list[Any], list[Any]]
"""The losses, and all parameters and buffers after the steps."""


def gpt() -> Any:
    """Return the model of the example, in float64."""
    return example("char_gpt").CharGPT(WORDS, WIDTH, HEADS, 1, CONTEXT).double()


def tensor_parallel(net: Any, devices: Sequence[str]) -> None:
    """Divide the linear layers by columns into heads and hidden units, by rows out of them."""
    for block in net.blocks:
        for layer in (block.qkv, block.up):
            for p in layer.parameters():
                p.shard_(devices, 0)
        for layer in (block.out, block.down):
            layer.weight.shard_(devices, 1)


class Residual(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        first = nn.Conv2d(given, made, 3, stride=stride, padding=1, bias=False)
        second = nn.Conv2d(made, made, 3, padding=1, bias=False)
        self.inner = nn.Sequential(first, nn.BatchNorm2d(made), nn.ReLU(), second, nn.BatchNorm2d(made))
        across = nn.Conv2d(given, made, 1, stride=stride, bias=False)
        self.around = nn.Sequential(across, nn.BatchNorm2d(made)) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return (self.inner(x) + self.around(x)).relu()


def resnet18(width: int = 4) -> nn.Module:
    """Return a ResNet-18 for small images: its first convolution has size 3, and no pooling follows."""
    made = [width << i // 2 for i in range(8)]
    blocks = [Residual(made[max(i - 1, 0)], n, 1 + (i in {2, 4, 6})) for i, n in enumerate(made)]
    first = nn.Conv2d(3, width, 3, padding=1, bias=False)
    last = nn.Linear(made[-1], 10)
    return nn.Sequential(
        first, nn.BatchNorm2d(width), nn.ReLU(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last
    )


def trained(  # noqa: PLR0917 - a case
    net: Any, batches: Sequence[tuple[Any, Any]], descent: dict[str, float], devices: Sequence[str],
    divide: Callable[[Any, Sequence[str]], None], how: Callable[[Any], Any], *, replicated: bool = False,
) -> Trained:  # fmt: skip
    """Return what steps of classification give, one a batch."""
    if devices:
        net.to(",".join(devices))
        divide(net, devices)
    sgd = optim.SGD([p for p in net.parameters() if p.requires_grad], **descent)

    def step(given: Tensor, wanted: Tensor) -> Tensor:
        found = net(given)
        loss = functional.cross_entropy(found.reshape(-1, found.shape[-1]), wanted.flatten())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        return loss.detach()

    run, losses = how(step), []
    with Tensor.train():
        for batch in batches:
            pair = [Tensor(a) for a in batch]
            if devices:
                pair = [t.replicate(devices) if replicated else t.shard(devices) for t in pair]
            losses.append(run(*pair).item())
    return losses, [t.numpy() for t in nn.state.get_state_dict(net).values()]


def of_gpt(
    devices: Sequence[str], divide: Callable[[Any, Sequence[str]], None], *, replicated: bool = False
) -> Trained:
    """Return what 20 captured steps of the GPT give."""
    Tensor.manual_seed(5)
    ids = np.random.default_rng(1).integers(0, WORDS, (3, 5, CONTEXT + 1))
    batches = [(ids[i % 3][:, :-1], ids[i % 3][:, 1:]) for i in range(20)]
    descent = {"lr": 0.1, "momentum": 0.9}
    return trained(gpt(), batches, descent, devices, divide, TinyJit, replicated=replicated)


def of_resnet(devices: Sequence[str], dtype: str, order: Any = ...) -> Trained:
    """Return what three steps of the ResNet with batches of 7 images give; `order`: that of the images."""
    Tensor.manual_seed(5)
    net, rng = resnet18(), np.random.default_rng(1)
    images, classes = rng.standard_normal((3, 7, 3, 8, 8)).astype(dtype), rng.integers(0, 10, (3, 7))
    batches = [(x[order], y[order]) for x, y in zip(images, classes, strict=True)]
    net = net.double() if dtype == "float64" else net
    return trained(net, batches, {"lr": 0.01}, devices, whole, lambda fn: fn)


@pytest.fixture(scope="module")
def alone() -> Trained:
    """What the GPT gives on one device."""
    return of_gpt((), whole)


@pytest.fixture(scope="module")
def exact() -> Trained:
    """What the ResNet gives on one device, in float64."""
    return of_resnet((), "float64")


@pytest.mark.landing
@pytest.mark.parametrize(
    ("way", "count"), [("data", 2), ("sharded", 2), ("tensor", 2), ("data", 4), ("tensor", 4)]
)
def test_a_character_gpt_equals_one_device(alone: Trained, way: str, count: int):
    """A batch of 5 is divided unevenly."""
    divide = {"data": whole, "sharded": divide_all, "tensor": tensor_parallel}[way]
    losses, values = of_gpt(CPUS[:count], divide, replicated=way == "tensor")
    same([losses, *values], [alone[0], *alone[1]])


@pytest.mark.landing
@pytest.mark.parametrize("count", [2, 4])
def test_a_resnet_equals_one_device(exact: Trained, count: int):
    """Batch norms use the mean and variance of the whole batch, whose 7 images are divided unevenly."""
    losses, values = of_resnet(CPUS[:count], "float64")
    same([losses, *values], [exact[0], *exact[1]])


@pytest.mark.landing
def test_a_resnet_in_float32_is_as_near_to_float64_as_one_device_is(exact: Trained):
    """Rounding errors are those of one device with the images in other orders, up to a factor of 4.

    The sign of a value near 0 may differ, and with it the gradient of a relu: 1e-3 of a loss is allowed.
    """
    rng = np.random.default_rng(2)
    near = [of_resnet((), "float32", rng.permutation(7)) for _ in range(2)]
    got = of_resnet(CPUS[:2], "float32")

    def errors(run: Trained) -> Any:
        return np.abs(np.array(run[0]) - exact[0]) / exact[0]

    assert (errors(got) <= np.maximum(4 * np.max([errors(run) for run in near], 0), 1e-3)).all()


def test_batch_norm_is_one_over_all_devices():
    """PyTorch's DistributedDataParallel has a mean and a variance of each rank, unless SyncBatchNorm is used.

    On a mesh they are those of the whole batch.
    """
    x = np.random.default_rng(0).standard_normal((5, 3, 2, 2)) * np.arange(5).reshape(5, 1, 1, 1)
    found = []
    for devices in ((), CPUS[:2], CPUS[:3]):
        norm = nn.BatchNorm2d(3).double()
        given = Tensor(x)
        if devices:
            norm.to(",".join(devices))
            given = given.shard(devices)
        with Tensor.train():
            y = norm(given)
            if devices:
                assert layout_of(y).axis == 0
            found.append([y.numpy(), norm.running_mean.numpy(), norm.running_var.numpy()])
    for got in found[1:]:
        same(got, found[0])
