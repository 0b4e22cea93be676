"""Layers without normalisation: plain classes whose parameters are tensor attributes.

Weights start uniform in ±1/sqrt(inputs) unless a layer documents another range. They are float32 on the
default device. A layer is called with a tensor, an array or lists; the result is a pending tensor on the
device of the weights. Sizes below 1, and inputs whose axes do not fit the weights, raise `UsageError`.
Settings of the wrong type, and inputs that are no numbers, raise `UsageTypeError`.

Not here: convolutions (`convolutions`), normalisation (`normalisation`), layers without parameters
(`functions`, `pools`). Next: `module`, the base of layers.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, cast

from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag, number, shown, switch
from frontend.arguments.settings import number_within
from frontend.evaluation.gradient_state import listed
from frontend.evaluation.modes import exact, lowered, mixed
from frontend.nn.checks import count, fill, layer_input, placed, redraw
from frontend.nn.module import Layer, in_training, rounded, wide
from frontend.ops.gather_scatter import rows
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError


class Linear(Layer):
    """The affine map x @ weight.T + bias over the last axis.

    `in_features`, `out_features`: sizes of the last axis of input and result, at least 1. `weight` is
    (out_features, in_features), `bias` (out_features,) or None without `bias`; both start uniform in
    ±1/sqrt(in_features).

        Linear(784, 10)(images.flatten(1))      # (batch, 784) -> (batch, 10)

    Raises `UsageError` for sizes below 1.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        count("Linear, out_features", out_features)
        bound = 1 / math.sqrt(count("Linear, in_features", in_features))
        self.in_features, self.out_features = in_features, out_features
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        bias = switch(bias, "Linear, bias")
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        redraw(self, 1 / math.sqrt(self.in_features))

    def extra_repr(self) -> str:
        """Return the settings."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (..., in_features); return (..., out_features) in the promoted dtype.

        Raises `UsageError` when the last axis has another size.
        """
        x = layer_input(self, x, self.weight)
        inputs = self.weight.shape[1]
        if x.shape[-1:] != (inputs,):
            raise UsageError(
                f"Linear has {inputs} inputs, saw {x.shape}"
                + (f", whose last axis is {x.shape[-1]}" if x.shape else "")
            )
        if mixed() is None:
            return x.linear(self.weight.transpose(), self.bias)
        x, weight, bias = cast("tuple[Tensor, Tensor, Tensor | None]", lowered(x, self.weight, self.bias))
        return x.linear(weight.transpose(), bias)


def _either(name: str, value: int | None, alias: str, other: int | None) -> int:
    """Return a size of an embedding, given under one of two names.

    Raise `UsageTypeError` for both or none.
    """
    if (value is None) == (other is None):
        raise UsageTypeError(f"Embedding: wanted either {name} or {alias}, saw {value} and {other}")
    found = value if other is None else other
    assert found is not None  # one of them is given
    return count(f"Embedding, {name}", found)


