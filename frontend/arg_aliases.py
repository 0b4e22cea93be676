"""Aliases of argument names: those of PyTorch and NumPy, accepted by every method.

A method declares one name for each argument, which its signature shows: `axis` or `axes`, `keepdim`, `low`,
`high`, ... A name that it does not declare is replaced by the declared name with the same meaning:
`x.sum(dim=1)` is `x.sum(axis=1)`, `x.clamp(min=0)` is `x.clamp(low=0)`.

Not here: reading the values (`parameters`, `frontend.ops.arguments`).
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "order"),
    "axis": ("axes",),
    "keepdims": ("keepdim",),
    "dim0": ("first",),
    "dim1": ("second", "axis1"),
    "dim2": ("axis2",),
    "start_dim": ("start",),
    "end_dim": ("end",),
    "min": ("low",),
    "max": ("high",),
    "min_val": ("low",),
    "max_val": ("high",),
    "chunks": ("count",),
    "split_size": ("size",),
    "split_size_or_sections": ("size",),
    "sizes": ("shape",),
    "value": ("src",),
    "num_classes": ("classes",),
    "negative_slope": ("slope",),
    "neg_slope": ("slope",),
    "vec2": ("second", "other"),
    "mat2": ("other",),
    "indices_or_sections": ("sections",),
    "split_sizes": ("size",),
    "indices": ("index",),
}
"""Alias -> the declared names that it may replace."""
_VARIADIC: Final = 0x04
"""The bit of a code object's flags for `*args`."""


def without_aliases(
    fn: Any, args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments, with aliases replaced by the names that `fn` declares.

    Unknown names stay. Raises `UsageError` when one argument is given under two names.
    """
    code = fn.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    declared = code.co_varnames[:count]
    rest = code.co_varnames[count] if code.co_flags & _VARIADIC else None
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for name, value in names.items():
        own = name
        if name not in declared:
            own = next((other for other in ALIASES.get(name, ()) if other in declared or other == rest), name)
        if own in given or (own in declared and code.co_argcount > declared.index(own) < len(args)):
            other = given.get(own, "one by position")
            raise UsageError(f"{fn.__name__}: saw {other} and {name}=, two names of one argument; give one")
        given[own] = f"{name}="
        if own == rest:
            args = (*args, value)
        else:
            found[own] = value
    return args, found


def accepts_aliases(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it accepts aliases of its argument names."""

    @wraps(fn)
    def call(*args: Any, **names: Any) -> R:
        if names and not ALIASES.keys().isdisjoint(names):
            args, names = without_aliases(fn, args, names)
        return fn(*args, **names)

    return call
