"""Comparison of two recordings of the same forms: one of silicon, and one of an emulated GPU.

Not here: making recordings (`runner`). Next: `forms.Allowed`, the rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.record.forms import BYTES, FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.record.forms import Allowed, Form, Result
    from tools.record.recording import Recording

SHOWN: Final = 3
"""The most differences of one form that are listed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One result that differs by more than its rule allows."""

    form: str
    row: str
    """Number and inputs of the row."""
    column: str
    """The name of the result."""
    silicon: int
    """The bits of silicon's result."""
    other: int
    """The bits of the other result."""
    size: int
    """Bytes of a result."""
    why: str
    """How far the results are apart, and the rule."""

    def __str__(self) -> str:
        width = 2 + 2 * self.size
        return (
            f"{self.form}: {self.row}: {self.column}: silicon {self.silicon:#0{width}x}, "
            f"emulated {self.other:#0{width}x} ({self.why})"
        )


@dataclass(slots=True)
class Comparison:
    """The result of a comparison. Forms are named."""

    equal: int = 0
    """The number of forms without a difference; forms with an error on both sides count."""
    values: int = 0
    """The number of results that were compared."""
    differences: dict[str, list[Difference]] = field(default_factory=dict)
    """Form -> its first differences, at most `SHOWN`."""
    counts: dict[str, int] = field(default_factory=dict)
    """Form -> the number of results that differ; forms without a difference have no entry."""
    one_sided: dict[str, str] = field(default_factory=dict)
    """Form that only one recording has results of -> why the other has none."""
    changed: list[str] = field(default_factory=list)
    """Forms whose text, inputs or layout have changed since silicon was recorded."""
    absent: list[str] = field(default_factory=list)
    """Forms that silicon's recording does not have."""

    @property
    def agrees(self) -> bool:
        """Whether no form differs or is one-sided; a form that is absent or has changed is no difference."""
        return not self.differences and not self.one_sided

    def lines(self) -> list[str]:
        """Return the comparison as text, a line for each difference."""
        out = [str(one) for found in self.differences.values() for one in found]
        out += [
            f"{form}: {count - SHOWN} more results differ"
            for form, count in self.counts.items()
            if count > SHOWN
        ]
        out += [f"{form}: {why}" for form, why in self.one_sided.items()]
        if self.changed:
            out.append(f"changed since they were recorded, not compared: {', '.join(self.changed)}")
        if self.absent:
            out.append(f"not in the file: {', '.join(self.absent)}")
        out.append(
            f"{self.equal} forms agree ({self.values:,} results), {len(self.differences)} differ, "
            f"{len(self.one_sided)} have results on one side alone, {len(self.changed)} have changed, "
            f"{len(self.absent)} are not in the file"
        )
        return out


def compared(silicon: Recording, other: Recording, forms: Iterable[Form]) -> Comparison:
    """Compare the results of `forms` in two recordings; return what was found."""
    out = Comparison()
    for form in forms:
        name, key = form.name, form.key()
        if name not in silicon.results and name not in silicon.errors:
            out.absent.append(name)
        elif not silicon.known(name, key):
            out.changed.append(name)
        elif name in silicon.errors and name in other.errors:
            out.equal += 1
        elif name in silicon.errors:
            out.one_sided[name] = f"silicon has no results: {silicon.errors[name][1]}"
        elif name not in other.results:
            why = other.errors[name][1] if name in other.errors else "it was not run"
            out.one_sided[name] = f"the emulated GPU has no results: {why}"
        else:
            _results(out, form, silicon.results[name][1], other.results[name][1])
    return out


