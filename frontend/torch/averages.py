"""Averages of the weights of a model: PyTorch's `optim.swa_utils`.

Not here: other schedules of the learning rate (`schedules`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from compiler.dtype import dtypes
from frontend.arguments.conversion import flag
from frontend.arguments.settings import number_within
from frontend.evaluation.realize import realize_many
from frontend.nn.module import Module
from frontend.nn.normalisation import BatchNorm
from frontend.optim.schedules import LambdaLR
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim.optimiser import Optimizer

One = Callable[[Tensor, Tensor, Any], Tensor]
"""A function of an average, the present value and the number of updates before, which returns the average."""
Several = Callable[[list[Tensor], list[Tensor], Any], None]
"""The same of lists, which changes the averages in place."""


def get_ema_avg_fn(decay: float = 0.999) -> One:
    """Return the function of a moving average: decay * averaged + (1 - decay) * current."""
    kept = number_within("get_ema_avg_fn, decay", decay, 0.0, math.nextafter(1.0, 2.0))
    return lambda averaged, current, _count: averaged + (current - averaged) * (1 - kept)


def get_swa_avg_fn() -> One:
    """Return the function of a mean: averaged + (current - averaged) / (count + 1)."""
    return lambda averaged, current, count: averaged + (current - averaged) / (count + 1)


def _each(average: One) -> Several:
    def update(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        for a, c in zip(averaged, current, strict=True):
            a.assign(average(a.detach(), c.detach(), count).cast(a.dtype))

    return update


def get_ema_multi_avg_fn(decay: float = 0.999) -> Several:
    """Return the function of a moving average of lists of tensors, in place; see `get_ema_avg_fn`."""
    return _each(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> Several:
    """Return the function of a mean of lists of tensors, in place; see `get_swa_avg_fn`."""
    return _each(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model, `module`, whose parameters are averages of those at each `update_parameters`.

    The average is the mean, or by `avg_fn(averaged, current, count)`, or in place by `multi_avg_fn` of lists.
    Buffers are copied, with `use_buffers` averaged. `n_averaged` is the number of updates.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: One | None = None,
        multi_avg_fn: Several | None = None,
        use_buffers: bool = False,  # noqa: FBT001, FBT002 - PyTorch's signature
    ) -> None:
        if avg_fn is not None and multi_avg_fn is not None:
            raise UsageError("AveragedModel: wanted avg_fn or multi_avg_fn, saw both")
        self.register_buffer("n_averaged", Tensor.zeros((), dtype=dtypes.int64, device=device).realize())
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.update = multi_avg_fn or _each(avg_fn or get_swa_avg_fn())
        self.use_buffers = flag(use_buffers, "AveragedModel, use_buffers")

    def forward(self, *args: Any, **names: Any) -> Any:
        """Return the averaged model's result."""
        return self.module(*args, **names)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of a model of the same structure into the average; the first call copies."""
        pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        averaged, left = (pairs + buffers, []) if self.use_buffers else (pairs, buffers)
        count = int(self.n_averaged.item())
        if count == 0:
            left, averaged = [*averaged, *left], []
        for a, b in left:
            a.assign(b.detach().to(a.device))
        if averaged:
            self.update([a for a, _ in averaged], [b.to(a.device) for a, b in averaged], count)
        self.n_averaged += 1
        realize_many([*[a for a, _ in (*pairs, *buffers)], self.n_averaged])


class SWALR(LambdaLR):
    """The learning rate to `swa_lr` within `anneal_epochs` steps along a cosine or a line, then that rate.

    Raises `UsageError` for another strategy and for a negative number of steps.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
    ) -> None:
        if anneal_strategy not in {"cos", "linear"}:
            raise UsageError(f"SWALR, anneal_strategy: wanted 'cos' or 'linear', saw {anneal_strategy!r}")
        self.rate = number_within("SWALR, swa_lr", swa_lr, 0.0)
        self.length = number_within("SWALR, anneal_epochs", anneal_epochs, 0)
        self.cosine = anneal_strategy == "cos"
        super().__init__(optimizer, self._share)

    def _share(self, n: int) -> float:
        t = min(1.0, n / max(1.0, self.length))
        return (1 - math.cos(math.pi * t)) / 2 if self.cosine else t

    def _rates(self) -> list[float]:
        """Return the learning rates of this step, each on its way from a rate that its present one tells."""
        n = self.steps if self.length else max(1, self.steps)
        before, share, found = self._share(max(0, n - 1)), self._share(n), []
        for group in self.optimizer.param_groups:
            now = group.rate_now()
            first = self.rate if before == 1 else (now - before * self.rate) / (1 - before)
            found.append(self.rate * share + first * (1 - share))
        return found


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Set the running statistics of the batch norms of a model to the means over the batches of a loader.

    A batch is the input, or a list or tuple that begins with it. The model's mode is kept.
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm)]
    if not norms:
        return
    mode, momenta = model.training, [m.momentum for m in norms]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    for batch in loader:
        x = batch[0] if isinstance(batch, (list, tuple)) else batch
        with Tensor.no_grad():
            result = model(x if device is None else x.to(device))
        realize_many([result, *[t for m in norms for t in m.buffers()]])
    for m, momentum in zip(norms, momenta, strict=True):
        m.momentum = momentum
    model.train(mode)
