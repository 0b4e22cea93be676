"""New tensors: from host data, constants and coordinates.

Host data is copied to the device by the call. Constants and coordinates have no memory until they are
realized. `dtype` is a dtype or its name; `device` None is the default device; `requires_grad` is set if it is
not None. All raise `UsageError` for an unknown dtype or device, a negative size, a number that does not fit
the dtype, and requires_grad of integers; arguments of other classes raise `UsageTypeError`.

Not here: random numbers (`random`). Next: `frontend.evaluation.storage`, host data in memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

from compiler.dtype import DType, by_name, dtypes, promote
from compiler.ir.ops import Ops
from frontend.arguments.aliases import accepts_aliases
from frontend.arguments.checks import FLOAT, Size, element_type, plain, shape_of, whole
from frontend.arguments.conversion import converting, flag, held, number
from frontend.device import Device
from frontend.evaluation.base import T
from frontend.evaluation.constants import constant, convert, coordinate, suited
from frontend.evaluation.expr import Part, source_expr
from frontend.evaluation.gradient_state import marked
from frontend.evaluation.limits import IndexLimit, limited, refuse_known
from frontend.evaluation.plan import refuse
from frontend.evaluation.storage import allocated, dtype_of, flatten, from_numpy, pack, stored
from frontend.evaluation.trace import apply, composite
from frontend.ops.casts import cast
from frontend.ops.elementwise import add, lt, mul, where
from frontend.ops.movement import reshape
from hcq.errors import UsageError, UsageTypeError

KNOWN_LIMIT: Final = 1 << 16
"""The most integers of an array whose minimum and maximum are recorded when it is copied.

See `Leaf.known`.
"""


def _scalar(cls: type[T], value: float, dtype: DType, device: str | None) -> T:
    return cls.of_part((source_expr(Ops.CONST, value, dtype, Device.named(device)), ()))


def default_dtype(value: object) -> DType:
    """Return the dtype of a Python number: bool, int64 or `FLOAT`.

    Raises `UsageError` for no number.
    """
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.int64
    if isinstance(value, float):
        return FLOAT[0]
    raise UsageError(f"wanted a number, saw {value!r}")


def part_of_data(data: Any, dtype: DType | None, device: str | None) -> Part:
    """Return the expression and leaves of host data: a number, lists, bytes or an array.

    An array keeps its dtype, whatever `dtype` is. Raises as `frontend.tensor.Tensor`, and `UsageError` inside
    a captured function for other data than a number.
    """
    name = Device.named(device)
    if isinstance(data, (bool, int, float)):
        found = dtype or default_dtype(data)
        return source_expr(Ops.CONST, suited(data, found), found, name), ()
    refuse(
        "host data was made into a tensor inside a captured function: replays would see this one value\n"
        "hint: pass it as an argument, or make the tensor outside"
    )
    if isinstance(data, (bytes, bytearray, memoryview)):
        kind = dtype or dtypes.uint8
        if len(data) % kind.itemsize:
            raise UsageError(f"{len(data)} bytes are no whole number of {kind.name}, {kind.itemsize} each")
        return stored(bytes(data), (len(data) // kind.itemsize,), kind, name)
    if hasattr(data, "__array__"):
        import numpy as np  # noqa: PLC0415 - only where arrays are passed

        try:
            array = np.asarray(data)
        except TypeError as error:  # PyTorch's bfloat16 and 8-bit floats
            raise UsageError(f"NumPy cannot read the array: {error}\nhint: array_api.from_dlpack") from None
        raw, shape, kind = from_numpy(array)
        return stored(raw, shape, kind, name, _extremes(array) if kind.is_int else None)
    if isinstance(data, deque):
        data = list(data)
    if isinstance(data, (list, tuple, range)):
        numbers, shape, plain = flatten(data)
        kind = dtype or (dtype_of(numbers) if plain else _shared_dtype(data))
        known = (int(min(numbers)), int(max(numbers))) if kind.is_int and numbers else None
        return stored(pack(numbers, kind), shape, kind, name, known)
    raise UsageError(f"a tensor is made of numbers, lists, bytes or an array, not of {type(data).__name__}")


def _shared_dtype(data: Any) -> DType:
    """Return the dtype to which tensors, arrays and numbers in nested lists promote."""
    level, kinds, plain = [data], [], []
    while level:
        each = [x for x in level if not isinstance(x, (list, tuple, range))]
        kinds += [by_name(str(getattr(x, "expr", x).dtype.name)) for x in each if hasattr(x, "dtype")]
        plain += [float(x) if isinstance(x, float) else x for x in each if not hasattr(x, "dtype")]
        level = [y for x in level if isinstance(x, (list, tuple, range)) for y in x]
    return reduce(promote, kinds + [dtype_of(plain)] * bool(plain))


def _extremes(array: Any) -> tuple[int, int] | None:
    """Return the least and the greatest integer of an array.

    None for none and for more than `KNOWN_LIMIT`.
    """
    return (int(array.min()), int(array.max())) if 0 < array.size <= KNOWN_LIMIT else None


def full(
    cls: type[T],
    shape: int | Sequence[int],
    fill_value: float,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return a tensor of a shape, one number or a sequence, whose elements all are one number.

    Without `dtype` it is that of the number: bool, int64 or float32; with an integer
    dtype the number is truncated. The tensor has no memory until it is realized. Raises `UsageError` for a
    negative size and for a number that does not fit the dtype.
    """
    fill_value = held(fill_value)
    found = element_type(dtype) or default_dtype(fill_value)
    scalar = _scalar(cls, suited(fill_value, found), found, device)
    sizes = shape_of(shape if isinstance(shape, Sequence) else (shape,), "full")
    return marked(constant(scalar, scalar.expr.arg, found, sizes), requires_grad)


