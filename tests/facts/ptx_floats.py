"""Floating-point arithmetic of the PTX manual that is correctly rounded, typed in from its text (PTX ISA, "Floating Point
Instructions", "Half Precision Floating Point Instructions")."""

# ruff: noqa: E501, PLR0917 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tests.facts.ptx_form import ANY_NAN, Form
from tests.facts.ptx_numbers import BF16, F16, F32, F64, INF, NAN, NEG_INF, Format, Value, root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODES = "nzmp"
Exact = tuple[Value, bool]
"""An exact result and, where it is zero, whether that is negative (None: by the rounding)."""


def forms() -> Iterator[Form]:
    """Every form of correctly rounded arithmetic, of minima, and of operations on signs."""
    yield from _single(F32, ("", ".ftz"), ("", ".sat"))
    yield from _single(F64, ("",), ("",))
    yield from _quotients()
    yield from _half()
    yield from _extremes()
    yield from _signs()
    yield from _tests()


def total(values: list[tuple[Value, bool]], mode: str) -> Exact:
    """Add two values, each with its sign; a zero of unlike signs is negative only when rounding down."""
    (a, a_negative), (b, b_negative) = values
    if NAN in (a, b) or {a, b} == {INF, NEG_INF}:
        return NAN, False
    if isinstance(a, str) or isinstance(b, str):
        return (a if isinstance(a, str) else b), False
    negative = a_negative if a_negative == b_negative else mode == "m"
    return a + b, negative


def product(a: Value, b: Value, *, negative: bool) -> Exact:
    """Multiply; `negative` is whether the operands' signs differ."""
    if NAN in (a, b):
        return NAN, False
    if isinstance(a, str) or isinstance(b, str):
        return (NAN if 0 in (a, b) else NEG_INF if negative else INF), negative
    return a * b, negative


def quotient(a: Value, b: Value, *, negative: bool) -> Exact:
    """Divide; `negative` is whether the operands' signs differ."""
    infinity = NEG_INF if negative else INF
    if NAN in (a, b) or (a == 0 and b == 0) or (isinstance(a, str) and isinstance(b, str)):
        return NAN, False
    if isinstance(a, str) or b == 0:
        return infinity, negative
    if isinstance(b, str):
        return Fraction(0), negative
    return a / b, negative


def finish(
    found: Exact, form: Format, mode: str, *, flush: bool = False, sat: bool = False, relu: bool = False
) -> int:
    """Round, flush, then clamp: `.sat` to [+0, 1] with NaN to +0, `.relu` negative results to +0 with NaN canonical."""
    value, negative = found
    if value == NAN:
        return 0 if sat else ANY_NAN if form.bits == 64 else form.nan
    raw = form.encode(value, mode, negative=negative)
    if flush:
        raw = form.flushed(raw)
    if (sat or relu) and raw & form.sign:
        return 0
    return min(raw, form.encode(Fraction(1))) if sat else raw


def compute(name: str, form: Format, raws: tuple[int, ...], mode: str, *, flush: bool = False) -> Exact:
    """Return the exact result of an operation on raw operands."""
    raws = tuple(form.flushed(raw) for raw in raws) if flush else raws
    values = [(form.value(raw), bool(raw & form.sign)) for raw in raws]
    (a, a_negative), *others = values
    if name in ("add", "sub"):
        b, b_negative = others[0]
        if name == "sub":
            b, b_negative = product(b, Fraction(-1), negative=not b_negative)[0], not b_negative
        return total([(a, a_negative), (b, b_negative)], mode)
    if name in ("rcp", "sqrt"):
        return quotient(Fraction(1), a, negative=a_negative) if name == "rcp" else (a, a_negative)
    b, b_negative = others[0]
    if name == "div":
        return quotient(a, b, negative=a_negative != b_negative)
    value, negative = product(a, b, negative=a_negative != b_negative)
    return total([(value, negative), others[1]], mode) if name in ("fma", "mad") else (value, negative)


def _operation(
    name: str,
    full: str,
    form: Format,
    count: int,
    mode: str,
    *,
    flush: str = "",
    sat: str = "",
    kind: str = "",
    arch: int = 80,
) -> Form:
    def raw(*raws: int) -> int:
        found = compute(name, form, raws, mode, flush=bool(flush))
        return finish(found, form, mode, flush=bool(flush), sat=bool(sat))

    operands = ", ".join(("%a", "%b", "%c")[:count])
    kinds = (kind or f"{form.name}:special",) * count
    return Form(full, f"{full} %d, {operands};", kinds, (form.bits,), raw, name, arch, form.name)


