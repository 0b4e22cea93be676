"""Hooks of modules: functions that programs register, for one module or for all.

`Hooked` is the part of `nn.Module` that registers hooks, and calls those around `forward`. Not here: calling
hooks of gradients (`frontend.autograd.hooks`) and of states (`frontend.nn.state.hooked`).
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frontend.arguments.conversion import flag, shown
from frontend.evaluation import modes
from frontend.evaluation.gradient_state import HookHandle
from frontend.later import AT_ONCE, later
from frontend.nn.state.models import HOOKS
from hcq.errors import UsageTypeError

if AT_ONCE:
    from frontend.autograd import hooks as marks
else:
    marks = later("frontend.autograd.hooks")

STATEFUL: Final = [False]
"""Whether a module has hooks of its state, or a class defines a way of its own to save or load it."""


class Hooks:
    """The hooks of a module by number of registration: (function, whether it takes named arguments)."""

    def __init__(self) -> None:
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}
        self.gradient_before: dict[int, Any] = {}
        self.gradient_after: dict[int, Any] = {}
        self.saving: dict[int, Any] = {}
        self.saved: dict[int, Any] = {}
        self.loading: dict[int, Any] = {}
        self.loaded: dict[int, Any] = {}

    def every(self, when: str) -> list[Any]:
        """Return (function, flag) of the hooks of all modules at a place, then of these."""
        others = [] if EVERY[0] is None else getattr(EVERY[0], when).values()
        return [*others, *getattr(self, when).values()]


EVERY: Final[list[Hooks | None]] = modes.HOOKS


def _of_all(when: str, hook: Callable[..., Any], with_kwargs: bool = False) -> HookHandle:
    if not callable(hook):
        raise UsageTypeError(f"a hook of all modules: wanted a function, saw {shown(hook)}")
    EVERY[0] = EVERY[0] or Hooks()
    return HookHandle.of(getattr(EVERY[0], when), (hook, flag(with_kwargs, "with_kwargs")))


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> HookHandle:
    """Call a hook before `forward` of every module; see `Module.register_forward_pre_hook`."""
    return _of_all("before", hook)


def register_module_forward_hook(hook: Callable[..., Any], *, with_kwargs: bool = False) -> HookHandle:
    """Call a hook after `forward` of every module; see `Module.register_forward_hook`."""
    return _of_all("after", hook, with_kwargs)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> HookHandle:
    """Call a hook for every module; see `Module.register_full_backward_pre_hook`."""
    return _of_all("gradient_before", hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> HookHandle:
    """Call a hook for every module; see `Module.register_full_backward_hook`."""
    return _of_all("gradient_after", hook)


class Hooked:
    """The base of modules that have hooks."""

    forward: Callable[..., Any]

    def _hooked(self, hooks: Hooks, args: Any, names: Any) -> Any:
        """Return `forward` between the hooks before and after it."""
        if hooks is EVERY[0]:
            hooks = self.__dict__.setdefault(HOOKS, Hooks())
        for hook, with_kwargs in hooks.every("before"):
            found = hook(self, args, names) if with_kwargs else hook(self, args)
            if found is not None and with_kwargs:
                args, names = found
            elif found is not None:
                args = found if isinstance(found, tuple) else (found,)
        if hooks.every("gradient_before") or hooks.every("gradient_after"):
            return marks.call(self, hooks, args, lambda *args: self._with_after(hooks, args, names))
        return self._with_after(hooks, args, names)

    def _with_after(self, hooks: Hooks, args: Any, names: Any) -> Any:
        """Return `forward` and the hooks after it."""
        out = self.forward(*args, **names)
        for hook, with_kwargs in hooks.every("after"):
            found = hook(self, args, names, out) if with_kwargs else hook(self, args, out)
            out = out if found is None else found
        return out

    def _register(
        self, when: str, hook: Callable[..., Any], prepend: bool, with_kwargs: bool = False
    ) -> HookHandle:
        if not callable(hook):
            raise UsageTypeError(f"{type(self).__name__}: wanted a function as a hook, saw {shown(hook)}")
        every = getattr(self.__dict__.setdefault(HOOKS, Hooks()), when)
        return HookHandle.of(every, (hook, flag(with_kwargs, "with_kwargs")), first=flag(prepend, "prepend"))

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, grads)` in `backward`, with the gradients of the results of each call.

        `grads` is a tuple with a place for each result, None where none flows or it is no tensor. What it
        returns, if not None, replaces them. `prepend`: before the other hooks. A captured function calls
        hooks in its capture alone. Raises `UsageTypeError` for no function.
        """
        return self._register("gradient_before", hook, prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> HookHandle:
        """Call `hook(module, of_arguments, of_results)` in `backward`, with gradients of each call.

        Both are tuples as those of `register_full_backward_pre_hook`; `of_arguments` has a place for each
        argument by position. What the hook returns, if not None, replaces the gradients of the arguments.
        """
        return self._register("gradient_after", hook, prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each `forward`; what it returns, if not None, replaces `args`.

        With `with_kwargs`: `hook(module, args, names)`, which returns None or both. A captured function calls
        hooks in its capture alone.
        """
        return self._register("before", hook, prepend, with_kwargs)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args, output)` after each `forward`.

        A result that is not None replaces the output. With `with_kwargs` it is called with (module, args,
        names, output). A captured function calls hooks in its capture alone.
        """
        return self._register("after", hook, prepend, with_kwargs)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, state, prefix, metadata, strict, missing, unexpected, errors)` before it loads.

        The state is a copy, which the hook may change; a text that it adds to `errors` is an error.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> HookHandle:
        STATEFUL[0] = True
        return self._register("loading", hook, prepend=False, with_kwargs=with_module)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, keys)` after it was loaded; it may remove missing and unexpected keys."""
        STATEFUL[0] = True
        return self._register("loaded", hook, prepend=False)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict`."""
        STATEFUL[0] = True
        return self._register("saving", hook, prepend=False)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call `hook(module, state, prefix, metadata)` after `state_dict`; it may change the state."""
        STATEFUL[0] = True
        return self._register("saved", hook, prepend=False, with_kwargs=True)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> HookHandle:
        STATEFUL[0] = True
        return self._register("saved", hook, prepend=False)
