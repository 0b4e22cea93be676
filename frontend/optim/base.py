"""PyTorch's `Optimizer`: groups of parameters, and a state by parameter, for optimisers of programs.

Not here: the optimisers of this package, whose steps are one launch (`optimiser`).
"""

# ruff: noqa: FBT001, FBT002 - PyTorch's signatures

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, ClassVar

from frontend.arguments.aliases import answer_class
from frontend.arguments.conversion import shown
from frontend.assignment import clear_gradient
from frontend.evaluation import gradient_state as grad_state
from frontend.evaluation.gradient_state import HookHandle
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

Params = Iterable[Tensor] | Iterable[Mapping[str, Any]]
"""Tensors, or groups of them: {"params": tensors, "lr": ..., "weight_decay": ...}."""


class OwnGroup(dict[str, Any]):
    """A group of an optimiser of a program: "params", and its settings by name."""

    @property
    def more(self) -> dict[str, Any]:
        """The group itself, as schedules may add items of their own."""
        return self

    @property
    def initial(self) -> float | None:
        """The learning rate when the first schedule was made, "initial_lr"; None before."""
        return self.get("initial_lr")

    @initial.setter
    def initial(self, value: float | None) -> None:
        self["initial_lr"] = value

    def rate_now(self) -> float:
        """Return the learning rate as a number."""
        return float(self["lr"])

    def set_lr(self, value: Tensor | float) -> None:
        """Set the learning rate; a tensor that is one is assigned to."""
        if isinstance(self["lr"], Tensor):
            self["lr"].fill_(value)
        else:
            self["lr"] = value


