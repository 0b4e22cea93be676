"""The description of a language model: one value that a single block computes for every family.

A family of models is a row (`families`) that makes a `Description` of a folder's `config.json` or of a GGUF
file's metadata. What differs between families is data here: places and kinds of norms, rotary embeddings,
windows, soft caps, activations, experts, tied heads. Biases are present where the file has them, if `biased`
allows them.

Not here: weights (`weights`), computing (`block`). Next: `families`, the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """A rotary embedding: element pairs of a head turn by position * base^(-2i / size) / divisors[i]."""

    base: float
    size: int
    """Elements of a head that turn, from the first on."""
    divisors: tuple[float, ...] | None = None
    """A divisor for each pair; None: 1."""
    long: tuple[float, ...] | None = None
    """The divisors of contexts longer than `original`; None: the same."""
    original: int = 0
    """Positions of the training for which `divisors` hold, where `long` is given."""
    factor: float = 1.0
    """Sine and cosine are multiplied by it."""
    paired: bool = False
    """Pairs are neighbours (2i, 2i + 1); else the halves (i, i + size / 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What a layer has of its own."""

    rope: Rope | None
    """None: positions are embedded (`Description.learned`)."""
    window: int | None = None
    """Positions that a position attends to, itself included; None: all before it."""
    sparse: bool = False
    """Whether it has experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: the router's probabilities choose `used` of `count` for each token."""

    count: int
    used: int
    normalised: bool
    """Whether the chosen probabilities are divided by their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A language model without its weights. Sizes are elements."""

    family: str
    width: int
    """Elements of a token's vector."""
    vocabulary: int
    heads: int
    key_heads: int
    """Heads of keys and values; each serves heads / key_heads neighbouring heads of queries."""
    depth: int
    """Elements of a head."""
    hidden: int
    """Elements inside a feed-forward layer."""
    layers: tuple[Layer, ...]
    context: int
    """The most positions."""
    scale: float
    """Scores are multiplied by it."""
    eps: float
    norm: Literal["rms", "layer"] = "rms"
    norm_offset: float = 0.0
    """Weights of norms are offset + weight."""
    norms: Literal["before", "after", "both"] = "before"
    """Whether attention and feed-forward have a norm before them, after them (before the sum), or both."""
    norm_qk: Literal["head", "whole"] | None = None
    """A norm of queries and keys: of each head, or of all heads in a row; None: none."""
    activation: Literal["silu", "gelu", "gelu_tanh"] = "silu"
    gated: bool = True
    """Feed-forward is down(act(gate(x)) * up(x)); else down(act(up(x)))."""
    embedding_scale: float = 1.0
    score_cap: float = 0.0
    """Scores s become cap * tanh(s / cap); 0: none."""
    logit_cap: float = 0.0
    learned: bool = False
    """Whether positions are rows of a table that are added to the embeddings."""
    tied: bool = False
    """Whether the head is the table of embeddings, if the files have none."""
    experts: Experts | None = None
    biased: tuple[str, ...] = ("",)
    """How the names of weights begin that may have biases."""
    stops: tuple[int, ...] = ()
    """Ids that end a text."""
