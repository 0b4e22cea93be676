"""Arguments of methods: axes, shapes, paddings and broadcasting, checked and normalised.

Invalid arguments raise `UsageError`; of the wrong type, its subclass `UsageTypeError`; an axis that does not
exist, its subclass `UsageIndexError`. `what` is the name of the method, with which a message starts.

Not here: conversion by annotation (`frontend.arguments.conversion`), dtypes of operands
(`frontend.ops.elementwise`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from operator import index
from typing import Any, Final, SupportsIndex

from compiler.dtype import DType, by_name, dtypes
from hcq.errors import UsageError, UsageIndexError, UsageTypeError

FLOAT: Final = [dtypes.float32]
"""The dtype of new tensors of floats, which `frontend.set_default_dtype` changes."""


class Size(tuple[int, ...]):
    """A shape, as a tuple with PyTorch's `numel`; its slices, sums and multiples are of this class."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements."""
        return prod(self)

    def __getitem__(self, key: Any) -> Any:
        found: Any = tuple.__getitem__(self, key)
        return Size(found) if key.__class__ is slice else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count: Any) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__


Shape = tuple[int, ...]
Axes = int | tuple[int, ...] | list[int] | None
Place = Any
"""A whole number, a tuple of them, or an integer tensor, which is computed and read when the call is made."""


def whole(value: object, what: str) -> int:
    """Return a whole number; raise `UsageTypeError` for anything else."""
    found = whole_or_none(value)
    if found is None:
        raise UsageTypeError(f"{what}: wanted a whole number, saw {value!r}")
    return found


def plain(value: Any) -> Any:
    """Return a tensor as nested lists of its numbers, computing it; any other value unchanged."""
    return value.tolist() if hasattr(value, "expr") else value


def is_pair(value: object) -> bool:
    """Return whether a value is a tuple or a list of length two."""
    return isinstance(value, (tuple, list)) and len(value) == 2


def whole_or_none(value: object) -> int | None:
    """Return an int, or what `__index__` of a value returns; None for a bool and for anything else.

    An array has `__index__` only for one integer: None for other arrays.
    """
    if value.__class__ is int:
        return value  # the tests below take twenty times as long
    if value.__class__.__name__ == "bool" or not isinstance(value, SupportsIndex):
        return None  # of NumPy's bool, too, without an import of NumPy
    try:
        return index(value)
    except TypeError:
        return None


def tensor(value: object, what: str, like: object) -> None:
    """Raise `UsageTypeError` for a value that is not of the class of the tensor `like`."""
    if not isinstance(value, like.__class__):
        raise UsageTypeError(f"{what}: wanted a tensor, saw a value of type {type(value).__name__}")


