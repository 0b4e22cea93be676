"""Dtypes, limits and promotion of the array API standard.

Promotion looks neither at values nor at the number of axes: an array of shape () promotes as any other array.
The operators of `Tensor` follow PyTorch, where a tensor of shape () gives way to one with axes. A value that
is neither an array nor a dtype raises `UsageTypeError`; an unknown name, and dtypes that do not promote,
raise `UsageError`.

Not here: the dtypes of kernels (`compiler.dtype`).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from compiler.dtype import DType, by_name, dtypes, promote
from compiler.narrow_floats import FORMATS
from frontend.device import Device
from frontend.ops.elementwise import result_dtype
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

NAMES: Final = (
    *("bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "float32", "float64"),
)
"""The dtypes of the standard that there are."""
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": (),
    "numeric": ("int", "uint", "float"),
}
"""Kind in the standard -> the kinds of `DType` that it holds."""


class FloatInfo(NamedTuple):
    """Limits of a float dtype."""

    bits: int
    eps: float
    """The distance from 1 to the next greater number."""
    max: float
    min: float
    """The least finite number, -max."""
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """PyTorch's name of `smallest_normal`."""
        return self.smallest_normal

    @property
    def resolution(self) -> float:
        """A unit of the last decimal digit of 1 that is kept, in PyTorch: 1e-6 of float32."""
        return 10.0 ** math.ceil(math.log10(self.eps))


class IntegerInfo(NamedTuple):
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


_FLOATS: Final = {  # digits of the fraction, greatest exponent
    "float64": (52, 1023), "float32": (23, 127), "float16": (10, 15), "bfloat16": (7, 127),
}  # fmt: skip


def _dtype(value: Any) -> DType:
    found = value.dtype if isinstance(value, Tensor) else by_name(value) if isinstance(value, str) else value
    if not isinstance(found, DType):
        raise UsageTypeError(f"wanted an array or a dtype, saw {value!r}")
    return found


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a float dtype, or of the dtype of an array. Raises `UsageError` for no float."""
    dtype = _dtype(type)
    if not dtype.is_float:
        raise UsageError(f"finfo: wanted a float dtype, saw {dtype.name}")
    row = FORMATS.get(dtype)
    if row is not None:
        return FloatInfo(8, 2.0**-row.fraction, row.most, -row.most, row.least_normal, dtype)
    digits, top = _FLOATS[dtype.name]
    most = (2 - 2.0**-digits) * 2.0**top
    return FloatInfo(dtype.bits, 2.0**-digits, most, -most, 2.0 ** (1 - top), dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, or of the dtype of an array.

    Raises `UsageError` for no integer.
    """
    dtype = _dtype(type)
    if not dtype.is_int:
        raise UsageError(f"iinfo: wanted an integer dtype, saw {dtype.name}")
    return IntegerInfo(dtype.bits, int(dtype.max), int(dtype.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is of a kind: a dtype, a name of `KINDS`, or a tuple of which one has to match.

    Raises `UsageError` for a text that `KINDS` does not have.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise UsageError(f"isdtype: wanted one of {', '.join(KINDS)}, saw {kind!r}")
        return _dtype(dtype).kind in KINDS[kind]
    return _dtype(dtype) is _dtype(kind)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that arrays, dtypes and Python numbers promote to.

    A number changes the dtype only where it is of a higher kind (bool < integer < float). Raises `UsageError`
    without any array or dtype.
    """
    dtypes_given = [_dtype(x) for x in arrays_and_dtypes if not isinstance(x, (bool, int, float))]
    if not dtypes_given:
        raise UsageError("result_type: wanted at least one array or dtype")
    found = dtypes_given[0]
    for d in dtypes_given[1:]:
        found = promote(found, d)
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float))]
    return result_dtype(Tensor.zeros(1, dtype=found), *numbers) if numbers else found


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether `from_` and `to` promote to `to`."""
    return promote(_dtype(from_), _dtype(to)) is _dtype(to)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Return an array in another dtype, and on another device if that is given.

    The result is `x` itself if nothing changes and `copy` is false, else a copy.
    """
    made = x.cast(dtype).to(device) if device is not None else x.cast(dtype)
    return made.clone() if copy and made is x else made


class Info:
    """Capabilities, dtypes and devices of the namespace; the standard's `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Return which optional features the namespace has; "max dimensions" None: there is no limit."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Return the name of the default device."""
        return Device.named(None)

    def devices(self) -> list[str]:
        """Return the names of devices that arrays can be made on: the default one."""
        return [self.default_device()]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the dtypes of Python numbers and of indices, the same on all devices; none is complex."""
        del device
        return {"real floating": dtypes.float32, "integral": dtypes.int64, "indexing": dtypes.int64}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """Return the dtypes of a kind (see `isdtype`) by name, alike on all devices; None: all dtypes."""
        del device
        every = {n: by_name(n) for n in NAMES}
        return every if kind is None else {n: d for n, d in every.items() if isdtype(d, kind)}
