"""Operators that move elements: shapes, slices, joins, gathers and scatters.

Next: `table`. Raises `UsageError` for axes, indices and sizes that do not fit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from frontend.onnx.elementwise import to_type
from frontend.onnx.values import (
    SMALL,
    as_array,
    as_tensor,
    axes_in,
    axis_in,
    cast,
    cat,
    dtype_of,
    integers,
    is_host,
    permute,
    spread,
    where,
)
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def constant(
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
) -> Any:
    """Constant."""
    if value is not None:
        return value
    if value_float is not None or value_floats is not None:
        return np.array(value_float if value_floats is None else value_floats, np.float32)
    if value_int is None and value_ints is None:
        raise UsageError("wanted a value")
    return np.array(value_int if value_ints is None else value_ints, np.int64)


def filled(shape: Any, *, value: Any = None) -> Any:
    """ConstantOfShape."""
    value = np.zeros(1, np.float32) if value is None else value
    return expand(value.reshape(()), shape)


def expand(x: Any, shape: Any) -> Any:
    """Expand: broadcasts both ways."""
    sizes = integers(shape, "shape")
    rank = max(len(sizes), len(x.shape))
    own = (*(1,) * (rank - len(x.shape)), *x.shape)
    wanted = (*(1,) * (rank - len(sizes)), *sizes)
    if any(m < 0 or (n != m and 1 not in {n, m}) for n, m in zip(own, wanted, strict=True)):
        raise UsageError(f"the shapes {tuple(x.shape)} and {tuple(sizes)} do not broadcast")
    found = [n if m == 1 else m for n, m in zip(own, wanted, strict=True)]
    return spread(as_tensor(x) if math.prod(found) > SMALL else x, found)


def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    """Reshape: 0 keeps a size, -1 takes what is left."""
    sizes = integers(shape, "shape")
    if not allowzero:
        if any(n == 0 and i >= len(x.shape) for i, n in enumerate(sizes)):
            raise UsageError(f"the shape {sizes} keeps an axis that {tuple(x.shape)} lacks")
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    count, rest = math.prod(x.shape), math.prod([n for n in sizes if n != -1])
    if sizes.count(-1) == 1 and rest and count % rest == 0:
        sizes = [count // rest if n == -1 else n for n in sizes]
    if min(sizes, default=0) < 0 or math.prod(sizes) != count:
        raise UsageError(f"{tuple(x.shape)} has not as many elements as {tuple(sizes)}")
    return x.reshape(tuple(sizes))


def flatten(x: Any, *, axis: int = 1) -> Any:
    """Flatten: to two axes."""
    axis = len(x.shape) if axis == len(x.shape) else axis_in(axis, len(x.shape))
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def transpose(x: Any, *, perm: list[int] | None = None) -> Any:
    """Transpose."""
    rank = len(x.shape)
    axes = list(range(rank))[::-1] if perm is None else perm
    if sorted(axes) != list(range(rank)):
        raise UsageError(f"{axes} is no order of {rank} axes")
    return permute(x, axes)


def squeeze(x: Any, axes: Any = None) -> Any:
    """Squeeze."""
    listed = [a for a, n in enumerate(x.shape) if n == 1] if axes is None else integers(axes, "axes")
    found = axes_in(listed, len(x.shape))
    if wrong := [a for a in found if x.shape[a] != 1]:
        raise UsageError(f"axis {wrong[0]} of {tuple(x.shape)} has not the size 1")
    return x.reshape(tuple([n for a, n in enumerate(x.shape) if a not in found]))


def unsqueeze(x: Any, axes: Any) -> Any:
    """Unsqueeze."""
    listed = integers(axes, "axes")
    rank = len(x.shape) + len(listed)
    new, old = axes_in(listed, rank), iter(x.shape)
    return x.reshape(tuple([1 if a in new else next(old) for a in range(rank)]))


def concat(*parts: Any, axis: int) -> Any:
    """Concat."""
    if not parts:
        raise UsageError("wanted at least one input")
    return cat(parts, axis_in(axis, len(parts[0].shape)))


def split(x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int = 0, _outputs: int) -> Any:
    """Split."""
    axis = axis_in(axis, len(x.shape))
    n, count = x.shape[axis], num_outputs or _outputs
    if sizes is None:
        if n % count and not num_outputs:
            raise UsageError(f"{n} elements are no {count} equal parts")
        each = -(-n // count)
        listed = [max(0, min(each, n - i * each)) for i in range(count)]
    else:
        listed = integers(sizes, "split")
    if min(listed, default=0) < 0 or sum(listed) != n:
        raise UsageError(f"parts of {listed} are not the {n} elements of axis {axis}")
    begins = [sum(listed[:i]) for i in range(len(listed))]
    at = (slice(None),) * axis
    return tuple([x[(*at, slice(b, b + m))] for b, m in zip(begins, listed, strict=True)])


def slices(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """Slice."""
    begin, end = integers(starts, "starts"), integers(ends, "ends")
    along = list(range(len(begin))) if axes is None else integers(axes, "axes")
    step = [1] * len(begin) if steps is None else integers(steps, "steps")
    if not len(begin) == len(end) == len(along) == len(step) or 0 in step:
        raise UsageError(f"starts {begin}, ends {end}, axes {along} and steps {step} do not fit each other")
    axes_in(along, len(x.shape))
    for a, b, e, s in zip(along, begin, end, step, strict=True):
        places = _places(x.shape[a], b, e, s)
        cut: slice = slice(places.start, places.stop, s)
        if s < 0:  # in order, then reversed
            cut = slice(places[-1], places[0] + 1, -s) if places else slice(0, 0)
        x = x[(slice(None),) * (a % len(x.shape)) + (cut,)]
        if s < 0:
            x = np.flip(x, a) if is_host(x) else x.flip(a)
    return x


def _places(n: int, begin: int, end: int, step: int) -> range:
    """Return the places of a slice, whose ends may be beyond the axis and count from its end."""
    begin, end = begin + n if begin < 0 else begin, end + n if end < 0 else end
    low, high = (0, n) if step > 0 else (-1, n - 1)
    return range(min(max(begin, 0), high), min(max(end, low), high), step)


def tile(x: Any, repeats: Any) -> Any:
    """Tile."""
    counts = integers(repeats, "repeats")
    if len(counts) != len(x.shape) or min(counts, default=0) < 0:
        raise UsageError(f"{counts} are no repeats of the axes of {tuple(x.shape)}")
    if is_host(x) and math.prod(x.shape) * math.prod(counts) > SMALL:
        x = as_tensor(x)
    return np.tile(x, counts) if is_host(x) else x.repeat(*counts)


def gather(x: Any, index: Any, *, axis: int = 0) -> Any:
    """Gather."""
    axis = axis_in(axis, len(x.shape))
    if is_host(x):
        return np.take(x, index, axis)
    n = x.shape[axis]
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    flat = index.reshape(-1)
    return x.index_select(axis, (flat < 0).where(flat + n, flat)).reshape(shape)


def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """GatherElements."""
    n = x.shape[axis_in(axis, len(x.shape))]
    return x.gather(axis, (index < 0).where(index + n, index))


def _flat_places(shape: Sequence[int], index: Tensor, begin: int) -> Any:
    """Return the place of each index, whose last axis counts along axes of a shape from `begin` on."""
    count = index.shape[-1]
    if begin + count > len(shape):
        raise UsageError(f"indices of {count} axes from axis {begin} on, in the shape {tuple(shape)}")
    places: Any = 0
    for i in range(count):
        part, n = index[..., i], shape[begin + i]
        places = places * n + (part < 0).where(part + n, part)
    return places


def gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """GatherND."""
    b, count = batch_dims, index.shape[-1]
    places = _flat_places(x.shape, index, b)
    lead, rest = math.prod(x.shape[:b]), x.shape[b + count :]
    inner = math.prod(x.shape[b : b + count])
    flat = x.reshape(lead * inner, *rest)
    if b:
        first = Tensor.arange(lead, device=x.device).reshape(lead, 1) * inner
        places = (places.reshape(lead, -1) + first).reshape(places.shape)
    return flat.index_select(0, places.reshape(-1)).reshape(*index.shape[:-1], *rest)


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(
    x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """ScatterElements, Scatter."""
    n = x.shape[axis_in(axis, len(x.shape))]
    index = (index < 0).where(index + n, index)
    if reduction == "none":
        return x.scatter(axis, index, updates)
    if reduction not in _REDUCTIONS:
        raise UsageError(f"wanted the reduction none, {', '.join(_REDUCTIONS)}, saw {reduction!r}")
    return x.scatter_reduce(axis, index, updates, _REDUCTIONS[reduction])


def scatter_nd(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """ScatterND."""
    count = index.shape[-1]
    places = _flat_places(x.shape, index, 0).reshape(-1)
    rest = math.prod(x.shape[count:])
    flat = x.reshape(math.prod(x.shape[:count]), rest)
    rows = places.reshape(-1, 1).broadcast_to(places.shape[0], rest)
    given = updates.reshape(places.shape[0], rest)
    return scatter_elements(flat, rows, given, axis=0, reduction=reduction).reshape(x.shape)


def one_hot(index: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """OneHot."""
    rank = len(index.shape) + 1
    axis, n = axis_in(axis, rank), int(as_array(depth).reshape(-1)[0])
    at = index.cast("int64") if index.dtype.is_float else index
    at = (at < 0).where(at + n, at).unsqueeze(axis)
    places = Tensor.arange(n, device=index.device, dtype=at.dtype).reshape(
        *[n if a == axis else 1 for a in range(rank)]
    )
    found: Tensor = where(places == at, values[1], values[0])
    return found


def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """Pad."""
    rank, given = len(x.shape), integers(pads, "pads")
    along = list(range(rank)) if axes is None else [axis_in(a, rank) for a in integers(axes, "axes")]
    if len(given) != 2 * len(along):
        raise UsageError(f"wanted {2 * len(along)} pads, saw {len(given)}")
    pairs = [(0, 0)] * rank
    for i, a in enumerate(along):
        pairs[a] = (given[i], given[i + len(along)])
    kinds = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in kinds:
        raise UsageError(f"wanted the mode {', '.join(kinds)}, saw {mode!r}")
    if mode != "constant":
        cut = [(max(0, -lo), n - max(0, -hi)) for (lo, hi), n in zip(pairs, x.shape, strict=True)]
        x = x[tuple([slice(*c) for c in cut])]
        pairs = [(max(0, lo), max(0, hi)) for lo, hi in pairs]
        return x.pad(tuple(pairs), mode=kinds[mode])
    fill = 0 if value is None else as_array(value).reshape(-1)[0].item()
    if x.dtype.kind == "bool" and fill:
        return ~(~x).pad(tuple(pairs))
    return x.pad(tuple(pairs), value=fill)


def ranged(start: Any, limit: Any, delta: Any) -> Any:
    """Range."""
    a, b, d = [as_array(v).reshape(-1)[0] for v in (start, limit, delta)]
    if not d or not all(math.isfinite(v) for v in (a, b, d)):
        raise UsageError(f"no range from {a} to {b} by {d}")
    count = max(0, math.ceil((b - a) / d)) if start.dtype.kind == "f" else len(range(int(a), int(b), int(d)))
    if count <= SMALL:
        return (a + np.arange(count) * d).astype(start.dtype)
    places = Tensor.arange(count, device=as_tensor(np.zeros((), np.int32)).device)
    return (places * d.item() + a.item()).cast(dtype_of(start))


def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    """Trilu."""
    shift = 0 if k is None else integers(k, "k")[0]
    shift = min(max(shift, -x.shape[-2] - 1), x.shape[-1] + 1)
    return x.triu(shift) if upper else x.tril(shift)


def eye_like(x: Any, *, dtype: int = 0, k: int = 0) -> Any:
    """EyeLike."""
    if len(x.shape) != 2:
        raise UsageError(f"wanted two axes, saw {tuple(x.shape)}")
    rows, columns = [Tensor.arange(n, device=x.device) for n in x.shape]
    found = rows.reshape(-1, 1) + k == columns
    return to_type(found, dtype) if dtype else cast(found, dtype_of(x))


def non_zero(x: Any) -> Any:
    """NonZero: reads the input; the result has a shape of its values."""
    return np.stack(np.nonzero(as_array(x))) if len(x.shape) else np.zeros((0, int(bool(x))), np.int64)


def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    """Compress: reads the condition."""
    places = np.flatnonzero(as_array(condition))
    x = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else axis_in(axis, len(x.shape))
    return x.index_select(at, as_tensor(places))


def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    """Unique: reads the input."""
    found, first, back, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    if not sorted:
        order = np.argsort(first)
        rank = np.argsort(order)
        found, first, counts = np.take(found, order, axis or 0), first[order], counts[order]
        back = rank[back]
    return found, *[v.reshape(-1).astype(np.int64) for v in (first, back, counts)]


def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """DepthToSpace."""
    b, c, h, w = x.shape
    r = blocksize
    if mode == "DCR":
        y = x.reshape(b, r, r, c // (r * r), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(b, c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(b, c // (r * r), h * r, w * r)


def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """SpaceToDepth."""
    b, c, h, w = x.shape
    r = blocksize
    y = x.reshape(b, c, h // r, r, w // r, r)
    y = y.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(b, c * r * r, h // r, w // r)


def reverse_sequence(x: Tensor, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """ReverseSequence."""
    y = x.transpose(0, time_axis) if time_axis else x
    if batch_axis not in {0, 1} or time_axis not in {0, 1} or batch_axis == time_axis:
        raise UsageError("wanted the axes 0 and 1")
    steps, count = y.shape[0], y.shape[1]
    places = Tensor.arange(steps, device=x.device).reshape(steps, 1)
    ends = lengths.reshape(1, count)
    at = (places < ends).where(ends - 1 - places, places)
    at = at.reshape(steps, count, *(1,) * (len(x.shape) - 2)).broadcast_to(*y.shape)
    found = y.gather(0, at)
    return found.transpose(0, time_axis) if time_axis else found


def center_crop_pad(x: Tensor, shape: Any, *, axes: list[int] | None = None) -> Tensor:
    """CenterCropPad."""
    rank = len(x.shape)
    along = list(range(rank)) if axes is None else axes_in(axes, rank)
    pairs = [(0, 0)] * rank
    for a, m in zip(along, integers(shape, "shape"), strict=True):
        n = x.shape[a]
        low = (m - n) // 2 if m > n else -((n - m) // 2)
        pairs[a] = (low, m - n - low)
    return x.pad(tuple(pairs))
