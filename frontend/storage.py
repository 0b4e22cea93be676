"""Realized memory: the leaf that stands for one buffer, and how host data gets in and out.

A `Leaf` is one version of a buffer's contents, and what a tensor's leaf tuple holds. A write in place makes a
new leaf for the same buffer, the next version; the leaf of the version before is given a copy of the old
contents if anything still refers to it (`Home`, `frontend.realize`). So what a leaf stands for never changes,
and a buffer that a captured function writes to is the same one for good.

Not here: device memory (`hcq.memory`), when a copy is made (`realize`).
"""

from __future__ import annotations

import struct
import weakref
from array import array
from dataclasses import dataclass, replace
from itertools import count
from math import prod
from typing import TYPE_CHECKING, Any, Final

from compiler.dtype import DType, by_name, dtypes
from frontend.device import LOCK, Device, OpenDevice
from frontend.expr import leaf_expr
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    import hcq
    from frontend.expr import Expr, Leaves, Part
    from frontend.tensor_base import TensorBase

_new = object.__new__
CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
"""Codes of `struct` for each dtype; bfloat16 has none."""


class Leaf:
    """One version of the contents of one buffer. Equal only to itself."""

    __slots__ = ("__weakref__", "buffer", "home", "known", "origin")

    known: tuple[int, int] | None
    """The minimum and maximum of integers that came from the host; None when they are unknown."""

    home: Home | None
    """The buffer as a target of assigns, made by the first one; None before, and for a copy."""
    origin: Any
    """What it was moved or computed from, an `Origin`; None when no gradient flows back."""

    def __init__(self, buffer: hcq.Buffer) -> None:
        self.buffer = buffer
        self.home = None
        self.known = None
        self.origin = None


class Home:
    """A buffer that assigns are stored in, and which version of its contents is the current one.

    It refers weakly to the current leaf, whose contents are aliased exactly while it lives. A write is
    `advance`, then `keep` of the version before, then the launch that stores.
    """

    __slots__ = ("buffer", "current", "version")

    def __init__(self, buffer: hcq.Buffer, leaf: Leaf | None = None) -> None:
        self.buffer = buffer
        self.version = 0
        """How often the buffer was written in place; a claim on an older version is void."""
        self.current: weakref.ref[Leaf] | None = None if leaf is None else weakref.ref(leaf)

    def leaf(self) -> Leaf | None:
        """Return the leaf of the current contents, None when nothing refers to it."""
        return None if self.current is None else self.current()

    def advance(self) -> Leaf:
        """Return the leaf of the contents that are about to be written."""
        new = Leaf(self.buffer)
        new.home = self
        self.version += 1
        self.current = weakref.ref(new)
        return new


def home_of(leaf: Leaf) -> Home:
    """Return a leaf's buffer as a target of assigns."""
    if leaf.home is None:
        leaf.home = Home(leaf.buffer, leaf)
    return leaf.home


def keep(before: weakref.ref[Leaf] | None, device: OpenDevice) -> hcq.Buffer | None:
    """Copy-on-write: copy the contents of a buffer that is about to be written while tensors alias them.

    `before` is the version that is overwritten; the caller keeps no reference to it. Return the buffer with
    the copy, None when nothing refers to that version.
    """
    leaf = None if before is None else before()
    if leaf is None:
        return None
    leaf.buffer = device.copied(leaf.buffer)
    leaf.home = None
    return leaf.buffer


UNDERWAY: Final[set[Leaf]] = set()
"""Leaves that tensors already have while the launch that writes them is being submitted, under `LOCK`."""


NUMBERS: Final = count()
"""Of origins."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a leaf came from, kept so that gradients flow back to it.

    A part on another device, from which it was moved; or, `looked`, the part whose value was read.
    """

    number: int
    """Grows: what a leaf came from has only leaves with lesser numbers."""
    there: Expr
    """The leaf's own expression."""
    expr: Expr
    leaves: Leaves
    looked: bool = False
    spent: bool = False
    """Backward has run: `leaves` are gone, and a gradient that would flow there is refused."""

    def after(self) -> Origin:
        """Return what is left of it when backward has run."""
        return replace(self, expr=self.there, leaves=(), spent=True)


