"""Operators over time: RNN, LSTM, GRU. Steps are unrolled.

Next: `table`. Raises `UsageError` for other activations and directions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from frontend.onnx.shapes import reverse_sequence
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ACTIVATIONS: Final[dict[str, Callable[[Any, float, float], Any]]] = {
    "affine": lambda x, a, b: x * a + b,
    "elu": lambda x, a, _: (x < 0).where((x.exp() - 1) * a, x),
    "hardsigmoid": lambda x, a, b: (x * a + b).clamp(0, 1),
    "leakyrelu": lambda x, a, _: (x < 0).where(x * a, x),
    "relu": lambda x, _a, _b: x.relu(),
    "scaledtanh": lambda x, a, b: (x * b).tanh() * a,
    "sigmoid": lambda x, _a, _b: x.sigmoid(),
    "softplus": lambda x, _a, _b: x.softplus(),
    "softsign": lambda x, _a, _b: x.softsign(),
    "tanh": lambda x, _a, _b: x.tanh(),
    "thresholdedrelu": lambda x, a, _: (x > a).where(x, 0.0),
}
_DEFAULTS: Final = {"hardsigmoid": (0.2, 0.5), "leakyrelu": (0.01, 0.0)}


_ALPHA: Final = frozenset(("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu"))
_BETA: Final = frozenset(("affine", "hardsigmoid", "scaledtanh"))


def _activations(names: Sequence[str], alpha: Sequence[float], beta: Sequence[float]) -> list[Any]:
    """Return functions of one tensor; each that has a setting takes the next of those that are given."""
    found: list[Any] = []
    alphas, betas = iter(alpha), iter(beta)
    for name in names:
        if (kind := name.lower()) not in _ACTIVATIONS:
            raise UsageError(f"no activation {name!r}; there are {', '.join(_ACTIVATIONS)}")
        a, b = _DEFAULTS.get(kind, (1.0, 0.0 if kind == "affine" else 1.0))
        a = next(alphas, a) if kind in _ALPHA else a
        b = next(betas, b) if kind in _BETA else b
        found.append(lambda x, f=_ACTIVATIONS[kind], a=a, b=b: f(x, a, b))
    return found


def _rnn(
    x: Tensor, states: list[Tensor], r: Tensor, rb: Tensor, _p: Any, f: list[Any], _s: Any
) -> list[Tensor]:
    return [f[0](x + states[0] @ r + rb)]


def _gru(  # noqa: PLR0917 - one step
    x: Tensor, states: list[Tensor], r: Tensor, rb: Tensor, _p: Any, f: list[Any], s: Any
) -> list[Tensor]:
    h, n = states[0], states[0].shape[-1]
    gates = f[0](x[..., : 2 * n] + h @ r[:, : 2 * n] + rb[: 2 * n])
    z, reset = gates[..., :n], gates[..., n:]
    if s["linear_before_reset"]:
        new = x[..., 2 * n :] + reset * (h @ r[:, 2 * n :] + rb[2 * n :])
    else:
        new = x[..., 2 * n :] + (reset * h) @ r[:, 2 * n :] + rb[2 * n :]
    return [(1 - z) * f[1](new) + z * h]


def _lstm(  # noqa: PLR0917 - one step
    x: Tensor, states: list[Tensor], r: Tensor, rb: Tensor, p: Any, f: list[Any], s: Any
) -> list[Tensor]:
    h, c = states
    i, o, forget, new = (x + h @ r + rb).chunk(4, -1)
    if p is not None:
        pi, po, pf = p.chunk(3, -1)
        i, forget = i + pi * c, forget + pf * c
    i = f[0](i)
    c2 = (1 - i if s["input_forget"] else f[0](forget)) * c + i * f[1](new)
    o = f[0](o if p is None else o + po * c2)
    return [o * f[2](c2), c2]


_CELLS: Final = {
    "RNN": (_rnn, 1, 1, ("Tanh",)),
    "GRU": (_gru, 3, 1, ("Sigmoid", "Tanh")),
    "LSTM": (_lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh")),
}
"""Operator -> step, gates, states, activations."""


def recurrent(kind: str) -> Callable[..., Any]:
    """Return an operator over time."""
    step, gates, count, usual = _CELLS[kind]

    def over_time(  # noqa: PLR0917 - the operator's inputs
        x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
        p: Any = None,
        *, activation_alpha: list[float] | None = None, activation_beta: list[float] | None = None,
        activations: list[str] | None = None, clip: float = 0.0, direction: str = "forward",
        hidden_size: int | None = None, input_forget: int = 0, layout: int = 0, linear_before_reset: int = 0,
    ) -> Any:  # fmt: skip
        if direction not in {"forward", "reverse", "bidirectional"}:
            raise UsageError(f"wanted the direction forward, reverse or bidirectional, saw {direction!r}")
        if layout:
            x = x.transpose(0, 1)
            h, c = [None if s is None else s.transpose(0, 1) for s in (h, c)]
        size, batch = r.shape[2], x.shape[1]
        if hidden_size not in {None, size} or w.shape[1] != gates * size:
            raise UsageError(f"the weights {w.shape} and {r.shape} have not {gates} gates of one size")
        functions = _activations(
            activations or usual * w.shape[0], activation_alpha or (), activation_beta or ()
        )
        settings = {"linear_before_reset": linear_before_reset, "input_forget": input_forget}
        limited = [lambda v, f=f: f(v.clamp(-clip, clip)) if clip else f(v) for f in functions]
        rows, ends = [], []
        for d in range(w.shape[0]):
            back = direction == "reverse" or d == 1
            bias = Tensor.zeros(2 * gates * size, dtype=x.dtype, device=x.device) if b is None else b[d]
            own = x if not back else x.flip(0) if lengths is None else reverse_sequence(x, lengths)
            projected = own @ w[d].transpose(0, 1) + bias[: gates * size]
            zero = Tensor.zeros(batch, size, dtype=x.dtype, device=x.device)
            states = [zero if s is None else s[d] for s in (h, c)][:count]
            chosen = limited[d * len(usual) : (d + 1) * len(usual)]
            outs = []
            for t in range(x.shape[0]):
                found = step(
                    projected[t], states, r[d].transpose(0, 1), bias[gates * size :],
                    None if p is None else p[d], chosen, settings,
                )  # fmt: skip
                live = None if lengths is None else (lengths > t).reshape(-1, 1)
                states = (
                    found if live is None else [live.where(n, o) for n, o in zip(found, states, strict=True)]
                )
                outs.append(found[0] if live is None else live.where(found[0], 0.0))
            y = Tensor.stack(outs, axis=0)
            rows.append(y if not back else y.flip(0) if lengths is None else reverse_sequence(y, lengths))
            ends.append(states)
        y = Tensor.stack(rows, axis=1)
        last = [Tensor.stack([e[i] for e in ends], axis=0) for i in range(count)]
        if layout:
            y, last = y.permute(2, 0, 1, 3), [s.transpose(0, 1) for s in last]
        return y, *last

    return over_time


def dft(
    x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0, _axis: int = -2
) -> Tensor:
    """DFT: real and imaginary parts are the last axis."""
    rank = len(x.shape)
    at = (int(axis) if axis is not None else _axis) % rank
    n = (
        (x.shape[at] if not (inverse and onesided) else 2 * x.shape[at] - 2)
        if length is None
        else int(length)
    )
    x = x.transpose(at, rank - 2) if at != rank - 2 else x
    have = x.shape[-2]
    x = x.pad((*[(0, 0)] * (rank - 2), (0, n - have), (0, 0)))
    y = transformed(x[..., 0], None if x.shape[-1] == 1 else x[..., 1], n, inverse=inverse, onesided=onesided)
    return y.transpose(at, rank - 2) if at != rank - 2 else y


def transformed(real: Tensor, imaginary: Tensor | None, n: int, *, inverse: int, onesided: int) -> Tensor:
    """Return the Fourier transform along the last axis, with parts as a new last axis."""
    half = n // 2 + 1
    places = Tensor.arange(n, device=real.device)
    turns = places.reshape(n, 1) * places % n
    angle = turns.cast("float64") * ((2 if inverse else -2) * math.pi / n)
    cos, sin = angle.cos().cast(real.dtype), angle.sin().cast(real.dtype)
    if inverse and onesided:  # the other half of the bins is conjugate
        twice = ((places[:half] == 0) | (places[:half] * 2 == n)).where(1.0, 2.0).cast(real.dtype)
        a = (real[..., :half] * twice) @ cos[:half]
        if imaginary is not None:
            a = a - (imaginary[..., :half] * twice) @ sin[:half]
        return a.unsqueeze(-1) / n
    if onesided:
        cos, sin = cos[:, :half], sin[:, :half]
    a, b = real @ cos, real @ sin
    if imaginary is not None:
        a, b = a - imaginary @ sin, b + imaginary @ cos
    y = Tensor.stack([a, b], axis=-1)
    return y / n if inverse else y


def dft_fixed(x: Tensor, length: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0) -> Tensor:
    """DFT before opset 20."""
    return dft(x, length, inverse=inverse, onesided=onesided, _axis=axis)


def stft(
    x: Tensor, step: Any, window: Tensor | None = None, length: Any = None, *, onesided: int = 1
) -> Tensor:
    """STFT: (batch, frames, bins, 2)."""
    n = int(length) if length is not None else window.shape[0] if window is not None else 0
    if n < 1 or int(step) < 1:
        raise UsageError("wanted a window or a frame_length, and a step of at least 1")
    parts = [x[..., 0] if len(x.shape) == 3 else x]
    parts += [x[..., 1]] if len(x.shape) == 3 and x.shape[2] == 2 else []
    frames = [part.unfold(1, n, int(step)) for part in parts]
    frames = [f if window is None else f * window for f in frames]
    return transformed(frames[0], frames[1] if len(frames) > 1 else None, n, inverse=0, onesided=onesided)
