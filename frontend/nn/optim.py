"""Optimisers: a step assigns new values to parameters, from the gradients that `backward` stored.

`step()` computes in one launch the gradients, the updates, the state of the optimiser, all pending
assignments on its device (such as running statistics of batch norms), and the loss whose `backward` gave the
gradients. It removes the gradients. The learning rate is a tensor and may be set to a number or a tensor at
any time; a captured step uses the new value. Other settings are numbers, fixed once a step was captured.

Not here: gradients (`frontend.autograd`), capturing a step (`frontend.jit`), the checks of settings
(`settings`).
"""

# ruff: noqa: PLR0917 - the field's signatures

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from compiler.dtype import dtypes
from frontend.autograd import state as grad_state
from frontend.nn.settings import Setting, number_within
from frontend.parameters import flag, shown
from frontend.plan import CAPTURE
from frontend.printing import described
from frontend.realize import pending, realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Optimizer(ABC):
    """The base of all optimisers; a subclass defines the update of the parameters.

    `params` are float tensors on one device; those whose requires_grad is undecided get True. The optimiser
    assigns to them in place and owns its moments and the learning rate, tensors that a checkpoint may keep.

        optimiser = AdamW(nn.state.get_parameters(model), lr=1e-3)
        with Tensor.train():
            model(x).cross_entropy(y).backward()
            optimiser.step()

    Raises `UsageError` without parameters that require gradients, when they are on several devices, and for a
    setting outside its range.
    """

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        rate = number_within(f"{type(self).__name__}, lr", lr, 0.0)
        every = list({id(p): p for p in _tensors(params)}.values())
        if not every:
            raise UsageError("an optimiser needs at least one tensor")
        undecided = [p for p in every if p.requires_grad is None and p.dtype.is_float]
        if undecided:
            grad_state.want(undecided, True)
        self.params = [p for p in every if p.requires_grad]
        """The parameters with requires_grad, which steps update."""
        self.buffers = [p for p in every if not p.requires_grad]
        """The other tensors given; their pending values are computed with each step."""
        if not self.params:
            raise UsageError("an optimiser needs at least one tensor with requires_grad, none was given")
        realize_many(self.buffers)  # with memory, so that all steps have one structure
        devices = {p.device for p in self.params}
        if len(devices) > 1:
            raise UsageError(
                f"an optimiser needs its parameters on one device, saw {', '.join(sorted(devices))}"
            )
        self.device = self.params[0].device
        self._lr = Tensor([float(rate)], device=self.device, requires_grad=False)
        self.captured = False
        """Whether a step was captured: settings are fixed from then on."""

    @property
    def lr(self) -> Tensor:
        """The learning rate, of shape (1,); a number or a tensor of one element may be set."""
        return self._lr

    @lr.setter
    def lr(self, value: Tensor | float) -> None:
        """The learning rate, a tensor of shape (1,); a number or a tensor of one element may be assigned.

        It is stored in place, so a captured step uses the new value. Raises `UsageError` for a number below 0
        and for other shapes.
        """
        if value is self._lr:  # as after `optimiser.lr *= 0.5`
            return
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise UsageError(f"lr: wanted one number, saw the shape {value.shape}")
            self._lr.assign(value.detach().to(self.device).cast(self._lr.dtype).reshape(1))
            return
        self._lr.assign(float(number_within(f"{type(self).__name__}, lr", value, 0.0)))

    def zero_grad(self) -> None:
        """Remove the gradients of all parameters. `step` does that itself."""
        for p in self.params:
            p.grad = None

    def schedule_step(self) -> list[Tensor]:
        """Assign new values to parameters and state, without computing them.

        Return the tensors to realize together in one launch, as `step` does. Raises as `step`.
        """
        if CAPTURE.now is not None:
            self.captured = True
        grads: list[Tensor] = []
        losses: dict[int, Tensor] = {}
        missing = [i for i, p in enumerate(self.params) if p.grad is None]
        if missing:
            raise UsageError(
                f"parameter {missing[0]} ({described(self.params[missing[0]])}) and {len(missing) - 1} "
                "others have no gradient\n"
                "hint: call backward() on a loss that depends on every parameter; "
                "a tensor realized in between cuts the graph"
            )
        for p in self.params:
            state = grad_state.state_of(p)
            if p.grad is not None:
                grads.append(p.grad.detach())
            loss = state.of() if state.of is not None else None
            if loss is not None:
                losses[id(loss)] = cast("Tensor", loss)
            state.value = state.of = None
        changed = self._move(grads)
        assigned = [cast("Tensor", t) for t in pending() if t.expr.device == self.device]
        return [*self.params, *changed, *self.buffers, *assigned, *losses.values()]

    def step(self) -> None:
        """Update the parameters in one launch, and remove their gradients.

        Raises `UsageError` when a parameter has no gradient; nothing is changed then.
        """
        realize_many(self.schedule_step())

    @abstractmethod
    def _move(self, grads: list[Tensor]) -> list[Tensor]:
        """Assign to every parameter, given its gradient; return the state tensors that were assigned too."""

    def _zeros(self) -> list[Tensor]:
        """Return a realized tensor of zeros beside each parameter."""
        made = [Tensor.zeros(*p.shape, dtype=_wide(p), device=p.device).contiguous() for p in self.params]
        for t in made:
            t.requires_grad = False
        realize_many(made)
        return made


