"""Indexing: slices with steps, whole numbers, None, Ellipsis and integer tensors.

`x[key]` becomes flips, shrinks and reshapes; integer tensors become one GATHER. Several integer tensors
follow PyTorch: a whole number or a tensor of shape () removes its axis first, so `x[0, :, [0, 1]]` is
`x[0][:, [0, 1]]`. NumPy treats the 0 as an index array instead. An index out of range raises
`UsageIndexError` if the host knows its value, or under `HCQ_VALIDATE=1` (`frontend.evaluation.limits`);
otherwise it reads 0.

A bool tensor, or list, selects the elements where it is true; the number of them must be known, so it is
computed and read. Shapes that do not broadcast raise `UsageError`.

Not here: methods with an index along one axis (`gather_scatter`). Next: `writing`, `x[key] = value`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from compiler.dtype import dtypes
from compiler.ir.ops import Ops
from frontend.arguments.checks import Shape, broadcast, whole, whole_or_none
from frontend.evaluation.base import T, TensorBase
from frontend.evaluation.constants import convert, coordinate, spread
from frontend.evaluation.limits import IndexLimit, limited, refuse_known
from frontend.evaluation.plan import refuse
from frontend.evaluation.trace import apply, composite
from frontend.evaluation.views import BACK, share
from frontend.later import later
from frontend.ops.creation import part_of_data
from frontend.ops.elementwise import add, gt, lt, mul, sub, where
from hcq.errors import UnsupportedError, UsageError, UsageIndexError

if TYPE_CHECKING:
    from frontend.arguments.checks import Shape


@dataclass(frozen=True, slots=True)
class Moving:
    """`size` elements of an axis from a bound variable on; `drop` removes the axis."""

    axis: int
    start: Any
    size: int
    drop: bool


def symbolic_slice(p: slice) -> bool:
    """Return whether the size of a slice depends on a bound variable."""
    if hasattr(p.start, "scalar"):
        return not hasattr(p.stop, "scalar") or p.stop.beyond(p.start) is None
    return hasattr(p.stop, "beyond")


def has_symbolic_size(key: Any) -> bool:
    """Return whether a key has a slice whose size depends on a bound variable."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(p, slice) and symbolic_slice(p) for p in parts)


