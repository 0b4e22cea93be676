"""Attention layers: several heads, and the layers and stacks of a transformer.

Weights have PyTorch's names and shapes. Inputs are (time, batch, d_model), or (batch, time, d_model) with
`batch_first`; without a batch they are (time, d_model). Inputs and masks of another size raise `UsageError`,
of another class `UsageTypeError`. Masks are as in `MultiheadAttention.forward`, None for no mask. `is_causal`
is a hint that changes nothing beside a mask, and raises `UsageError` without one.

Not here: the operation (`Tensor.scaled_dot_product_attention`), recurrent layers (`recurrent`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, ClassVar, Final, Literal, cast

from frontend.arguments.checks import whole
from frontend.arguments.conversion import shown, switch
from frontend.arguments.settings import choice, number_within
from frontend.evaluation.modes import lowered
from frontend.evaluation.realize import realize_many
from frontend.nn.checks import count, count_of_layers, layer_input, placed
from frontend.nn.containers import ModuleList
from frontend.nn.layers import Dropout, Linear
from frontend.nn.module import Module, in_training
from frontend.nn.normalisation import LayerNorm
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

_ACTIVATIONS: Final[dict[Any, Any]] = {"relu": Tensor.relu, "gelu": Tensor.gelu}


class SDPBackend(Enum):
    """PyTorch's names of implementations of attention; here one compiler makes all kernels."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: SDPBackend | list[SDPBackend], set_priority: bool = False) -> Iterator[None]:  # noqa: FBT001, FBT002
    """Do nothing: attention inside the block has the kernels that it has outside. Raises `UsageTypeError`."""
    del set_priority
    if not all(isinstance(b, SDPBackend) for b in (backends if isinstance(backends, list) else [backends])):
        raise UsageTypeError(f"sdpa_kernel: wanted an SDPBackend or a list of them, saw {shown(backends)}")
    yield


