"""The base of all optimisers: one launch for a step.

`step()` computes in one launch the gradients, the updates, the state of the optimiser, all pending
assignments on its device (such as running statistics of batch norms), and the loss whose `backward` gave the
gradients. The gradients can be read afterwards, but not in a captured function, and the next `backward`
starts new ones. The learning rate is a tensor and may be set to a number or a tensor at
any time; a captured step uses the new value. Other settings cannot be changed once a step was captured.

Not here: groups of parameters (`group`), gradients (`frontend.autograd`), capturing a step
(`frontend.capture.jit`). Next: `descent`, `adam`, `layerwise`, the rules.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar, cast

from compiler.dtype import DType, dtypes
from frontend.arguments.aliases import answer_class, check_call
from frontend.arguments.conversion import flag, shown
from frontend.arguments.settings import GroupFlag, GroupNumbers, GroupSetting
from frontend.assignment import update
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation import modes
from frontend.evaluation.base import TensorBase
from frontend.evaluation.constants import stopped
from frontend.evaluation.history import realize_beside
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.printing import described
from frontend.evaluation.realize import pending, realize_many
from frontend.later import later
from frontend.optim import saved
from frontend.optim.base import EMPTY, Optimizer, Params, given_group, groups_of, leaves_of, tensors_of
from frontend.optim.group import Group
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

_placement = later("frontend.distributed.placement")


def _signature(cls: type[Rule]) -> inspect.Signature:
    """Return the signature of the constructor of a class, from its settings."""
    kind = inspect.Parameter
    found = [kind("self", kind.POSITIONAL_ONLY), kind("params", kind.POSITIONAL_OR_KEYWORD)]
    found.append(kind("lr", kind.POSITIONAL_OR_KEYWORD, default=cls.rate))
    last: list[inspect.Parameter] = []
    for name, setting in cls.settings().items():
        way = kind.KEYWORD_ONLY if name == "maximize" else kind.POSITIONAL_OR_KEYWORD
        (last if name == "maximize" else found).append(kind(name, way, default=setting.default))
    return inspect.Signature([*found, *last])


def _constructor(cls: type[Rule]) -> Callable[..., None]:
    """Return the constructor of a class of which all settings are `GroupSetting`s."""

    def __init__(self: Any, *args: Any, **names: Any) -> None:  # noqa: N807 - it is one
        parts = [p for s in cls.settings().values() if isinstance(s, GroupNumbers) for p in s.parts]
        apart = {part: names.pop(part) for part in parts if part in names}
        bound = check_call(type(self).__name__, __init__, (self, *args), names)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        Rule.__init__(self, given.pop("params"), given.pop("lr"), **given, **apart)

    __init__.__signature__ = _signature(cls)  # type: ignore[attr-defined]  # which `inspect` reads
    return __init__


def _without_ways(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that accepts `saved.WAYS`, without effect, but for a `differentiable` step."""

    @wraps(init)
    def made(self: Any, *args: Any, **names: Any) -> None:
        given = {name: names.pop(name) for name in saved.WAYS if name in names}
        if flag(given.get("differentiable", False), "differentiable"):
            raise UsageError(f"{type(self).__name__}: a step cannot be differentiated")
        init(self, *args, **names)

    return made