def moving_parts(key: Any, shape: Shape) -> tuple[list[Moving], tuple[Any, ...]]:
    """Return the parts of a key that start at bound variables, and the rest of the key.

    In the rest a slice is replaced by the whole axis, and a variable by 0. Raises `UsageError` for a slice
    that does not run from a variable to the same plus a number, and for one that may leave the axis.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    axis = 0
    found: list[Moving] = []
    for i, p in enumerate(parts):
        if p is None:
            continue
        if p is Ellipsis:
            axis += len(shape) - sum([1 for q in parts if q is not None and q is not Ellipsis])
            continue
        is_slice = isinstance(p, slice)
        if hasattr(p, "scalar") or (is_slice and (hasattr(p.start, "scalar") or hasattr(p.stop, "scalar"))):
            found.append(_moving_part(p, axis, shape))
            parts[i] = slice(None) if is_slice else 0
        axis += 1
    return found, tuple(parts)


def _moving_part(p: Any, axis: int, shape: Shape) -> Moving:
    if axis >= len(shape):
        raise UsageError(f"an index for axis {axis}: the shape {shape} has only {len(shape)} axes")
    start, size = p, 1
    if isinstance(p, slice):
        start = p.start
        both = hasattr(start, "scalar") and hasattr(p.stop, "scalar")
        wide = p.stop.beyond(start) if both else None
        if wide is None or wide < 0 or p.step not in {None, 1}:
            raise UsageError(f"axis {axis}: {p} must run from a bound variable to the same plus a number")
        size = wide
    n = shape[axis]
    if start.low < 0 or start.high + size > n:
        raise UsageError(
            f"axis {axis}: {start} to {start} + {size} reaches {start.low}..{start.high + size} of {n}"
        )
    return Moving(axis, start, size, drop=not isinstance(p, slice))


def take_moving(x: T, key: Any) -> tuple[T, Any]:
    """Return x with the parts at bound variables taken, and the rest of the key for it."""
    found, rest = moving_parts(key, x.expr.shape)
    if not found:
        return x, key
    for m in found:
        x = take_from(x, m.start.scalar(x), m.size, m.axis)
    return x, rest


def _places(start: T, n: int) -> T:
    """Return the coordinates of an axis of n elements in the dtype of `start`, int64 where that lacks one."""
    place = coordinate(start, (n,), 0)
    return convert(place, start.expr.dtype) if n <= start.expr.dtype.max else place


@composite
def take_from(x: T, start: T, size: int, axis: int) -> T:
    """Return `size` elements of an axis from `start` on; those outside the axis are 0."""
    return apply(Ops.GATHER, axis, x, add(_places(start, size), start))


@composite
def place_at(x: T, value: T, start: T, axis: int) -> T:
    """Return value, whose axis is shorter than that of x, at `start` of an axis as long, with 0 outside."""
    return apply(Ops.GATHER, axis, value, sub(_places(start, x.expr.shape[axis]), start))


@composite
def only_at(x: T, new: T, start: T, size: int, axis: int) -> T:
    """Return the elements of new for start <= i < start + size of an axis, those of x elsewhere."""
    n = x.expr.shape[axis]
    place = _places(start, n)  # compared with numbers, by which a kernel's loops begin and end
    inside = mul(lt(place, add(start, size)), lt(add(start, -1), place))
    shape = tuple([n if i == axis else 1 for i in range(len(x.expr.shape))])
    return where(apply(Ops.RESHAPE, shape, inside), new, x)


def is_mask(part: Any, like: TensorBase) -> bool:
    """Return whether a part of a key is a bool tensor."""
    return part.__class__ is like.__class__ and part.expr.dtype is dtypes.bool


def places_of(mask: T) -> list[T]:
    """Return a tensor for each axis of a mask: the coordinates where it is true, in row-major order.

    Computes the mask and waits for it. Raises `UsageError` inside a captured function.
    """
    refuse(
        "a bool tensor as index inside a captured function: the size depends on values, and a replay has "
        "one size\nhint: where and masked_fill keep the shape; nonzero and masked_select accept size="
    )
    known: Any = mask
    kind: Any = mask.__class__
    found = known.numpy().nonzero() if mask.expr.shape else ()
    return [kind(at, device=mask.expr.device) for at in found]


def unmasked(x: TensorBase, key: Any) -> Any:
    """Return a key with each mask replaced by integer tensors, one for each axis that it covers.

    Raises `UsageIndexError` for a mask whose sizes are not those of these axes.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    if not any(is_mask(p, x) for p in parts):
        return key
    shape = x.expr.shape
    ranks = [_rank(p, x) for p in parts]
    found: list[Any] = []
    axis = 0
    for p, rank in zip(parts, ranks, strict=True):
        if is_mask(p, x):
            _check(p, shape, axis)
            found += places_of(p)
        else:
            found.append(p)
        axis += len(shape) - sum(ranks) if p is Ellipsis else rank
    return tuple(found)


def with_places(x: TensorBase, key: Any) -> tuple[Shape, Any]:
    """Return the shape of x with an axis of size 1 for each bool and mask of shape () of a key, and the key.

    There each of them selects the only element, or none.
    """
    parts = key if key.__class__ is tuple else (key,)
    scalars = [p.__class__ is bool or (is_mask(p, x) and not p.expr.shape) for p in parts]
    if True not in scalars:
        return x.expr.shape, key
    ranks = [0 if scalar else _rank(p, x) for p, scalar in zip(parts, scalars, strict=True)]
    shape, rest, axis = list(x.expr.shape), list(parts), 0
    for i, p in enumerate(parts):
        if scalars[i]:
            shape.insert(axis, 1)
            known = part_of_data([0] * p, dtypes.int64, x.expr.device) if p.__class__ is bool else None
            rest[i] = apply(Ops.RESHAPE, (1,), p) if known is None else x.of_part(known)
        axis += max(0, len(x.expr.shape) - sum(ranks)) if p is Ellipsis else scalars[i] + ranks[i]
    return tuple(shape), tuple(rest)


def _rank(part: Any, x: TensorBase) -> int:
    """Return how many axes a part of a key covers, 0 for `...`."""
    return len(part.expr.shape) if is_mask(part, x) else int(part is not None and part is not Ellipsis)


def _check(mask: TensorBase, shape: Shape, axis: int) -> None:
    own = mask.expr.shape
    if own != shape[axis : axis + len(own)]:
        raise UsageIndexError(
            f"a mask of shape {own} at axis {axis} of {shape}: wanted {shape[axis : axis + len(own)]}"
        )


writing = later("frontend.ops.writing")  # it imports this module