def _single(form: Format, flushes: tuple[str, ...], sats: tuple[str, ...]) -> Iterator[Form]:
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        for mode in ("", *MODES) if count == 2 else MODES:
            for flush in flushes:
                for sat in sats:
                    full = f"{name}{f'.r{mode}' if mode else ''}{flush}{sat}.{form.name}"
                    yield _operation(name, full, form, count, mode or "n", flush=flush, sat=sat)


def _quotients() -> Iterator[Form]:
    for form in (F32, F64):
        for mode in MODES:
            for flush in ("", ".ftz") if form is F32 else ("",):
                suffix = f".r{mode}{flush}.{form.name}"
                yield _operation("div", f"div{suffix}", form, 2, mode, flush=flush)
                yield _operation("rcp", f"rcp{suffix}", form, 1, mode, flush=flush, kind=form.name)

                def square(a: int, form: Format = form, mode: str = mode, flush: str = flush) -> int:
                    a = form.flushed(a) if flush else a
                    value = form.value(a)
                    if value in (0, INF):
                        return a
                    if isinstance(value, str) or value < 0:
                        return ANY_NAN if form is F64 else form.nan
                    return root(value, form, mode)

                yield Form(
                    f"sqrt{suffix}",
                    f"sqrt{suffix} %d, %a;",
                    (form.name,),
                    (form.bits,),
                    square,
                    "sqrt",
                    80,
                    form.name,
                )


def _half() -> Iterator[Form]:
    for form in (F16, BF16):
        for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            for flush in ("", ".ftz") if form is F16 else ("",):
                for mark in ("", ".sat", ".relu"):
                    if (form is BF16 and mark == ".sat") or (mark == ".relu" and count == 2):
                        continue
                    arch = 90 if form is BF16 and count == 2 else 80
                    for mode in ("", ".rn") if count == 2 and form is F16 else (".rn",):
                        yield from _half_forms(name, form, count, mode, flush, mark, arch)


def _half_forms(
    name: str, form: Format, count: int, mode: str, flush: str, mark: str, arch: int
) -> Iterator[Form]:
    def one(*raws: int) -> int:
        found = compute(name, form, raws, "n", flush=bool(flush))
        return finish(found, form, "n", flush=bool(flush), sat=mark == ".sat", relu=mark == ".relu")

    def two(*raws: int) -> int:
        return one(*(raw >> 16 for raw in raws)) << 16 | one(*(raw & 0xFFFF for raw in raws))

    operands = ", ".join(("%a", "%b", "%c")[:count])
    full = f"{name}{mode}{flush}{mark}.{form.name}"
    kind = f"{form.name}:special"
    yield Form(
        full, f"{full} %d, {operands};", (kind,) * count, (16,), one, f"{name} (half)", arch, form.name
    )
    pair = "h2:special" if form is F16 else "bf2:special"
    full += "x2"
    yield Form(
        full, f"{full} %d, {operands};", (pair,) * count, (32,), two, f"{name} (half)", arch, form.name
    )


def _extremes() -> Iterator[Form]:
    for form in (F32, F64, F16, BF16):
        for name in ("min", "max"):
            for flush in ("", ".ftz") if form in (F32, F16) else ("",):
                for nan in ("", ".NaN") if form is not F64 else ("",):
                    for cross in ("", ".xorsign.abs") if form is not F64 else ("",):
                        yield from _extreme(name, form, flush, nan, cross)


