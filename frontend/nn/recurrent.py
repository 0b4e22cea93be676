"""Recurrent layers: RNN, LSTM and GRU, as cells of one step and over sequences.

Weights have PyTorch's names, shapes and order of gates, and start uniform in ±1/sqrt(hidden_size). A sequence
is unrolled: the graph has the operations of each step. Sizes below 1, and inputs or states of another shape,
raise `UsageError`, and so does another `nonlinearity`; arguments of other classes raise `UsageTypeError`.
Shapes of outputs and states are those without the settings `batch_first` (batch, time, ...) and
`bidirectional` (2 * hidden, 2 * layers).

Not here: attention (`attention`), other layers (`layers`). Next: `nn.utils.rnn`.
"""

# ruff: noqa: FBT001, FBT002, PLR0917 - the field's signatures

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, cast

from frontend.arguments.conversion import switch
from frontend.arguments.settings import choice, number_within
from frontend.evaluation.modes import lowered
from frontend.nn.checks import count, count_of_layers, layer_input, placed, redraw
from frontend.nn.module import Module, in_training
from frontend.tensor import Tensor
from hcq.errors import UsageError

Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""The weights of the input and of the hidden state, then their biases, None without `bias`."""
State = tuple[Tensor, ...]
"""(h,), or (h, c) of an LSTM, each (batch, hidden)."""


def _weight(*shape: int, hidden: int) -> Tensor:
    bound = 1 / math.sqrt(hidden or 1)
    return Tensor.uniform(*shape, low=-bound, high=bound)


def _both(x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """Return the linear maps of the input and of the hidden state by their weights and biases."""
    every = lowered(x, h, *weights)
    x, h, w_x, w_h, b_x, b_h = cast(
        "tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]", every
    )
    return x.linear(w_x.transpose(), b_x), h.linear(w_h.transpose(), b_h)


def lstm_step(x: Tensor, state: State, weights: Weights) -> State:
    """Return (h', c') of (batch, inputs) and (h, c): gates input, forget, cell, output."""
    h, c = state
    mapped, before = _both(x, h, weights)
    i, f, g, o = (mapped + before).chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_step(x: Tensor, state: State, weights: Weights) -> State:
    """Return (h',) of (batch, inputs) and (h,): gates reset, update, new."""
    (h,) = state
    mapped, before = _both(x, h, weights)
    (r, z, n), (r_h, z_h, n_h) = mapped.chunk(3, 1), before.chunk(3, 1)
    update = (z + z_h).sigmoid()
    new = (n + (r + r_h).sigmoid() * n_h).tanh()
    return (new + update * (h - new),)


def tanh_step(x: Tensor, state: State, weights: Weights) -> State:
    """Return (h',) of (batch, inputs) and (h,): the tanh of the sum of both linear maps."""
    mapped, before = _both(x, state[0], weights)
    return ((mapped + before).tanh(),)


def relu_step(x: Tensor, state: State, weights: Weights) -> State:
    """Return (h',) of (batch, inputs) and (h,): the ReLU of the sum of both linear maps."""
    mapped, before = _both(x, state[0], weights)
    return ((mapped + before).relu(),)


class _Cell(Module):
    """Base of cells: `weight_ih` is (gates * hidden, inputs), `weight_hh` (gates * hidden, hidden).

    `bias_ih` and `bias_hh` are (gates * hidden,), None without `bias`. An input may be (inputs,), without a
    batch.
    """

    gates: ClassVar[int] = 1
    step: Any = staticmethod(tanh_step)

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        kind = type(self).__name__
        n = count(f"{kind}, hidden_size", hidden_size, 0)
        self.input_size, self.hidden_size = count(f"{kind}, input_size", input_size, 0), n
        self.weight_ih = _weight(self.gates * n, input_size, hidden=n)
        self.weight_hh = _weight(self.gates * n, n, hidden=n)
        bias = switch(bias, f"{kind}, bias")
        self.bias_ih = _weight(self.gates * n, hidden=n) if bias else None
        self.bias_hh = _weight(self.gates * n, hidden=n) if bias else None
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        redraw(self, 1 / math.sqrt(self.hidden_size or 1))

    def _next(self, x: Tensor, state: State | None, parts: int) -> State:
        x = layer_input(self, x, self.weight_ih)
        if x.ndim not in {1, 2} or x.shape[-1] != self.input_size:
            raise UsageError(
                f"{type(self).__name__}: wanted (batch, {self.input_size}), saw the shape {x.shape}"
            )
        single = x.ndim == 1
        x = x.unsqueeze(0) if single else x
        if state is None:
            zero = Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            state = (zero,) * parts
        elif single:
            state = tuple([s.unsqueeze(0) for s in state])
        wanted = (x.shape[0], self.hidden_size)
        if wrong := [s.shape for s in state if s.shape != wanted]:
            raise UsageError(f"{type(self).__name__}: wanted a state of shape {wanted}, saw {wrong[0]}")
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        found: State = self.step(x, state, weights)
        return tuple([s.squeeze(0) for s in found]) if single else found

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.input_size}, {self.hidden_size}{', bias=False' if self.bias_ih is None else ''}"


