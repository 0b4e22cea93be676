"""Stacks of transformer layers: the encoder, and the decoder with its layer.

Weights have PyTorch's names and shapes.

Not here: attention, the encoder's layer, what both layers share (`attention`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Literal

from frontend.nn.attention import MultiheadAttention, TransformerEncoderLayer, TransformerLayer
from frontend.nn.checks import choice, count_of_layers, layer_input
from frontend.nn.layers import Dropout, Linear
from frontend.nn.module import Module, ModuleList
from frontend.nn.normalisation import LayerNorm
from frontend.ops.arguments import whole
from frontend.parameters import flag, shown
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from typing import Any


def causal_mask(size: int, *, device: str | None = None) -> Tensor:
    """Return (size, size): -inf above the diagonal, where attention is not allowed, 0 elsewhere."""
    whole(size, "causal_mask, size")
    return Tensor.full((size, size), -math.inf, device=device).triu(1)


def _copies(layer: Module, number: int, what: str) -> ModuleList:
    if not isinstance(layer, Module):
        raise UsageTypeError(f"{what}: wanted a layer to copy, saw {shown(layer)}")
    return ModuleList([copy.deepcopy(layer) for _ in range(count_of_layers(f"{what}, num_layers", number))])


def _norm(layer: Module | None, what: str) -> Module | None:
    if layer is not None and not isinstance(layer, Module):
        raise UsageTypeError(f"{what}, norm: wanted a layer or None, saw {shown(layer)}")
    return layer


class TransformerEncoder(Module):
    """A number of copies of an encoder layer, one after the other, and a last norm, if given."""

    def __init__(
        self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        self.layers = _copies(encoder_layer, num_layers, "TransformerEncoder")
        self.norm = _norm(norm, "TransformerEncoder")

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,  # noqa: FBT001 - the field's signature
    ) -> Tensor:
        """Return the same shape. `is_causal` is a hint beside `mask`, as in PyTorch."""
        if is_causal and mask is None:
            raise UsageError("TransformerEncoder: is_causal is a hint beside mask; pass causal_mask(size)")
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to a memory, and two linear layers, each with a residual and a layer norm."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Literal["relu", "gelu"] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,  # noqa: FBT001, FBT002 - the field's signature
        norm_first: bool = False,  # noqa: FBT001, FBT002 - as above
        bias: bool = True,  # noqa: FBT001, FBT002 - as above
    ) -> None:
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = flag(norm_first, "TransformerDecoderLayer, norm_first")
        self.norm1, self.norm2, self.norm3 = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(3)]
        self.dropout1, self.dropout2, self.dropout3 = [Dropout(dropout) for _ in range(3)]
        self.activation = choice("TransformerDecoderLayer, activation", activation, ("relu", "gelu"))

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the shape of `tgt`: (time, batch, d_model), or (batch, time, ...) with `batch_first`."""
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
    """A number of copies of a decoder layer, one after the other, and a last norm, if given."""

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        self.layers = _copies(decoder_layer, num_layers, "TransformerDecoder")
        self.norm = _norm(norm, "TransformerDecoder")

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Tensor | None, **named: Any) -> Tensor:
        """Return the shape of `tgt`; masks are those of `TransformerDecoderLayer`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **named)
        return tgt if self.norm is None else self.norm(tgt)