def _launching(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that computes what it changed in one launch; a captured function does so by itself."""

    @wraps(step)
    def launched(self: Any, *args: Any, **names: Any) -> Any:
        found = step(self, *args, **names)
        if CAPTURE.now is None:
            params = [p for group in self.param_groups for p in group["params"]]
            parts = [
                v
                for own in vars(self).get("state", {}).values()
                if isinstance(own, dict)
                for v in own.values()
            ]
            every = [*params, *[p.grad for p in params], *parts]
            realize_many([t for t in every if isinstance(t, Tensor)])
        return found

    return launched


def _hooked(optimiser: Any, name: str, hooks: Mapping[str, dict[int, Any]]) -> Callable[..., Any]:
    """Return a method of an optimiser that calls hooks before and after."""
    called, is_step = getattr(optimiser, name), name == "step"

    def method(*args: Any, **names: Any) -> Any:
        for hook in [*hooks["before"].values()]:
            found = hook(optimiser, (optimiser, *args), names) if is_step else hook(optimiser, *args)
            if found is not None:
                args, names = (found[0][1:], found[1]) if is_step else ((found,), names)
        result = called(*args, **names)
        for hook in [*hooks["after"].values()]:
            given = ((optimiser, *args), names) if is_step else () if result is None else (result,)
            found = hook(optimiser, *given)
            result = result if is_step or found is None else found
        return result

    return method


def _adds(name: str, place: str, given: str = "") -> Callable[..., HookHandle]:
    """Return the method that registers a hook of the method `name`."""

    def register(self: Any, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        every = vars(self).setdefault("_hooks", {})
        if name not in every:
            every[name] = {"before": {}, "after": {}}
            setattr(self, name, _hooked(self, name, every[name]))
        if not callable(hook):
            raise UsageTypeError(f"{type(self).__name__}: wanted a function as a hook, saw {shown(hook)}")
        hooks = every[name][place]
        handle = HookHandle.of(hooks, hook)
        hooks.update({n: hooks.pop(n) for n in [*hooks][: -1 if prepend else 0]})
        return handle

    register.__doc__ = (
        f"Call `hook(optimizer{', ' * bool(given)}{given})` {place} each `{name}`; a result replaces the"
        " arguments before it, or the result of `state_dict`."
    )
    return register


class Optimizer:
    """The base of all optimisers; that of a program sets `defaults` and defines `step`, as in PyTorch.

        class Sign(Optimizer):
            def __init__(self, params, lr=1e-3):
                super().__init__(params, {"lr": lr})
            @no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            p.sub_(group["lr"] * p.grad.sign())

    `params` are tensors, or groups of tensors: mappings with "params" and settings that replace the defaults
    for the group. Float tensors whose requires_grad is None get True. `param_groups` are dictionaries, and
    `state` is one of dictionaries by parameter. What a step changes is computed at its end, in one launch.

    Raises `UsageError` without tensors and for tensors that are no leaves or in two groups; `UsageTypeError`
    for anything but tensors or groups.
    """

    param_groups: list[Any]
    state: dict[Any, Any]
    defaults: dict[str, Any]
    guarded: ClassVar[bool] = False
    """Whether a step is one launch that a condition on the device can suppress."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "step" in vars(cls) and not cls.__module__.startswith("frontend."):
            cls.step = _launching(cls.step)  # type: ignore[method-assign]  # the same, computed
        answer_class(cls)

    def __init__(self, params: Any, defaults: Mapping[str, Any]) -> None:
        self.defaults, self.param_groups, self.state = dict(defaults), [], defaultdict(dict)
        every = groups_of(params)
        if every == [{"params": []}]:
            raise UsageError(f"an optimiser needs at least one tensor\n{EMPTY}")
        for group in every:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group of parameters, {"params": tensors, ...}; other settings are the defaults.

        Raises `UsageError` for a parameter that another group has or that has a history.
        """
        param_group = given_group(param_group)
        group = OwnGroup({**param_group, **{n: v for n, v in self.defaults.items() if n not in param_group}})
        known = {id(p) for g in self.param_groups for p in g["params"]}
        group["params"] = leaves_of(type(self).__name__, group["params"], known)
        self.param_groups.append(group)

    def with_gradients(self) -> list[tuple[Tensor, Tensor]]:
        """Return (parameter, gradient) for all that have one."""
        params: list[Tensor] = [p for group in self.param_groups for p in group["params"]]
        return [(p, p.grad) for p in params if p.grad is not None]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters; without `set_to_none`, set them to zeros in place."""
        for p in [p for group in self.param_groups for p in group["params"]]:
            clear_gradient(p, set_to_none=set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; a subclass defines it. Raises `NotImplementedError`."""
        raise NotImplementedError(f"{type(self).__name__} defines no step")

    register_step_pre_hook = _adds("step", "before", "args, kwargs")
    register_step_post_hook = _adds("step", "after", "args, kwargs")
    register_state_dict_pre_hook = _adds("state_dict", "before")
    register_state_dict_post_hook = _adds("state_dict", "after", "state_dict")
    register_load_state_dict_pre_hook = _adds("load_state_dict", "before", "state_dict")
    register_load_state_dict_post_hook = _adds("load_state_dict", "after")

    def state_dict(self) -> dict[str, Any]:
        """Return "state" by the numbers of parameters, and "param_groups" with these numbers."""
        numbers = {id(p): n for n, p in enumerate([p for g in self.param_groups for p in g["params"]])}
        state = {numbers.get(id(p), p): value for p, value in self.state.items()}
        groups = [
            {**{n: v for n, v in g.items() if n != "params"}, "params": [numbers[id(p)] for p in g["params"]]}
            for g in self.param_groups
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set the state and the settings to those of a `state_dict`.

        Tensors of the state of a float parameter, but for "step", get its dtype, and all its device. Raises
        `UsageError` for other numbers of groups and parameters.
        """
        mine, theirs = self.param_groups, state_dict["param_groups"]
        wanted, seen = ([len(g["params"]) for g in groups] for groups in (mine, theirs))
        if wanted != seen:
            raise UsageError(
                f"{type(self).__name__}, load_state_dict: wanted groups of {wanted} parameters, saw {seen}"
            )
        pairs = zip(mine, theirs, strict=True)
        named = {n: p for m, t in pairs for n, p in zip(t["params"], m["params"], strict=True)}
        state: dict[Any, Any] = defaultdict(dict)
        for n, value in state_dict["state"].items():
            state[named.get(n, n)] = _like(named[n], value) if n in named else value
        groups = [OwnGroup({**t, "params": m["params"]}) for m, t in zip(mine, theirs, strict=True)]
        self.__setstate__({"state": state, "param_groups": groups})

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            settings = [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
            lines += [""] * (i > 0) + [f"Parameter Group {i}", *settings]
        return "\n".join([*lines, ")"])


EMPTY = (
    "hint: are the layers of the model attributes, or in a ModuleList? those in a plain list are no part "
    "of it; a generator is empty once it was used"
)


def _like(p: Tensor, value: Any, name: str = "") -> Any:
    """Return a copy of a state on the device of a parameter, and but for "step" in its dtype."""
    if isinstance(value, Tensor):
        kind = p.dtype if name != "step" and p.dtype.is_float and value.dtype.is_float else value.dtype
        return value.detach().clone() if name == "step" else value.detach().clone().to(p.device).cast(kind)
    if isinstance(value, dict):
        return {n: _like(p, v, n) for n, v in value.items()}
    return type(value)(_like(p, v) for v in value) if isinstance(value, (list, tuple)) else value


def groups_of(params: Any) -> list[Mapping[str, Any]]:
    """Return the groups in the first argument of an optimiser: its mappings, or one group of its tensors.

    Raises `UsageError` for a group without tensors, and as `tensors_of`.
    """
    if isinstance(params, Iterable) and not isinstance(params, (Tensor, Mapping)):
        every = list(params)
        if every and all(isinstance(p, Mapping) for p in every):
            lacking = [g for g in every if "params" not in g]
            if lacking:
                raise UsageError(f"a group needs 'params', saw {', '.join([str(n) for n in lacking[0]])}")
            return every
        return [{"params": every}]
    return [{"params": tensors_of(params)}]


def tensors_of(params: Any) -> list[Tensor]:
    """Return the tensors of an iterable. Raises `UsageTypeError` for a single tensor and anything else."""
    several = isinstance(params, Iterable) and not isinstance(params, Tensor)
    every = list(params) if several else []
    if not several or not all(isinstance(p, Tensor) for p in every):
        kinds = ", ".join(dict.fromkeys([type(p).__name__ for p in every])) or type(params).__name__
        raise UsageTypeError(
            f"an optimiser needs a list of tensors, saw {kinds}\nhint: a model has them as model.parameters()"
        )
    return every


def given_group(group: Any) -> Mapping[str, Any]:
    """Return a group that is added; names beside its parameters become its "param_names".

    Raises `UsageTypeError` unless it is a dictionary with parameters.
    """
    if not isinstance(group, Mapping) or "params" not in group:
        raise UsageTypeError(f'add_param_group: wanted {{"params": tensors, ...}}, saw {shown(group)}')
    given = group["params"]
    every = list(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else given
    if every is given or not every or not all(isinstance(p, tuple) and len(p) == 2 for p in every):
        return {**group, "params": every}
    return {**group, "params": [p for _, p in every], "param_names": [name for name, _ in every]}


def leaves_of(kind: str, params: Any, known: set[int]) -> list[Tensor]:
    """Return the tensors of a new group, each once, and let undecided floats require a gradient.

    Raises `UsageError` for one of `known`, the ids of those of other groups, and for no leaf.
    """
    named = tensors_of([params] if isinstance(params, Tensor) else params)
    every = list({id(p): p for p in named}.values())
    if len(every) < len(named):
        text = f"{kind}: {len(named) - len(every)} parameters are given twice; each is updated once a step"
        warnings.warn(text, stacklevel=4)
    if any(not p.is_leaf for p in every):
        hint = "hint: detach() it and set requires_grad, or make it an nn.Parameter"
        raise UsageError(f"{kind}: wanted leaves, saw a tensor that is computed from parameters\n{hint}")
    if any(id(p) in known for p in every):
        raise UsageError(f"{kind}: a parameter is in two groups")
    undecided = [p for p in every if grad_state.decided(p) is None and p.dtype.is_float]
    if undecided:
        grad_state.want(undecided, True)
    return every
