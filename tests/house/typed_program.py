"""A program as a user writes it who checks types: each `assert_type` says what a checker must see.

`python -m tools.check users` reads it with `mypy --strict`; `test_typed_program` runs it, so that it is a
program that works.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import hcq
from frontend import Tensor, TinyJit, Variable, dtypes, nn
from frontend.arguments.checks import Size
from frontend.device import DeviceName
from frontend.variable import Bound


def operators(x: Tensor, y: Tensor) -> None:
    """Operators give tensors, comparisons too."""
    assert_type(x == y, Tensor)
    assert_type(x != 0, Tensor)
    assert_type(x < y, Tensor)
    assert_type(1 - x, Tensor)
    assert_type(2 / x, Tensor)
    assert_type(2**x, Tensor)
    assert_type(x // 2, Tensor)
    assert_type(x @ y, Tensor)
    assert_type(-x, Tensor)
    assert_type(abs(x), Tensor)
    total = x + 1
    total += y
    assert_type(total, Tensor)


def parts(x: Tensor) -> None:
    """Parts are tensors; so is what a loop goes over."""
    assert_type(x[0], Tensor)
    assert_type(x[:, 1], Tensor)
    assert_type(x[..., None], Tensor)
    assert_type(x.masked_fill(x > 2, 0.0), Tensor)
    for row in x:
        assert_type(row, Tensor)
    assert_type(x.split(1), tuple[Tensor, ...])
    assert_type(x.gather(1, Tensor([[0], [1]])), Tensor)
    written = x.clone()
    written[0] = 1.0
    assert_type(written, Tensor)


def methods(x: Tensor, y: Tensor) -> None:
    """Methods, with their arguments in either spelling, and what comes in pairs."""
    assert_type(x.reshape(4), Tensor)
    assert_type(x.reshape((4,)), Tensor)
    assert_type(x.permute(1, 0).T, Tensor)
    assert_type(x.mean(axis=(0, 1), keepdim=True), Tensor)
    assert_type(x.relu().sigmoid(), Tensor)
    assert_type(x.cast(dtypes.int32), Tensor)
    assert_type(Tensor.cat(x, y), Tensor)
    values, places = x.max(axis=0)
    assert_type(values, Tensor)
    assert_type(places, Tensor)
    largest, where = x.topk(1)
    assert_type(largest, Tensor)
    assert_type(where, Tensor)


def values(x: Tensor) -> None:
    """What leaves the device."""
    assert_type(x.numpy(), np.ndarray[Any, Any])
    assert_type(x.shape, Size)
    assert_type(x.device, DeviceName)
    assert_type(x.device.type, str)
    assert_type(len(x), int)
    assert_type((x > 0).any(), Tensor)
    assert_type(Tensor(np.zeros(3)), Tensor)


def training(x: Tensor, y: Tensor) -> None:
    """A network, its optimiser, and a step that is captured with its parameters' names and types."""
    layer = nn.Linear(2, 2)
    parameters = nn.state.get_parameters(layer)
    assert_type(parameters, list[Tensor])
    optimizer = nn.optim.SGD(parameters, lr=0.1)

    @TinyJit
    def step(inputs: Tensor, wanted: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (layer(inputs) - wanted).square().mean()
        assert_type(loss.backward(), Tensor)
        optimizer.step()
        return loss.realize()

    with Tensor.train():
        for _ in range(3):
            assert_type(step(x, wanted=y), Tensor)
    assert_type(layer.weight, Tensor)
    assert_type(layer.weight.grad, Tensor | None)
    assert_type(Variable("n", 1, 4).bind(2), Bound)


def queues() -> None:
    """The model of queues below."""
    with hcq.open("cpu") as device:
        buffer = device.alloc(4096)
        point = device.compute.submit(device.compute.record().fill(buffer, 7))
        assert_type(point, hcq.Point)
        assert_type(point.wait(timeout_s=60), None)
        assert_type(buffer.host(), memoryview)


def main() -> None:
    """Do all of it."""
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[2.0, 2.0], [2.0, 2.0]])
    operators(x, y)
    parts(x)
    methods(x, y)
    values(x)
    training(x, y)
    queues()


if __name__ == "__main__":
    main()