def _tensors(params: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of an iterable. Raises `UsageTypeError` for a single tensor and anything else."""
    every = [] if isinstance(params, Tensor) or not isinstance(params, Iterable) else list(params)
    if isinstance(params, Tensor) or params is None or not all(isinstance(p, Tensor) for p in every):
        kinds = ", ".join(dict.fromkeys([type(p).__name__ for p in every])) or type(params).__name__
        raise UsageTypeError(f"an optimiser needs a list of tensors, saw {kinds}")
    return every


def _wide(p: Tensor) -> dtypes.float32.__class__:  # type: ignore[name-defined]
    return dtypes.float32 if p.dtype.bits == 16 else p.dtype


def _pair(betas: object) -> tuple[float, float]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise UsageTypeError(f"betas: wanted two numbers, saw {shown(betas)}")
    return betas[0], betas[1]


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, Nesterov's variant and weight decay.

    With g the gradient plus `weight_decay` times the parameter, and b = momentum * b + g: the parameter loses
    lr * b, with `nesterov` lr * (g + momentum * b), without momentum lr * g. The buffers b are float tensors
    of the parameters' shapes, kept in `self.b`.

    Raises `UsageError` for numbers below 0, and for `nesterov` without momentum.
    """

    momentum = Setting()
    weight_decay = Setting()

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,  # noqa: FBT001, FBT002 - the field's signature
    ) -> None:
        nesterov = flag(nesterov, "SGD, nesterov")
        super().__init__(params, lr)
        if nesterov and not momentum:
            raise UsageError("Nesterov's variant needs a momentum above 0")
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.b = self._zeros() if momentum else []

    def _move(self, grads: list[Tensor]) -> list[Tensor]:
        for i, p in enumerate(self.params):
            g = grads[i].cast(_wide(p))
            if self.weight_decay:
                g = g + p.detach() * self.weight_decay
            if self.momentum:
                b = self.b[i]
                b.assign(b * self.momentum + g)
                g = g + b * self.momentum if self.nesterov else b
            p.assign((p.detach() - g * self.lr.cast(g.dtype)).cast(p.dtype))
        return self.b


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    With m and v the running means of the gradient and its square, corrected for their start at 0: the
    parameter loses lr * (m / (sqrt(v) + eps) + weight_decay * parameter). `b1` and `b2` in 0..1, or `betas`,
    are the decay rates of m and v, kept in `self.m` and `self.v`; sixteen-bit parameters have float32 ones.

    Raises `UsageError` for numbers out of range.
    """

    b1 = Setting(high=1.0)
    b2 = Setting(high=1.0)
    eps = Setting()
    weight_decay = Setting()
    decoupled = True

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        betas: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(params, lr)
        self.b1, self.b2 = (b1, b2) if betas is None else _pair(betas)
        self.eps, self.weight_decay = eps, weight_decay
        self.b1_t = Tensor([1.0], device=self.device, requires_grad=False)
        self.b2_t = Tensor([1.0], device=self.device, requires_grad=False)
        """Powers of b1 and b2 with the number of steps."""
        self.m = self._zeros()
        self.v = self._zeros()

    def _move(self, grads: list[Tensor]) -> list[Tensor]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        for i, p in enumerate(self.params):
            g = grads[i].cast(_wide(p))
            if self.weight_decay and not self.decoupled:
                g = g + p.detach() * self.weight_decay
            m, v, dtype = self.m[i], self.v[i], g.dtype
            m.assign(m * self.b1 + g * (1 - self.b1))
            v.assign(v * self.b2 + (g * g) * (1 - self.b2))
            fair_m = m / (1.0 - self.b1_t.cast(dtype))
            fair_v = v / (1.0 - self.b2_t.cast(dtype))
            update = fair_m / (fair_v.sqrt() + self.eps)
            if self.weight_decay and self.decoupled:
                update = update + p.detach() * self.weight_decay
            p.assign((p.detach() - update * self.lr.cast(dtype)).cast(p.dtype))
        return [self.b1_t, self.b2_t, *self.m, *self.v]


class Adam(AdamW):
    """Adam (Kingma and Ba, 2015): as `AdamW`, but weight decay is added to the gradient."""

    decoupled = False

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        betas: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas)
