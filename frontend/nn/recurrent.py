"""Recurrent layers: LSTM and GRU, as cells of one step and over sequences.

Weights have PyTorch's names, shapes and order of gates, and start uniform in ±1/sqrt(hidden_size). A
sequence is unrolled: one step of the graph for each element.

Not here: attention (`Tensor.scaled_dot_product_attention`), other layers (`layers`).
"""

from __future__ import annotations

import math
from typing import Final

from frontend.nn.checks import count, layer_input
from frontend.nn.module import Module
from frontend.parameters import flag
from frontend.tensor import Tensor
from hcq.errors import UsageError

_GATES: Final = {"LSTM": 4, "GRU": 3}
_MOST_LAYERS: Final = 1000
"""More layers than any model has: a larger number is a mistake, and would take hours."""


def _weight(*shape: int, hidden: int) -> Tensor:
    bound = 1 / math.sqrt(hidden)
    return Tensor.uniform(*shape, low=-bound, high=bound)


def lstm_step(x: Tensor, h: Tensor, c: Tensor, weights: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
    """Return (h', c') of (batch, inputs) and (batch, hidden): gates input, forget, cell, output."""
    w_x, w_h, b_x, b_h = weights
    assert w_x is not None  # there are always two weights
    assert w_h is not None  # as above
    i, f, g, o = (x.linear(w_x.transpose(), b_x) + h.linear(w_h.transpose(), b_h)).chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(x: Tensor, h: Tensor, weights: tuple[Tensor | None, ...]) -> Tensor:
    """Return h' of (batch, inputs) and (batch, hidden): gates reset, update, new."""
    w_x, w_h, b_x, b_h = weights
    assert w_x is not None  # there are always two weights
    assert w_h is not None  # as above
    r, z, n = x.linear(w_x.transpose(), b_x).chunk(3, 1)
    r_h, z_h, n_h = h.linear(w_h.transpose(), b_h).chunk(3, 1)
    update = (z + z_h).sigmoid()
    new = (n + (r + r_h).sigmoid() * n_h).tanh()
    return new + update * (h - new)


class LSTMCell(Module):
    """One step of an LSTM: `weight_ih` is (4 hidden, inputs), `weight_hh` (4 hidden, hidden)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:  # noqa: FBT001, FBT002 - the field's signature
        n = count("LSTMCell, hidden_size", hidden_size)
        self.input_size, self.hidden_size = count("LSTMCell, input_size", input_size), n
        self.weight_ih = _weight(4 * n, input_size, hidden=n)
        self.weight_hh = _weight(4 * n, n, hidden=n)
        bias = flag(bias, "LSTMCell, bias")
        self.bias_ih = _weight(4 * n, hidden=n) if bias else None
        self.bias_hh = _weight(4 * n, hidden=n) if bias else None

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return (h, c), both (batch, hidden), of (batch, inputs) and the state before, zeros when None."""
        x = layer_input(self, x, self.weight_ih)
        if x.ndim != 2 or x.shape[1] != self.input_size:
            raise UsageError(f"LSTMCell: wanted (batch, {self.input_size}), saw the shape {x.shape}")
        if state is None:
            zero = Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            state = (zero, zero)
        return lstm_step(x, *state, (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh))

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.hidden_size}"


class _Recurrent(Module):
    """Layers of one kind of cell over (time, batch, inputs), or (batch, time, inputs) with `batch_first`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
    ) -> None:
        kind = type(self).__name__
        n = count(f"{kind}, hidden_size", hidden_size)
        self.input_size, self.hidden_size = count(f"{kind}, input_size", input_size), n
        self.num_layers = count(f"{kind}, num_layers", num_layers)
        if num_layers > _MOST_LAYERS:
            raise UsageError(f"{kind}, num_layers: wanted at most {_MOST_LAYERS}, saw {num_layers}")
        self.bias, self.batch_first = flag(bias, f"{kind}, bias"), flag(batch_first, f"{kind}, batch_first")
        rows = _GATES[kind] * n
        for i in range(num_layers):
            setattr(self, f"weight_ih_l{i}", _weight(rows, n if i else input_size, hidden=n))
            setattr(self, f"weight_hh_l{i}", _weight(rows, n, hidden=n))
            if bias:
                setattr(self, f"bias_ih_l{i}", _weight(rows, hidden=n))
                setattr(self, f"bias_hh_l{i}", _weight(rows, hidden=n))

    def weights(self, layer: int) -> tuple[Tensor | None, ...]:
        """Return the weights and biases of a layer, None for biases that there are not."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return tuple([getattr(self, f"{name}_l{layer}", None) for name in names])

    def _steps(self, x: Tensor) -> list[Tensor]:
        first: Tensor | None = self.weights(0)[0]
        x = layer_input(self, x, first)
        if x.ndim != 3 or x.shape[2] != self.input_size:
            order = "batch, time" if self.batch_first else "time, batch"
            raise UsageError(
                f"{type(self).__name__}: wanted ({order}, {self.input_size}), saw the shape {x.shape}"
            )
        steps = list(x.unbind(1 if self.batch_first else 0))
        if not steps:
            raise UsageError(f"{type(self).__name__}: wanted at least one step, saw the shape {x.shape}")
        return steps

    def _start(self, given: Tensor | None, steps: list[Tensor]) -> list[Tensor]:
        if given is not None:
            return list(given.unbind(0))
        like = steps[0]
        zero = Tensor.zeros(like.shape[0], self.hidden_size, dtype=like.dtype, device=like.device)
        return [zero] * self.num_layers

    def _joined(self, steps: list[Tensor]) -> Tensor:
        return Tensor.stack(steps, axis=1 if self.batch_first else 0)

    def extra_repr(self) -> str:
        """Return the settings."""
        layers = f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        first = ", batch_first=True" if self.batch_first else ""
        return f"{self.input_size}, {self.hidden_size}{layers}{first}"


class LSTM(_Recurrent):
    """Layers of LSTM cells: `lstm(x, (h, c))` returns the outputs and the last (h, c) of each layer."""

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return outputs (time, batch, hidden), and h and c (layers, batch, hidden)."""
        steps = self._steps(x)
        h, c = state if state is not None else (None, None)
        hidden, cells = self._start(h, steps), self._start(c, steps)
        for layer in range(self.num_layers):
            found: list[Tensor] = []
            for step in steps:
                hidden[layer], cells[layer] = lstm_step(
                    step, hidden[layer], cells[layer], self.weights(layer)
                )
                found.append(hidden[layer])
            steps = found
        return self._joined(steps), (Tensor.stack(hidden), Tensor.stack(cells))


class GRU(_Recurrent):
    """Layers of GRU cells: `gru(x, h)` returns the outputs and the last h of each layer."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (time, batch, hidden), and h (layers, batch, hidden)."""
        steps = self._steps(x)
        hidden = self._start(state, steps)
        for layer in range(self.num_layers):
            found: list[Tensor] = []
            for step in steps:
                hidden[layer] = gru_step(step, hidden[layer], self.weights(layer))
                found.append(hidden[layer])
            steps = found
        return self._joined(steps), Tensor.stack(hidden)