class LSTMCell(_Cell):
    """One step of an LSTM."""

    gates = 4
    step = staticmethod(lstm_step)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next (h, c), both (batch, hidden), of (batch, inputs) and a state; None: zeros."""
        h, c = self._next(x, state, 2)
        return h, c


class _OneState(_Cell):
    """Base of cells whose state is h alone."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Return the next h (batch, hidden) of (batch, inputs) and a state h; None: zeros."""
        return self._next(x, None if state is None else (state,), 1)[0]


class GRUCell(_OneState):
    """One step of a GRU."""

    gates = 3
    step = staticmethod(gru_step)


class RNNCell(_OneState):
    """One step of an RNN: the `nonlinearity`, "tanh" or "relu", of the sum of both linear maps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = choice("RNNCell, nonlinearity", nonlinearity, ("tanh", "relu"))
        self.step = relu_step if nonlinearity == "relu" else tanh_step
        placed(self, device, dtype)

    def extra_repr(self) -> str:
        """Return the settings."""
        return super().extra_repr() + (", nonlinearity=relu" if self.nonlinearity == "relu" else "")


class _Recurrent(Module):
    """Base of layers of cells over (time, batch, inputs), or (batch, time, inputs) with `batch_first`.

    An input may have no batch, or be a `PackedSequence`; outputs are of the same kind. `dropout` is the
    probability of dropout between layers, in training mode. With `bidirectional`, a second set of weights,
    whose names end in `_reverse`, runs from the last step to the first; the last axis of outputs is (2 *
    hidden), and there are two states for each layer. An LSTM with `proj_size` maps h to that size by weights
    `weight_hr`. Raises `UsageError` for sizes below 1, a `proj_size` of other layers or not below hidden,
    dropout outside 0..1, a sequence without steps, and another number of states.
    """

    gates: ClassVar[int] = 1
    step: Any = staticmethod(tanh_step)
    parts: ClassVar[int] = 1
    """The number of tensors of a state: 1 for h, 2 for h and c."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        kind = type(self).__name__
        n = count(f"{kind}, hidden_size", hidden_size)
        self.input_size, self.hidden_size = count(f"{kind}, input_size", input_size), n
        self.num_layers = count_of_layers(f"{kind}, num_layers", num_layers)
        self.bias = switch(bias, f"{kind}, bias")
        self.batch_first = switch(batch_first, f"{kind}, batch_first")
        self.dropout = number_within(f"{kind}, dropout", dropout, 0.0, math.nextafter(1.0, 2.0))
        self.bidirectional = switch(bidirectional, f"{kind}, bidirectional")
        self.endings = ("", "_reverse") if bidirectional else ("",)
        self.proj_size = int(number_within(f"{kind}, proj_size", proj_size, 0, n if self.parts > 1 else 1))
        rows, out = self.gates * n, self.proj_size or n
        for layer in range(num_layers):
            inputs = out * len(self.endings) if layer else input_size
            for ending in self.endings:
                setattr(self, f"weight_ih_l{layer}{ending}", _weight(rows, inputs, hidden=n))
                setattr(self, f"weight_hh_l{layer}{ending}", _weight(rows, out, hidden=n))
                if bias:
                    setattr(self, f"bias_ih_l{layer}{ending}", _weight(rows, hidden=n))
                    setattr(self, f"bias_hh_l{layer}{ending}", _weight(rows, hidden=n))
                if proj_size:
                    setattr(self, f"weight_hr_l{layer}{ending}", _weight(out, n, hidden=n))
        placed(self, device, dtype)

    def reset_parameters(self) -> None:
        """Assign first values."""
        redraw(self, 1 / math.sqrt(self.hidden_size or 1))

    def flatten_parameters(self) -> None:
        """Do nothing: weights need not lie beside each other."""

    def weights(self, layer: int, ending: str = "") -> Weights:
        """Return the weights and biases of a layer, None for missing biases; `ending` is "" or "_reverse"."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        w_x, w_h, b_x, b_h = [getattr(self, f"{name}_l{layer}{ending}", None) for name in names]
        assert w_x is not None  # there are always two weights
        assert w_h is not None  # as above
        return w_x, w_h, b_x, b_h

    def _steps(self, x: Tensor) -> list[Tensor]:
        if x.ndim != 3 or x.shape[2] != self.input_size:
            order = "batch, time" if self.batch_first else "time, batch"
            raise UsageError(
                f"{type(self).__name__}: wanted ({order}, {self.input_size}), saw the shape {x.shape}"
            )
        steps = list(x.unbind(1 if self.batch_first else 0))
        if not steps:
            raise UsageError(f"{type(self).__name__}: wanted at least one step, saw the shape {x.shape}")
        return steps

    def _run(self, x: Any, state: State | None) -> tuple[Any, State]:
        """Return the outputs, and the last states (layers * directions, batch, hidden).

        For a `PackedSequence` the outputs are a `PackedSequence`, and the states are those after the last
        step of each sequence.
        """
        if not hasattr(x, "lengths"):
            return self._padded(x, state, None)
        packed = type(x).of
        if x.batch_first is not self.batch_first:
            x = packed(x.padded.transpose(0, 1), x.lengths, self.batch_first, x.in_order)
        y, ends = self._padded(x.padded, state, x.steps())
        return packed(y, x.lengths, self.batch_first, x.in_order), ends

    def _padded(self, x: Tensor, state: State | None, live: list[Tensor] | None) -> tuple[Tensor, State]:
        """Return the result of `_run` for a tensor.

        `live` has for each step a bool tensor (batch, 1), whether a sequence has not ended; None: none ends.
        """
        x = layer_input(self, x, self.weights(0)[0])
        single = x.ndim == 2
        if single:
            x = x.unsqueeze(0 if self.batch_first else 1)
            state = None if state is None else tuple([s.unsqueeze(1) for s in state])
        steps = self._steps(x)
        count_ = self.num_layers * len(self.endings)
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: self.parts]
        if state is None:
            like = steps[0]
            zeros = [Tensor.zeros(len(like), n, dtype=like.dtype, device=like.device) for n in sizes]
            first = [tuple(zeros)] * count_
        else:
            wanted = [(count_, len(steps[0]), n) for n in sizes]
            if [s.shape for s in state] != wanted:
                seen = [tuple(s.shape) for s in state]
                raise UsageError(f"{type(self).__name__}: wanted states of shapes {wanted}, saw {seen}")
            first = list(zip(*[s.unbind(0) for s in state], strict=True))
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                steps = [s.dropout(self.dropout, in_training(self)) for s in steps]
            outputs: list[list[Tensor]] = []
            for i, ending in enumerate(self.endings):
                now, weights = first[layer * len(self.endings) + i], self.weights(layer, ending)
                found = []
                order = range(len(steps))
                for at in reversed(order) if ending else order:
                    after = self.step(steps[at], now, weights)
                    if self.proj_size:
                        h, w = lowered(after[0], getattr(self, f"weight_hr_l{layer}{ending}"))
                        after = (h.linear(w.transpose()), *after[1:])
                    if live is None:
                        now = after
                        found.append(now[0])
                    else:
                        now = tuple([live[at].where(a, b) for a, b in zip(after, now, strict=True)])
                        found.append(live[at].where(after[0], 0.0))
                outputs.append(found[::-1] if ending else found)
                last.append(now)
            both = len(outputs) > 1
            steps = [Tensor.cat(pair, axis=1) for pair in zip(*outputs, strict=True)] if both else outputs[0]
        y = Tensor.stack(steps, axis=1 if self.batch_first else 0)
        ends = tuple([Tensor.stack(each) for each in zip(*last, strict=True)])
        if single:
            return y.squeeze(0 if self.batch_first else 1), tuple([s.squeeze(1) for s in ends])
        return y, ends

    def extra_repr(self) -> str:
        """Return the settings."""
        usual: tuple[tuple[str, Any], ...] = (("proj_size", 0), ("num_layers", 1), ("bias", True))
        usual += (("batch_first", False), ("dropout", 0), ("bidirectional", False))
        others = [f", {name}={getattr(self, name)}" for name, value in usual if getattr(self, name) != value]
        return f"{self.input_size}, {self.hidden_size}{''.join(others)}"


class LSTM(_Recurrent):
    """Layers of LSTM cells: `lstm(x, (h, c))` returns the outputs and the last (h, c) of each layer."""

    gates = 4
    step = staticmethod(lstm_step)
    parts = 2

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return outputs (time, batch, hidden), and (h, c), each (layers, batch, hidden).

        State None: zeros.
        """
        y, (h, c) = self._run(x, state)
        return y, (h, c)


class _OneStateLayers(_Recurrent):
    """Base of layers whose state is h alone."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return outputs (time, batch, hidden), and h (layers, batch, hidden). State None: zeros."""
        y, (h,) = self._run(x, None if state is None else (state,))
        return y, h


class GRU(_OneStateLayers):
    """Layers of GRU cells: `gru(x, h)` returns the outputs and the last h of each layer."""

    gates = 3
    step = staticmethod(gru_step)


class RNN(_OneStateLayers):
    """Layers of RNN cells: `rnn(x, h)` returns the outputs and the last h of each layer."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.nonlinearity = choice("RNN, nonlinearity", nonlinearity, ("tanh", "relu"))
        self.step = relu_step if nonlinearity == "relu" else tanh_step
        placed(self, device, dtype)