class MultiheadAttention(Module):
    """Attention of `num_heads` heads over (time, batch, embed_dim), or (batch, time, ...) with `batch_first`.

    `in_proj_weight` is (3 * embed_dim, embed_dim), the weights of query, key and value one below the other;
    `in_proj_bias` is (3 * embed_dim,) or None; `out_proj` is a `Linear`. Keys have `kdim` features and values
    `vdim`, None for embed_dim; where one differs, `in_proj_weight` is None, and `q_proj_weight` (embed_dim,
    embed_dim), `k_proj_weight` (embed_dim, kdim) and `v_proj_weight` (embed_dim, vdim) take its place. In
    training mode a share `dropout` of the attention weights is set to 0. `add_bias_kv` appends a key and a
    value that are parameters, (1, 1, embed_dim), `add_zero_attn` those of zeros; no mask hides them.

    Raises `UsageError` for sizes below 1, an embed_dim that num_heads does not divide, and dropout outside
    0 <= dropout < 1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        add_bias_kv: bool = False,  # noqa: FBT001, FBT002 - as above
        add_zero_attn: bool = False,  # noqa: FBT001, FBT002 - as above
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,  # noqa: FBT001, FBT002 - as above
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if count("MultiheadAttention, embed_dim", embed_dim) % count(
            "MultiheadAttention, num_heads", num_heads
        ):
            raise UsageError(f"MultiheadAttention: {embed_dim} does not divide into {num_heads} heads")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout = number_within("MultiheadAttention, dropout", dropout, 0.0, 1.0)
        self.batch_first = switch(batch_first, "MultiheadAttention, batch_first")
        self.kdim = embed_dim if kdim is None else count("MultiheadAttention, kdim", kdim)
        self.vdim = embed_dim if vdim is None else count("MultiheadAttention, vdim", vdim)
        self.in_proj_weight: Tensor | None = None
        if self.kdim == self.vdim == embed_dim:
            bound = math.sqrt(6 / (4 * embed_dim))
            self.in_proj_weight = Tensor.uniform(3 * embed_dim, embed_dim, low=-bound, high=bound)
        else:
            for name, size in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
                bound = math.sqrt(6 / (embed_dim + size))
                setattr(self, f"{name}_proj_weight", Tensor.uniform(embed_dim, size, low=-bound, high=bound))
        bias = switch(bias, "MultiheadAttention, bias")
        self.in_proj_bias = Tensor.zeros(3 * embed_dim) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.out_proj.bias = Tensor.zeros(embed_dim) if bias else None
        self.add_zero_attn = switch(add_zero_attn, "MultiheadAttention, add_zero_attn")
        own = switch(add_bias_kv, "MultiheadAttention, add_bias_kv")
        std = math.sqrt(1 / embed_dim)
        self.bias_k: Tensor | None = Tensor.normal(1, 1, embed_dim, std=std) if own else None
        self.bias_v: Tensor | None = Tensor.normal(1, 1, embed_dim, std=std) if own else None
        placed(self, device, dtype)

    def _reset_parameters(self) -> None:
        """Assign first values, as the constructor has them."""
        fresh = MultiheadAttention(
            self.embed_dim, self.num_heads, kdim=self.kdim, vdim=self.vdim,
            bias=self.in_proj_bias is not None, add_bias_kv=self.bias_k is not None,
        )  # fmt: skip
        fresh.to(self.out_proj.weight.device, self.out_proj.weight.dtype)
        self.load_state_dict(fresh.state_dict())

    def _weight(self, part: int) -> Tensor:
        """Return the weight of query, key or value where each has its own."""
        return cast("Tensor", getattr(self, f"{'qkv'[part]}_proj_weight"))

    def _heads(self, x: Tensor, part: int) -> Tensor:
        """Return (batch, heads, time, depth) of (batch, time, features) for query, key or value."""
        n, joint = self.embed_dim, self.in_proj_weight
        weight = self._weight(part) if joint is None else joint[part * n : (part + 1) * n]
        bias = None if self.in_proj_bias is None else self.in_proj_bias[part * n : (part + 1) * n]
        x, weight, bias = cast("tuple[Tensor, Tensor, Tensor | None]", lowered(x, weight, bias))
        y = x.linear(weight.transpose(), bias)
        return y.reshape(*x.shape[:2], self.num_heads, n // self.num_heads).transpose(1, 2)

    def _longer(self, x: Tensor, own: Tensor | None) -> Tensor:
        """Return heads of keys or values with the appended ones: the parameter, and zeros."""
        batch, heads, _, depth = x.shape
        more = [] if own is None else [own.reshape(1, heads, 1, depth).expand(batch, heads, 1, depth)]
        more += [x.zeros_like()[:, :, :1]] if self.add_zero_attn else []
        return x.cat(*[one.cast(x.dtype) for one in more], axis=2) if more else x

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,  # noqa: FBT001, FBT002 - the field's signature
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,  # noqa: FBT001, FBT002 - as above
        is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attended values, of the shape of `query`, and the attention weights.

        The weights are (batch, queries, keys), the mean of the heads; with `average_attn_weights=False`
        (batch, heads, queries, keys); None without `need_weights`.

        A bool mask is True where attention is not allowed; a float mask is added to the scores.
        `key_padding_mask` is (batch, keys), `attn_mask` (queries, keys) or (batch * heads, queries, keys).
        Raises `UsageError` for inputs whose last axis is not embed_dim (kdim for keys, vdim for values), and
        `UsageTypeError` for inputs that are no tensors.
        """
        _check_hint(self, attn_mask, is_causal)
        parts = [layer_input(self, x, self.out_proj.weight) for x in (query, key, value)]
        single = parts[0].ndim == 2
        if any(x.ndim != (2 if single else 3) for x in parts):
            shapes = ", ".join([str(tuple(x.shape)) for x in parts])
            raise UsageError(f"MultiheadAttention: wanted inputs of two axes, or of three, saw {shapes}")
        if single:
            parts = [x.unsqueeze(0) for x in parts]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            parts = [x.transpose(0, 1) for x in parts]
        n, length, keys = parts[0].shape[0], parts[0].shape[1], parts[1].shape[1]
        if parts[1].shape[:2] != parts[2].shape[:2] or parts[1].shape[0] != n:
            shapes = ", ".join([str(tuple(x.shape[:2])) for x in parts])
            raise UsageError(f"MultiheadAttention: wanted one batch, and values for all keys, saw {shapes}")
        _check_mask("key_padding_mask", key_padding_mask, (n, keys))
        _check_mask("attn_mask", attn_mask, (length, keys), (n * self.num_heads, length, keys))
        q, k, v = [self._heads(x, i) for i, x in enumerate(parts)]
        k, v = self._longer(k, self.bias_k), self._longer(v, self.bias_v)
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        for mask in self._masks(scores, key_padding_mask, attn_mask):
            if mask.shape[-1] < scores.shape[-1]:
                mask = mask.pad((0, scores.shape[-1] - mask.shape[-1]))  # noqa: PLW2901 - what is appended
            scores = mask.where(-math.inf, scores) if mask.dtype.name == "bool" else scores + mask
        weights = scores.softmax(-1)
        if self.dropout:
            weights = weights.dropout(self.dropout, in_training(self))
        y = (weights @ v).transpose(1, 2).reshape(parts[0].shape)
        y = self.out_proj(y)
        y = y.squeeze(0) if single else y if self.batch_first else y.transpose(0, 1)
        if not need_weights:
            return y, None
        weights = weights.mean(1) if average_attn_weights else weights
        return y, weights.squeeze(0) if single else weights

    def _masks(self, scores: Tensor, padding: Tensor | None, mask: Tensor | None) -> list[Tensor]:
        """Return the given masks, so that they broadcast to the scores (batch, heads, queries, keys)."""
        found = []
        if padding is not None:
            found.append(padding.unsqueeze(1).unsqueeze(1))
        if mask is not None:
            batch = scores.shape[0]
            found.append(mask.reshape(batch, self.num_heads, *mask.shape[1:]) if mask.ndim == 3 else mask)
        return found


