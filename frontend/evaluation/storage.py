"""Realized memory: leaves, the versions of buffers, and transfer of host data.

A `Leaf` is one version of the contents of a buffer; tensors have tuples of leaves. A write in place makes a
new leaf, the next version, for the same buffer. If the leaf of the previous version is still referenced, it
gets a copy of the old contents (`Home`, `preserve`). The contents of a leaf therefore never change, although
a captured function writes to the same buffer at each replay.

Not here: device memory (`hcq.memory`). Next: `realize`, which decides when a copy is made.
"""

from __future__ import annotations

import struct
import weakref
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeVar

from compiler.dtype import DType, by_name, dtypes
from frontend.arguments.checks import FLOAT
from frontend.device import LOCK, Device, TensorDevice
from frontend.evaluation.base import TensorBase
from frontend.evaluation.expr import Leaves, Part, TensorExpr, leaf_expr
from hcq.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    import hcq

R = TypeVar("R")

CODES: Final = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
    "uint32": "I", "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
"""Name of a dtype -> its code in `struct`; bfloat16 and 8-bit floats have none."""
_NARROW: Final = {t.name for t in dtypes.all() if t.numpy is None}
"""Dtypes without a code, whose arrays the package ml_dtypes makes."""

RESULT: Final = "result of "
"""The start of the label of memory that has a captured function's result."""


class Leaf:
    """One version of the contents of one buffer. Equal only to itself."""

    __slots__ = ("__weakref__", "buffer", "call", "home", "known", "of", "origin")

    known: tuple[int, int] | None
    """The minimum and maximum of integers that were copied from the host; None: unknown."""

    home: Home | None
    """The buffer as a target of assignments; None before the first assignment, and for a copy."""
    origin: Any
    """The `LeafOrigin` from which it was moved or computed; None: no gradient flows back."""
    of: weakref.ref[TensorBase] | None
    """The tensor with requires_grad that had this leaf before a write in place; None: there is none."""
    call: Any
    """The call whose marks in a graph it tells apart (`frontend.autograd.hooks`); unset for other leaves."""

    def __init__(self, buffer: hcq.Buffer) -> None:
        self.buffer = buffer
        self.home = None
        self.known = None
        self.origin = None
        self.of = None


class Home:
    """A buffer that assignments are stored in, and the current version of its contents.

    It references the current leaf weakly: tensors use the contents as long as that leaf is alive. A write
    calls `advance`, then `preserve` for the previous version, then launches the kernels that store.
    """

    __slots__ = ("buffer", "current", "replayed", "version", "writes")

    def __init__(self, buffer: hcq.Buffer, leaf: Leaf | None = None) -> None:
        self.buffer = buffer
        self.version = 0
        """Number of writes in place."""
        self.writes = 0
        """Number of assignments, pending ones included. Not every replay is counted; see `replayed`."""
        self.replayed = False
        """Whether a captured function assigns to it."""
        self.current: weakref.ref[Leaf] | None = None if leaf is None else weakref.ref(leaf)

    def leaf(self) -> Leaf | None:
        """Return the leaf of the current contents; None if no tensor references it."""
        return None if self.current is None else self.current()

    def advance(self) -> Leaf:
        """Make a new leaf the current one, for contents that are about to be written; return it."""
        new = Leaf(self.buffer)
        new.home = self
        self.version += 1
        self.current = weakref.ref(new)
        return new


def home_of(leaf: Leaf) -> Home:
    """Return the buffer of a leaf as a target of assignments."""
    if leaf.home is None:
        leaf.home = Home(leaf.buffer, leaf)
    return leaf.home


def preserve(before: weakref.ref[Leaf] | None, device: TensorDevice) -> hcq.Buffer | None:
    """Copy-on-write: copy contents that are about to be overwritten, if tensors use them.

    `before` references the leaf of these contents weakly, None: there is none; the caller has no strong
    reference to the leaf. Return the buffer with the copy, which the leaf gets; None if nothing was copied.
    """
    leaf = None if before is None else before()
    if leaf is None:
        return None
    leaf.buffer = device.copied(leaf.buffer)
    leaf.home = None
    return leaf.buffer


UNSUBMITTED: Final[set[Leaf]] = set()
"""Leaves of tensors whose launch is not submitted yet; changed under `LOCK`."""


NUMBERS: Final = count()
"""Gives each `LeafOrigin` its number."""


@dataclass(frozen=True, slots=True)
class LeafOrigin:
    """The expression and leaves from which a leaf was made, kept so that gradients flow back to them.

    The leaf was moved from an expression on another device, or (`read`) has its value because it was read.
    """

    number: int
    """Increases with time: the leaves of an origin have only origins with smaller numbers."""
    there: TensorExpr
    """The leaf's own expression, on its own device."""
    expr: TensorExpr
    leaves: Leaves
    read: bool = False
    """Whether the leaf was made because the value was read, not by a move."""
    spent: bool = False
    """Whether backward has run: `leaves` were released; a gradient through the leaf raises `UsageError`."""

    def after(self) -> LeafOrigin:
        """Return the origin as it is after backward has run: spent, without leaves."""
        return replace(self, expr=self.there, leaves=(), spent=True)


