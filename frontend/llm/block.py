"""The decoder of all families: layers of attention and feed-forward over a cache of keys and values.

A call computes `tokens` positions of each sequence of a batch. The cache has a slot for each position; all
sequences of a batch write to the same slots, and sequence b starts at the slot starts[b]: shorter ones start
later. A position attends to the slots from the start of its sequence, or of its window, to its own.

Not here: captured graphs, chunks, choosing tokens (`model`, `sampling`). Next: `description`, `weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import dtypes
from frontend.llm import weights as stored
from frontend.llm.rope import rates, turned, turns
from frontend.tensor import Tensor

if TYPE_CHECKING:
    from frontend.llm.description import Description, Experts, Layer, Rope
    from frontend.llm.weights import Projection, Source, WeightMatrix
    from frontend.variable import Bound

_HIDDEN_SCORE: Final = -1e30
"""The score of what a position does not attend to; finite, so that a row without any slot has no NaN."""

ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": lambda x: x.silu(),
    "gelu": lambda x: x.gelu(approximate="none"),
    "gelu_tanh": lambda x: x.gelu(approximate="tanh"),
}


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm of the last axis: by the root of the mean square, or by mean and deviation ("layer")."""

    weight: Tensor
    """(elements,) float32, the offset included."""
    bias: Tensor | None
    eps: float
    centred: bool

    def __call__(self, x: Tensor) -> Tensor:
        """Return x (..., elements), normalised."""
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        y = x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
        return y if self.bias is None else y + self.bias


