"""Element types: singletons compared by identity, and the promotion of two types.

A type has the name of NumPy's dtype, so that this module does not import NumPy.

Not here: LLVM's types (`compiler.text.llvm_ir`). Next: `compiler.ir.uop`, nodes with a dtype;
`frontend.ops.elementwise`, the operands that take part in a promotion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type. There is one object for each, so `is` compares types."""

    name: str
    bits: int
    """Bits of a value: 1 for bool, 64 for an index, 0 for void."""
    kind: Kind
    itemsize: int
    """Bytes of one element in memory; a bool is one byte with the value 0 or 1."""
    numpy: str | None
    """NumPy's name of the type; None for one that NumPy lacks (its arrays are unsigned integers)."""
    computes: bool = True
    """Whether the type has arithmetic; one without is stored, moved, compared by `==` and converted."""
    is_float: bool = field(init=False)
    """Whether values are floating point."""
    is_int: bool = field(init=False)
    """Whether values are signed or unsigned integers; bool is not an integer type."""
    is_signed: bool = field(init=False)
    is_complex: ClassVar[bool] = False
    """PyTorch's names: whether there are negative numbers, and that no type is complex."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind == "float")  # read for every node
        object.__setattr__(self, "is_int", self.kind in ("int", "uint"))
        object.__setattr__(self, "is_signed", self.kind in ("int", "float"))

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a type of floats: PyTorch's name of `is_float`."""
        return self.is_float

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __str__(self) -> str:
        """Return the text that PyTorch prints, "torch.float32", which programs take apart."""
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.name,)

    @property
    def min(self) -> int:
        """The smallest value of an integer type or bool. Raises `UsageError` for floats."""
        self._integral("min")
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max(self) -> int:
        """The largest value of an integer type or bool. Raises `UsageError` for floats."""
        self._integral("max")
        return (1 << (self.bits - (self.kind == "int"))) - 1

    def _integral(self, what: str) -> None:
        if self.kind == "float":
            raise UsageError(f"{self.name} has no integer {what}; only integer types and bool have one")


class dtypes:  # noqa: N801 - the field's name for this namespace
    """All element types. `index` is the type of index arithmetic in kernels: 64 bits, never stored."""

    bool_: Final = DType("bool", 1, "bool", 1, "bool")
    bool: Final = bool_
    int8: Final = DType("int8", 8, "int", 1, "int8")
    int16: Final = DType("int16", 16, "int", 2, "int16")
    int32: Final = DType("int32", 32, "int", 4, "int32")
    int64: Final = DType("int64", 64, "int", 8, "int64")
    uint8: Final = DType("uint8", 8, "uint", 1, "uint8")
    uint16: Final = DType("uint16", 16, "uint", 2, "uint16")
    uint32: Final = DType("uint32", 32, "uint", 4, "uint32")
    uint64: Final = DType("uint64", 64, "uint", 8, "uint64")
    float16: Final = DType("float16", 16, "float", 2, "float16")
    bfloat16: Final = DType("bfloat16", 16, "float", 2, None)
    float32: Final = DType("float32", 32, "float", 4, "float32")
    float64: Final = DType("float64", 64, "float", 8, "float64")
    float8_e4m3fn: Final = DType("float8_e4m3fn", 8, "float", 1, None, computes=False)
    float8_e5m2: Final = DType("float8_e5m2", 8, "float", 1, None, computes=False)
    float8_e4m3fnuz: Final = DType("float8_e4m3fnuz", 8, "float", 1, None, computes=False)
    float8_e5m2fnuz: Final = DType("float8_e5m2fnuz", 8, "float", 1, None, computes=False)
    index: Final = DType("index", 64, "int", 8, "int64")
    void: Final = DType("void", 0, "uint", 0, None)
    """The type of nodes that have no value: STORE and SINK."""

    @staticmethod
    def all() -> Iterator[DType]:
        """Return all types that a tensor can have: neither `index` nor `void`."""
        return iter(_TENSOR)


FLOAT8: Final = (
    dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e4m3fnuz, dtypes.float8_e5m2fnuz,
)  # fmt: skip
"""The types of 8-bit floats; `compiler.narrow_floats` has their values."""
_TENSOR: Final = (
    dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64,
    dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64,
    dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, *FLOAT8,
)  # fmt: skip
_KERNEL: Final = {t.name: t for t in (*_TENSOR, dtypes.index, dtypes.void)}
_OTHER_NAMES: Final = {
    "half": dtypes.float16, "float": dtypes.float32, "double": dtypes.float64,
    "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32, "long": dtypes.int64,
    "byte": dtypes.uint8, "bool_": dtypes.bool,
}  # fmt: skip
"""PyTorch's short names."""
_SIGNED: Final = {8: dtypes.int16, 16: dtypes.int32, 32: dtypes.int64, 64: dtypes.float64}


def by_name(name: str) -> DType:
    """Return the type with a name, or with PyTorch's short name. Raises `UsageError` if there is none."""
    found = _KERNEL.get(name) or _OTHER_NAMES.get(name)
    if found is None:
        raise UsageError(
            f"no element type is called {name!r}; there are: {', '.join([t.name for t in _TENSOR])}"
        )
    return found


def promote(a: DType, b: DType) -> DType:
    """Return the type of an operation on two types.

    bool promotes to any integer type, and integers promote to any float type. Two floats give the wider one;
    float16 and bfloat16 give float32. A signed and an unsigned integer give a signed type with the values of
    both; with uint64 they give float64. Raises `UsageError` for an 8-bit float and another type.
    """
    if a is b:
        return a
    if not (a.computes and b.computes):
        raise UsageError(
            f"8-bit floats do not promote: saw {a.name} and {b.name}; convert one, as with .float()"
        )
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.kind == "float" or b.kind == "float":
        if a.kind != "float":
            return b
        if b.kind != "float":
            return a
        return dtypes.float32 if a.bits == b.bits else max((a, b), key=lambda t: t.bits)
    if a.kind == b.kind:
        return max((a, b), key=lambda t: t.bits)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return signed if signed.bits > unsigned.bits else _SIGNED[unsigned.bits]


def computing(dtype: DType, what: str) -> DType:
    """Return `dtype`. Raises `UsageError` if it has no arithmetic; `what` names the operation."""
    if not dtype.computes:
        raise UsageError(
            f"{what}: {dtype.name} is stored, not computed with; convert it, as with .float(), and back"
        )
    return dtype


HALF: Final = (dtypes.float16, dtypes.bfloat16)
NARROW: Final = (*HALF, *FLOAT8)
"""The types whose values are in float32 registers."""
_REGISTERS: Final = {**dict.fromkeys(NARROW, dtypes.float32), dtypes.index: dtypes.int64}


def register_type(dtype: DType) -> DType:
    """Return the dtype of the register that holds a value.

    It is float32 for floats of 8 and 16 bits, int64 for an index, and the dtype itself for all others.
    """
    return _REGISTERS.get(dtype, dtype)


def storage_type(dtype: DType) -> DType:
    """Return the dtype of loads and stores of a value.

    It is uint8 for bool and 8-bit floats, uint16 for bfloat16, else its own.
    """
    if dtype is dtypes.bool or not dtype.computes:
        return dtypes.uint8
    return dtypes.uint16 if dtype is dtypes.bfloat16 else dtype
