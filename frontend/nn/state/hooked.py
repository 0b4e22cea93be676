"""States of modules with hooks, extra states or own ways to save and load, as in PyTorch.

The tensors are those of `models`; this adds what programs do before and after. Not here: registration
(`nn.Module`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontend.arguments.conversion import shown
from frontend.nn.state.models import HOOKS, LoadedKeys, load_state_dict
from hcq.errors import UsageError, UsageTypeError

EXTRA = "_extra_state"


def _hooks(module: Any, when: str) -> list[tuple[Any, bool]]:
    found = vars(module).get(HOOKS)
    return [] if found is None else list(getattr(found, when).values())


def _modules(model: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return (prefix of its names, module) of the modules in a model, the model first."""
    return [(f"{prefix}{name}." if name else prefix, m) for name, m in model.named_modules()]


def saved(model: Any, found: dict[str, Any], prefix: str, keep_vars: bool) -> dict[str, Any]:  # noqa: FBT001 - as given
    """Return the state of a model after its extra states and hooks; a result of one raises `UsageError`."""
    every = _modules(model, prefix)
    for at, m in every:
        for hook, _ in _hooks(m, "saving"):
            hook(m, at, keep_vars)
    for at, m in every:
        m._save_to_state_dict(found, at, keep_vars)  # noqa: SLF001 - of a module
        if hasattr(m, "get_extra_state"):
            found[at + EXTRA] = m.get_extra_state()
    for at, m in reversed(every):
        for hook, in_place in _hooks(m, "saved"):
            other = hook(m, found, at, {})
            if in_place and other is not None:
                raise UsageError(f"state_dict: wanted None of a hook after it, saw {shown(other)}")
            found = found if other is None else other
    return found


def loaded(model: Any, values: Mapping[str, Any], *, strict: bool, assign: bool) -> LoadedKeys:
    """Do what `Module.load_state_dict` does, with hooks. Raises as it, and `UsageError` for their errors."""
    if not hasattr(values, "items"):
        raise UsageTypeError(f"load_state_dict: wanted tensors by name, saw {shown(values)}")
    found, extra = dict(values), []
    lists: tuple[list[str], list[str], list[str]] = ([], [], [])
    missing, unexpected, errors = lists
    for at, m in _modules(model):
        given: Any = (found, at, {}, strict, *lists)
        for hook, with_module in _hooks(m, "loading"):
            hook(m, *given) if with_module else hook(*given)
        m._load_from_state_dict(*given)  # noqa: SLF001 - of a module
        if hasattr(m, "get_extra_state") and at + EXTRA in found:
            extra.append((m, found.pop(at + EXTRA)))
        elif hasattr(m, "get_extra_state"):
            missing.append(at + EXTRA)
    if errors:
        raise UsageError("load_state_dict: " + "; ".join(errors))
    keys = load_state_dict(model, found, strict=False, assign=assign)
    keys = LoadedKeys([*missing, *keys.missing_keys], [*unexpected, *keys.unexpected_keys])
    for m, value in extra:
        m.set_extra_state(value)
    for _, m in reversed(_modules(model)):
        for hook, _ in _hooks(m, "loaded"):
            hook(m, keys)
    if strict and (keys.missing_keys or keys.unexpected_keys):
        lacking, more = keys.missing_keys or "nothing", keys.unexpected_keys or "nothing"
        raise UsageError(f"load_state_dict: missing {lacking}, unknown {more}")
    return keys
