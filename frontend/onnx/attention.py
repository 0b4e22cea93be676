"""Operators of transformers: attention, rotated positions, caches, linear attention.

Next: `table`. Raises `UsageError` for heads and sizes that do not fit.
"""

from __future__ import annotations

import math
from typing import Any

from frontend.onnx.initialisers import element_type
from frontend.onnx.shapes import scatter_elements
from frontend.onnx.values import axis_in, cat
from frontend.tensor import Tensor
from hcq.errors import UsageError


def _heads(x: Tensor, count: int) -> Tensor:
    """Return (batch, heads, length, size) of that, or of (batch, length, heads * size)."""
    if len(x.shape) == 4:
        return x
    if len(x.shape) != 3 or count < 1 or x.shape[2] % count:
        raise UsageError(f"wanted 4 axes, or 3 and a number of heads, saw {x.shape} and {count}")
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _bias(  # noqa: PLR0917 - the rules of one mask
    mask: Any, q: Tensor, kv: int, causal: int, window: tuple[int, int], before: Any, filled: Any
) -> Any:
    """Return what is added to the products of queries and keys; None if it is nothing.

    `before` is the number of keys before the first query, `filled` that of keys that are valid, by batch.
    """
    length = q.shape[2]
    allowed: Any = None
    if mask is not None and mask.shape[-1] < kv:
        pairs = [(0, 0)] * (len(mask.shape) - 1) + [(0, kv - mask.shape[-1])]
        mask = (
            mask.pad(tuple(pairs)) if mask.dtype.kind == "bool" else mask.pad(tuple(pairs), value=-math.inf)
        )
    if mask is not None and mask.dtype.kind == "bool":
        allowed, mask = mask, None
    keys = Tensor.arange(kv, device=q.device)
    apart = Tensor.arange(length, device=q.device).reshape(length, 1) + before - keys
    rules = [apart >= 0] if causal else []
    rules += [apart <= window[0]] if window[0] >= 0 else []
    rules += [apart >= -window[1]] if window[1] >= 0 else []
    if filled is not None:
        rules.append(keys < filled.reshape(-1, 1, 1, 1))
    for rule in rules:
        allowed = rule if allowed is None else allowed.logical_and(rule)
    if allowed is None:
        return mask
    zero = Tensor.full((), 0.0, dtype=q.dtype, device=q.device)
    return allowed.where(zero if mask is None else mask, -math.inf)


def attention(  # noqa: PLR0917 - the operator's inputs
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None, filled: Tensor | None = None,
    *, is_causal: int = 0, kv_num_heads: int = 0, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    scale: float = 0.0, softcap: float = 0.0, softmax_precision: int = 0, left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:  # fmt: skip
    """Attention: the result, keys and values with those of the past, and products or shares."""
    flat = len(q.shape) == 3
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    if past_key is not None and past_value is not None:
        k, v = cat([past_key, k], 2), cat([past_value, v], 2)
    keys, values, groups = k, v, q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    before: Any = 0 if past_key is None else past_key.shape[2]
    if past_key is None and filled is not None:
        before = filled.reshape(-1, 1, 1, 1) - q.shape[2]
    window = (left_window_size, right_window_size)
    bias = _bias(mask, q, k.shape[2], is_causal, window, before, filled)
    factor = math.sqrt(scale or 1 / math.sqrt(q.shape[3]))
    products = (q * factor) @ (k * factor).transpose(2, 3)
    if softcap:
        capped = (products / softcap).tanh() * softcap
        products = capped if qk_matmul_output_mode else products
    else:
        capped = products
    logits = capped if bias is None else capped + bias
    wide = logits.cast(element_type(softmax_precision, "softmax_precision")) if softmax_precision else logits
    shares = wide.softmax(-1).cast(q.dtype)
    if bias is not None:
        shares = (bias.amax(-1, keepdim=True) == -math.inf).where(0.0, shares)
    y = (shares @ v).cast(q.dtype)
    if flat:
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)
    return y, keys, values, (products, products, logits, shares)[qk_matmul_output_mode].cast(q.dtype)