class KeyValueCache:
    """Keys and values of a batch: for each layer (batch, key heads, slots, depth) float32."""

    def __init__(self, d: Description, batch: int, slots: int, device: str) -> None:
        self.batch, self.slots = batch, slots
        shape = (batch, d.key_heads, slots, d.depth)

        def empty() -> list[Tensor]:
            return [Tensor.zeros(*shape, dtype=dtypes.float32, device=device).clone() for _ in d.layers]

        self.keys, self.values = empty(), empty()
        Tensor.realize(*self.keys, *self.values)
        self.rates = {layer.rope: rates(layer.rope, [0] * batch, device) for layer in d.layers if layer.rope}


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The tokens of one call: where they are, what they attend to, and their rotations."""

    cache: KeyValueCache
    at: Bound
    """The slot of the first token."""
    tokens: int
    masks: dict[int | None, Any]
    """Window -> bool (batch, 1, 1, tokens, slots up to the last token's)."""
    turns: dict[Rope, tuple[Tensor, Tensor]]
    """Cosine and sine of the positions."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of a layer."""

    d: Description
    layer: Layer
    qkv: Projection
    out: Projection
    norms: tuple[Norm, Norm] | None
    """Norms of queries and keys."""

    def __call__(self, x: Tensor, span: TokenSpan, number: int) -> Tensor:
        """Return the output for x (batch, tokens, width); writes the cache of layer `number`."""
        d, (batch, tokens, _) = self.d, x.shape
        q, k, v = self.qkv(x)
        if self.norms and d.norm_qk == "whole":
            q, k = self.norms[0](q), self.norms[1](k)
        q = q.reshape(batch, tokens, d.heads, d.depth)
        k = k.reshape(batch, tokens, d.key_heads, d.depth)
        if self.norms and d.norm_qk == "head":
            q, k = self.norms[0](q), self.norms[1](k)
        if self.layer.rope is not None:
            q, k = (turned(t, self.layer.rope, *span.turns[self.layer.rope]) for t in (q, k))
        v = v.reshape(batch, tokens, d.key_heads, d.depth)
        keys, values = span.cache.keys[number], span.cache.values[number]
        end = span.at + tokens
        keys[:, :, span.at : end] = k.permute(0, 2, 1, 3)
        values[:, :, span.at : end] = v.permute(0, 2, 1, 3)
        y = self._attended(q, keys[:, :, :end], values[:, :, :end], span.masks[self.layer.window])
        return self.out(y)[0]

    def _attended(self, q: Tensor, keys: Any, values: Any, mask: Any) -> Tensor:
        """Return the attended values (batch, tokens, heads * depth).

        The heads that share one of keys are rows of one product.
        """
        d, (batch, tokens, _, depth) = self.d, q.shape
        shared = d.heads // d.key_heads
        rows = q.reshape(batch, tokens, d.key_heads, shared, depth).permute(0, 2, 3, 1, 4)
        scores = (rows.reshape(batch, d.key_heads, shared * tokens, depth) @ keys.transpose(2, 3)) * d.scale
        if d.score_cap:
            scores = (scores / d.score_cap).tanh() * d.score_cap
        slots = scores.shape[-1]
        scores = scores.reshape(batch, d.key_heads, shared, tokens, slots)
        share = mask.where(scores, _HIDDEN_SCORE).softmax(4)
        y: Tensor = share.reshape(batch, d.key_heads, shared * tokens, slots) @ values
        y = y.reshape(batch, d.key_heads, shared, tokens, depth).permute(0, 3, 1, 2, 4)
        return y.reshape(batch, tokens, d.heads * depth)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The feed-forward part of a layer, or the expert that all tokens share."""

    d: Description
    up: Projection
    """Gate and up; up alone if the family has no gate."""
    down: Projection

    @property
    def size(self) -> int:
        """Bytes of weights that a token reads."""
        return self.up.size + self.down.size

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for x (..., width)."""
        act = ACTIVATIONS[self.d.activation]
        parts = self.up(x)
        inner = act(parts[0]) * parts[1] if self.d.gated else act(parts[0])
        return self.down(inner)[0]


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts of a layer."""

    d: Description
    experts: Experts
    router: Projection
    gate: WeightMatrix
    up: WeightMatrix
    down: WeightMatrix
    shared: tuple[Projection, FeedForward] | None
    """The router and the feed-forward part of the expert that all tokens use."""

    @property
    def size(self) -> int:
        """Bytes of weights that a token reads."""
        all_ = self.gate.size + self.up.size + self.down.size
        shared = 0 if self.shared is None else self.shared[0].size + self.shared[1].size
        return self.router.size + all_ * self.experts.used // self.experts.count + shared

    def __call__(self, x: Tensor) -> Tensor:
        """Return the sum of the chosen experts' outputs for x (batch, tokens, width), by their shares."""
        batch, tokens, width = x.shape
        count = batch * tokens
        chances = self.router(x)[0].reshape(count, self.experts.count).softmax(1)
        share, chosen = chances.topk(self.experts.used, 1)
        if self.experts.normalised:
            share = share / share.sum(1, keepdim=True)
        share, chosen = share.clone(), chosen.cast(dtypes.int32).clone()
        rows = x.reshape(count, 1, width)
        act = ACTIVATIONS[self.d.activation]
        y = act(_of_experts(rows, self.gate, chosen)) * _of_experts(rows, self.up, chosen)
        found = (_of_experts(y.clone(), self.down, chosen) * share.unsqueeze(2)).sum(1)
        found = found.reshape(batch, tokens, width)
        if self.shared is not None:
            gate, feed = self.shared
            found = found + gate(x)[0].sigmoid() * feed(x)
        return found


def _of_experts(x: Tensor, each: WeightMatrix, chosen: Tensor) -> Tensor:
    """Return (tokens, used, outputs): x (tokens, used or 1, inputs) times the matrices of chosen experts."""
    return (x.unsqueeze(2) * each.rows(chosen)).sum(3)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """A layer: attention and feed-forward, each with norms before, after or both, added to its input."""

    attention: Attention
    feed: FeedForward | Mixture
    before: tuple[Norm | None, Norm | None]
    """The norms before attention and before feed-forward."""
    after: tuple[Norm | None, Norm | None]

    def __call__(self, x: Tensor, span: TokenSpan, number: int) -> Tensor:
        """Return the output of layer `number` for x (batch, tokens, width)."""

        def whole(norm: Norm | None, value: Tensor) -> Tensor:
            return value if norm is None else norm(value)

        y = self.attention(whole(self.before[0], x), span, number)
        x = x + whole(self.after[0], y)
        y = self.feed(whole(self.before[1], x))
        return x + whole(self.after[1], y)


class Decoder:
    """All layers with their weights. Its methods are lazy, and can be captured."""

    def __init__(self, d: Description, source: Source) -> None:
        self.d, self.device = d, source.device
        self.table = stored.matrix(source, ["token_embd.weight"], [d.vocabulary], d.width)
        self.places = (
            stored.matrix(source, ["position_embd.weight"], [d.context], d.width) if d.learned else None
        )
        self.blocks = [_block(d, layer, _Named(source, f"blk.{i}.")) for i, layer in enumerate(d.layers)]
        self.norm = _norm(d, _Named(source, ""), "output_norm", d.width)
        tied = d.tied and source.find("output.weight") is None  # files may have another head all the same
        head = None if tied else stored.matrix(source, ["output.weight"], [d.vocabulary], d.width)
        self.head = head or self.table

    @property
    def read_bytes(self) -> int:
        """Bytes of matrices that a token reads; its row of the table of embeddings is left out."""
        layers = [b.attention.qkv.size + b.attention.out.size + b.feed.size for b in self.blocks]
        return sum(layers) + self.head.size

    def hidden(self, ids: Tensor, at: Bound, starts: Tensor, cache: KeyValueCache) -> Tensor:
        """Return the vectors (batch, tokens, width) after the last layer; writes the cache.

        `ids` (batch, tokens) int32 are the tokens of the slots from `at` on, `starts` (batch,) int32 the
        first slot of each sequence.
        """
        d, (batch, tokens) = self.d, ids.shape
        slot = Tensor.arange(tokens, dtype=dtypes.int32, device=self.device).reshape(1, tokens) + at
        first = starts.reshape(batch, 1)
        positions = (slot - first).maximum(0)
        x = self.table.rows(ids)
        if d.embedding_scale != 1.0:
            x = x * d.embedding_scale
        if self.places is not None:
            x = x + self.places.rows(positions.minimum(d.context - 1))  # texts that ended go on beside others
        every = Tensor.arange(cache.slots, dtype=dtypes.int32, device=self.device)[: at + tokens]
        seen = every.reshape(1, 1, every.shape[0])
        slot, first = slot.reshape(1, tokens, 1), first.reshape(batch, 1, 1)
        base = (seen <= slot) & (seen >= first)
        masks = {
            window: (base if window is None else base & (seen > slot - window)).unsqueeze(1).unsqueeze(1)
            for window in {layer.window for layer in d.layers}
        }
        turning = {rope: turns(rope, rate, positions) for rope, rate in cache.rates.items()}
        span = TokenSpan(cache, at, tokens, masks, turning)
        for number, block in enumerate(self.blocks):
            x = block(x, span, number).realize()  # what is dequantised is that of one layer at a time
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits (..., vocabulary) float32 of vectors (..., width)."""
        y = self.head.product(self.norm(x))
        cap = self.d.logit_cap
        return (y / cap).tanh() * cap if cap else y


@dataclass(frozen=True, slots=True)
class _Named:
    """The weights of one layer: names are without the layer's."""

    source: Source
    prefix: str

    @property
    def device(self) -> str:
        return self.source.device

    @property
    def progress(self) -> stored.Progress:
        return self.source.progress

    def find(self, name: str) -> stored.Stored | None:
        return self.source.find(self.prefix + name)

    def __str__(self) -> str:
        return f"{self.source}, {self.prefix}"


def _norm(d: Description, source: Source, name: str, size: int) -> Norm:
    weight = stored.vector(source, f"{name}.weight", size)
    if d.norm_offset:
        weight = (weight + d.norm_offset).realize()
    centred = d.norm == "layer"
    return Norm(weight, stored.vector(source, f"{name}.bias", size) if centred else None, d.eps, centred)


def _block(d: Description, layer: Layer, source: Source) -> DecoderLayer:
    def norms(first: str, second: str) -> tuple[Norm, Norm]:
        return _norm(d, source, first, d.width), _norm(d, source, second, d.width)

    sizes = [d.heads * d.depth, d.key_heads * d.depth, d.key_heads * d.depth]
    if source.find("attn_qkv.weight") is not None:
        qkv = stored.divided(source, "attn_qkv", sizes, d.width)
    else:
        qkv = stored.linear(source, ["attn_q", "attn_k", "attn_v"], sizes, d.width)
    of_qk = None
    if d.norm_qk:
        q, k = (d.depth, d.depth) if d.norm_qk == "head" else sizes[:2]
        of_qk = _norm(d, source, "attn_q_norm", q), _norm(d, source, "attn_k_norm", k)
    out = stored.linear(source, ["attn_output"], [d.width], sizes[0])
    return DecoderLayer(
        Attention(d, layer, qkv, out, of_qk),
        _mixture(d, source) if layer.sparse else _feed(d, source, d.hidden),
        norms("attn_norm", "ffn_norm") if d.norms != "after" else (None, None),
        norms("post_attention_norm", "post_ffw_norm") if d.norms != "before" else (None, None),
    )


def _feed(d: Description, source: Source, hidden: int, suffix: str = "") -> FeedForward:
    gate, up = f"ffn_gate{suffix}", f"ffn_up{suffix}"
    if not d.gated:
        both = stored.linear(source, [up], [hidden], d.width)
    elif source.find(f"{gate}.weight") is None:  # gate and up are one matrix
        both = stored.divided(source, up, [hidden, hidden], d.width)
    else:
        both = stored.linear(source, [gate, up], [hidden, hidden], d.width)
    return FeedForward(d, both, stored.linear(source, [f"ffn_down{suffix}"], [d.width], hidden))


def _mixture(d: Description, source: Source) -> Mixture:
    assert d.experts is not None  # a layer is sparse only if there are experts
    lead, hidden = (d.experts.count,), _rows(source, "ffn_down_exps.weight")

    def each(name: str, rows: int, inputs: int) -> WeightMatrix:
        return stored.matrix(source, [f"{name}.weight"], [rows], inputs, lead=lead)

    shared = None
    if source.find("ffn_up_shexp.weight") is not None:
        shared = (
            stored.linear(source, ["ffn_gate_inp_shexp"], [1], d.width),
            _feed(d, source, _rows(source, "ffn_down_shexp.weight"), "_shexp"),
        )
    router = stored.linear(source, ["ffn_gate_inp"], [d.experts.count], d.width)
    gate, up = (each(name, hidden, d.width) for name in ("ffn_gate_exps", "ffn_up_exps"))
    return Mixture(d, d.experts, router, gate, up, each("ffn_down_exps", d.width, hidden), shared)


def _rows(source: Source, name: str) -> int:
    """Return the inputs of a matrix, as the file has it."""
    found = source.find(name)
    return found.shape[-1] if found is not None else 0