def _extreme(name: str, form: Format, flush: str, nan: str, cross: str) -> Iterator[Form]:
    """-0 is below +0; one NaN gives the other operand, or with `.NaN` NaN; `.xorsign.abs` compares magnitudes and
    gives the result the exclusive-or of the signs."""

    def one(a: int, b: int) -> int:
        if flush:
            a, b = form.flushed(a), form.flushed(b)
        sign = (a ^ b) & form.sign
        if cross:
            a, b = a & ~form.sign, b & ~form.sign
        nans = [form.value(x) == NAN for x in (a, b)]
        if all(nans) or (nan and any(nans)):
            return ANY_NAN if form is F64 else form.nan
        if any(nans):
            found = b if nans[0] else a
        else:
            key = {x: -(x & ~form.sign) - 1 if x & form.sign else x for x in (a, b)}
            found = (min if name == "min" else max)((a, b), key=key.__getitem__)
        return found & ~form.sign | sign if cross else found

    def two(a: int, b: int) -> int:
        return one(a >> 16, b >> 16) << 16 | one(a & 0xFFFF, b & 0xFFFF)

    full = f"{name}{flush}{nan}{cross}.{form.name}"
    arch = 86 if cross else 80
    kind = f"{form.name}:special"
    yield Form(full, f"{full} %d, %a, %b;", (kind, kind), (form.bits,), one, name, arch, form.name)
    if form.bits == 16:
        pair = "h2:special" if form is F16 else "bf2:special"
        yield Form(f"{full}x2", f"{full}x2 %d, %a, %b;", (pair, pair), (32,), two, name, arch, form.name)
    if form is F32:
        yield _three(name, flush, nan, cross, one)


def _three(name: str, flush: str, nan: str, cross: str, one: Callable[[int, int], int]) -> Form:
    """Three operands, sm_100 and later: the extreme of the extreme of two, and the third."""

    def raw(a: int, b: int, c: int) -> int:
        return one(one(a, b), c)

    full = f"{name}{flush}{nan}{'.abs' if cross else ''}.f32"
    if cross:
        # Three operands have `.abs` alone, without a sign.
        def magnitude(a: int, b: int, c: int) -> int:
            return raw(a, b, c) & ~F32.sign

        return Form(
            f"{full} x3", f"{full} %d, %a, %b, %c;", ("f32:special",) * 3, (32,), magnitude, name, 100, "f32"
        )
    return Form(f"{full} x3", f"{full} %d, %a, %b, %c;", ("f32:special",) * 3, (32,), raw, name, 100, "f32")


def _signs() -> Iterator[Form]:
    for form in (F32, F64, F16, BF16):
        for name in ("abs", "neg"):
            for flush in ("", ".ftz") if form in (F32, F16) else ("",):

                def one(a: int, form: Format = form, name: str = name, flush: str = flush) -> int:
                    if form.value(a) == NAN:
                        return ANY_NAN
                    a = form.flushed(a) if flush else a
                    return a & ~form.sign if name == "abs" else a ^ form.sign

                def two(a: int, one: Callable[[int], int] = one) -> int | None:
                    halves = one(a >> 16), one(a & 0xFFFF)
                    return None if ANY_NAN in halves else halves[0] << 16 | halves[1]

                full = f"{name}{flush}.{form.name}"
                yield Form(full, f"{full} %d, %a;", (form.name,), (form.bits,), one, name, 80, form.name)
                if form.bits == 16:
                    kind = "h2" if form is F16 else "bf2"
                    yield Form(f"{full}x2", f"{full}x2 %d, %a;", (kind,), (32,), two, name, 80, form.name)
    for form in (F32, F64):
        low = form.sign - 1
        full = f"copysign.{form.name}"
        kind = f"{form.name}:special"
        yield Form(
            full, f"{full} %d, %a, %b;", (kind, kind), (form.bits,),
            lambda a, b, form=form, low=low: a & form.sign | b & low, "copysign",
        )  # fmt: skip


def _tests() -> Iterator[Form]:
    for form in (F32, F64):
        rules = {
            "finite": lambda raw, form=form: not isinstance(form.value(raw), str),
            "infinite": lambda raw, form=form: form.value(raw) in (INF, NEG_INF),
            "number": lambda raw, form=form: form.value(raw) != NAN,
            "notanumber": lambda raw, form=form: form.value(raw) == NAN,
            "subnormal": lambda raw, form=form: form.subnormal(raw),
            # The manual: zero counts as a normal number.
            "normal": lambda raw, form=form: not isinstance(form.value(raw), str) and not form.subnormal(raw),
        }
        for name, rule in rules.items():
            full = f"testp.{name}.{form.name}"
            yield Form(
                full, f"{full} %p, %a; selp.b32 %d, 1, 0, %p;", (form.name,), (32,),
                lambda a, rule=rule: int(rule(a)), "testp",
            )  # fmt: skip