def sizes(args: Sequence[Any], what: str) -> Shape:
    """Return a shape given as `f(2, 3)` or `f((2, 3))`. Raises `UsageTypeError` for no whole number."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple([whole(n, what) for n in args])


def shape_of(args: Sequence[Any], what: str) -> Shape:
    """Return the shape of a new tensor, given as for `sizes`. Raises `UsageError` for a negative size."""
    shape = sizes(args, what)
    if any(n < 0 for n in shape):
        raise UsageError(f"{what}: a shape has no negative sizes, saw {shape}")
    return shape


def axis_of(axis: object, shape: Shape, what: str, *, extra: int = 0) -> int:
    """Return an axis as a number >= 0; negative ones count from the end of the shape with `extra` more axes.

    Raises `UsageIndexError` for an axis that does not exist, `UsageTypeError` for no whole number.
    """
    number = whole(axis, f"{what}, axis")
    rank = len(shape) + extra
    if not -rank <= number < rank:
        there = f"axes {-rank}..{rank - 1}" if rank else "no axes"
        raise UsageIndexError(f"{what}: there is no axis {number}; the shape {shape} has {there}")
    return number % rank


def axes_of(axes: Axes, shape: Shape, what: str) -> Shape:
    """Return one axis or several as numbers >= 0, ascending; None: all axes.

    A shape () has no axis, yet 0 and -1 are accepted for it, as in PyTorch, and give (). Raises
    `UsageIndexError` for an axis that does not exist, `UsageError` for one that is given twice.
    """
    if axes is None:
        return tuple(range(len(shape)))
    named = axes if isinstance(axes, (tuple, list)) else (axes,)
    if not shape:
        for a in named:
            axis_of(a, (1,), what)
        return ()
    found = [axis_of(a, shape, what) for a in named]
    if len(set(found)) != len(found):
        raise UsageError(f"{what}: an axis stands twice in {axes} for the shape {shape}")
    return tuple(sorted(found))


def reduced_axes(axes: Axes, shape: Shape, what: str) -> Shape:
    """Return the axes of a reduction as `axes_of`; none at all, () or [], stand for all, as in PyTorch."""
    return axes_of(None if isinstance(axes, (tuple, list)) and not axes else axes, shape, what)


def fill_in(shape: Shape, old: Shape, what: str) -> Shape:
    """Return a new shape with -1, if any, replaced by the size that keeps the number of elements.

    Raises `UsageError` for two -1, another negative size, or another number of elements.
    """
    unknown = shape.count(-1)
    if unknown > 1 or any(n < -1 for n in shape):
        raise UsageError(f"{what} of {old} to {shape}: sizes are positive, and at most one is -1")
    count = prod(old)
    if unknown:
        known = prod([n for n in shape if n != -1])
        if known == 0 or count % known:
            raise UsageError(f"{what} of {old} to {shape}: {count} elements do not divide by {known}")
        shape = tuple([count // known if n == -1 else n for n in shape])
    if prod(shape) != count:
        raise UsageError(f"{what} of {old} to {shape}: {count} elements are not {prod(shape)}")
    return shape


def broadcast(shapes: Iterable[Shape], what: str, error: type[UsageError] = UsageError) -> Shape:
    """Return the shape that several shapes broadcast to: aligned at the end, a size 1 takes the other size.

    Raises `error` where two sizes differ and none is 1.
    """
    every = list(shapes)
    result: Shape = ()
    for shape in every:
        rank = max(len(result), len(shape))
        a, b = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
        if any(n not in {m, 1} and m != 1 for n, m in zip(a, b, strict=True)):
            raise error(
                f"{what}: shapes {' and '.join([str(s) for s in every])} do not broadcast; "
                "aligned at the end, sizes must be equal or 1"
            )
        result = tuple([m if n == 1 else n for n, m in zip(a, b, strict=True)])
    return result


def repeated(value: int | Sequence[int], count: int, what: str) -> Shape:
    """Return `count` whole numbers, one an axis, given as one number for all axes or as `count` numbers.

    Raises `UsageError` for another number of numbers, `UsageTypeError` for no whole number.
    """
    if not isinstance(value, (tuple, list)):
        return (whole(value, what),) * count
    if len(value) not in {1, count}:
        raise UsageError(f"{what}: wanted one number or {count}, saw {tuple(value)}")
    return tuple([whole(n, what) for n in value]) * (count if len(value) == 1 else 1)


def representable(value: float) -> float:
    """Return a number unchanged. Raises `UsageError` for a whole number beyond the range of float64."""
    try:
        float(value)
    except OverflowError:
        bits = int(value).bit_length()
        raise UsageError(f"wanted a number below 2**1024, as floats hold, saw one of {bits} bits") from None
    return value


def number_dtype(value: object, beside: DType) -> DType:
    """Return the dtype that a Python number takes beside a tensor of the dtype `beside`, as in PyTorch.

    It is `beside` if that is of the number's kind or a higher one (bool < integer < float); else `FLOAT` for
    a float and int64 for an int. Raises `UsageTypeError` for no number, `UsageError` for an int beside a
    float beyond the range of float64.
    """
    if isinstance(value, float):
        return beside if beside.is_float else FLOAT[0]
    if isinstance(value, int) and not isinstance(value, bool):
        if beside.is_float:
            representable(value)
        return dtypes.int64 if beside is dtypes.bool else beside
    if isinstance(value, bool):
        return beside
    raise UsageTypeError(f"wanted a tensor or a number, saw {value!r}")


_PYTHON_TYPES: Final = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool}


def _foreign(wanted: object) -> object:
    """Return the dtype that a type of Python or NumPy or a dtype of PyTorch names, else the object itself."""
    if isinstance(wanted, type) and wanted in _PYTHON_TYPES:
        return _PYTHON_TYPES[wanted]
    home = wanted if isinstance(wanted, type) else type(wanted)
    of_others = home.__module__.partition(".")[0] in {"numpy", "torch"}
    if not of_others or (home is not wanted and "dtype" not in home.__name__.lower()):
        return wanted
    name = wanted.__name__ if isinstance(wanted, type) else getattr(wanted, "name", str(wanted))
    return by_name(str(name).removeprefix("torch."))


def element_type(wanted: DType | str | None) -> DType | None:
    """Return a dtype given by itself, by name, or as a type of Python, NumPy or PyTorch; None for None.

    Python's types mean what they mean to PyTorch and NumPy: float is float64, int is int64. Raises
    `UsageError` for a name that no dtype has, `UsageTypeError` for any other object.
    """
    found: Any = by_name(wanted) if isinstance(wanted, str) else wanted
    if found is not None and found.__class__ is not DType:
        found = _foreign(found)
    if not isinstance(found, DType | None):
        raise UsageTypeError(f"dtype: wanted a dtype such as dtypes.float32, or its name, saw {wanted!r}")
    if found is dtypes.index or found is dtypes.void:
        names = ", ".join([t.name for t in dtypes.all()])
        raise UsageError(f"{found.name} exists only inside kernels; tensors are of {names}")
    return found
