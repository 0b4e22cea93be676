"""The loss of alignments between frames and labels (connectionist temporal classification).

Source: Graves and others, "Connectionist temporal classification", 2006: sums over all alignments by forward
and backward variables, here in logarithms. Gradients are those of logits before `log_softmax`, as PyTorch's
are: at frames beyond a length they are 0.

Not here: other losses (`frontend.nn.losses`).
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

import math
from typing import Any

from frontend.arguments.checks import tensor
from frontend.autograd.function import Function
from frontend.autograd.grad_modes import no_grad
from frontend.nn.module import wide
from frontend.tensor import Tensor
from hcq.errors import UsageError


class _WithSlope(Function):
    """A value (batch,) of x (frames, batch, classes) whose derivative by x is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return the value."""
        del x
        ctx.save_for_backward(slope)
        return value * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        """Return the gradient of x."""
        return ctx.saved_tensors[0] * g.reshape(1, -1, 1), None, None


def _numbers(value: Any) -> list[int]:
    found = value.tolist() if isinstance(value, Tensor) else value
    return [int(n) for n in (found if isinstance(found, (list, tuple)) else [found])]


def _log_sum(*parts: Tensor) -> Tensor:
    """Return log(sum(exp(parts))), -infinity where all are."""
    most = parts[0]
    for part in parts[1:]:
        most = most.maximum(part)
    finite = (most == -math.inf).where(0.0, most)
    total = sum(((part - finite).exp() for part in parts[1:]), (parts[0] - finite).exp())
    return total.log() + finite


def _padded(targets: Tensor, counts: list[int], batch: int) -> list[list[int]]:
    """Return the labels of each sequence, of rows of `targets` or of one vector with all of them."""
    values = targets.tolist()
    if targets.ndim == 1 and batch > 1:
        if len(values) != sum(counts):
            raise UsageError(f"ctc_loss: wanted {sum(counts)} targets in one vector, saw {len(values)}")
        starts = [sum(counts[:i]) for i in range(batch)]
        return [values[s : s + n] for s, n in zip(starts, counts, strict=True)]
    rows = [values] if targets.ndim == 1 else values
    if len(rows) != batch or max(counts) > targets.shape[-1]:
        raise UsageError(f"ctc_loss: wanted targets ({batch}, {max(counts)}), saw {targets.shape}")
    return [row[:n] for row, n in zip(rows, counts, strict=True)]


def _states(rows: list[list[int]], blank: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the label of each state (batch, states), blanks between labels, and whether leaps may end there.

    They may if the label two states before is another one.
    """
    width = 2 * max(map(len, rows)) + 1
    labels = [[x for n in row for x in (blank, n)] + [blank] * (width - 2 * len(row)) for row in rows]
    skipped = [[k > 1 and z[k] not in {blank, z[k - 2]} for k in range(width)] for z in labels]
    return Tensor(labels, device=like.device), Tensor(skipped, device=like.device)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Return x with its states moved by a number of places, -infinity in the free ones."""
    if x.shape[-1] <= abs(by):
        return x.full_like(-math.inf)
    free = x.full_like(-math.inf)[:, : abs(by)]
    return Tensor.cat(free, x[:, :-by], axis=1) if by > 0 else Tensor.cat(x[:, -by:], free, axis=1)


def _forward(emitted: Tensor, skipped: Tensor, frames: Tensor) -> list[Tensor]:
    """Return the forward variables (batch, states) of each frame; they stay after the last frame."""
    first = Tensor.arange(emitted.shape[-1], device=emitted.device) < 2
    rows = [first.where(emitted[0], -math.inf).realize()]
    for t in range(1, emitted.shape[0]):
        a = rows[-1]
        leap = skipped.where(_shifted(a, 2), -math.inf)
        moved = _log_sum(a, _shifted(a, 1), leap) + emitted[t]
        rows.append((frames > t).where(moved, a).realize())
    return rows


def _backward(emitted: Tensor, skipped: Tensor, frames: Tensor, last: Tensor) -> list[Tensor]:
    """Return the backward variables of each frame, without what it emits; `last`: whether a state may end."""
    b = last.where(0.0, -math.inf).realize()
    ends, rows = b, [b]
    jumps = _shifted(skipped.where(0.0, -math.inf), -2)
    for t in range(emitted.shape[0] - 2, -1, -1):
        e = b + emitted[t + 1]
        moved = _log_sum(e, _shifted(e, -1), _shifted(e, -2) + jumps)
        b = (frames > t + 1).where(moved, ends).realize()
        rows.insert(0, b)
    return rows


def ctc_loss(  # noqa: PLR0917 - PyTorch's signature
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return -log of the probability of the targets, summed over all alignments.

    `log_probs` is (frames, batch, classes), or (frames, classes) for one sequence; `targets` (batch, length),
    or one vector of all targets. Lengths are numbers for each sequence, which are read. `reduction` "none"
    gives a loss for each sequence, "sum" their sum, "mean" the mean of losses divided by target lengths. With
    `zero_infinity` losses of targets that no alignment has are 0, and so are their gradients. Second
    derivatives are not there. Raises `UsageError` for lengths that do not fit, and another reduction.
    """
    tensor(targets, "ctc_loss, targets", log_probs)
    one = log_probs.ndim == 2
    x = wide(log_probs.unsqueeze(1) if one else log_probs)
    frames, counts = _numbers(input_lengths), _numbers(target_lengths)
    if {len(frames), len(counts)} != {x.shape[1]} or not frames or max(frames) > len(x) or min(counts) < 0:
        raise UsageError(f"ctc_loss: lengths {frames} and {counts} do not fit {x.shape}")
    if reduction not in {"none", "mean", "sum"}:
        raise UsageError(f"ctc_loss: wanted the reduction none, mean or sum, saw {reduction!r}")
    with no_grad():
        value, slope = _solved(x.detach(), _padded(targets, counts, x.shape[1]), frames, blank, zero_infinity)
    found: Tensor = _WithSlope.apply(x, value, slope) if x.requires_grad else value
    if reduction == "none":
        return found[0] if one else found
    if reduction == "sum":
        return found.sum()
    return (found / Tensor([float(max(n, 1)) for n in counts], device=x.device).cast(x.dtype)).mean()


