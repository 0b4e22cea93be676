"""The state of an optimiser as PyTorch writes it: a state for each parameter, and the groups.

Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.state_dict.html, and what
`state_dict()` of PyTorch 2.13 returns for each optimiser.

Not here: files (`frontend.nn.state.saving`), the state itself (`optimiser`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from frontend.evaluation.realize import realize_many
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.optim.group import Group
    from frontend.optim.optimiser import Rule

WAYS: Final = {
    "foreach": None, "fused": None, "capturable": False, "differentiable": False,
}  # fmt: skip
"""Items of PyTorch's groups that choose how a step is computed, with the values that have no effect."""


def _written(group: Group, numbers: Mapping[int, int]) -> dict[str, Any]:
    first = {} if group.initial is None else {"initial_lr": group.initial}
    found = {"lr": group.rate_now(), **group.values_, **WAYS, **first, **group.more}
    return {**found, "params": [numbers[id(p)] for p in group.given]}


def state_of(optimiser: Rule) -> dict[str, Any]:
    """Return what `Optimizer.state_dict` returns: parameters are numbered in the order of the groups."""
    numbers = {id(p): n for n, p in enumerate([p for g in optimiser.param_groups for p in g.given])}
    groups = [_written(g, numbers) for g in optimiser.param_groups]
    counts: dict[int, dict[str, Any] | None] = {}
    state: dict[int, dict[str, Any]] = {}
    for i, (p, place) in enumerate(zip(optimiser.params, optimiser.places, strict=True)):
        group, key = optimiser.param_groups[place], id(optimiser.counters[i])
        if key not in counts:
            group.counters = optimiser.counters[i]
            step = group.counters["t"].item() if optimiser.counted else 0.0
            counts[key] = None if optimiser.is_fresh(group) else optimiser.counts(group, step)
        known = counts[key]
        if known is not None:
            own = {name: Tensor(float(value)) for name, value in known.items()}
            moments = {name: optimiser.moment(ours, i) for ours, name in optimiser.moments.items()}
            own |= {name: t for name, t in moments.items() if t is not None}
            state |= {numbers[id(p)]: own} if own else {}
    return {"state": state, "param_groups": groups}


def opened(optimiser: Rule) -> dict[Any, Any]:
    """Return the state by parameter as it is now, in the dictionaries that programs may keep and change."""
    shown, before = optimiser.opened
    params = [p for g in optimiser.param_groups for p in g.given]
    for n, own in state_of(optimiser)["state"].items():
        shown[params[n]].update(own)
        before[params[n]] = _noted(shown[params[n]])
    return shown


def _noted(own: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, "step": float(own.get("step", 0.0))}


def follow(optimiser: Rule) -> None:
    """Assign what a program changed in the dictionaries of `opened` since then."""
    shown, before = optimiser.opened
    changed: dict[int, dict[str, Any]] = {}
    for p in optimiser.params if shown or before else ():
        own, old = _noted(shown.get(p, {})), before.get(p, _noted({}))
        if own["step"] != old["step"] or any(
            own.get(n) is not old.get(n) for n in optimiser.moments.values()
        ):
            changed[id(p)] = shown.get(p, {})
            before[p] = own
    if changed:
        params, now = [p for g in optimiser.param_groups for p in g.given], state_of(optimiser)["state"]
        states = {id(p): now.get(n, {}) for n, p in enumerate(params)} | changed
        _assign(optimiser, [states[id(p)] for p in optimiser.params])


def restore(optimiser: Rule, values: Mapping[str, Any]) -> None:
    """Do what `Optimizer.load_state_dict` does; shapes and numbers are checked before anything changes.

    Raises `UsageError` for another form, and for numbers and shapes that do not fit.
    """
    kind = type(optimiser).__name__
    if not isinstance(values, Mapping) or not {"state", "param_groups"} <= values.keys():
        raise UsageError(f"{kind}, load_state_dict: wanted a dictionary with 'state' and 'param_groups'")
    groups = values["param_groups"]
    wanted, seen = ([len(ps) for ps in each] for each in (
        [g.given for g in optimiser.param_groups], [g["params"] for g in groups]))  # fmt: skip
    if wanted != seen:
        raise UsageError(f"{kind}, load_state_dict: wanted groups of {wanted} parameters, saw {seen}")
    every = [p for g in optimiser.param_groups for p in g.given]
    names = {id(p): n for p, n in zip(every, [n for g in groups for n in g["params"]], strict=True)}
    states = [dict(values["state"].get(names[id(p)]) or {}) for p in optimiser.params]
    for p, state in zip(optimiser.params, states, strict=True):
        for ours, name in optimiser.moments.items():
            t, shape = state.get(name), optimiser.shape_of(ours, p)
            if t is not None and tuple(t.shape) != shape:
                raise UsageError(
                    f"{kind}, load_state_dict: {name} of parameter {names[id(p)]} has the shape "
                    f"{tuple(t.shape)}, wanted {shape}"
                )
    for group, given in zip(optimiser.param_groups, groups, strict=True):
        _set(group, given)
    _assign(optimiser, states)


def _set(group: Group, given: Mapping[str, Any]) -> None:
    group.more = {}
    for name, value in given.items():
        if name == "lr":
            group.set_lr(value if isinstance(value, Tensor) else float(value))
        elif name == "initial_lr":
            group.initial = float(value)
        elif name in group.rules:
            wanted = tuple(value) if isinstance(value, list) else value
            if wanted != group.values_[name]:
                group[name] = wanted
        elif name != "params" and name not in WAYS:
            group.more[name] = value


def _assign(optimiser: Rule, states: list[dict[str, Any]]) -> None:
    changed: list[Tensor] = []
    made: dict[tuple[int, float, bool], dict[str, Tensor]] = {}
    for i, state in enumerate(states):
        for ours, name in optimiser.moments.items():
            t, value = optimiser.moment(ours, i), state.get(name)
            if t is not None:
                first = optimiser.first_value(ours, i)
                if value is t:
                    continue
                t.assign(t.full_like(first) if value is None else value.detach().to(t.device).cast(t.dtype))
                changed.append(t)
        place, step = optimiser.places[i], float(state.get("step", 0.0))
        key = place, step, bool(state)
        if key not in made:
            group, own = optimiser.param_groups[place], optimiser.counters[i]
            if any(own is other for other in made.values()):
                own = {name: Tensor.zeros_like(t).clone() for name, t in own.items()}
            for name, number in optimiser.restored(group, step, state).items():
                own[name].assign(number)
            changed += own.values()
            made[key] = group.counters = own
        optimiser.counters[i] = made[key]
    optimiser.moved = any(states)
    realize_many(changed)