def _check_hint(layer: Module, mask: Tensor | None, is_causal: bool | None) -> None:  # noqa: FBT001 - a hint
    """Raise `UsageError` for the hint that a mask is causal without the mask."""
    if is_causal and mask is None:
        raise UsageError(f"{type(layer).__name__}: is_causal is a hint beside a mask; pass causal_mask(size)")


def _check_mask(what: str, mask: Tensor | None, *wanted: tuple[int, ...]) -> None:
    if mask is not None and tuple(mask.shape) not in wanted:
        text = " or ".join(map(str, wanted))
        raise UsageError(f"MultiheadAttention, {what}: wanted the shape {text}, saw {tuple(mask.shape)}")


class TransformerLayer(Module):
    """Base of encoder and decoder layers: attentions and two linear layers, each with a layer norm.

    Arguments are PyTorch's: `nhead` heads, `dim_feedforward` hidden features, `activation` "relu", "gelu" or
    a function, `norm_first` whether norms come before attentions and linear layers. Raises as
    `MultiheadAttention`, and `UsageError` for another activation.
    """

    attentions: ClassVar[tuple[str, ...]] = ("self_attn",)
    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    norm3: LayerNorm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Literal["relu", "gelu"] | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        norm_first: bool = False,  # noqa: FBT001, FBT002 - as above
        bias: bool = True,  # noqa: FBT001, FBT002 - as above
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        kind, numbers = type(self).__name__, range(1, len(self.attentions) + 2)
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first))
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = switch(norm_first, f"{kind}, norm_first")
        for n in numbers:
            setattr(self, f"norm{n}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for n in numbers:
            setattr(self, f"dropout{n}", Dropout(dropout))
        if not callable(activation):
            activation = _ACTIVATIONS[choice(f"{kind}, activation", activation, _ACTIVATIONS)]
        self.activation: Callable[[Tensor], Tensor] = _ACTIVATIONS.get(activation, activation)
        placed(self, device, dtype)

    def _own(self, x: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        found, _ = self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask)
        return self.dropout1(found)

    def _forwarded(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and two linear layers, each with a residual and a layer norm; see `TransformerLayer`."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    ) -> Tensor:
        """Return the encoded `src`, of its shape: (time, batch, d_model), or (batch, time, ...)."""
        _check_hint(self, src_mask, is_causal)
        x = layer_input(self, src, self.linear1.weight)
        if self.norm_first:
            x = x + self._own(self.norm1(x), src_mask, src_key_padding_mask)
            return x + self.dropout2(self._forwarded(self.norm2(x)))
        x = self.norm1(x + self._own(x, src_mask, src_key_padding_mask))
        return self.norm2(x + self.dropout2(self._forwarded(x)))


def causal_mask(size: int, *, device: str | None = None) -> Tensor:
    """Return a float mask (size, size): -inf above the diagonal, where attention is not allowed, 0 elsewhere.

    Raises `UsageTypeError` for a size that is no whole number, `UsageError` for a negative one.
    """
    whole(size, "causal_mask, size")
    return Tensor.full((size, size), -math.inf, device=device).triu(1)


def _copies(layer: Module, number: int, what: str) -> ModuleList:
    if not isinstance(layer, Module):
        raise UsageTypeError(f"{what}: wanted a layer to copy, saw {shown(layer)}")
    return ModuleList([copy.deepcopy(layer) for _ in range(count_of_layers(f"{what}, num_layers", number))])


def _norm(layer: Module | None, what: str) -> Module | None:
    if layer is not None and not isinstance(layer, Module):
        raise UsageTypeError(f"{what}: wanted a layer or None, saw {shown(layer)}")
    return layer


class TransformerEncoder(Module):
    """`num_layers` deep copies of an encoder layer, one after the other, then `norm`, if given.

    Raises `UsageTypeError` for a layer or norm that is no `Module`, `UsageError` for fewer than one layer.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,  # noqa: FBT001, FBT002 - the field's signature; without effect
        mask_check: bool = True,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        switch(enable_nested_tensor, "TransformerEncoder, enable_nested_tensor")
        switch(mask_check, "TransformerEncoder, mask_check")
        self.layers = _copies(encoder_layer, num_layers, "TransformerEncoder")
        self.norm = _norm(norm, "TransformerEncoder")

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,  # noqa: FBT001 - the field's signature
    ) -> Tensor:
        """Return the encoded `src`, of its shape."""
        _check_hint(self, mask, is_causal)
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to a memory, and two linear layers, each with a residual and a norm."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        memory_is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> Tensor:
        """Return the decoded `tgt`, of its shape; `memory` is the output of an encoder."""
        _check_hint(self, tgt_mask, tgt_is_causal)
        _check_hint(self, memory_mask, memory_is_causal)
        x = layer_input(self, tgt, self.linear1.weight)
        memory = layer_input(self, memory, self.linear1.weight)
        own, other = (tgt_mask, tgt_key_padding_mask), (memory_mask, memory_key_padding_mask)
        if self.norm_first:
            x = x + self._own(self.norm1(x), *own)
            x = x + self._attended(self.norm2(x), memory, *other)
            return x + self.dropout3(self._forwarded(self.norm3(x)))
        x = self.norm1(x + self._own(x, *own))
        x = self.norm2(x + self._attended(x, memory, *other))
        return self.norm3(x + self.dropout3(self._forwarded(x)))

    def _attended(self, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        found, _ = self.multihead_attn(x, memory, memory, padding, need_weights=False, attn_mask=mask)
        return self.dropout2(found)


class TransformerDecoder(Module):
    """`num_layers` deep copies of a decoder layer, one after the other, then `norm`, if given.

    Raises as `TransformerEncoder`.
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        self.layers = _copies(decoder_layer, num_layers, "TransformerDecoder")
        self.norm = _norm(norm, "TransformerDecoder")

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Tensor | None, **named: Any) -> Tensor:
        """Return the decoded `tgt`, of its shape; masks are those of `TransformerDecoderLayer.forward`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **named)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder and a decoder, each with a last norm, of `TransformerEncoder` and `TransformerDecoder`.

    Settings are those of `TransformerEncoderLayer`, in its order after the numbers of layers.
    `custom_encoder` and `custom_decoder` replace the two.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Literal["relu", "gelu"] | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,  # noqa: FBT001, FBT002 - as above
        norm_first: bool = False,  # noqa: FBT001, FBT002 - as above
        bias: bool = True,  # noqa: FBT001, FBT002 - as above
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings: dict[str, Any] = {
            "layer_norm_eps": layer_norm_eps, "batch_first": batch_first, "norm_first": norm_first,
            "bias": bias,
        }  # fmt: skip
        first = (d_model, nhead, dim_feedforward, dropout, activation)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        encoder = TransformerEncoderLayer(*first, **settings)
        decoder = TransformerDecoderLayer(*first, **settings)
        own = _norm(custom_encoder, "Transformer"), _norm(custom_decoder, "Transformer")
        self.encoder = own[0] or TransformerEncoder(encoder, num_encoder_layers, norms[0])
        self.decoder = own[1] or TransformerDecoder(decoder, num_decoder_layers, norms[1])
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        placed(self, device, dtype)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Assign first values of all matrices, uniform as those of `nn.init.xavier_uniform_`."""
        matrices = [p for p in self.parameters() if p.ndim > 1]
        for p in matrices:
            bound = math.sqrt(6 / sum(p.shape[:2]) / math.prod(p.shape[2:]))
            p.assign(Tensor.uniform(p.shape, low=-bound, high=bound, dtype=p.dtype, device=p.device))
        realize_many(matrices)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,  # noqa: FBT001 - the field's signature
        tgt_is_causal: bool | None = None,  # noqa: FBT001 - as above
        memory_is_causal: bool = False,  # noqa: FBT001, FBT002 - as above
    ) -> Tensor:
        """Return the decoded `tgt`, of its shape; masks and hints are those of the layers."""
        hints = src_is_causal, tgt_is_causal, memory_is_causal
        for mask, hint in zip((src_mask, tgt_mask, memory_mask), hints, strict=True):
            _check_hint(self, mask, hint)
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        found: Tensor = self.decoder(tgt, memory, *masks)
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: str | None = None) -> Tensor:
        """Return the mask (sz, sz) with which a position attends to itself and to those before.

        Raises as `causal_mask`.
        """
        return causal_mask(sz, device=device)