class Embedding(Layer):
    """Rows of a table, selected by integers: a tensor, an array or lists of them.

    `weight` is (num_embeddings, embedding_dim), at first normal numbers of mean 0 and
    deviation 1. The row `padding_idx`, counted from the end if negative, is zeros at first and gets no
    gradient. With `max_norm`, a call first scales the rows that it uses, in place, to a `norm_type`-norm of
    at most `max_norm`. `scale_grad_by_freq` divides the gradient of a row by the number of its uses. `sparse`
    changes nothing. `_weight` is the table. `vocab_size` and `embed_size` are other names of the sizes.

        Embedding(1000, 64)([[1, 2, 3]])      # (1, 3) -> (1, 3, 64)

    An integer outside 0..num_embeddings-1 raises `UsageIndexError` where the host knows its value, or under
    `HCQ_VALIDATE=1`; otherwise its row is zeros. Raises `UsageError` for sizes below 1 and a padding_idx that
    is no row, `UsageTypeError` for a size that is missing or given by both names, and for settings of another
    type.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        num_embeddings: int | None = None,
        embedding_dim: int | None = None,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        *,
        vocab_size: int | None = None,
        embed_size: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        size = _either("num_embeddings", num_embeddings, "vocab_size", vocab_size)
        columns = _either("embedding_dim", embedding_dim, "embed_size", embed_size)
        self.num_embeddings, self.embedding_dim = size, columns
        self.max_norm, self.norm_type = max_norm, number(norm_type, "Embedding, norm_type")
        self.scale_grad_by_freq = switch(scale_grad_by_freq, "Embedding, scale_grad_by_freq")
        self.sparse = switch(sparse, "Embedding, sparse")
        self.padding_idx = padding_idx
        if padding_idx is not None:
            if not -size <= whole(padding_idx, "Embedding, padding_idx") < size:
                raise UsageError(f"Embedding, padding_idx: wanted one of {size} rows, saw {padding_idx}")
            self.padding_idx = padding_idx % size
        if _weight is not None and not isinstance(_weight, Tensor):
            raise UsageTypeError(f"Embedding, _weight: wanted a tensor, saw {shown(_weight)}")
        if _weight is not None and tuple(_weight.shape) != (size, columns):
            raise UsageError(f"Embedding, _weight: wanted {(size, columns)}, saw the shape {_weight.shape}")
        self.weight = self._drawn() if _weight is None else listed(_weight.detach())
        if switch(_freeze, "Embedding, _freeze"):
            self.weight.requires_grad = False
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        self.weight.assign(self._drawn(dtype=self.weight.dtype, device=self.weight.device)).realize()

    def _drawn(self, **names: Any) -> Tensor:
        made = Tensor.randn(self.num_embeddings, self.embedding_dim, **names)
        if self.padding_idx is None:
            return made
        places = Tensor.arange(self.num_embeddings, device=made.device).reshape(-1, 1)
        return (places != self.padding_idx).where(made, 0.0).detach().realize()

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> Self:
        """Return a layer whose table is a matrix; with `freeze` it is no parameter. Raises as the class."""
        if embeddings.ndim != 2:
            raise UsageError(f"from_pretrained: wanted a matrix, saw the shape {embeddings.shape}")
        rows, columns = embeddings.shape
        made = cls(rows, columns, **settings)
        made.weight = listed(embeddings.detach())
        made.weight.requires_grad = not switch(freeze, "from_pretrained, freeze")
        return made

    def extra_repr(self) -> str:
        """Return the settings."""
        size, columns = self.weight.shape
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{size}, {columns}{padding}"

    def forward(self, index: Tensor) -> Tensor:
        """Apply the layer to integers of any shape; return (*shape, embedding_dim), of the weight's dtype.

        Raises `UsageTypeError` for floats and bools.
        """
        index = layer_input(self, index, self.weight)
        more = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
        return looked_up(self.weight, index, *more)


def looked_up(  # noqa: PLR0917 - internal
    weight: Tensor,
    index: Tensor,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
) -> Tensor:
    """Return the rows of a table at integers, with the settings of `Embedding`. Raises as its call."""
    if not index.dtype.is_int:
        raise UsageTypeError(f"Embedding needs integers, saw {index.dtype.name}; cast the index")

    def counts() -> Tensor:
        flat = index.reshape(-1)
        return weight.detach()[:, 0].zeros_like().scatter_add(0, flat, flat.ones_like(dtype=weight.dtype))

    if max_norm is not None:
        with Tensor.no_grad():
            size = weight.norm(norm_type, 1)
            shrunk = number(max_norm, "embedding, max_norm") / (size + 1e-7)
            weight.copy_(
                weight * ((counts() > 0) * (size > max_norm)).where(shrunk, 1.0).unsqueeze(1)
            ).realize()
    found = rows(weight, index)
    if scale_grad_by_freq and found.dtype.is_float:
        shared = found / counts().take(index).unsqueeze(-1)
        found = found.detach() + (shared - shared.detach())
    if padding_idx is None:
        return found
    return (index == padding_idx).unsqueeze(-1).where(found.detach(), found)


class EmbeddingBag(Embedding):
    """Rows of a table, reduced within bags: their mean, sum or greatest elements.

    Integers of two axes are bags of equal length, one in each row. Integers of one axis need `offsets`, the
    index at which each bag starts; with `include_last_offset`, the last offset is the end of the last bag.
    The result is (bags, embedding_dim). An empty bag gives zeros. Rows of `padding_idx` are left out.

        EmbeddingBag(1000, 64, mode="sum")([[1, 2], [3, 4]])      # (2, 2) -> (2, 64)

    Raises `UsageError` for another mode, for indices or offsets of another number of axes, and for weights of
    samples with another mode than sum; otherwise as `Embedding`.
    """

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        more = (max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, padding_idx, *more, _weight)
        if not isinstance(mode, str) or mode not in {"mean", "sum", "max"}:
            raise UsageError(f"EmbeddingBag, mode: wanted mean, sum or max, saw {mode!r}")
        self.mode = mode
        self.include_last_offset = switch(include_last_offset, "EmbeddingBag, include_last_offset")
        placed(self, device, dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{super().extra_repr()}, mode={self.mode!r}"

    def forward(
        self, index: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Apply the layer to integers; return (bags, embedding_dim).

        With `per_sample_weights`, one number for each integer, the rows are multiplied by them before they
        are added. Raises as the class says; floats and bools as integers raise `UsageTypeError`.
        """
        index = layer_input(self, index, self.weight)
        if index.ndim != (2 if offsets is None else 1):
            raise UsageError(
                "EmbeddingBag: wanted integers of two axes, or of one and offsets, saw the shape "
                f"{index.shape}{'' if offsets is None else ' and offsets'}"
            )
        if per_sample_weights is not None and self.mode != "sum":
            raise UsageError(f"EmbeddingBag: weights of samples need the mode sum, saw {self.mode!r}")
        if offsets is None:
            bags, number = index.shape[0], Tensor.arange(index.shape[0], device=index.device)
            number = number.unsqueeze(1).expand(index.shape).reshape(-1)
        else:
            starts = layer_input(self, offsets, self.weight)
            if starts.ndim != 1 or not starts.shape[0] - self.include_last_offset:
                raise UsageError(f"EmbeddingBag: wanted where each bag starts, saw the shape {starts.shape}")
            bags = starts.shape[0] - self.include_last_offset
            places = Tensor.arange(index.shape[0], device=index.device)
            number = (places.unsqueeze(1) >= starts[:bags].unsqueeze(0)).sum(1) - 1
        found = super().forward(index.reshape(-1))
        member = number.unsqueeze(0) == Tensor.arange(bags, device=index.device).unsqueeze(1)
        if self.padding_idx is not None:
            member = member & (index.reshape(1, -1) != self.padding_idx)
        if self.mode == "max":
            least = member.unsqueeze(-1).where(found.unsqueeze(0), -math.inf).amax(1)
            return member.any(1).unsqueeze(-1).where(least, 0.0)
        if per_sample_weights is not None:
            found = found * layer_input(self, per_sample_weights, self.weight).reshape(-1, 1)
        share = member.cast(found.dtype)
        if self.mode == "mean":
            share = share / share.sum(1, keepdim=True).maximum(1.0)
        with exact():
            return share @ found


