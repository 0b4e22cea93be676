"""Comparisons of tensors for tests, under the names of `torch.testing`.

Not here: comparisons as tensors (`Tensor.isclose`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

from compiler.dtype import dtypes
from frontend.arguments.conversion import shown
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError

__all__ = ["assert_close"]

_TOLERANCES: Final = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
}  # fmt: skip
"""Relative and absolute ones of `assert_close`, from PyTorch's documentation of it; others: 0."""


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Check that |actual - expected| <= atol + rtol |expected| for all elements.

    Takes tensors, arrays, numbers, and sequences and mappings of them. Without `rtol` and `atol` they follow
    from the dtypes: the larger ones of both; 0 for integers and bools. `allow_subclasses`, `check_layout` and
    `check_stride` change nothing.

    Raises `AssertionError` for values, shapes, devices or dtypes that differ, with `msg`, or what it makes of
    the text, if given; `UsageError` for one of `rtol` and `atol` alone, `UsageTypeError` for a number
    beside a tensor.
    """
    del allow_subclasses, check_layout, check_stride
    if (rtol is None) != (atol is None):
        raise UsageError(f"assert_close: wanted rtol and atol, or neither, saw {rtol} and {atol}")

    def compare(a: Any, b: Any, place: str) -> None:
        wrong = _wrong(a, b, place)
        if wrong:
            text = wrong if not place else f"{wrong}\n\nThe failure occurred for item {place}"
            raise AssertionError(text if msg is None else msg if isinstance(msg, str) else msg(text))

    def _wrong(a: Any, b: Any, place: str) -> str:
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return f"The keys of the mappings do not match: {list(a)} != {list(b)}"
            for key in a:
                compare(a[key], b[key], f"{place}[{key!r}]")
            return ""
        if _is_list(a) and _is_list(b):
            if len(a) != len(b):
                return f"The length of the sequences mismatch: {len(a)} != {len(b)}"
            for n, (one, other) in enumerate(zip(a, b, strict=True)):
                compare(one, other, f"{place}[{n}]")
            return ""
        if a is None or b is None:
            return "" if a is b else f"None mismatch: {a} is not {b}"
        return _differing(a, b)

    def _differing(a: Any, b: Any) -> str:
        numbers = _is_number(a)
        if numbers != _is_number(b):
            seen = f"{shown(a)} and {shown(b)}"
            raise UsageTypeError(f"assert_close: wanted two tensors or two numbers, saw {seen}")
        x, y = (_of_number(t) if numbers else _tensor(t) for t in (a, b))
        for checked, name in ((True, "shape"), (check_device, "device"), (check_dtype, "dtype")):
            one, other = getattr(x, name), getattr(y, name)
            if checked and not numbers and one != other:
                return f"The values for attribute '{name}' do not match: {one} != {other}."
        return _values(x, y.to(x.device), rtol, atol, equal_nan=equal_nan)

    compare(actual, expected, "")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _of_number(value: Any) -> Tensor:
    """Return a number, also one of NumPy, as a tensor that holds it exactly."""
    kinds = ((bool, dtypes.bool), (int, dtypes.int64), (float, dtypes.float64))
    return Tensor.full((), value, dtype=next(d for kind, d in kinds if isinstance(value, kind)), device="cpu")


def _tensor(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else Tensor(value)


def _values(x: Tensor, y: Tensor, rtol: float | None, atol: float | None, *, equal_nan: bool) -> str:
    """Return how the values of two tensors of a shape and device differ; "" if they are close."""
    bounds = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (x, y)]
    relative = max(b[0] for b in bounds) if rtol is None else rtol
    absolute = max(b[1] for b in bounds) if atol is None else atol
    wide = dtypes.float64 if x.dtype.is_float or y.dtype.is_float else dtypes.int64
    x, y = x.to(wide), y.to(wide)
    exact = not wide.is_float and not relative and not absolute  # `isclose` computes in floats
    off = x != y if exact else x.isclose(y, rtol=relative, atol=absolute, equal_nan=equal_nan).logical_not()
    wrong = int(off.sum().item())
    if not wrong:
        return ""
    how = "close" if relative or absolute else "equal"
    if not x.shape:
        seen = f"Scalars are not {how}!\n\nExpected {y.item()} but got {x.item()}."
        return f"{seen}\nAbsolute difference: {abs(x.item() - y.item())} (up to {absolute} allowed)"
    count, apart = prod(x.shape), (x - y).abs()
    text = [f"Tensor-likes are not {how}!\n\nMismatched elements: {wrong} / {count} ({wrong / count:.1%})"]
    for what, of, most in (("absolute", apart, absolute), ("relative", apart / y.abs(), relative)):
        held = off.where(of.to(dtypes.float64), -1.0).flatten()
        at = int(held.argmax().item())
        index = tuple(at // prod(x.shape[n + 1 :]) % size for n, size in enumerate(x.shape))
        text.append(f"Greatest {what} difference: {held[at].item()} at index {index} (up to {most} allowed)")
    return "\n".join(text)
