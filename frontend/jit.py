"""Names of PyTorch's `jit` that models have at their head: functions and modules are returned as they are.

Nothing is compiled here; `frontend.compile` captures calls. Not here: traces, and files of scripts.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "ignore", "is_scripting", "is_tracing",
    "isinstance", "script", "script_if_tracing", "unused",
]  # fmt: skip


class ScriptModule:
    """The class of compiled modules, of which there are none: `isinstance(x, jit.ScriptModule)` is False."""


ScriptFunction = ScriptModule


def script(obj: Any, *_settings: Any, **_names: Any) -> Any:
    """Return a function or module itself, whose values are the same."""
    return obj


export = script_if_tracing = unused = script


def ignore(drop: Any = False, **_settings: Any) -> Callable[..., Any]:  # noqa: FBT002 - as given
    """Return a function itself; with settings, a decorator that does."""
    return drop if callable(drop) else script


def is_scripting() -> bool:
    """Return False: nothing is compiled."""
    return False


is_tracing = is_scripting


def annotate(_type: Any, the_value: Any) -> Any:
    """Return the value."""
    return the_value


isinstance = builtins.isinstance
