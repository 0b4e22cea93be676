"""PyTorch's names of arguments mean what the declared ones mean, in every method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor
from frontend.arguments.aliases import ALIASES
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7
PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sum": (lambda x: x.sum(dim=1), lambda x: x.sum(1)),
    "sum of several": (lambda x: x.sum(dim=[0, -1], keepdim=True), lambda x: x.sum((0, 2), keepdim=True)),
    "mean": (lambda x: x.mean(dim=0, keepdims=True), lambda x: x.mean(0, keepdim=True)),
    "max": (lambda x: x.max(dim=-1).values, lambda x: x.max(-1)[0]),
    "argmin": (lambda x: x.argmin(dim=1), lambda x: x.argmin(1)),
    "softmax": (lambda x: x.softmax(dim=0), lambda x: x.softmax(0)),
    "cumsum": (lambda x: x.cumsum(dim=2), lambda x: x.cumsum(2)),
    "clamp": (lambda x: x.clamp(min=-2, max=3), lambda x: x.clip(-2, 3)),
    "clamp with a name and a tensor": (lambda x: x.clamp(max=x[:1]), lambda x: x.minimum(x[:1])),
    "flip": (lambda x: x.flip(dims=(0, 2)), lambda x: x.flip(0, 2)),
    "flip of one": (lambda x: x.flip(dim=1), lambda x: x.flip(1)),
    "permute": (lambda x: x.permute(dims=(2, 0, 1)), lambda x: x.permute(2, 0, 1)),
    "transpose": (lambda x: x.transpose(dim0=0, dim1=2), lambda x: x.transpose(0, 2)),
    "diagonal": (lambda x: x.diagonal(dim1=1, dim2=2), lambda x: x.diagonal(0, 1, 2)),
    "roll": (lambda x: x.roll(shifts=1, dims=2), lambda x: x.roll(1, 2)),
    "squeeze": (lambda x: x[:1].squeeze(dim=0), lambda x: x[0]),
    "unsqueeze": (lambda x: x.unsqueeze(dim=1), lambda x: x.unsqueeze(1)),
    "flatten": (lambda x: x.flatten(start_dim=1), lambda x: x.flatten(1)),
    "unflatten": (lambda x: x.unflatten(dim=2, sizes=(2, 2)), lambda x: x.unflatten(2, (2, 2))),
    "split": (lambda x: x.split(split_size=2, dim=1)[1], lambda x: x.split(2, 1)[1]),
    "chunk": (lambda x: x.chunk(chunks=2, dim=2)[1], lambda x: x.chunk(2, 2)[1]),
    "unbind": (lambda x: x.unbind(dim=1)[2], lambda x: x[:, 2]),
    "cat": (lambda x: Tensor.cat([x, x], dim=1), lambda x: x.cat(x, axis=1)),
    "stack": (lambda x: Tensor.stack([x, x], dim=-1), lambda x: x.stack(x, axis=3)),
    "gather": (lambda x: x.gather(dim=2, index=x.argmax(2, True)), lambda x: x.amax(2, True)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, dim=1), lambda x: x.repeat_interleave(2, 1)),
    "one_hot": (lambda x: (x[0, 0] + 7).int().one_hot(num_classes=9), lambda _: Tensor.eye(4, 9).int()),
    "leaky_relu": (lambda x: x.leaky_relu(negative_slope=0.5), lambda x: x.leaky_relu(0.5)),
    "logsumexp": (lambda x: x.logsumexp(dim=(0, 1)), lambda x: x.logsumexp((0, 1))),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PAIRS)
def test_argument_aliases_are_equivalent(name: str):
    other, own = PAIRS[name]
    x = Tensor(X)
    assert other(x).tolist() == own(x).tolist()


def test_two_names_of_one_argument_are_refused():
    with pytest.raises(UsageError, match="sum: saw axis= and dim=, two names of one argument"):
        Tensor(X).sum(axis=0, dim=1)
    with pytest.raises(UsageError, match="sum: saw one by position and dim="):
        Tensor(X).sum(0, dim=1)
    with pytest.raises(UsageError, match="split: saw one by position and split_size="):
        Tensor(X).split(2, split_size=1)


def test_unknown_names_are_refused():
    with pytest.raises(TypeError, match="dimension"):
        Tensor(X).sum(dimension=1)
    with pytest.raises(TypeError, match="dim"):
        Tensor(X).exp(dim=1)


def test_a_name_gives_the_same_structure():
    x = Tensor(X)
    assert x.sum(dim=1).expr is x.sum(axis=1).expr


def test_no_argument_alias_maps_to_itself():
    assert all(name not in others for name, others in ALIASES.items())
