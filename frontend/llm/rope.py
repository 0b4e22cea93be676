"""Rotary embeddings: divisors of the scalings that `config.json` names, and the rotation itself.

Scalings: linear (positions divided by a factor), llama3 (long waves divided, short ones kept, a ramp between:
Llama 3.1's model card), yarn (arXiv:2309.00071) and longrope (arXiv:2402.13753, a divisor for each pair).

Not here: which family has which (`families`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.dtype import dtypes
from frontend.llm.description import Rope
from frontend.llm.settings import ModelSettings
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError


def rope_of(settings: ModelSettings, size: int, context: int) -> Rope:
    """Return the embedding of `size` elements of a head from the settings of `config.json`.

    Settings are those of `rope_parameters` or `rope_scaling`, with `rope_theta`. `context` is the model's
    number of positions. Raises `UsageError` for a missing or malformed setting, `UnsupportedError` for an
    unknown kind.
    """
    kind = settings.text("rope_type", settings.text("type", "default"))
    base = _number(settings, "rope_theta", 10000.0)
    rate = _number(settings, "partial_rotary_factor", 1.0)
    size = int(size * rate)
    if size < 2 or size % 2:
        raise settings.wrong("partial_rotary_factor", f"an even number of elements, not {size},")
    if base <= 1:
        raise settings.wrong("rope_theta", "a number above 1")
    if kind == "default":
        return Rope(base=base, size=size)
    if kind == "longrope":
        return _longrope(settings, base, size, context)
    if kind not in _DIVISORS:
        known = ", ".join(["default", "longrope", *_DIVISORS])
        raise UnsupportedError(f"{settings.path}: wanted a rope_type of {known}, saw {kind!r}")
    wavelengths = [2 * math.pi * base ** (2 * i / size) for i in range(size // 2)]
    divisors = _DIVISORS[kind](settings, wavelengths, base)
    return Rope(base=base, size=size, divisors=tuple(divisors), factor=_factor(settings, kind))


def _number(s: ModelSettings, name: str, default: float | None = None) -> float:
    found = s.number(name, default)
    if not found:
        raise s.wrong(name, "a number above 0")
    return found


def _linear(settings: ModelSettings, waves: list[float], _base: float) -> list[float]:
    return [_number(settings, "factor")] * len(waves)


def _llama3(settings: ModelSettings, waves: list[float], _base: float) -> list[float]:
    """Waves longer than original / low are divided by the factor, those shorter than original / high kept."""
    factor, original = _number(settings, "factor"), _number(settings, "original_max_position_embeddings")
    low, high = _number(settings, "low_freq_factor"), _number(settings, "high_freq_factor")
    if low >= high:
        raise settings.wrong("low_freq_factor", f"a number below the high_freq_factor {high}")
    kept = [min(1.0, max(0.0, (original / w - low) / (high - low))) for w in waves]
    return [1 / ((1 - k) / factor + k) for k in kept]


def _yarn(settings: ModelSettings, waves: list[float], base: float) -> list[float]:
    """Pairs are kept that turn beta_fast times within the original context; beta_slow times: divided."""
    factor, original = _number(settings, "factor"), _number(settings, "original_max_position_embeddings")
    size = 2 * len(waves)
    low, high = [
        size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (_number(settings, "beta_fast", 32.0), _number(settings, "beta_slow", 1.0))
    ]
    if settings.flag("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    steps = high - low or 0.001
    kept = [1 - min(1.0, max(0.0, (i - low) / steps)) for i in range(len(waves))]
    return [1 / ((1 - k) / factor + k) for k in kept]


_DIVISORS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}


def _factor(settings: ModelSettings, kind: str) -> float:
    """Return the factor of sine and cosine: that of yarn grows with the scaling."""
    if kind != "yarn":
        return 1.0
    if settings.raw("attention_factor") is not None:
        return _number(settings, "attention_factor")
    scale = _number(settings, "factor")
    one, every = settings.number("mscale", 0.0), settings.number("mscale_all_dim", 0.0)

    def grown(by: float) -> float:
        return 1.0 if scale <= 1 else 0.1 * by * math.log(scale) + 1

    return grown(one) / grown(every) if one and every else grown(1.0)


def _longrope(settings: ModelSettings, base: float, size: int, context: int) -> Rope:
    each: list[tuple[float, ...]] = []
    for name in ("short_factor", "long_factor"):
        given = settings.raw(name)
        if not isinstance(given, list) or len(given) != size // 2:
            raise settings.wrong(name, f"a list of {size // 2} numbers")
        each.append(tuple([_number(ModelSettings({name: v}, settings.path), name) for v in given]))
    original = settings.count("original_max_position_embeddings", context, least=2)
    scale = _number(settings, "factor", context / original)
    factor = 1.0 if scale <= 1 else math.sqrt(1 + math.log(scale) / math.log(original))
    factor = settings.number("attention_factor", factor)
    return Rope(base=base, size=size, divisors=each[0], long=each[1], original=original, factor=factor)


def rates(rope: Rope, tokens: Sequence[int], device: str) -> Tensor:
    """Return the angle of each pair for one position (rows, size / 2) float32.

    A row of more `tokens` than the original context has those of `long`. Without `long` there is one row.
    """
    each = []
    for count in tokens if rope.long is not None else [0]:
        divisors = (rope.long if count > rope.original else rope.divisors) or (1.0,) * (rope.size // 2)
        each.append([rope.base ** (-2 * i / rope.size) / by for i, by in enumerate(divisors)])
    return Tensor(each, dtype=dtypes.float32, device=device).realize()


def turns(rope: Rope, rate: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine (batch, tokens, size / 2) float32 of positions (batch, tokens) int32."""
    angles = positions.cast(dtypes.float32).unsqueeze(2) * rate.unsqueeze(1)
    cosine, sine = angles.cos(), angles.sin()
    if rope.factor != 1.0:
        cosine, sine = cosine * rope.factor, sine * rope.factor
    return cosine.realize(sine), sine


def turned(x: Tensor, rope: Rope, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return x (batch, tokens, heads, depth) with the pairs of its first `size` elements turned."""
    batch, tokens, heads, depth = x.shape
    half = rope.size // 2
    cosine, sine = (t.reshape(batch, tokens, 1, half) for t in (cosine, sine))
    part = x if rope.size == depth else x[:, :, :, : rope.size]
    if rope.paired:
        pairs = part.reshape(batch, tokens, heads, half, 2)
        a, b = pairs[:, :, :, :, 0], pairs[:, :, :, :, 1]
        out = (a * cosine - b * sine).stack(b * cosine + a * sine, axis=4).reshape(*part.shape)
    else:
        a, b = part[:, :, :, :half], part[:, :, :, half:]
        out = (a * cosine - b * sine).cat(b * cosine + a * sine, axis=3)
    return out if rope.size == depth else out.cat(x[:, :, :, rope.size :], axis=3)