def _solved(
    x: Tensor, rows: list[list[int]], frames: list[int], blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor]:
    """Return the losses (batch,) and their derivatives (frames, batch, classes)."""
    labels, skipped = _states(rows, blank, x)
    width = labels.shape[1]
    index = labels.unsqueeze(0).expand(x.shape[0], *labels.shape).clone().realize()
    emitted = x.gather(2, index).realize()
    length = Tensor(frames, device=x.device).unsqueeze(-1)
    places = Tensor.arange(width, device=x.device)
    end = Tensor([2 * len(row) for row in rows], device=x.device).unsqueeze(-1)
    last = ((places == end) | (places == end - 1)).realize()
    forward = Tensor.stack(_forward(emitted, skipped.realize(), length)).realize()
    total = _log_sum(*[(places == end - k).where(forward[-1], -math.inf).amax(-1) for k in (0, 1)])
    nothing = (end == 0).where(0.0, -math.inf).squeeze(-1)  # no frames: only the empty target
    total = (length > 0).squeeze(-1).where(total, nothing)
    backward = Tensor.stack(_backward(emitted, skipped, length, last))
    known = total > -math.inf
    shares = (forward + backward - known.where(total, 0.0).unsqueeze(-1)).exp()
    of_classes = x.zeros_like().clone().scatter_add(2, index, shares)
    slope = x.exp() - of_classes
    slope = (Tensor.arange(x.shape[0], device=x.device).reshape(-1, 1, 1) < length).where(slope, 0.0)
    if zero_infinity:
        slope = known.unsqueeze(-1).where(slope, 0.0)
    return (known.where(-total, 0.0 if zero_infinity else math.inf)).realize(), slope.realize()