class Rule(Optimizer, metaclass=ABCMeta):
    """The base of the optimisers here; a subclass defines the update of one parameter.

    `params` are tensors on one device, or groups of tensors: mappings with "params" and settings that replace
    the other arguments for the group. Float tensors whose requires_grad is None get True. Tensors with
    requires_grad are updated in place. Other tensors, such as running statistics, are computed with each
    step. The optimiser owns its moments and learning rates, tensors that `state_dict` returns.

        optimiser = AdamW(model.parameters(), lr=1e-3)
        optimiser = SGD([{"params": body}, {"params": head, "lr": 0.1}], lr=0.01)
        with Tensor.train():
            model(x).cross_entropy(y).backward()
            optimiser.step()

    With `maximize` the gradients are negated, so that a step increases the loss. Raises `UsageError` without
    tensors that require gradients, for several devices, and for a setting out of its range or an unknown
    setting of a group; `UsageTypeError` for anything but tensors or groups.
    """

    moments: ClassVar[Mapping[str, str]] = {}
    """Names of attributes with a list of tensors, one of each parameter's shape -> names in checkpoints."""
    rate: ClassVar[float] = 0.001
    """The learning rate by default."""
    counted: ClassVar[bool] = True
    """Whether checkpoints have the number of steps."""
    guarded = True
    maximize = GroupFlag()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.guarded = cls.guarded and "step" not in vars(cls)
        if "__init__" not in vars(cls) and cls.__module__.startswith("frontend."):
            cls.__init__ = _constructor(cls)  # type: ignore[method-assign]  # with the arguments of its settings
        if "__init__" in vars(cls) and cls.__module__.startswith("frontend."):
            cls.__init__ = _without_ways(cls.__init__)  # type: ignore[method-assign]  # with more arguments
            answer_class(cls)

    @classmethod
    def settings(cls) -> dict[str, GroupSetting]:
        """Return the settings of a group by name."""
        every = [vars(c).items() for c in reversed(cls.__mro__)]
        return {n: s for items in every for n, s in items if isinstance(s, GroupSetting)}

    def __init__(self, params: Params, lr: Tensor | float = 0.001, *given: Any, **settings: Any) -> None:
        assert not given  # constructors of subclasses give settings by name
        self.param_groups: list[Group] = []
        self.params: list[Tensor] = []
        """The parameters; steps update those with a gradient."""
        self.buffers: list[Tensor] = []
        """The other given tensors; their pending values are computed with each step."""
        self.counters: list[dict[str, Tensor]] = []
        """The counters of each of `params`: one dictionary for all that took the same steps."""
        self.places: list[int] = []
        """The number of the group of each of `params`."""
        self.captured = False
        """Whether a step was captured: settings are fixed from then on."""
        self.moved = False
        """Whether a step was taken."""
        self.opened: tuple[dict[Any, Any], dict[Any, Any]] = defaultdict(dict), {}
        """What `state` returns, and the items of each parameter when they were read or followed."""
        self.guard: Tensor | None = None
        """A bool tensor while a step is scheduled: whether it changes anything (`frontend.nn.amp`).

        Else None.
        """
        for name in self.moments:
            setattr(self, name, [])
        self.defaults = {"lr": lr, **settings}
        for group in groups_of(params):
            self.add_param_group(group)
        if not self.params:
            raise UsageError("an optimiser needs at least one tensor with requires_grad, none was given")
        devices = {p.device for p in self.params if grad_state.wants(p)} or {self.params[0].device}
        if len(devices) > 1:
            raise UsageError(
                f"an optimiser needs its parameters on one device, saw {', '.join(sorted(devices))}"
            )
        self.device = devices.pop()

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            every = {"lr": group.lr if CAPTURE.now is not None else group.rate_now(), **group.values_}
            settings = [f"    {name}: {every[name]}" for name in sorted(every)]
            lines += [""] * (i > 0) + [f"Parameter Group {i}", *settings]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group of parameters: {"params": tensors, ...}; other settings are those of the constructor.

        A tensor that is given twice counts once, with a warning. Raises `UsageError` for a parameter that
        another group has or that has a history, for no tensors, for settings out of range, and once a step
        was captured.
        """
        kind = type(self).__name__
        param_group = given_group(param_group)
        if self.captured:
            raise UsageError(f"{kind}: a captured step has its parameters; make another optimiser")
        every = leaves_of(kind, param_group["params"], {id(p) for p in (*self.params, *self.buffers)})
        if not every:
            raise UsageError(f"an optimiser needs at least one tensor\n{EMPTY}")
        still = [p for p in every if not grad_state.wants(p)]
        realize_many(still)  # with memory, so that all steps have one structure
        buffers = [p for p in still if not (p.dtype.is_float and grad_state.is_parameter(p))]
        params = [p for p in every if not any(p is b for b in buffers)]
        self.buffers += buffers
        settings = self.defaults | {name: value for name, value in param_group.items() if name != "params"}
        lr = settings.pop("lr")
        own = param_group.keys() - {"params", "lr"}
        group = Group(kind, params or every, lr, settings, self.settings(), own=own)
        group.given = every
        self._check(group)
        self.param_groups.append(group)
        self._join(len(self.param_groups) - 1, params)

    def _join(self, place: int, params: list[Tensor]) -> None:
        """Add parameters of a group, with counters and moments that no step has changed."""
        group = self.param_groups[place]
        group.known = [*map(id, group.params)]
        group.counters = {
            name: Tensor([value], dtype=dtype, device=group.lr.device, requires_grad=False)
            for name, (value, dtype) in self._counters(group).items()
        }
        self.places += [place] * len(params)
        self.counters += [group.counters] * len(params)
        self.params += params
        for name in self._needed(group):
            first = self._first(name, group)
            made = [self._beside(name, p, first) if grad_state.wants(p) else None for p in params]
            realize_many([t for t in made if t is not None])
            every = getattr(self, name)  # None for parameters that need no such state yet
            every += [None] * (len(self.params) - len(params) - len(every)) + made

    def follow(self) -> None:
        """Follow what the program changed in lists of parameters and in `state`.

        Raises as `add_param_group`, and `UsageError` for a state of another shape.
        """
        for place, group in enumerate(self.param_groups):
            if [*map(id, group.params)] == group.known:
                continue
            now = {id(p): p for p in tensors_of(group.params)}
            saved.opened(self)  # which keeps the state of those that leave
            left = [i for i, p in enumerate(self.params) if self.places[i] != place or id(p) in now]
            for p in [p for i, p in enumerate(self.params) if i not in left]:
                self.opened[1].pop(p, None)
            lists: list[list[Any]] = [self.params, self.places, self.counters]
            for every in [*lists, *[getattr(self, name) for name in self.moments]]:
                every[:] = [every[i] for i in left if i < len(every)]
            known = {id(p) for p in (*self.params, *self.buffers)}
            self._join(
                place, leaves_of(type(self).__name__, [p for i, p in now.items() if i not in known], known)
            )
            group.given = [*now.values()]
        saved.follow(self)

    def moment(self, name: str, i: int) -> Tensor | None:
        """Return a moment of parameter i, made if its group needs one; None: it does not."""
        every, group = getattr(self, name), self.param_groups[self.places[i]]
        if name in self._needed(group) and (len(every) <= i or every[i] is None):
            every += [None] * (i + 1 - len(every))
            every[i] = self._beside(name, self.params[i], self._first(name, group))
            realize_many([every[i]] if every[i] is not None else [])
        found: Tensor | None = every[i] if i < len(every) else None
        return found

    def first_value(self, name: str, i: int) -> float:
        """Return the first value of a moment of parameter i."""
        return self._first(name, self.param_groups[self.places[i]])

    def _check(self, group: Group) -> None:
        """Raise `UsageError` for settings of a group that do not fit each other; a subclass may define it."""

    def _counters(self, group: Group) -> dict[str, tuple[float, DType]]:
        """Return name -> (first value, dtype) of the counters of a group."""
        return {"t": (0.0, group.exact)} if self.counted else {}

    def _needed(self, group: Group) -> Iterable[str]:  # noqa: ARG002 - for subclasses
        """Return the moments that a group needs."""
        return self.moments

    def _first(self, name: str, group: Group) -> float:  # noqa: ARG002 - for subclasses
        """Return the first value of a moment."""
        return 0.0

    def shape_of(self, name: str, p: Tensor) -> tuple[int, ...] | None:  # noqa: ARG002 - for subclasses
        """Return the shape of a moment of a parameter; None: it has none."""
        return p.shape

    def _beside(self, name: str, p: Tensor, value: float) -> Tensor | None:
        """Return a pending moment of a parameter, full of a number, None if it has none; see `wide`."""
        shape = self.shape_of(name, p)
        if shape is None:
            return None
        made = Tensor.full(shape, value, dtype=wide(p), device=p.device).clone()
        if "," in p.device and shape == p.shape:
            made = _placement.placed_as(made, p)
        made.requires_grad = False
        return made

    @property
    def state(self) -> dict[Any, Any]:
        """The state of each parameter by name; the next step follows what the program changes in it."""
        self.follow()
        return saved.opened(self)

    @state.setter
    def state(self, value: Mapping[Any, Any]) -> None:
        """Replace the state of all parameters; see `state`."""
        self.state.clear()
        self.opened[0].update(value)

    @property
    def lr(self) -> Tensor:
        """The learning rate of the first group, of shape (1,)."""
        return self.param_groups[0].lr

    @lr.setter
    def lr(self, value: Tensor | float) -> None:
        """Set the learning rate of all groups to a number, or a tensor of one element, in place.

        Raises `UsageError` for a number below 0 and for other shapes, `UsageTypeError` for no number.
        """
        for group in self.param_groups:
            group.set_lr(value)

    def counts(self, group: Group, step: float) -> dict[str, Any]:  # noqa: ARG002 - for subclasses
        """Return the numbers of each parameter of a group in a checkpoint, after so many steps."""
        return {"step": step} if self.counted else {}

    def restored(self, group: Group, step: float, saved: Mapping[str, Any]) -> dict[str, float]:
        """Return the counters of a group after so many steps; `saved` is the state of a parameter of it."""
        first = {name: value for name, (value, _) in self._counters(group).items()}
        started = step if self.counted else float(bool(saved))
        return first | ({"t": first["t"] + started} if "t" in first else {})

    def is_fresh(self, group: Group) -> bool:
        """Return whether no step was taken, so that a checkpoint has no state of it; may read `counters`."""
        return group.counters["t"].item() == 0 if self.counted else not self.moved

    def state_dict(self) -> dict[str, Any]:
        """Return the state as PyTorch's: "state" by the numbers of parameters, and "param_groups".

        Tensors are not copied; learning rates and numbers of steps are read. `frontend.save` and PyTorch's
        `torch.save` write it.
        """
        self.follow()
        return saved.state_of(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set settings, learning rates and state to those of a `state_dict`, also of PyTorch's.

        Raises `UsageError` for other numbers of groups and parameters, for tensors of other shapes, and as
        setting an item of a `Group`.
        """
        self.follow()
        saved.restore(self, state_dict)

    def gradients(self) -> list[Tensor | None]:
        """Return the gradients of all parameters, detached; None for one without, which no step changes.

        Raises `UsageError` when no parameter has a gradient.
        """
        found = [cast("Tensor | None", grad_state.grad_for_step(p)) for p in self.params]
        if all(g is None for g in found):
            found = [cast("Tensor | None", g) for g in self._left()]
        if all(g is None for g in found):
            raise UsageError(
                f"none of {len(found)} parameters, such as {described(self.params[0])}, has a gradient\n"
                "hint: call backward() on a loss that depends on them; a tensor realized in between cuts the "
                "graph"
            )
        return [g if g is None else stopped(g) for g in found]

    def _left(self) -> list[TensorBase | None]:
        """Return the gradients of all parameters; if none is new, outside of captures, the last step's."""
        found = [grad_state.grad_of(p) for p in self.params]
        again = CAPTURE.now is None and all(g is None for g in found)
        return [grad_state.grad_from_outside(p) for p in self.params] if again else found

    def with_gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Return (parameter, gradient) for all that have one. Raises as `gradients`."""
        return [(p, g) for p, g in zip(self.params, self.gradients(), strict=True) if g is not None]

    def schedule_step(self) -> list[Tensor]:
        """Assign new values to parameters and state, without computing them, and remove the gradients.

        Return the tensors to realize together in one launch, as `step` does. Raises as `gradients`.
        """
        if CAPTURE.now is not None:
            self.captured = True
            for group in self.param_groups:
                group.captured = True
        for group in self.param_groups:
            if group.source is not None:
                group.set_lr(group.source)
        grads = self.gradients()
        losses: dict[int, Tensor] = {}
        for p in self.params:
            state = grad_state.state_of(p)
            loss = state.of() if state.of is not None else None
            if loss is not None:
                losses[id(loss)] = cast("Tensor", loss)
            modes.changed((modes.GRAD, id(p)))
            state.value = state.of = state.used = None
        changed, self.moved = self._move(grads), True
        assigned = [cast("Tensor", t) for t in pending() if t.expr.device == self.device]
        return [*self.params, *changed, *self.buffers, *assigned, *losses.values()]

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update the parameters in one launch; their gradients can be read until the next `backward`.

        A second step without a `backward` in between, outside of captures, uses the same gradients again.
        A closure, which computes the loss and its gradients, is called first, and its result is returned;
        without one the result is None. Without any gradient nothing is changed, but a captured function
        raises as `gradients`. Raises `UsageTypeError` for a closure that cannot be called, and as
        `Tensor.realize`.
        """
        if closure is not None and not callable(closure):
            raise UsageTypeError(f"step: wanted a function that computes the loss, saw {shown(closure)}")
        loss = None if closure is None else closure()
        self.launch_step()
        return loss

    def launch_step(self, *others: Tensor) -> None:
        """Compute a scheduled step and other tensors in one launch; raises as `step`.

        Outside of captures the gradients are computed, too: `grad` returns them until the next `backward`.
        """
        if CAPTURE.now is None:
            self.follow()
        kept = self._left() if CAPTURE.now is None else []
        if kept and all(g is None for g in kept):
            return  # no gradients: a step changes nothing, as in PyTorch
        # What the program changed in place; its gradients go on.
        foreign = [t for t in pending() if t.expr.device == self.device]
        found = [cast("Tensor", g) for g in kept if g is not None]
        realize_beside([*self.schedule_step(), *others, *found], foreign)
        for p, g in zip(self.params, kept, strict=False):
            grad_state.state_of(p).used = g

    def _move(self, grads: list[Tensor | None]) -> list[Tensor]:
        """Assign to every parameter with a gradient; return all tensors of the state but learning rates."""
        needed = [self._needed(group) for group in self.param_groups]
        for i, place in enumerate(self.places):
            for name in needed[place]:
                every = getattr(self, name)
                if grads[i] is not None and (len(every) <= i or every[i] is None):
                    self.moment(name, i)
        self._part([g is not None for g in grads])
        counted: set[int] = set()
        for i, (p, given) in enumerate(zip(self.params, grads, strict=True)):
            group = self.param_groups[self.places[i]]
            group.counters = self.counters[i]
            if given is None:
                continue
            if id(group.counters) not in counted:
                counted.add(id(group.counters))
                self._count(group)
            g = given.cast(wide(p))
            update = self._moved(i, stopped(p), -g if group["maximize"] else g, group)
            self.store(p, update.cast(p.dtype))
        moments = [t for name in self.moments for t in getattr(self, name) if t is not None]
        every = {id(t): t for counters in self.counters for t in counters.values()}
        return [*every.values(), *moments]

    def _part(self, moved: list[bool]) -> None:
        """Give parameters that a step leaves out counters of their own, apart from those that it moves."""
        kept = {id(c) for c, m in zip(self.counters, moved, strict=True) if m}
        apart: dict[int, dict[str, Tensor]] = {}
        for i, m in enumerate(moved):
            own = self.counters[i]
            if not m and id(own) in kept and own:
                if id(own) not in apart:
                    copies = {name: stopped(t).clone().realize() for name, t in own.items()}
                    apart[id(own)] = {name: t.requires_grad_(False) for name, t in copies.items()}
                self.counters[i] = apart[id(own)]

    def _count(self, group: Group) -> None:
        """Assign the counters of a group for this step: "t", the number of steps, if there is one."""
        if "t" in group.counters:
            self.store(group.counters["t"], group.counters["t"] + 1)

    @abstractmethod
    def _moved(self, i: int, w: Tensor, g: Tensor, group: Group) -> Tensor:
        """Return the new value of parameter i, given its value w and gradient g; assign its moments.

        g has the dtype `wide` of the parameter; the result may have any float dtype.
        """

    def store(self, target: Tensor, value: Tensor) -> Tensor:
        """Assign a value, or where `guard` is false the old value; return the target.

        For a target of shape () the value may have the shape (1,), which counters and rates have.
        """
        value = value if target.shape else value.reshape(())
        return update(target, value if self.guard is None else self.guard.where(value, stopped(target)))


def wide(p: Tensor) -> DType:
    """Return the dtype of the state of a parameter: float32 for 16-bit floats, else that of the parameter."""
    return dtypes.float32 if p.dtype.bits == 16 else p.dtype