class Dropout(Layer):
    """In training mode: set each element to 0 with the probability `p`, divide the others by 1 - p.

    `inplace` has no effect: the input is never changed. Raises `UsageError` for p outside 0..1.
    """

    _template = "p={0.p}, inplace={0.inplace}"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p = number_within(f"{type(self).__name__}, p", p, 0.0, math.nextafter(1.0, 2.0))
        self.inplace = switch(inplace, f"{type(self).__name__}, inplace")

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to a tensor of any shape; in evaluation mode return `x` itself."""
        return layer_input(self, x).dropout(self.p, in_training(self))


def _by_channels(rank: int) -> Callable[..., Tensor]:
    """Return `dropout` of whole channels of (batch, channels, ...), for 1d and 3d also of (channels, ...).

    It raises `UsageError` for another number of axes; with `inplace` it changes the input itself.
    """

    def function(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        name, single = f"dropout{rank}d", rank != 2 and input.ndim == rank + 1
        if input.ndim < 2 or (rank != 2 and not single and input.ndim != rank + 2):
            raise UsageError(f"{name}: wanted (batch, channels, ...), saw the shape {input.shape}")
        if not flag(training, f"{name}, training") or p == 0:
            return input
        lead = 1 if single else 2
        shape = (*input.shape[:lead], *(1,) * (input.ndim - lead))
        kept = Tensor.ones(shape, dtype=input.dtype, device=input.device).dropout(p, training)
        return input.copy_(input * kept) if flag(inplace, f"{name}, inplace") else input * kept

    function.__name__, function.__doc__ = f"dropout{rank}d", _by_channels.__doc__
    return function


dropout1d, dropout2d, dropout3d = map(_by_channels, (1, 2, 3))


class FunctionDropout(Dropout):
    """Base of dropouts that a function of the input, `p` and the mode computes; errors are its own."""

    _function: Callable[..., Tensor]

    def forward(self, x: Tensor) -> Tensor:
        """Return the tensor, in evaluation mode itself."""
        return self._function(layer_input(self, x), self.p, in_training(self))


class Dropout1d(FunctionDropout):
    """`Dropout` of whole channels of (batch, channels, length) or (channels, length)."""

    _function = staticmethod(dropout1d)


class Dropout2d(FunctionDropout):
    """`Dropout` of whole channels of (batch, channels, height, width)."""

    _function = staticmethod(dropout2d)


class Dropout3d(FunctionDropout):
    """`Dropout` of whole channels of (batch, channels, depth, height, width), or without the batch."""

    _function = staticmethod(dropout3d)


class PReLU(Layer):
    """The input where positive, else times a learned number, one for all channels or for each.

    Raises as `Tensor.prelu` for another number of channels.
    """

    _template = "num_parameters={0.num_parameters}"

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:  # fmt: skip
        self.num_parameters = count("PReLU, num_parameters", num_parameters)
        self.init = float(number(init, "PReLU, init"))
        self.weight = Tensor.full((num_parameters,), self.init)
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        fill(self, weight=self.init)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation of (batch, channels, ...)."""
        return layer_input(self, x, self.weight).prelu(self.weight)


