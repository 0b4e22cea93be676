"""Count kernels and bytes of training steps, as the scheduler plans them: exact on a loaded machine, too.

A function of `STEPS` makes the memory of a step, and returns a function that runs the step.

Not here: times (`tools.performance.worker`). Next: `tools.view.record`, which records the plans.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compiler import show
from frontend import Tensor, nn
from tools.bench import models
from tools.view.record import Plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _zeros(*shape: int) -> Tensor:
    """Return realized zeros of float32."""
    return Tensor.zeros(*shape).contiguous().realize()


def layer_norm() -> Callable[[], object]:
    """Return the step of the gradients of a layer norm for input, weight and bias."""
    x, g, w, b = _zeros(512, 768), _zeros(512, 768), _zeros(768), _zeros(768)

    def step() -> None:
        first, *rest = ((x.layernorm(-1) * w + b) * g).sum().gradient(x, w, b)
        first.realize(*rest)

    return step


def cross_entropy() -> Callable[[], object]:
    """Return the step of a cross entropy and its gradient."""
    x, y = _zeros(512, 1000), Tensor.zeros(512, dtype="int64").contiguous().realize()

    def step() -> None:
        loss = x.sparse_categorical_crossentropy(y)
        loss.realize(*loss.gradient(x))

    return step


def embedding() -> Callable[[], object]:
    """Return the step of the gradient of an embedding's table."""
    table, g = _zeros(4096, 256), _zeros(8, 128, 256)
    index = Tensor.zeros(8, 128, dtype="int64").contiguous().realize()

    def step() -> None:
        (table[index] * g).sum().gradient(table)[0].realize()

    return step


def mnist() -> Callable[[], object]:
    """Return a training step of a small convolutional network with Adam."""
    record = models.mnist()

    def step() -> None:
        first, *rest = record()
        first.realize(*rest)

    return step


def transformer() -> Callable[[], object]:
    """Return the step of a transformer block, forward and backward for its input and all weights."""
    width, heads = 256, 8
    first, second = nn.LayerNorm(width), nn.LayerNorm(width)
    qkv, out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    params = nn.state.get_parameters([first, second, qkv, out, up, down])
    params[0].realize(*params[1:])
    x, g = _zeros(4, 128, width), _zeros(4, 128, width)

    def step() -> None:
        q, k, v = qkv(first(x)).reshape(4, 128, 3, heads, width // heads).permute(2, 0, 3, 1, 4).chunk(3, 0)
        seen = q.squeeze(0).scaled_dot_product_attention(k.squeeze(0), v.squeeze(0), is_causal=True)
        y = x + out(seen.transpose(1, 2).reshape(4, 128, width))
        y = y + down(up(second(y)).gelu())
        y.realize(*(y * g).sum().gradient(x, *params))

    return step


STEPS: Final[dict[str, Callable[[], Callable[[], object]]]] = {
    "layer norm 512x768, three gradients": layer_norm,
    "cross entropy 512x1000 and gradient": cross_entropy,
    "embedding 4096x256, gradient of 1024 rows": embedding,
    "MNIST step of 128 images, Adam": mnist,
    "transformer block 4x128x256, all gradients": transformer,
}


@dataclass(frozen=True, slots=True)
class Count:
    """The number of kernels of a step, and the bytes that they move (`compiler.show.moved`)."""

    kernels: int
    nbytes: int


def counts(names: Sequence[str] = tuple(STEPS)) -> dict[str, Count]:
    """Run each step of `STEPS` in `names` once; return its kernels and bytes by name.

    An audit hook is added, which stays for the life of the process. Raises `KeyError` for another name.
    """
    plans = Plans()
    sys.addaudithook(plans.listen)
    found: dict[str, Count] = {}
    for name in names:
        make = STEPS[name]
        step = make()
        plans.found.clear()
        step()
        items = [item for plan in plans.found for item in plan.items]
        found[name] = Count(len(items), sum(show.moved(item) for item in items))
    return found
