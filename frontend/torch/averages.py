"""Averages of the weights of a model over its training: PyTorch's `optim.swa_utils`.

Source: Izmailov et al. 2018 (arXiv 1803.05407). Not here: an average inside a step
(`frontend.optim.descent`). Next: `frontend.optim.schedules`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from compiler.dtype import dtypes
from frontend.arguments.checks import whole
from frontend.arguments.conversion import flag
from frontend.arguments.settings import choice, number_within
from frontend.evaluation.realize import realize_many
from frontend.nn.module import Module
from frontend.nn.normalisation import BatchNorm
from frontend.optim.schedules import LambdaLR, for_groups
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim.base import Optimizer

Mean = Callable[[Tensor, Tensor, Any], Tensor]
"""(average, weight, number of weights in the average) -> the next average, of the same shape."""
MeanInPlace = Callable[[list[Tensor], list[Tensor], Any], None]
"""`Mean` of lists of equal lengths, which assigns the next averages to the tensors of the first list."""


def get_swa_avg_fn() -> Mean:
    """Return the equal mean: it moves an average of n weights by 1 / (n + 1) of the distance to the next."""

    def mean(average: Tensor, weight: Tensor, count: Any) -> Tensor:
        kind = average.dtype if average.dtype.is_float else dtypes.float32
        total = (count + 1).to(average.device).cast(kind) if isinstance(count, Tensor) else count + 1
        return (weight - average).div(total).add(average)

    return mean


def get_ema_avg_fn(decay: float = 0.999) -> Mean:
    """Return the exponential mean, decay * average + (1 - decay) * weight, for a decay in [0, 1].

    Raises `UsageError` for another decay, `UsageTypeError` for no number.
    """
    kept = number_within("exponential average, decay", decay, 0.0, math.nextafter(1.0, 2.0))
    return lambda average, weight, _count: average * kept + weight * (1 - kept)


def get_swa_multi_avg_fn() -> MeanInPlace:
    """Return the equal mean of lists; averages of integers are truncated."""
    return _in_place(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> MeanInPlace:
    """Return the exponential mean of lists, truncated for integers. Raises as `get_ema_avg_fn`."""
    return _in_place(get_ema_avg_fn(decay))


def _in_place(mean: Mean) -> MeanInPlace:
    def assign_means(averages: list[Tensor], weights: list[Tensor], count: Any) -> None:
        for average, weight in zip(averages, weights, strict=True):
            average.assign(mean(average.detach(), weight.detach(), count).detach().cast(average.dtype))

    return assign_means


class AveragedModel(Module):
    """A copy of a model, `module`, whose parameters are averages of those at each `update_parameters`.

    It is called as the model is. `n_averaged`, an int64 scalar, counts the updates; the state dictionary has
    it, not the mean. `avg_fn` gets one parameter at a time, `multi_avg_fn` all of a dtype; without either the
    mean is equal. Buffers are averaged with `use_buffers`, else copied. `device` is that of the copy, None
    that of the model. Raises `UsageError` for two means, `UsageTypeError` unless `use_buffers` is a bool.
    """

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Mean | None = None,
        multi_avg_fn: MeanInPlace | None = None,
        use_buffers: bool = False,  # noqa: FBT001, FBT002 - PyTorch's signature
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise UsageError("AveragedModel: wanted avg_fn or multi_avg_fn, saw both")
        self.use_buffers = flag(use_buffers, "AveragedModel, use_buffers")
        self.average = multi_avg_fn or _in_place(avg_fn or get_swa_avg_fn())
        model.parameters()  # marks them: parameters that are frozen later stay parameters, in the copy too
        self.module = copy.deepcopy(model)
        self.n_averaged: Tensor
        self.register_buffer("n_averaged", Tensor.zeros((), dtype=dtypes.int64))
        if device is not None:
            self.to(device)

    def forward(self, *args: Any, **names: Any) -> Any:
        """Return the result of the copy."""
        return self.module(*args, **names)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of a model into the averages, and compute these; count the update.

        The first update copies them. `n_averaged` is read, which waits for the device. Raises `UsageError`
        for a model with parameters or buffers of another number or shape; nothing is changed then.
        """
        own, given = [[*m.parameters(), *m.buffers()] for m in (self.module, model)]
        if [t.shape for t in own] != [t.shape for t in given]:
            raise UsageError("AveragedModel: wanted a model with tensors of the shapes of its copy")
        averaged = len(own if self.use_buffers else self.module.parameters()) if self.n_averaged.item() else 0
        pairs = [(t, weight.detach().to(t.device)) for t, weight in zip(own, given, strict=True)]
        for t, weight in pairs[averaged:]:
            t.assign(weight.cast(t.dtype))
        for kind in dict.fromkeys(t.dtype for t in own[:averaged]):
            alike = [(t.detach(), weight) for t, weight in pairs[:averaged] if t.dtype is kind]
            self.average([t for t, _ in alike], [weight for _, weight in alike], self.n_averaged)
        self.n_averaged += 1
        realize_many([*own, self.n_averaged])


class SWALR(LambdaLR):
    """The learning rate of each group to `swa_lr` in `anneal_epochs` steps, where it then stays.

    `swa_lr` is a number, or a list of one for each group. The way from the present rate is half a cosine, or
    even with "linear". Where another schedule or the program has set the rate since the last step, the rest
    of the way begins there. Raises `UsageError` for another strategy or number of rates and for a rate or
    number of steps below 0, `UsageTypeError` for values that are no numbers.
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos"
    ) -> None:
        rates = for_groups(optimizer, "SWALR, swa_lr", swa_lr)
        choice("SWALR, anneal_strategy", anneal_strategy, ("cos", "linear"))
        self.goals = [number_within("SWALR, swa_lr", rate, 0.0) for rate in rates]
        what, self.anneal_strategy = "SWALR, anneal_epochs", anneal_strategy
        self.anneal_epochs = int(number_within(what, whole(anneal_epochs, what), 0))
        super().__init__(optimizer, self._remaining)

    def _remaining(self, step: float) -> float:
        share = step / self.anneal_epochs if step < self.anneal_epochs else 1.0
        return 1 - share if self.anneal_strategy == "linear" else (1 + math.cos(math.pi * share)) / 2

    def _rates(self) -> list[float]:
        before = self._remaining(self.last_epoch - 1) if self.steps > 0 else 1.0
        kept = self._remaining(self.last_epoch) / before if before else 0.0
        every = zip(self.optimizer.param_groups, self.goals, strict=True)
        return [goal + (group.rate_now() - goal) * kept for group, goal in every]


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Set the running statistics of the batch norms of a model to their means over the batches of a loader.

    The model is called, in training mode and without gradients, with each batch, or with its first element if
    it is a list or tuple, moved to `device` (None: not moved). All modules then have the mode of the model,
    after an error too. A model without batch norms is not called. Raises as the model and the loader.
    """
    norms = [(layer, layer.momentum) for layer in model.modules() if isinstance(layer, BatchNorm)]
    if not norms:
        return
    mode = model.training
    try:
        for layer, _ in norms:
            layer.reset_running_stats()
            layer.momentum = None
        model.train()
        with Tensor.no_grad():
            for batch in loader:
                first = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(first if device is None else first.to(device))
        realize_many([t for layer, _ in norms for t in layer.buffers()])
    finally:
        for layer, momentum in norms:
            layer.momentum = momentum
        model.train(mode)