class Bilinear(Layer):
    """The bilinear map x1 @ weight @ x2 + bias over the last axes; `weight` is (outputs, in1, in2)."""

    def __init__(  # noqa: PLR0917 - the field's signature
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        n = count("Bilinear, out_features", out_features)
        bound = 1 / math.sqrt(count("Bilinear, in1_features", in1_features))
        count("Bilinear, in2_features", in2_features)
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, n
        self.weight = Tensor.uniform(n, in1_features, in2_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(n, low=-bound, high=bound) if switch(bias, "Bilinear, bias") else None
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        redraw(self, 1 / math.sqrt(self.in1_features))

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Return (..., outputs) of (..., in1) and (..., in2), whose first axes may broadcast.

        Raises as `Tensor.einsum`.
        """
        x1, x2 = layer_input(self, x1, self.weight), layer_input(self, x2, self.weight)
        with exact():
            y = Tensor.einsum("...i,oij,...j->...o", wide(x1), wide(self.weight), wide(x2))
        return rounded(y if self.bias is None else y + self.bias, x1, self.weight, x2, self.bias)

    def extra_repr(self) -> str:
        """Return the settings."""
        n, first, second = self.weight.shape
        found = f"in1_features={first}, in2_features={second}, out_features={n}"
        return f"{found}, bias={self.bias is not None}"
