"""Conversion and checks of method arguments, by the annotations of their parameters.

A memoised method (`frontend.evaluation.trace`) looks its result up by its arguments. Arguments are converted
only where the lookup finds nothing, so a repeated call pays nothing for it. Lists and arrays become tensors
on the device of the first argument, NumPy scalars become numbers, lists of numbers become tuples. An argument
that its annotation does not allow raises `UsageTypeError`, which names the method, the parameter and what is
allowed; a text that is not one of the choices of a `Literal` raises `UsageError`.

An annotation is a union of the names in `KINDS`. A parameter with another annotation accepts any value, which
the method checks itself (dtypes, devices).

Not here: names of arguments (`aliases`), ranges and shapes (`checks`). Next: `frontend.evaluation.trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from math import prod
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from frontend.arguments.aliases import ALIASES, answers, check_call, without_aliases
from frontend.arguments.checks import number_dtype, plain, representable, whole_or_none
from hcq.errors import UsageError, UsageTypeError

P = ParamSpec("P")
R = TypeVar("R")


class _Refused:
    """The class of `NO`."""


NO: Final = _Refused()
"""The result of `ArgumentKind.read` for a value that it does not accept."""
_VARIADIC: Final = 0x04
"""The bit of a code object's flags for `*args`."""
_EMPTY: Final = "inspect._empty"


class ArgumentKind(NamedTuple):
    """One name of an annotation: the text of what it accepts, and the function that converts a value."""

    wanted: str
    read: Callable[[Any, Any], Any]
    """read(value, first argument) -> the converted value, or NO."""


def _none(value: Any, _like: Any) -> Any:
    return None if value is None else NO


def scalar_of(value: Any) -> Any:
    """Return a NumPy scalar or an array of shape () as a Python number; any other value unchanged."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not hasattr(value, "expr"):
        return value.item()
    return value


def held(value: Any) -> Any:
    """Return a tensor of one number without a gradient as the number, which is read, also within a list.

    Any other value is returned as it is. Raises as `Tensor.item`.
    """
    if isinstance(value, (tuple, list)):
        return tuple([held(v) for v in value]) if any(hasattr(v, "expr") for v in value) else value
    plain_number = hasattr(value, "expr") and prod(value.expr.shape) == 1 and not value.requires_grad
    return value.item() if plain_number else value


def _flag(value: Any, _like: Any) -> Any:
    value = scalar_of(value)
    return value if isinstance(value, bool) else NO


def _whole(value: Any, _like: Any) -> Any:
    if hasattr(value, "expr"):  # a tensor where another kind may accept it: it is not read here
        return NO
    found = whole_or_none(value)
    return NO if found is None else found


def _number(value: Any, _like: Any) -> Any:
    value = scalar_of(value)
    return value if isinstance(value, (bool, int, float)) else NO


def _text(value: Any, _like: Any) -> Any:
    return value if isinstance(value, str) else NO


def _tensor(value: Any, like: Any) -> Any:
    if value.__class__ is like.__class__:
        return value
    try:
        found = like.operand(value)
    except UsageTypeError:
        return NO
    if found.__class__ is like.__class__:
        return found
    if found.__class__ is int:
        return like.__class__.full((), found, device=like.expr.device)
    dtype = number_dtype(found, like.expr.dtype) if isinstance(found, float) else None
    return like.__class__(found, dtype=dtype, device=like.expr.device)


def _axes(value: Any, like: Any) -> Any:
    return None if value is None else _sizes(value, like)


def _sizes(value: Any, like: Any) -> Any:
    return _each(value, like, _whole) if isinstance(value, (tuple, list)) else _whole(value, like)


def _places(value: Any, like: Any) -> Any:
    return _sizes(plain(value), like)


def _each(values: tuple[Any, ...] | list[Any], like: Any, kind: Callable[[Any, Any], Any]) -> Any:
    """Return values as a tuple, each converted; the same tuple if nothing changes."""
    every = tuple([kind(v, like) for v in values])
    if any(v is NO for v in every):
        return NO
    same = values.__class__ is tuple and all(a is b for a, b in zip(every, values, strict=True))
    return values if same else every


def _nest(value: Any, like: Any) -> Any:
    """Return nested lists and tuples of whole numbers and None as tuples; NO for any other element."""
    if isinstance(value, (tuple, list)):
        return _each(value, like, _nest)
    return None if value is None else _whole(value, like)


def _sequence(value: Any, like: Any) -> Any:
    return _nest(value, like) if isinstance(value, (tuple, list)) else NO


def _choice(*names: str) -> ArgumentKind:
    return ArgumentKind(
        " or ".join([repr(n) for n in names]),
        lambda value, _: value if isinstance(value, str) and value in names else NO,
    )


_TENSORS: Final = ("T", "Tensor", "TensorBase")
_WHOLE: Final = "a whole number"
_SEVERAL: Final = "a tuple of whole numbers"
KINDS: Final[Mapping[str, ArgumentKind]] = {
    "None": ArgumentKind("None", _none),
    "bool": ArgumentKind("True or False", _flag),
    "int": ArgumentKind(_WHOLE, _whole),
    "float": ArgumentKind("a number", _number),
    "str": ArgumentKind("a string", _text),
    **dict.fromkeys(_TENSORS, ArgumentKind("a tensor, an array or lists of numbers", _tensor)),
    "Number": ArgumentKind("a number", _number),
    "Axes": ArgumentKind("an axis, a tuple of axes or None", _axes),
    "Place": ArgumentKind(f"{_WHOLE}, {_SEVERAL}, or a tensor of them", _places),
    "Sizes": ArgumentKind(f"{_WHOLE} or {_SEVERAL}", _sizes),
    "Shape": ArgumentKind(_SEVERAL, _sequence),
    "Sequence[int]": ArgumentKind(_SEVERAL, _sequence),
    "Sequence[Any]": ArgumentKind("a tuple of whole numbers, or of pairs of them", _sequence),
    "tuple[int, ...]": ArgumentKind(_SEVERAL, _sequence),
    "tuple[tuple[int, int] | None, ...]": ArgumentKind(
        "a pair of whole numbers or None for each axis", _sequence
    ),
    "Reduction": _choice("mean", "sum", "none"),
    "Literal['constant', 'reflect', 'replicate', 'circular']": _choice(
        "constant", "reflect", "replicate", "circular"
    ),
    "Literal['batchmean']": _choice("batchmean"),
    "Literal['ij', 'xy']": _choice("ij", "xy"),
    "Literal['none', 'tanh']": _choice("none", "tanh"),
    "Literal['trunc', 'floor']": _choice("trunc", "floor"),
}
"""Name in an annotation -> its kind."""


def names_of(annotation: str) -> list[str]:
    """Return the names in the union of an annotation."""
    depth, found, start = 0, [], 0
    for i, c in enumerate(annotation):
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            found.append(annotation[start:i].strip())
            start = i + 1
    return [*found, annotation[start:].strip().replace('"', "'")]


def read(fn: Any, name: str, value: Any, like: Any) -> Any:
    """Return an argument converted by the annotation of the parameter `name` of `fn`.

    `like` is the first argument of the call, a tensor. Raises `UsageTypeError` for a value that the
    annotation does not allow, `UsageError` for a text that is not one of its choices.
    """
    names = names_of(fn.__annotations__.get(name, _EMPTY).replace('"', "'"))
    if any(n not in KINDS for n in names):
        return value
    for n in sorted(names, key=_TENSORS.__contains__):  # tensors last: a number stays a number
        found = KINDS[n].read(value, like)
        if found is not NO:
            return found
    if (number_read := held(value)) is not value:
        return read(fn, name, number_read, like)
    wanted = " or ".join(dict.fromkeys([KINDS[n].wanted for n in names]))
    message = f"{fn.__name__.strip('_')}: {name} needs {wanted}, saw {shown(value)}"
    if isinstance(value, str) and any(n.startswith("Literal") or n == "Reduction" for n in names):
        raise UsageError(message)
    raise UsageTypeError(message)


def converting(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function of a tensor: it accepts `ALIASES`, and converts its arguments as `fitted` does."""

    @wraps(fn)
    def call(*args: Any, **names: Any) -> R:
        if names and not ALIASES.keys().isdisjoint(names):
            args, names = without_aliases(fn, args, names)
        given = fitted(fn, args, names)
        return fn(*args, **names) if given is None else fn(*given[0], **given[1])

    converted: Callable[P, R] = answers(call)
    return converted


