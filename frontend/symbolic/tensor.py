"""The tensor with symbolic sizes: a tensor of the capacity, and its sizes, some of them bound variables.

Elements of the capacity tensor `whole` beyond the sizes may have any value. Reductions over a symbolic axis
leave them out, and so does reading a value. A kernel is compiled once, for the capacity. It reads the value
of each variable from memory, and its loops end there (`compiler.emit.loop_limits`), so all values use one
kernel.

Not here: the methods (`rules`), slices and indices (`keys`). Next: `sizes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType
from compiler.ir.ops import Ops
from frontend.arguments.aliases import ALIASES
from frontend.arguments.checks import axes_of
from frontend.device import DeviceName, device_name
from frontend.evaluation.base import T
from frontend.evaluation.constants import convert, coordinate, number_like, spread
from frontend.evaluation.trace import apply, composite
from frontend.symbolic.sizes import Size, Sizes, capacities, product, symbolic
from hcq.errors import UnsupportedError, UsageError, UsageTypeError

if TYPE_CHECKING:
    import numpy as np

    from frontend.variable import Bound


def _below(x: T, number: T, axis: int) -> T:
    place = coordinate(x, x.expr.shape, axis)
    return apply(Ops.LT, None, place, spread(convert(number, place.expr.dtype), x.expr.shape))


@composite
def needed(x: T, number: T, axis: int) -> T:
    """Return x where its coordinate along an axis is below a number, any value elsewhere."""
    return apply(Ops.WITHIN, None, _below(x, number, axis), x)


@composite
def filled(x: T, number: T, axis: int, value: float) -> T:
    """Return x where its coordinate along an axis is below a number, `value` elsewhere."""
    return apply(Ops.WHERE, None, _below(x, number, axis), x, number_like(x, value))


def bounded(x: Any, axes: Iterable[tuple[int, Bound]]) -> Any:
    """Return x where its coordinates along `axes`, (axis, size), are below the sizes; any value elsewhere."""
    for axis, size in axes:
        x = needed(x, size.scalar(x), axis)
    return x


def made(whole: Any, sizes: Sizes) -> Any:
    """Return a tensor of these sizes with the capacity tensor `whole`.

    `whole` itself if no size is symbolic.
    """
    axes = symbolic(sizes)
    if not axes:
        return whole
    assert whole.expr.shape == capacities(sizes), (whole.expr.shape, sizes)
    return SymbolicTensor(bounded(whole, axes), sizes)


class SymbolicTensor:
    """A lazy array of which some sizes are bound variables.

    `x[:n]` makes one. Elementwise methods, reductions, products, movements of axes, `cat` and attention
    return a `SymbolicTensor`, or a `Tensor` if no symbolic axis is left. Other methods raise
    `UnsupportedError`, unknown names `AttributeError`. `len` and iteration raise `UsageTypeError`, `bool`
    raises `UsageError`. The shape contains the bound variables. All values use one kernel and one captured
    graph.

        n = Variable("n", 1, 128)
        for i in (3, 100):
            y = x[: n.bind(i)].mean(0)          # the same kernel

    It is no view: later writes to x do not change it.
    """

    __slots__ = ("__weakref__", "sizes", "whole")
    __hash__ = object.__hash__
    __array_priority__ = 200.0
    __array_ufunc__ = None

    def __init__(self, whole: Any, sizes: Sizes) -> None:
        self.whole = whole
        self.sizes = sizes

    @property
    def shape(self) -> Sizes:
        """The size of each axis, a whole number or a bound variable."""
        return self.sizes

    @property
    def dtype(self) -> DType:
        """The element type."""
        found: DType = self.whole.expr.dtype
        return found

    @property
    def device(self) -> DeviceName:
        """The name of the device, as a tensor's."""
        return device_name(self.whole.expr.device)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.sizes)

    @property
    def T(self) -> Any:  # noqa: N802 - the field's name
        """The tensor with its axes in reverse order."""
        return self.permute(*range(len(self.sizes) - 1, -1, -1))

    def size(self, axis: int | None = None) -> Any:
        """Return the shape, or the size of one axis.

        Raises `UsageIndexError` for an axis that does not exist.
        """
        if axis is None:
            return self.sizes
        return self.sizes[axes_of(axis, self.whole.expr.shape, "size")[0]]

    def numel(self) -> Size:
        """Return the number of elements. Raises `UnsupportedError` with several symbolic axes."""
        found = product(self.sizes)
        if found is None:
            raise UnsupportedError(
                f"numel of the shape {self.sizes}: a product of bound variables is no size"
            )
        return found

    def dispatch(self, call: Callable[..., Any], args: tuple[Any, ...], names: dict[str, Any]) -> Any:
        """Return the result of a method of tensors, called with `args` that include this tensor.

        Raises `UnsupportedError` for a method without a rule, and as its rule.
        """
        name = call.__name__
        rule = type(self.whole).symbolic_rules.get(name)
        if rule is None:
            raise UnsupportedError(
                f"{name} has no form for symbolic sizes, saw the shape {self.sizes}\n"
                "hint: use it on a tensor of fixed size, with a mask of the elements that count; or bind the "
                "size outside as a plain number"
            )
        if names and not ALIASES.keys().isdisjoint(names):
            declared = "axes" if name in ("permute", "flip") else "axis"
            names = {declared if k in ("dim", "dims") else "keepdim" if k == "keepdims" else k: v
                     for k, v in names.items()}  # fmt: skip
        return rule(call, *args, **names)

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("_") else getattr(type(self.whole), name, None)
        if not callable(method):
            raise AttributeError(  # noqa: TRY004 - as Python does
                f"a tensor with symbolic sizes has no attribute {name!r}"
            )

        def call(*args: Any, **names: Any) -> Any:
            return self.dispatch(method, (self, *args), names)

        return call

    def realize(self) -> SymbolicTensor:
        """Compute the elements below the sizes; return self. Raises as `Tensor.realize`."""
        self.whole.realize()
        return self

    def values(self) -> tuple[int, ...]:
        """Return the shape in numbers; reads a variable's value from memory if the host does not have it.

        Raises as `Tensor.item` then.
        """
        found: list[int] = []
        for size in self.sizes:
            if isinstance(size, int):
                found.append(size)
            else:
                value = size.value
                found.append(int(size.scalar(self.whole).item()) if value is None else value)
        return tuple(found)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the elements as a NumPy array of the shape `values()`.

        Raises as `Tensor.numpy`.
        """
        values = self.values()
        array: np.ndarray[Any, Any] = self.whole.numpy()
        return array[tuple([slice(n) for n in values])].copy()

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers. Raises as `Tensor.numpy`."""
        values = self.values()
        return _cut(self.whole.tolist(), values)

    def item(self) -> Any:
        """Return the only element as a number. Raises `UsageError` unless there is one, and as `tolist`."""
        values = self.values()
        if any(n != 1 for n in values):
            raise UsageError(f"item() needs exactly one element, the shape {self.sizes} is {values}")
        return self.whole[(0,) * len(values)].item()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

    def __len__(self) -> int:
        raise UsageTypeError(
            f"len() is a plain number, saw the shape {self.sizes}; use .shape[0] or .values()[0]"
        )

    def __iter__(self) -> Any:
        raise UsageTypeError(f"a symbolic axis cannot be iterated over, saw the shape {self.sizes}")

    def __bool__(self) -> Any:
        raise UsageError(f"{self!r} has no truth value before it is computed; use .any().item()")

    def __getitem__(self, key: Any) -> Any:
        return self.dispatch(type(self.whole).__getitem__, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        raise UnsupportedError(
            f"writing to a tensor of the shape {self.sizes}: it is computed, and no view\n"
            "hint: write to the tensor of fixed size: x[a:n] = value, or x[n] = row"
        )

    def __repr__(self) -> str:
        e = self.whole.expr
        sizes = ", ".join([str(s) for s in self.sizes])
        return f"<SymbolicTensor {e.dtype.name}[{sizes}] of {list(e.shape)} on {e.device}>"


def _cut(lists: Any, values: tuple[int, ...]) -> Any:
    return [_cut(part, values[1:]) for part in lists[: values[0]]] if values else lists


def _operator(name: str) -> Callable[..., Any]:
    def call(self: SymbolicTensor, *args: Any) -> Any:
        return self.dispatch(getattr(type(self.whole), name), (self, *args), {})

    call.__name__ = name
    return call


_TWO: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
               "lshift", "rshift")  # fmt: skip
for _name in (*_TWO, *["r" + n for n in _TWO], "neg", "invert", "abs", "lt", "gt", "le", "ge", "eq", "ne"):
    setattr(SymbolicTensor, f"__{_name}__", _operator(f"__{_name}__"))


def shape_of(x: Any) -> Sizes:
    """Return the shape of a tensor of either kind."""
    found: Sizes = x.sizes if isinstance(x, SymbolicTensor) else x.expr.shape
    return found


def whole_of(x: Any) -> Any:
    """Return the tensor of the capacity."""
    return x.whole if isinstance(x, SymbolicTensor) else x


def is_tensor(x: Any) -> bool:
    """Return whether x is a tensor of either kind."""
    return isinstance(x, SymbolicTensor) or hasattr(x, "expr")