def _results(out: Comparison, form: Form, silicon: bytes, other: bytes) -> None:
    """Compare the results of one form on two devices, and add its counts and differences to `out`."""
    found: list[Difference] = []
    count = 0
    for result, mine, its in zip(form.results, form.columns(silicon), form.columns(other), strict=True):
        wrong = np.nonzero(~agreeing(result, mine, its))[0]
        out.values += 0 if result.allowed.kind == "free" else len(mine)
        count += len(wrong)
        found += [
            Difference(
                form.name, form.row(int(at)), result.name, int(mine[at]), int(its[at]), BYTES[result.type],
                _why(result, int(mine[at]), int(its[at])),
            )
            for at in wrong[:SHOWN]
        ]  # fmt: skip
    if found:
        out.differences[form.name] = found[:SHOWN]
        out.counts[form.name] = count
    else:
        out.equal += 1


def agreeing(result: Result, mine: Any, its: Any) -> Any:
    """Return an array of bool: whether the rows of two columns agree by the rule of a result.

    Columns are arrays of unsigned integers with the bits of the results. Both parts of a packed pair must
    agree. "ulp" and "absolute" rules of types that are no floats ask for equal bits.
    """
    allowed, equal = result.allowed, mine == its
    if allowed.kind == "free":
        return np.ones(len(mine), bool)
    if allowed.kind == "zero":
        return (mine == 0) & (its == 0)
    if allowed.kind == "exact" or result.type not in FLOATS:
        return equal
    for at in range(2 if result.type.endswith("x2") else 1):
        pair = [_part(result.type, column, at) for column in (mine, its)]
        near = _near(result, *pair)
        equal = near if at == 0 else equal & near
    return equal


def _part(type_: str, column: Any, at: int) -> Any:
    bits = 1 + sum(FLOATS[type_])
    mask = column.dtype.type((1 << bits) - 1)
    return (column >> column.dtype.type(at * bits)) & mask


def _near(result: Result, mine: Any, its: Any) -> Any:
    """Compare one part of two columns within ulp or an absolute difference; a NaN agrees only with a NaN."""
    exponent, mantissa = FLOATS[result.type]
    infinity = ((1 << exponent) - 1) << mantissa
    sign = 1 << (exponent + mantissa)
    sizes = [(column & mine.dtype.type(sign - 1)).astype("u8") for column in (mine, its)]
    nans = [size > infinity for size in sizes]
    if result.allowed.kind == "ulp":
        order = [
            np.where(column & mine.dtype.type(sign) != 0, -size.astype("i8"), size.astype("i8"))
            for column, size in zip((mine, its), sizes, strict=True)
        ]
        near = np.abs(order[0].astype("f8") - order[1].astype("f8")) <= result.allowed.amount
        near |= _within(result.type, mine, its, result.allowed.or_absolute)
    else:
        near = _within(result.type, mine, its, result.allowed.amount)
    return np.where(nans[0] | nans[1], nans[0] & nans[1], near)


def _within(type_: str, mine: Any, its: Any, most: float) -> Any:
    values = [_values(type_, column) for column in (mine, its)]
    with np.errstate(invalid="ignore"):
        return (np.abs(values[0] - values[1]) <= most) & (most > 0) | (mine == its)


def _values(type_: str, column: Any) -> Any:
    exponent, mantissa = FLOATS[type_]
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if type_.startswith("bf16"):
            return (column.astype("u4") << np.uint32(16)).view("f4").astype("f8")
        size = (1 + exponent + mantissa) // 8
        return column.astype(f"u{size}").view(f"f{size}").astype("f8")


def _why(result: Result, mine: int, its: int) -> str:
    allowed: Allowed = result.allowed
    if allowed.kind == "exact":
        return "must be equal"
    if allowed.kind == "zero":
        return f"must never happen: {allowed.rule}"
    exponent, mantissa = FLOATS[result.type]
    mask = (1 << (exponent + mantissa)) - 1
    apart = abs(_ordered(mine, mask) - _ordered(its, mask)) if not result.type.endswith("x2") else math.nan
    return f"{apart} ulp apart; allowed {allowed.kind} {allowed.amount:g}: {allowed.rule}"


def _ordered(value: int, mask: int) -> int:
    return -(value & mask) if value & (mask + 1) else value & mask