def rotary(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None,
    *, interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0,
) -> Tensor:  # fmt: skip
    """RotaryEmbedding."""
    y = _heads(x, num_heads)
    size = rotary_embedding_dim or y.shape[3]
    if positions is not None:
        cos, sin = [
            t.index_select(0, positions.reshape(-1)).reshape(*positions.shape, t.shape[1]) for t in (cos, sin)
        ]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    part, rest = y[..., :size], y[..., size:]
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    turned = a * cos - b * sin, a * sin + b * cos
    found = Tensor.stack(turned, axis=-1).reshape(part.shape) if interleaved else cat(turned, -1)
    found = cat([found, rest], -1) if rest.shape[-1] else found
    return (found.transpose(1, 2).reshape(x.shape) if len(x.shape) == 3 else found).cast(x.dtype)


def tensor_scatter(
    x: Tensor, update: Tensor, begin: Tensor | None = None, *, mode: str = "linear", axis: int = -2
) -> Tensor:
    """TensorScatter: writes rows into a cache."""
    axis = axis_in(axis, len(x.shape))
    places = Tensor.arange(update.shape[axis], device=x.device).reshape(
        *[-1 if a == axis else 1 for a in range(len(x.shape))]
    )
    if begin is not None:
        places = places + begin.reshape(-1, *(1,) * (len(x.shape) - 1))
    places = places % x.shape[axis] if mode == "circular" else places
    return scatter_elements(x, places.broadcast_to(*update.shape), update, axis=axis)


def causal_conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None, *, activation: str = "none"
) -> Any:
    """CausalConvWithState: a convolution of each channel, and the elements that the next call needs."""
    k = w.shape[2] - 1
    wide = x.pad(((0, 0), (0, 0), (k, 0))) if past is None else cat([past, x], 2)
    y = wide.conv2d(w, b, groups=x.shape[1]).cast(x.dtype)
    y = y.cast("float32").silu().cast(x.dtype) if activation in {"silu", "swish"} else y
    return y, wide[:, :, wide.shape[2] - k :]


def linear_attention(  # noqa: PLR0917 - the operator's inputs
    q: Tensor, k: Tensor, v: Tensor, past: Tensor | None = None,
    decay: Tensor | None = None, beta: Tensor | None = None,
    *, chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0,  # noqa: ARG001 - a hint
    update_rule: str = "gated_delta",  # noqa: ARG001 - the inputs say it
) -> Any:  # fmt: skip
    """LinearAttention: a state (batch, heads, keys, values) that each position changes."""
    dtype, batch, length = q.dtype, q.shape[0], q.shape[1]
    q, k, v = _heads(q, q_num_heads), _heads(k, kv_num_heads), _heads(v, kv_num_heads)
    q, k, v = q.cast("float32"), k.cast("float32"), v.cast("float32")
    kept = dtype if past is None else past.dtype
    shape = (batch, kv_num_heads, k.shape[3], v.shape[3])
    state = Tensor.zeros(*shape, device=q.device) if past is None else past.cast("float32")
    factor, rows = scale or 1 / math.sqrt(k.shape[3]), []
    gates = None if decay is None else _heads(decay, kv_num_heads).cast("float32").exp()
    shares = None if beta is None else _heads(beta, beta.shape[2]).cast("float32")
    for i in range(length):
        key, value = k[:, :, i].unsqueeze(3), v[:, :, i].unsqueeze(2)
        state = state if gates is None else state * gates[:, :, i].unsqueeze(3)
        if shares is not None:
            value = shares[:, :, i].unsqueeze(3) * (value - (state * key).sum(2, keepdim=True))
        state = state + key * value
        read = state.repeat_interleave(q_num_heads // kv_num_heads, 1)
        rows.append((read * q[:, :, i].unsqueeze(3)).sum(2) * factor)
    y = Tensor.stack(rows, axis=1).reshape(batch, length, -1)
    return y.cast(dtype), state.cast(kept)
