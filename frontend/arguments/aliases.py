"""Names of arguments: PyTorch's and NumPy's names for them, and errors for calls that fit no signature.

A method declares one name for each argument, which its signature shows: `axis` or `axes`, `keepdim`, `low`,
`high`, ... A name that the method does not declare is replaced by the declared name with the same meaning:
`x.sum(dim=1)` is `x.sum(axis=1)`, `x.clamp(min=0)` is `x.clamp(low=0)`. An unknown name, a surplus argument
or a missing one raises `UsageTypeError`, whose message lists the declared arguments.

Not here: the values of arguments (`conversion`, `checks`). Next: `conversion`, what a value is converted to.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import FrameType, FunctionType
from typing import Any, Final, ParamSpec, TypeVar, cast

from hcq.errors import UsageError, UsageTypeError
from hcq.names import nearest

P = ParamSpec("P")
R = TypeVar("R")

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "dim": ("axis", "axes"), "dims": ("axes", "order", "repeats"), "axis": ("axes",),
    "keepdims": ("keepdim",), "keepdim": ("keepdims",), "dim0": ("first",), "axis0": ("first",),
    "axis1": ("second",), "dim1": ("second", "axis1"), "dim2": ("axis2",), "start_dim": ("start",),
    "end_dim": ("end",), "min": ("low",), "max": ("high",), "min_val": ("low",), "max_val": ("high",),
    "chunks": ("count",), "split_size": ("size",), "split_size_or_sections": ("size",), "sizes": ("shape",),
    "value": ("src",), "num_classes": ("classes",), "negative_slope": ("slope",), "neg_slope": ("slope",),
    "vec2": ("second", "other"), "mat2": ("other",), "indices_or_sections": ("sections",),
    "split_sizes": ("size",), "indices": ("index",), "end": ("stop",), "size": ("shape",),
    "fill_value": ("value",), "requires_grad": ("wanted",), "memory_format": (), "layout": (),
    "pin_memory": (),
}  # fmt: skip
"""Alias -> the declared names that it may replace; without one, how tensors lie in memory, without effect."""
PLACES: Final[Mapping[str, int]] = {
    "input": 0, "input1": 0, "anchor": 0, "log_probs": 0, "hx": 1, "input2": 1, "target": 1, "targets": 1,
    "positive": 1, "negative": 2, "var": 2, "input_lengths": 2, "target_lengths": 3,
}  # fmt: skip
"""PyTorch's names of the tensors that layers and losses are called with -> their places."""
_PLACING: Final = frozenset({
    "clone", "contiguous", "float", "double", "half", "bfloat16", "int", "long", "bool", "short", "char",
    "byte", "type", "cpu",
})  # fmt: skip
"""Functions without an argument `device` that take such names."""
_WANTED: Final = {"memory_format": "channels_last", "layout": "strided", "pin_memory": "bool"}
_VARIADIC: Final = 0x04
"""The bit of a code object's flags for `*args`."""


class MemoryLayout(str):
    """How PyTorch lays out a tensor in memory, as `channels_last`; it has no effect here."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"frontend.{self}"


def without_aliases(
    fn: Any, args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments, with aliases replaced by the names that `fn` declares.

    An unknown name stays as it is: `check_call` refuses it later. A value that is named as the `*args` of
    `fn` becomes the last positional argument. Raises `UsageError` when one argument is given under two names.
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
            if not ALIASES.get(name, (name,)) and ("device" in declared or fn.__name__ in _PLACING):
                if value is None or isinstance(value, (bool, MemoryLayout)):
                    continue
                raise UsageTypeError(f"{fn.__name__}, {name}: wanted frontend.{_WANTED[name]}, saw {value!r}")
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


def by_place(
    fn: Callable[..., Any], args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, those named in `PLACES` that a function declares otherwise by position.

    They must follow the positional ones without a gap; else, and if it takes any names, nothing is changed.
    """
    declared = inspect.signature(fn).parameters
    if any(p.kind is p.VAR_KEYWORD for p in declared.values()):
        return args, names
    moved = sorted([n for n in names if n in PLACES and n not in declared], key=lambda n: PLACES[n])
    if [PLACES[n] for n in moved] != [*range(len(args), len(args) + len(moved))]:
        return args, names
    rest = {name: value for name, value in names.items() if name not in moved}
    return (*args, *[names[name] for name in moved]), rest


