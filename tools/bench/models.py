"""Models whose kernels are lowered by the case "lowering": forward passes and a training step, not computed.

Each function returns the pending tensors of one launch. The weights are computed before and lie in memory.

Not here: counts of the kernels of training steps (`tools.performance.steps`). Next: `lowering`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frontend import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCKS: Final = (
    (64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
    (512, 512, 1),
)  # fmt: skip
"""The input channels, output channels and stride of each block of a ResNet-18."""
_WORDS: Final = 4096


def _zeros(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def _in_memory(model: Any) -> list[Tensor]:
    """Compute the weights of a model, and return them."""
    params = nn.state.get_parameters(model)
    params[0].realize(*params[1:])
    return params


def resnet18() -> list[Tensor]:
    """Return the forward pass of a ResNet-18 for one picture of 224 x 224."""

    def convolved(ci: int, co: int, size: int, stride: int) -> list[Any]:
        conv = nn.Conv2d(ci, co, size, stride=stride, padding=size // 2, bias=False)
        return [conv, nn.BatchNorm(co)]

    first = convolved(3, 64, 7, 2)
    blocks = [
        (
            [*convolved(ci, co, 3, stride), Tensor.relu, *convolved(co, co, 3, 1)],
            convolved(ci, co, 1, stride) if stride > 1 else [],
        )
        for ci, co, stride in _BLOCKS
    ]
    last = nn.Linear(512, 1000)
    _in_memory([first, blocks, last])
    x = _zeros(1, 3, 224, 224).sequential(first).relu().pad((1, 1, 1, 1)).max_pool2d((3, 3), 2)
    for inside, around in blocks:
        x = (x.sequential(inside) + x.sequential(around)).relu()
    return [last(x.mean((2, 3)))]


def gpt() -> list[Tensor]:
    """Return the forward pass of a GPT of four layers of width 256 with 8 heads, for 128 tokens."""
    layers = [_Layer(256, 8, causal=True) for _ in range(4)]
    words, places, norm = nn.Embedding(_WORDS, 256), nn.Embedding(128, 256), nn.LayerNorm(256)
    head = nn.Linear(256, _WORDS, bias=False)
    _in_memory([layers, words, places, norm, head])
    x = words(_zeros(1, 128, dtype="int64")) + places(Tensor.arange(128).reshape(1, -1))
    return [head(norm(x.sequential(layers)))]


def bert_layer() -> list[Tensor]:
    """Return one layer of a BERT of width 384 with 6 heads, for 8 sequences of 64 tokens."""
    layer = _Layer(384, 6, causal=False)
    _in_memory(layer)
    return [layer(_zeros(8, 64, 384))]


class _Layer:
    """A transformer layer: attention and a perceptron, each with a residual connection."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        self.heads = heads
        self.causal = causal
        self.norms = [nn.LayerNorm(width), nn.LayerNorm(width)]
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(batch, count, 3, self.heads, width // self.heads)
        q, k, v = [parts.permute(2, 0, 3, 1, 4)[i] for i in range(3)]
        seen = q.scaled_dot_product_attention(k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, count, width))
        found: Tensor = x + self.down(self.up(self.norms[1](x)).gelu())
        return found


def mnist() -> Callable[[], list[Tensor]]:
    """Return a function that records a training step of a small convolutional network, for 128 pictures.

    The function returns the loss and all that the optimiser (Adam) changes, as pending tensors.
    """
    net: list[Any] = [
        nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32),
        Tensor.max_pool2d, nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu,
        nn.BatchNorm(64), Tensor.max_pool2d, lambda x: x.flatten(1), nn.Linear(576, 10),
    ]  # fmt: skip
    optimiser = nn.optim.Adam(_in_memory(net))
    x, y = _zeros(128, 1, 28, 28), _zeros(128, dtype="int64")

    def step() -> list[Tensor]:
        with Tensor.train():
            optimiser.zero_grad()
            loss = x.sequential(net).sparse_categorical_crossentropy(y).backward()
            return [loss, *optimiser.schedule_step()]

    return step


def mnist_step() -> list[Tensor]:
    """Return the pending tensors of one step of `mnist`."""
    return mnist()()


def products(dtype: str) -> list[list[Tensor]]:
    """Return products of square matrices of several sizes, each a launch."""
    return [[_zeros(n, n, dtype=dtype) @ _zeros(n, n, dtype=dtype)] for n in (80, 256, 512, 1024)]


MODELS: Final[dict[str, Callable[[], list[Tensor]]]] = {
    "ResNet-18": resnet18, "GPT 4x256": gpt, "BERT layer": bert_layer, "MNIST step": mnist_step,
}  # fmt: skip