def zeros(
    cls: type[T],
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return zeros, float32 by default, of a shape that is given as several sizes or as one sequence.

    The tensor has no memory until it is realized. Raises `UsageError` for a negative size.
    """
    sizes, found = shape_of(shape, "zeros"), element_type(dtype) or FLOAT[0]
    return full(cls, sizes, 0, dtype=found, device=device, requires_grad=requires_grad)


def ones(
    cls: type[T],
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return ones, float32 by default; otherwise as `zeros`."""
    sizes, found = shape_of(shape, "ones"), element_type(dtype) or FLOAT[0]
    return full(cls, sizes, 1, dtype=found, device=device, requires_grad=requires_grad)


def empty(
    cls: type[T],
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return a realized tensor with undefined contents, float32 by default.

    The shape is given as for `zeros`. Raises `OutOfMemoryError` when the device has no memory, `UsageError`
    for a negative size.
    """
    found = element_type(dtype) or FLOAT[0]
    made = cls.of_part(allocated(shape_of(shape, "empty"), found, Device.named(device)))
    return marked(made, requires_grad)


def arange(
    cls: type[T],
    start: float | None = None,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return start, start + step, ...: values below stop, or above it for a negative step.

    One number is stop, and start is 0. Without `dtype`, three whole numbers give int64, others float32. With
    an integer dtype start and step are truncated, as in PyTorch: for int64 before the numbers are counted.
    Raises `UsageError` for a step of 0, numbers that are not finite, values that do not fit the dtype, and
    bool; `UsageTypeError` without a number.
    """
    if start is None and stop is None:
        raise UsageTypeError("arange: wanted a number to stop at, saw none")
    begin = 0 if start is None else start
    first, last = (0, begin) if stop is None else (begin, stop)
    start, stop, step = _finite("arange", first, last, step)
    found = element_type(dtype) or (
        FLOAT[0] if any(isinstance(v, float) for v in (start, stop, step)) else dtypes.int64
    )
    if found is dtypes.bool:
        raise UsageError("arange gives numbers, wanted a dtype of numbers, saw bool; compare the result")
    if found is dtypes.int64:
        start, stop, step = int(start), int(stop), int(step)
    if step == 0:
        raise UsageError("arange: the step must not be 0")
    count = max(0, math.ceil((stop - start) / step))
    if found.is_int:
        start, step = int(start), int(step)
    last = start + (count - 1) * step
    if found.is_int and count and not all(found.min <= v <= found.max for v in (start, last)):
        raise UsageError(f"arange from {start} to {last} does not fit {found.name}: {found.min}..{found.max}")
    place = coordinate(_scalar(cls, 0, dtypes.int64, device), (count,), 0)
    made = add(mul(convert(place, found), suited(step, found)), suited(start, found))
    return marked(made, requires_grad)


def _finite(what: str, *numbers: float) -> list[Any]:
    """Return finite Python numbers. Raises `UsageError` or `UsageTypeError` for anything else."""
    found = [number(n, what) for n in numbers]
    for n in found:
        if not math.isfinite(n):
            raise UsageError(f"{what}: wanted finite numbers, saw {n}")
    return found


def linspace(
    cls: type[T],
    start: float,
    stop: float,
    steps: int,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return `steps` evenly spaced numbers from start to stop, both included; one step gives start.

    start and stop are numbers, or tensors of one number, which are read. `dtype` is float32 by default; for
    integers start, stop and the results are truncated. Raises `UsageError` for negative steps, numbers that
    are not finite, and bool.
    """
    start, stop = _finite("linspace", plain(start), plain(stop))
    steps = whole(steps, "linspace")
    if steps < 0:
        raise UsageError(f"linspace: the number of steps must not be negative, saw {steps}")
    found = element_type(dtype) or FLOAT[0]
    if found is dtypes.bool:
        raise UsageError("linspace gives numbers, wanted a dtype of numbers, saw bool; compare the result")
    if not found.is_float:
        start, stop = int(start), int(stop)
    made = cast(_between(_scalar(cls, 0, dtypes.int64, device), float(start), float(stop), steps), found)
    return marked(made, requires_grad)


def _between(like: T, start: float, stop: float, steps: int) -> T:
    """Return evenly spaced float64, counted from the nearer end, so that both ends are exact."""
    step = (stop - start) / max(1, steps - 1)
    place = convert(coordinate(like, (steps,), 0), dtypes.float64)
    up = add(mul(place, step), start)
    down = add(mul(add(place, float(1 - steps)), step), stop)
    return where(lt(place, max(1, steps // 2)), up, down)


def eye(
    cls: type[T],
    rows: int,
    columns: int | None = None,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return a matrix (rows, columns), square by default, with ones on its diagonal and zeros elsewhere.

    `dtype` is float32 by default. Raises `UsageError` for a negative size.
    """
    shape = shape_of((rows, rows if columns is None else columns), "eye")
    like = _scalar(cls, 0, dtypes.int64, device)
    diagonal = apply(Ops.EQ, None, coordinate(like, shape, 0), coordinate(like, shape, 1))
    return marked(convert(diagonal, element_type(dtype) or FLOAT[0]), requires_grad)


def full_like(
    self: T,
    value: float,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return a tensor of the shape of self, and by default its dtype and device, of one number.

    The number is truncated for integers. Raises `UsageError` if it does not fit the dtype.
    """
    found = element_type(dtype) or self.expr.dtype
    scalar = _scalar(
        self.__class__, suited(value, found), found, self.expr.device if device is None else device
    )
    return marked(constant(scalar, scalar.expr.arg, found, self.expr.shape), requires_grad)


def zeros_like(
    self: T, *, dtype: DType | str | None = None, device: str | None = None, requires_grad: bool | None = None
) -> T:
    """Return zeros in the shape, dtype and device of self; see `full_like`."""
    return full_like(self, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    self: T, *, dtype: DType | str | None = None, device: str | None = None, requires_grad: bool | None = None
) -> T:
    """Return ones in the shape, dtype and device of self; see `full_like`."""
    return full_like(self, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    self: T, *, dtype: DType | str | None = None, device: str | None = None, requires_grad: bool | None = None
) -> T:
    """Return a realized tensor with undefined contents in the shape, dtype and device of self."""
    place = Device.named(self.expr.device if device is None else device)
    part = allocated(self.expr.shape, element_type(dtype) or self.expr.dtype, place)
    return marked(self.__class__.of_part(part), requires_grad)


@accepts_aliases
def one_hot(self: T, classes: int = -1) -> T:
    """Return for each integer of self a row of `classes` numbers (int64): 1 at its index, 0 elsewhere.

    The result is (*shape, classes). Without `classes` (-1) the values are read, and there are as many as the
    greatest integer plus one. An integer outside raises `UsageIndexError` where the host knows it, or under
    `HCQ_VALIDATE=1`; else its row is zeros. Raises `UsageTypeError` for other dtypes than integers,
    `UsageError` for negative classes, and for no elements without `classes`.
    """
    if not self.expr.dtype.is_int:
        raise UsageTypeError(f"one_hot needs integers, saw {self.expr.dtype.name}; cast it")
    if classes == -1:
        if 0 in self.expr.shape:
            raise UsageError(f"one_hot of the shape {self.expr.shape}: wanted the number of classes")
        every: Any = self
        classes = every.amax().item() + 1
    count = shape_of((whole(classes, "one_hot, classes"),), "one_hot, classes")[0]
    limit = IndexLimit("one_hot", 0, count)
    refuse_known(self, limit)
    return _one_hot(self, limit)


@composite
def _one_hot(self: T, limit: IndexLimit) -> T:
    index = limited(self, limit)
    index = convert(index, dtypes.int64)
    shape = (*self.expr.shape, limit.high)
    place = coordinate(self, shape, len(shape) - 1)
    row = apply(Ops.EXPAND, shape, reshape(index, (*self.expr.shape, 1)))
    return convert(apply(Ops.EQ, None, place, row), dtypes.int64)


def _made(make: Callable[..., Any], like: T, *args: Any, dtype: Any, device: str | None, wanted: Any) -> T:
    found, where = element_type(dtype) or like.expr.dtype, like.expr.device if device is None else device
    made: T = make(like.__class__, *args, dtype=found, device=where, requires_grad=wanted)
    return made


def new_zeros(
    self: T,
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return zeros of a shape in the dtype and on the device of self; see `zeros`."""
    return _made(zeros, self, *shape, dtype=dtype, device=device, wanted=requires_grad)


def new_ones(
    self: T,
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return ones of a shape in the dtype and on the device of self; see `ones`."""
    return _made(ones, self, *shape, dtype=dtype, device=device, wanted=requires_grad)


def new_empty(
    self: T,
    *shape: int | Sequence[int],
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return undefined contents of a shape in the dtype and on the device of self; see `empty`."""
    return _made(empty, self, *shape, dtype=dtype, device=device, wanted=requires_grad)


def new(self: T, *given: Any) -> T:
    """Return `new_empty` of sizes or a `Size`, or `new_tensor` of a sequence; without both, no elements."""
    sequence = len(given) == 1 and not isinstance(given[0], (int, Size))
    return new_tensor(self, given[0]) if sequence else new_empty(self, *(given or (0,)))


@converting
def new_full(
    self: T,
    shape: int | Sequence[int],
    fill_value: float,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> T:
    """Return one number in a shape, in the dtype and on the device of self; see `full`."""
    return _made(full, self, shape, fill_value, dtype=dtype, device=device, wanted=requires_grad)


def new_tensor(
    self: T,
    data: Any,
    *,
    dtype: DType | str | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> T:
    """Return a tensor of host data in the dtype and on the device of self. Raises as `Tensor`."""
    make: Any = self.__class__
    where = self.expr.device if device is None else device
    found = element_type(dtype) or self.expr.dtype
    wanted = flag(requires_grad, "new_tensor, requires_grad") or None
    made: T = make(data, dtype=found, device=where, requires_grad=wanted)
    return made