def behind(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return every leaf with an origin among some leaves and what they came from, oldest first."""
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
    """Return the part of a realized tensor that holds a copy of `data`: row-major elements.

    `known` is its minimum and maximum, for integers where the caller has them.
    """
    if len(data) != prod(shape) * dtype.itemsize:
        raise UsageError(f"{len(data)} bytes are not {prod(shape)} elements of {dtype.name}")
    opened = Device[device]
    leaf = Leaf(opened.write(data))
    leaf.known = known
    return leaf_expr(shape, dtype, opened.name), (leaf,)


def allocated(shape: tuple[int, ...], dtype: DType, device: str) -> Part:
    """Return the part of a realized tensor whose contents are undefined."""
    opened = Device[device]
    return leaf_expr(shape, dtype, opened.name), (Leaf(opened.alloc(prod(shape) * dtype.itemsize)),)


def bytes_of(t: TensorBase) -> memoryview:
    """Return the elements of a realized tensor, row-major, to be copied at once."""
    e = t.expr
    leaf = t.leaves[0]
    if leaf in UNDERWAY:
        with LOCK:  # until the launch that writes it is submitted
            pass
    buffer = leaf.buffer
    buffer.live()
    return Device[e.device].read(buffer, prod(e.shape) * e.dtype.itemsize)


# -- Python data ---------------------------------------------------------------------------------------
_PLAIN: Final = frozenset({bool, int, float})
_INT32: Final = range(dtypes.int32.min, dtypes.int32.max + 1)


def flatten(data: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the numbers of a nest of lists, and its shape; a ragged nest is refused."""
    shape: list[int] = []
    level = [data]
    while level and isinstance(level[0], (list, tuple, range)):
        n = len(level[0])
        for x in level:
            if not isinstance(x, (list, tuple, range)) or len(x) != n:
                raise UsageError(f"the lists at depth {len(shape)} differ in length; they must be equal")
        shape.append(n)
        level = [y for x in level for y in x]
    if not _PLAIN.issuperset(map(type, level)):
        level = [_plain(x) for x in level]
    return level, tuple(shape)


def _plain(x: Any) -> Any:
    """Return a number in a class of Python's own: NumPy's scalars are numbers too."""
    if type(x) in _PLAIN:
        return x
    if isinstance(x, float):
        return float(x)
    if isinstance(x, int):
        return int(x)
    found = x.item() if type(x).__module__ == "numpy" and x.ndim == 0 else None
    if type(found) not in _PLAIN:
        raise UsageError(
            f"a tensor is made of numbers, saw {x!r} of type {type(x).__name__}"
            "\nhint: Tensor.stack joins tensors, numpy.stack arrays"
        )
    return found


def dtype_of(numbers: list[Any]) -> DType:
    """Return the dtype that a list of numbers takes.

    Float32 when one is a float, else int32 or int64, bool when all are.
    """
    kinds = set(map(type, numbers))
    if float in kinds or not numbers:
        return dtypes.float32
    if kinds == {bool}:
        return dtypes.bool
    return dtypes.int32 if min(numbers) in _INT32 and max(numbers) in _INT32 else dtypes.int64


def pack(numbers: list[Any], dtype: DType) -> bytes:
    """Return Python numbers as elements; those that do not fit are refused."""
    try:
        if dtype is dtypes.bfloat16:
            from compiler.ir.uop import round_to  # noqa: PLC0415 - for one dtype only

            words = [
                struct.unpack("<I", struct.pack("<f", round_to(float(x), dtype)))[0] >> 16 for x in numbers
            ]
            return array("H", words).tobytes()
        code = CODES[dtype.name]
        if dtype.is_float or dtype is dtypes.bool:
            kind = bool if dtype is dtypes.bool else float
            return struct.pack(f"<{len(numbers)}{code}", *map(kind, numbers))
        return struct.pack(f"<{len(numbers)}{code}", *map(int, numbers))
    except (struct.error, OverflowError, ValueError) as error:
        raise UsageError(f"some number does not fit {dtype.name}: {error}") from None


def unpack(data: bytes | memoryview, dtype: DType) -> list[Any]:
    """Return elements as Python numbers."""
    if dtype is dtypes.bfloat16:
        data = bytes(data)
        return list(
            struct.unpack(
                f"<{len(data) // 2}f", b"".join([b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)])
            )
        )
    return list(struct.unpack(f"<{len(data) // dtype.itemsize}{CODES[dtype.name]}", data))


def nested(numbers: list[Any], shape: tuple[int, ...]) -> Any:
    """Return numbers as a nest of lists of a shape; a plain number for shape ()."""
    if not shape:
        return numbers[0]
    if 0 in shape:
        return [] if shape[0] == 0 or len(shape) == 1 else [nested([], shape[1:]) for _ in range(shape[0])]
    for n in reversed(shape[1:]):
        numbers = [numbers[i : i + n] for i in range(0, len(numbers), n)]
    return numbers


# -- NumPy arrays --------------------------------------------------------------------------------------
def from_numpy(data: Any) -> tuple[memoryview, tuple[int, ...], DType]:
    """Return an array as elements, shape and dtype; kinds that no dtype matches are refused."""
    name = data.dtype.name
    if name not in CODES:
        raise UsageError(f"no dtype matches the array's {name}; convert it, as with .astype('float32')")
    little = data.astype(data.dtype.newbyteorder("<"), copy=False)
    import numpy as np  # noqa: PLC0415 - a caller with an array has loaded it

    flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    return flat.data, tuple([int(n) for n in data.shape]), by_name(name)


def to_numpy(data: memoryview, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Return elements as an array that owns its memory; bfloat16 as float32, which holds it exactly."""
    import numpy as np  # noqa: PLC0415 - importing the frontend loads no NumPy

    if dtype is dtypes.bfloat16:
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype.numpy).reshape(shape).copy()