def behind(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves with an origin among these leaves and, recursively, their origins', oldest first."""
    found: set[Leaf] = set()
    stack = list(leaves)
    while stack:
        leaf = stack.pop()
        if leaf.__class__ is Leaf and leaf.origin is not None and leaf not in found:
            found.add(leaf)
            stack += leaf.origin.leaves
    return sorted(found, key=lambda leaf: leaf.origin.number)


def stored(
    data: bytes | memoryview,
    shape: tuple[int, ...],
    dtype: DType,
    device: str,
    known: tuple[int, int] | None = None,
) -> Part:
    """Return the part of a realized tensor with a copy of `data`, its elements in row-major order.

    `known` is the minimum and maximum of integers, None if the caller does not have them. Raises `UsageError`
    when the number of bytes does not match the shape, and as `Device[device]` and `TensorDevice.write`.
    """
    if len(data) != prod(shape) * dtype.itemsize:
        raise UsageError(f"{len(data)} bytes are not {prod(shape)} elements of {dtype.name}")
    opened = Device[device]
    leaf = Leaf(opened.write(data))
    leaf.known = known
    return leaf_expr(shape, dtype, opened.name), (leaf,)


def allocated(shape: tuple[int, ...], dtype: DType, device: str) -> Part:
    """Return the part of a realized tensor, contents undefined. Raises as `Device[device]` and `alloc`."""
    opened = Device[device]
    return leaf_expr(shape, dtype, opened.name), (Leaf(opened.alloc(prod(shape) * dtype.itemsize)),)


def read(e: TensorExpr, leaf: Leaf, take: Callable[[memoryview], R]) -> R:
    """Wait for a realized value; return the result of `take`, called with its elements in row-major order.

    `take` copies the elements. It is called again if another thread meanwhile stored a later value in the
    memory. Raises as `hcq.Buffer.live` and `hcq.Point.wait`.
    """
    if leaf in UNSUBMITTED:
        with LOCK:  # wait until its launch is submitted
            pass
    device, size = Device[e.device], prod(e.shape) * e.dtype.itemsize
    while True:
        buffer = leaf.buffer
        buffer.live()
        found = take(device.read(buffer, size))
        if leaf.buffer is buffer:  # else `preserve` has moved the value
            return found


_PLAIN: Final = frozenset({bool, int, float})


def flatten(data: Any) -> tuple[list[Any], tuple[int, ...], bool]:
    """Return the numbers of nested lists, their shape, and whether all are Python's.

    Elements that are tensors of shape () are read; an array of NumPy is a list. Raises `UsageError` for lists
    of unequal length and for an element that is no number, and as `Tensor.item`.
    """
    shape: list[int] = []
    level = [data]
    while level and isinstance(level[0], (list, tuple, range)):
        n = len(level[0])
        for x in level:
            if not isinstance(x, (list, tuple, range)) or len(x) != n:
                if any(map(_is_array, level)):
                    return (*flatten(_with_lists(data))[:2], False)
                raise UsageError(f"the lists at depth {len(shape)} differ in length; they must be equal")
        shape.append(n)
        level = [y for x in level for y in x]
    if _PLAIN.issuperset(map(type, level)):
        return level, tuple(shape), True
    if any(map(_is_array, level)):
        return (*flatten(_with_lists(data))[:2], False)
    return [_plain(x) for x in level], tuple(shape), False


def _is_array(x: Any) -> bool:
    return type(x).__module__ == "numpy" and bool(x.ndim)


def _with_lists(data: Any) -> Any:
    """Return nested lists with arrays as lists."""
    if isinstance(data, (list, tuple)):
        return [_with_lists(x) for x in data]
    return data.tolist() if _is_array(data) else data


def _plain(x: Any) -> Any:
    """Return a number, a NumPy scalar or a tensor of shape () as a bool, int or float; a tensor is read.

    Raises `UsageError` for anything else.
    """
    if type(x) in _PLAIN:
        return x
    if isinstance(x, float):
        return float(x)
    if isinstance(x, int):
        return int(x)
    single = (type(x).__module__ == "numpy" or hasattr(x, "expr")) and not getattr(x, "ndim", 1)
    found = x.item() if single else None
    if type(found) not in _PLAIN:
        raise UsageError(
            f"a tensor is made of numbers, saw {'one' if hasattr(x, 'expr') else repr(x)} "
            f"of type {type(x).__name__}"
            "\nhint: Tensor.stack joins tensors, numpy.stack arrays"
        )
    return found


def dtype_of(numbers: list[Any]) -> DType:
    """Return the dtype of a list of numbers.

    It is `FLOAT` if one is a float or there are none, bool if all are bools, else int64.
    """
    kinds = set(map(type, numbers))
    if float in kinds or not numbers:
        return FLOAT[0]
    if kinds == {bool}:
        return dtypes.bool
    return dtypes.int64


def in_memory(device: TensorDevice, value: float, dtype: DType) -> Leaf:
    """Return a number in new memory. Raises as `pack` and `hcq.Device.alloc`."""
    leaf = Leaf(device.write_small(pack([value], dtype).ljust(16, b"\0")))
    leaf.known = (int(value), int(value)) if dtype.is_int else None
    return leaf


def pack(numbers: list[Any], dtype: DType) -> bytes:
    """Return Python numbers as packed little-endian elements, truncated for integer dtypes.

    A float beyond the range of its dtype becomes what `round_to` makes of it. Raises `UsageError` for an
    integer that does not fit, and for NaN and infinities as integers.
    """
    try:
        if dtype is dtypes.bfloat16:
            from compiler.ir.uop import round_to  # noqa: PLC0415 - for one dtype only

            wide = struct.pack(f"<{len(numbers)}f", *[round_to(float(x), dtype) for x in numbers])
            return array("H", [word >> 16 for word in array("I", wide)]).tobytes()
        if not dtype.computes:
            from compiler.narrow_floats import encoded  # noqa: PLC0415 - for few programs

            return bytes([encoded(float(x), dtype) for x in numbers])
        code = CODES[dtype.name]
        if dtype.is_float or dtype is dtypes.bool:
            kind = bool if dtype is dtypes.bool else float
            values = [kind(x) for x in numbers]
            try:
                return struct.pack(f"<{len(values)}{code}", *values)
            except OverflowError:
                from compiler.ir.uop import round_to  # noqa: PLC0415 - for numbers that overflow only

                return struct.pack(f"<{len(values)}{code}", *[round_to(v, dtype) for v in values])
        return struct.pack(f"<{len(numbers)}{code}", *map(int, numbers))
    except (struct.error, OverflowError, ValueError) as error:
        raise UsageError(f"some number does not fit {dtype.name}: {error}") from None


def unpack(data: bytes | memoryview, dtype: DType) -> list[Any]:
    """Return packed elements as Python numbers."""
    if dtype is dtypes.bfloat16:
        wide = array("I", [word << 16 for word in array("H", bytes(data))])
        return list(struct.unpack(f"<{len(wide)}f", wide))
    if not dtype.computes:
        from compiler.narrow_floats import values  # noqa: PLC0415 - for few programs

        return list(map(values(dtype).__getitem__, bytes(data)))
    return list(struct.unpack(f"<{len(data) // dtype.itemsize}{CODES[dtype.name]}", data))


def nested(numbers: list[Any], shape: tuple[int, ...]) -> Any:
    """Return numbers as nested lists of a shape; the number itself for shape ()."""
    if not shape:
        return numbers[0]
    if 0 in shape:
        return [] if shape[0] == 0 or len(shape) == 1 else [nested([], shape[1:]) for _ in range(shape[0])]
    for n in reversed(shape[1:]):
        numbers = [numbers[i : i + n] for i in range(0, len(numbers), n)]
    return numbers


def from_numpy(data: Any) -> tuple[memoryview, tuple[int, ...], DType]:
    """Return the bytes of a NumPy array in row-major order, its shape and dtype.

    Raises `UsageError` for an array whose dtype tensors do not have.
    """
    name = data.dtype.name
    narrow = name in _NARROW
    if name not in CODES and not narrow:
        raise UsageError(f"no dtype matches the array's {name}; convert it, as with .astype('float32')")
    little = data if narrow else data.astype(data.dtype.newbyteorder("<"), copy=False)
    import numpy as np  # noqa: PLC0415 - a caller with an array has loaded it

    flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    return flat.data, tuple([int(n) for n in data.shape]), by_name(name)


def to_numpy(data: memoryview, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return elements as a NumPy array with memory of its own; a float that NumPy lacks as float32, exactly.

    Raises `UsageError` for a shape that NumPy cannot have.
    """
    import numpy as np  # noqa: PLC0415 - importing the frontend loads no NumPy

    try:
        np.empty(0, dtype.numpy or np.float32).reshape((0, *shape))
    except ValueError as error:  # sizes beside a 0 may be any
        raise UsageError(f"NumPy has no array of the shape {shape}: {error}") from None
    if dtype.numpy is None:
        from compiler.narrow_floats import loaded  # noqa: PLC0415 - for few programs

        return loaded(data, dtype).reshape(shape)
    return np.frombuffer(data, dtype.numpy).reshape(shape).copy()
