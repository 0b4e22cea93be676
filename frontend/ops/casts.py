"""Conversion of dtypes: by value (`cast`, `float`, ...) and by bits (`bitcast`).

Not here: promotion of operands (`elementwise`). Next: `compiler.ir.ops`, the definition of CAST and BITCAST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from typing import cast as cast_type

from compiler.dtype import DType, by_name, dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import element_type, tensor
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import constant, convert, coordinate
from frontend.evaluation.trace import apply, method, named
from frontend.evaluation.views import BACK, LAYOUTS, strides, viewing
from frontend.ops.movement import reshape
from hcq.errors import UsageError

if TYPE_CHECKING:
    import builtins


def cast(self: T, dtype: DType | str) -> T:
    """Return the values in another dtype, given by itself or by name; self if it has that dtype.

    Floats to integers truncate and saturate, and NaN gives 0. Integers to narrower integers wrap around. A
    bool is whether the value is not 0. An 8-bit float, such as float8_e4m3fn, is stored, moved, compared by
    `==` and multiplied as a matrix; convert it for all else.

        Tensor([1.7, -1.7]).cast("int32")      # [1, -1]

    Raises `UsageError` for an unknown name and None, `UsageTypeError` for any other object.
    """
    return self if self.expr.dtype is dtype else _cast(self, _wanted(dtype, "cast"))


def _cast(x: T, dtype: DType) -> T:
    return x if x.expr.dtype is dtype else _converted(x, dtype)


@method
def _converted(self: T, dtype: DType) -> T:
    return convert(self, dtype)


def bitcast(self: T, dtype: DType | str) -> T:
    """Return the same bits in another dtype, given by itself or by name; self if it has that dtype.

    In a smaller dtype the last axis has more elements, in a larger one fewer; the lowest bits come first.

    Raises `UsageError` for a last axis that does not divide into larger elements, for shape () and another
    size, and for a bool and a dtype of another size; and as `cast`.
    """
    wanted = _wanted(dtype, "bitcast")
    return self if self.expr.dtype is wanted else _bits(self, wanted)


@method
def _bits(self: T, dtype: DType) -> T:
    old, new = self.expr.dtype.bits, dtype.bits
    if old == new or dtypes.bool in {self.expr.dtype, dtype}:
        return apply(Ops.BITCAST, dtype, self)
    shape = self.expr.shape
    ratio = max(old, new) // min(old, new)
    if not shape or (new > old and shape[-1] % ratio):
        raise UsageError(
            f"bitcast of {self.expr.dtype.name}{list(shape)} to {dtype.name}: the last axis must be a whole "
            f"number of {ratio} elements"
        )
    narrow, wide = (by_name(f"uint{n}") for n in sorted((old, new)))
    bits = apply(Ops.BITCAST, by_name(f"uint{old}"), self) if self.expr.dtype.kind != "uint" else self
    if new < old:
        square = (*shape, ratio)
        each = apply(Ops.EXPAND, square, apply(Ops.RESHAPE, (*shape, 1), bits))
        moved = apply(Ops.SHR, None, each, _shifts(self, square, wide, new))
        mask = constant(self, (1 << new) - 1, wide, square)
        found = convert(apply(Ops.AND, None, moved, mask), narrow)
        found = apply(Ops.RESHAPE, (*shape[:-1], shape[-1] * ratio), found)
    else:
        square = (*shape[:-1], shape[-1] // ratio, ratio)
        each = apply(Ops.RESHAPE, square, convert(bits, wide))
        moved = apply(Ops.SHL, None, each, _shifts(self, square, wide, old))
        found = apply(Ops.REDUCE, (Ops.ADD, (len(shape),)), moved)
    return found if dtype.kind == "uint" else apply(Ops.BITCAST, dtype, found)


def _shifts(like: T, shape: tuple[builtins.int, ...], dtype: DType, bits: builtins.int) -> T:
    """Return for each element the shift in bits of its part: its index along the last axis times `bits`."""
    place = convert(coordinate(like, shape, len(shape) - 1), dtype)
    return apply(Ops.MUL, None, place, constant(like, bits, dtype, shape))


def _wanted(dtype: DType | str, what: str) -> DType:
    found = element_type(dtype)
    if found is None:
        raise UsageError(f"{what}: wanted a dtype such as dtypes.float32, or its name, saw None")
    return found


def view(self: T, *shape: builtins.int | Sequence[builtins.int] | DType) -> T:
    """Return self in another shape, as `reshape`, or for a dtype its bits, as `bitcast`. Raises as they.

    Both are views. Bits of another size are a copy where the last axis is not contiguous.
    """
    wanted: Any = shape[0] if len(shape) == 1 else None
    if not isinstance(wanted, DType):
        return reshape(self, *cast_type("Any", shape))
    old = self.expr.dtype
    if wanted is old or (wanted.bits != old.bits and (not self.expr.shape or strides(self)[-1] != 1)):
        return bitcast(self, wanted)
    return _viewed_bits(self, wanted, old)


@viewing
def _viewed_bits(self: T, dtype: DType, old: DType) -> T:  # noqa: ARG001 - what is written to it is of that dtype
    return _bits(self, dtype)


def _layout_of_bits(
    shape: tuple[builtins.int, ...], apart: tuple[builtins.int, ...], dtype: DType, old: DType
) -> tuple[tuple[builtins.int, ...], tuple[builtins.int, ...]]:
    """Return the shape and the strides of the bits of a tensor, in elements of the new dtype."""
    if dtype.bits == old.bits:
        return shape, apart
    lengths, steps = shape[-1] * old.bits // dtype.bits, [n * old.bits // dtype.bits for n in apart[:-1]]
    return (*shape[:-1], lengths), (*steps, 1)


LAYOUTS[_viewed_bits] = _layout_of_bits
BACK[_viewed_bits] = lambda _parent, value, _dtype, old: _bits(value, old)


def _to(name: str, dtype: DType, text: str = "") -> Callable[[T], T]:
    def function(self: T) -> T:
        return cast(self, dtype)

    plain = f"Return the values as {dtype.name}{', truncated' if dtype.is_int else ''}."
    return named(name, text or plain, function)


float = _to("float", dtypes.float32)
double = _to("double", dtypes.float64)
half = _to("half", dtypes.float16)
bfloat16 = _to("bfloat16", dtypes.bfloat16)
int = _to("int", dtypes.int32)
long = _to("long", dtypes.int64)
bool = _to("bool", dtypes.bool, "Return where values are not zero.")
short = _to("short", dtypes.int16)
char = _to("char", dtypes.int8)
byte = _to("byte", dtypes.uint8)


def type_as(self: T, other: TensorBase) -> T:
    """Return the values in the dtype of another tensor. Raises `UsageTypeError` for no tensor."""
    tensor(other, "type_as", self)
    return cast(self, other.expr.dtype)


TYPES: Final = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
}  # fmt: skip
"""Dtype -> its name in PyTorch's names of types, as "torch.FloatTensor"."""


def type(self: T, dtype: Any = None) -> T | str:
    """Return the values in another dtype, as `cast`, or of a type as `FloatTensor`; None: return its name."""
    if dtype is None:
        kind, place = self.expr.dtype.name, "cuda." * (self.expr.device[:3] != "cpu")
        return f"torch.{place}{TYPES.get(kind, kind)}Tensor"
    text = dtype if isinstance(dtype, str) else f"torch.{getattr(dtype, '__name__', '')}"
    return cast(self, next((kind for kind, name in TYPES.items() if text == f"torch.{name}Tensor"), dtype))