def flag(value: Any, what: str) -> bool:
    """Return a Python or NumPy bool as a Python bool; raise `UsageTypeError` for anything else."""
    found: bool | _Refused = _flag(value, None)
    if isinstance(found, _Refused):
        raise UsageTypeError(f"{what}: wanted True or False, saw {shown(value)}")
    return found


def switch(value: Any, what: str) -> bool:
    """Return a setting of a layer, a bool or 0 or 1, as a bool; raise `UsageTypeError` for anything else."""
    return bool(value) if whole_or_none(value) in (0, 1) else flag(value, what)


def number(value: Any, what: str) -> float:
    """Return a Python or NumPy number, or what `held` reads, as a Python number.

    Raises `UsageTypeError` for anything else, also for a bool; `UsageError` for an int beyond float64's
    range.
    """
    found = scalar_of(held(value))
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise UsageTypeError(f"{what}: wanted a number, saw {shown(value)}")
    return representable(found)


def shown(value: Any) -> str:
    """Return a value as text for a message: dtype and shape of a tensor, a short `repr`, else the class."""
    if hasattr(value, "expr"):
        return f"a tensor {value.expr.dtype.name}{list(value.expr.shape)}"
    if isinstance(value, (list, tuple)) and any(hasattr(v, "expr") for v in value):
        return f"a {type(value).__name__} of {', '.join(dict.fromkeys([type(v).__name__ for v in value]))}"
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else f"a value of type {type(value).__name__}"


def fitted(
    fn: Any, args: tuple[Any, ...], names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments converted by the annotations of a function; None if no argument changes.

    The first argument, a tensor, is not converted. Raises as `read` and `check_call`.
    """
    code = fn.__code__
    declared = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    rest = code.co_varnames[len(declared)] if code.co_flags & _VARIADIC else None
    needed = declared[len(args) : code.co_argcount - len(fn.__defaults__ or ())]
    many = rest is None and len(args) > code.co_argcount
    if many or any(n not in names for n in needed) or any(n not in declared[len(args) :] for n in names):
        check_call(fn.__name__.strip("_"), fn, args, names)
    like = args[0]
    every = [like]
    for i, value in enumerate(args[1:], 1):
        name = declared[i] if i < code.co_argcount else rest
        every.append(value if name is None else read(fn, name, value, like))
    by_name = {n: read(fn, n, v, like) if n in declared else v for n, v in names.items()}
    same = all(a is b for a, b in zip(every, args, strict=True)) and all(
        v is names[n] for n, v in by_name.items()
    )
    return None if same else (tuple(every), by_name)