def caller() -> str:
    """Return the innermost layer, else the outermost function of `frontend`, on the stack; for messages."""
    found, frame = "operation", cast("FrameType | None", sys._getframe(1))  # noqa: SLF001 - the documented way to a frame
    while frame is not None and (home := frame.f_globals.get("__name__", "")).startswith("frontend."):
        own = frame.f_code.co_name
        if home == "frontend.nn.module" and own == "__call__":
            return type(frame.f_locals["self"]).__name__
        inner = own[0] in "_<" or own in {"call", "loss"} or home.startswith("frontend.evaluation.")
        shown = {"plus": "add", "minus": "sub", "getitem": "indexing", "setitem": "indexing"}.get(own, own)
        found, frame = (found if inner else shown), frame.f_back
    return found


def check_call(what: str, fn: Callable[..., Any], args: Any, names: Any) -> inspect.BoundArguments:
    """Return arguments bound to the parameters of a function.

    Raises `UsageTypeError` for an unknown, a surplus or a missing argument. The message starts with `what`
    and lists the parameters.
    """
    own = inspect.signature(fn)
    try:
        return own.bind(*args, **names)
    except TypeError as error:
        plain = [
            str(p.replace(annotation=p.empty)) for n, p in own.parameters.items() if n not in {"self", "cls"}
        ]
        unknown = next((n for n in names if n not in own.parameters), "")
        near = nearest(unknown, [n for n in own.parameters if n not in {"self", "cls"}])
        hint = f"\nhint: did you mean {near}=?" if near else ""
        text = f"{what}: {error}; its arguments are {', '.join(plain) or 'none'}{hint}"
        raise UsageTypeError(text) from None


def accepts_aliases(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: it accepts `ALIASES`, and raises as `check_call` where a call does not fit."""
    raw = inspect.unwrap(fn)
    by_position = hasattr(fn, "by_position")

    @wraps(fn)
    def call(*args: Any, **names: Any) -> R:
        if names and not ALIASES.keys().isdisjoint(names):
            args, names = without_aliases(raw, args, names)
        if names and by_position:
            args, names = check_call(raw.__name__, raw, args, names).args, {}
        try:
            return fn(*args, **names)
        except TypeError as error:
            if not isinstance(error, UsageTypeError):
                check_call(raw.__name__, raw, args, names)
            raise

    found: Callable[P, R] = answers(call)
    return found


def answers(call: Any) -> Any:
    """Mark a function that itself raises `UsageTypeError` where a call does not fit; return the function."""
    call.answers = True
    return call


def answered(name: str, member: Any) -> Any:
    """Return a public function or method decorated by `accepts_aliases`; any other member unchanged."""
    fn = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    if name.startswith("_") or not isinstance(fn, FunctionType) or hasattr(fn, "answers"):
        return member
    found: Any = accepts_aliases(fn)
    return found if fn is member else type(member)(found)


def answering(cls: type[R]) -> type[R]:
    """Decorate a class: replace its methods, inherited ones included, by those that `answered` returns."""
    answer_class(cls)
    for base in cls.__mro__[:-1]:
        for name, member in list(vars(base).items()):
            if (found := answered(name, member)) is not member:
                setattr(base, name, found)
    return cls


def answer_module(names: dict[str, Any], package: str) -> None:
    """Replace the functions of a package among the names of a module by those that `answered` returns."""
    for name, member in list(names.items()):
        ours = getattr(member, "__module__", None) and member.__module__.startswith(package)
        if ours and (found := answered(name, member)) is not member:
            names[name] = named_at(names["__name__"], name, found)


def named_at(module: str, name: str, function: Callable[P, R]) -> Callable[P, R]:
    """Make a function a member of a module, by which a pickle finds it; return the function."""
    function.__module__, function.__qualname__ = module, name
    return function


def answer_class(cls: type[Any], made: Callable[[Any], None] | None = None) -> None:
    """Wrap `__init__` and `__call__` of a class of `frontend`: calls without fit raise as `check_call`.

    `made` is called with a new object after each of its `__init__`.
    """
    for name in {"__init__", "__call__"} & vars(cls).keys():
        if cls.__module__.startswith("frontend."):
            setattr(cls, name, _answering_by_class(vars(cls)[name], made if name == "__init__" else None))


def _answering_by_class(fn: Any, made: Callable[[Any], None] | None) -> Any:
    @wraps(fn)
    def call(self: Any, /, *args: Any, **names: Any) -> Any:
        try:
            found = fn(self, *args, **names)
        except TypeError as error:
            if not isinstance(error, UsageTypeError):
                check_call(type(self).__name__, fn, (self, *args), names)
            raise
        if made is not None:
            made(self)
        return found

    return call