class Cut(NamedTuple):
    """The part of one axis that an entry of a key selects: `count` indices begin, begin + step, ...

    `step` may be negative. `drop` removes the axis: the entry was one whole number.
    """

    begin: int
    count: int  # type: ignore[assignment]  # not the method of a tuple
    step: int
    drop: bool


NUMBERS: Final = frozenset({int, type(None)})
"""Classes of the usual bounds of a slice."""
PARTS: Final = (TensorBase, slice, list, tuple, range, type(None), type(...))
"""Classes of entries that make a list a tuple of indices, as in PyTorch; arrays of NumPy do, too."""
MOST_PARTS: Final = 32
Entry = Cut | None | int
"""A cut of the next axis; None: a new axis of size 1; an int: the number of the next axis's index tensor."""


def entries_of(key: Any, shape: Shape, cls: type) -> tuple[list[Entry], list[Any]]:
    """Return the entries of a key, one for each axis of a shape and each new axis, and the index tensors.

    Index tensors are of the class `cls`. Raises `UsageIndexError` for too many indices, two `...`, an index
    out of range and one of another type; `UsageError` for a step of 0.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    used = sum([1 for p in parts if p is not None and p is not Ellipsis])
    if sum([1 for p in parts if p is Ellipsis]) > 1:
        raise UsageIndexError(f"an index has at most one ..., saw {_shown(key)}")
    if used > len(shape):
        raise UsageIndexError(f"{used} indices for the shape {shape}: it has only {len(shape)} axes")
    fill = [slice(None)] * (len(shape) - used)
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    parts[at : at + 1] = fill
    entries: list[Entry] = []
    tensors: list[Any] = []
    axis = 0
    for p in parts:
        if p is None:
            entries.append(None)
            continue
        if p.__class__ is cls:
            entries.append(len(tensors))
            tensors.append(p)
        else:
            entries.append(_cut(p, shape[axis], axis))
        axis += 1
    return entries, tensors


def _shown(key: Any) -> str:
    return repr(key) if len(repr(key)) < 100 else f"{type(key).__name__} of {len(key)}"


def _cut(p: Any, n: int, axis: int) -> Cut:
    if isinstance(p, slice):
        for bound in (p.start, p.stop, p.step):
            if bound is not None:
                whole(bound, f"slice of axis {axis}")
        if p.step == 0:
            raise UsageError(f"axis {axis}: the step of a slice must not be 0")
        begin, end, step = p.indices(n)
        return Cut(begin, len(range(begin, end, step)), step, drop=False)
    index = whole_or_none(p)
    if index is None:
        raise UsageIndexError(
            f"index of axis {axis}: wanted a whole number, slice, None, ... or integer tensor, saw {p!r}"
        )
    if not -n <= index < n:
        raise UsageIndexError(f"index {index} of axis {axis} is outside its {n} elements")
    return Cut(index % n, 1, 1, drop=True)


def _take(x: T, cuts: list[Cut]) -> T:
    """Apply one cut to each axis; axes to drop stay with size 1."""
    shape = x.expr.shape
    flips = tuple([i for i, c in enumerate(cuts) if c.step < 0 and shape[i] > 1])
    x = apply(Ops.FLIP, flips, x)
    begins = [n - 1 - c.begin if c.step < 0 else c.begin for c, n in zip(cuts, shape, strict=True)]
    steps = [abs(c.step) for c in cuts]
    spans = [(c.count - 1) * s + 1 if c.count else 0 for c, s in zip(cuts, steps, strict=True)]
    begins = [b if s else 0 for b, s in zip(begins, spans, strict=True)]
    x = apply(Ops.SHRINK, tuple([(b, b + s) for b, s in zip(begins, spans, strict=True)]), x)
    axes = tuple([i for i, (s, c) in enumerate(zip(steps, cuts, strict=True)) if s > 1 and c.count > 1])
    if axes:
        ones = (1,) * len(axes)
        x = apply(Ops.WINDOW, (axes, ones, tuple([steps[a] for a in axes]), ones), x)
        x = apply(Ops.RESHAPE, x.expr.shape[: len(shape)], x)
    return x


def getitem(self: T, key: Any) -> T:
    """Return self[key]; the module lists the entries of a key.

    It is a view, unless the key holds tensors, masks or a slice with a negative step. Raises
    `UsageIndexError` for too many indices, an index out of range, one of another type, index tensors that do
    not broadcast, and a mask of other sizes. Raises `UsageError` for a step of 0, and for a mask inside a
    captured function.
    """
    found, view = _item(self, key)
    if view and self.epoch:
        share(self, found, item, (parts_of(key),))
    return found


def item(self: T, key: Any) -> T:
    """Return self[key], never as a view."""
    return _item(self, key)[0]


def _put(parent: T, value: T, key: Any) -> T:
    """Return the new value of a tensor whose view of a key gets a value."""
    found: T = writing.written(parent, key, value)
    return found


BACK[item] = _put


def _item(self: T, key: Any) -> tuple[T, bool]:
    """Return self[key], and whether it is a view: it does not depend on values of tensors."""
    key = parts_of(key)
    if key.__class__ is not int and _is_symbolic(key):
        return _symbolic_item(self, key), False
    shape, key = with_places(self, with_tensors(self, key))
    if shape != self.expr.shape:  # a view of self would be one more reader of it
        self = apply(Ops.RESHAPE, shape, self)
    x, key = take_moving(self, unmasked(self, key))
    entries, tensors = entries_of(key, x.expr.shape, self.__class__)
    if tensors:
        refuse_outside("index", x.expr.shape, entries, tensors)
    backwards = any(e.__class__ is Cut and e.step < 0 for e in entries)
    return part_of(x, tuple(entries), *tensors), not tensors and not backwards


def _is_symbolic(key: Any) -> bool:
    """Return whether a key has symbolic sizes: a slice with one, or a tensor with some."""
    for p in key if key.__class__ is tuple else (key,):
        if p.__class__ is slice:
            if p.start.__class__ in NUMBERS and p.stop.__class__ in NUMBERS:
                continue
            if has_symbolic_size(p):
                return True
        elif hasattr(p, "dispatch"):
            return True
    return False


def _symbolic_item(x: T, key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if not any(hasattr(p, "dispatch") for p in parts):
        return x.symbolic_rules["part_of"](x, x.expr.shape, key)
    if hasattr(key, "dispatch"):
        return key.dispatch(item, (x, key), {})
    raise UnsupportedError(
        "an index tensor with symbolic sizes stands alone\nhint: index in two steps: x[index][:, key]"
    )


def parts_of(key: Any) -> Any:
    """Return a list of fewer than 32 entries as a tuple where one is no number: `x[[a, 0]]` is `x[a, 0]`."""
    if key.__class__ is not list or len(key) >= MOST_PARTS:
        return key
    arrays = [type(p).__module__ == "numpy" and hasattr(p, "__len__") for p in key]
    return tuple(key) if True in arrays or any(isinstance(p, PARTS) for p in key) else key


def with_tensors(x: TensorBase, key: Any) -> Any:
    """Return a key with lists, nested tuples, ranges and NumPy arrays made tensors; uint8 becomes bool."""
    if isinstance(key, tuple):
        return tuple([_with_tensor(x, k) for k in key])
    return _with_tensor(x, key)


def _with_tensor(x: TensorBase, part: Any) -> Any:
    if isinstance(part, (list, tuple, range)):
        found = x.operand(part) if part else None
        if found is None or not prod(found.expr.shape):
            shape = (0,) if found is None else found.expr.shape
            return apply(Ops.RESHAPE, shape, x.of_part(part_of_data([], dtypes.int64, x.expr.device)))
        return found
    part = x.operand(part) if type(part).__module__ == "numpy" else part
    if part.__class__ is x.__class__ and part.expr.dtype is dtypes.uint8:
        return convert(part, dtypes.bool)  # PyTorch's masks of former times
    return part


def refuse_outside(what: str, shape: Shape, entries: list[Entry], tensors: list[Any]) -> None:
    """Raise `UsageIndexError` if the host knows a value of an index tensor, and it is out of range."""
    axes = [e for e in entries if e is not None]
    for axis, e in enumerate(axes):
        if isinstance(e, int):
            refuse_known(tensors[e], limit_of(what, axis, shape[axis]))


@composite
def part_of(self: T, entries: tuple[Entry, ...], *tensors: T) -> T:
    """Return the elements that the entries of a key select."""
    axes = [e for e in entries if e is not None]
    whole_axis = [Cut(0, n, 1, drop=False) for n in self.expr.shape]
    cuts = [e if isinstance(e, Cut) else whole_axis[i] for i, e in enumerate(axes)]
    x = _take(self, cuts)
    shape: list[int] = []
    places: list[int] = []
    sizes = iter(x.expr.shape)
    for e in entries:
        if e is None:
            shape.append(1)
            continue
        n = next(sizes)
        if isinstance(e, Cut) and e.drop:
            continue
        if isinstance(e, int):
            places.append(len(shape))
        shape.append(n)
    x = apply(Ops.RESHAPE, tuple(shape), x)
    every = [wrapped(t, shape[a], "index", a) for t, a in zip(tensors, places, strict=True)]
    for t, a in reversed([*zip(every, places, strict=True)]):
        if not t.expr.shape:
            x = apply(Ops.GATHER, a, x, t)
    single = [a for t, a in zip(every, places, strict=True) if not t.expr.shape]
    left = [(t, a - sum([s < a for s in single])) for t, a in zip(every, places, strict=True) if t.expr.shape]
    return _gather_axes(x, [a for _, a in left], [t for t, _ in left]) if left else x


def _gather_axes(x: T, axes: list[int], tensors: list[T]) -> T:
    """Return x indexed on several axes by tensors that broadcast together: one GATHER on the flattened axes.

    The indices count from the front. If the axes are neighbours, the new axes replace them; else the new axes
    come first.
    """
    shape = x.expr.shape
    sizes = [shape[a] for a in axes]
    common = broadcast([t.expr.shape for t in tensors], "index tensors", UsageIndexError)
    if prod(sizes) > dtypes.int32.max:
        tensors = [convert(t, dtypes.int64) if t.expr.dtype is dtypes.int32 else t for t in tensors]
    index: T | None = None
    inside: T | None = None
    for t, n in zip(tensors, sizes, strict=True):
        one = spread(t, common)
        index = one if index is None else add(mul(index, n), one)
        if len(tensors) > 1:
            fits = mul(lt(one, n), gt(one, -1))
            inside = fits if inside is None else mul(inside, fits)
    assert index is not None  # there is at least one tensor
    if inside is not None:
        index = where(inside, index, prod(sizes))
    neighbours = axes == list(range(axes[0], axes[0] + len(axes)))
    first = axes[0] if neighbours else 0
    others = [i for i in range(len(shape)) if i not in axes]
    order = (*others[:first], *axes, *others[first:])
    x = apply(Ops.PERMUTE, order, x)
    moved = x.expr.shape
    x = apply(Ops.RESHAPE, (*moved[:first], prod(sizes), *moved[first + len(axes) :]), x)
    return apply(Ops.GATHER, first, x, index)


def limit_of(what: str, axis: int, n: int) -> IndexLimit:
    """Return the limits of an index along an axis of n elements; negative ones count from the end."""
    return IndexLimit(f"{what}, axis {axis}", -n, n)


def wrapped(index: T, n: int, what: str, axis: int) -> T:
    """Return indices along an axis of n elements, negative ones counted from the end, as int32 or int64."""
    dtype = index.expr.dtype
    if not dtype.is_int:
        raise UsageIndexError(f"an index tensor must hold integers, saw {dtype.name}; cast it")
    index = limited(index, limit_of(what, axis, n))
    if dtype not in (dtypes.int32, dtypes.int64):
        index = convert(index, dtypes.int64 if dtype.bits >= 32 else dtypes.int32)
    if n > dtypes.int32.max:
        index = convert(index, dtypes.int64)
    if dtype.kind == "uint":
        return index
    return where(lt(index, 0), add(index, n), index)


def interleaved(x: T, axis: int, step: int, low: int, n: int) -> T:
    """Return x with step - 1 zeros between the elements of an axis, and `low` in front: n elements in all."""
    shape = x.expr.shape
    count, rank = shape[axis], len(shape)
    if step > 1 and count > 1:
        x = apply(Ops.RESHAPE, (*shape[: axis + 1], 1, *shape[axis + 1 :]), x)
        x = apply(Ops.PAD, (*[(0, 0)] * (axis + 1), (0, step - 1), *[(0, 0)] * (rank - axis - 1)), x)
        x = apply(Ops.RESHAPE, (*shape[:axis], count * step, *shape[axis + 1 :]), x)
        span = (count - 1) * step + 1
        x = apply(
            Ops.SHRINK, tuple([(0, span) if i == axis else (0, m) for i, m in enumerate(x.expr.shape)]), x
        )
    span = x.expr.shape[axis]
    return apply(Ops.PAD, tuple([(low, n - low - span) if i == axis else (0, 0) for i in range(rank)]), x)
