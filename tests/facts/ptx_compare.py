"""Comparison and selection of the PTX manual, typed in from its text (PTX ISA, "Comparison and Selection Instructions",
"Half Precision Comparison Instructions")."""

# ruff: noqa: E501, PLR0917 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from tests.facts.ptx_form import Form
from tests.facts.ptx_numbers import BF16, F16, F32, FORMATS, INF, NAN, NEG_INF, Format, integer, mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ORDER = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_JOIN = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
INTEGERS = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")


def forms() -> Iterator[Form]:
    """Every form of comparison and selection."""
    yield from _predicates()
    yield from _sets()
    yield from _halves()
    yield from _selections()


def tests(type_: str) -> Iterator[tuple[str, str, Callable[[int, int], bool]]]:
    """Yield the comparisons of a type: name, `.ftz` or nothing, and the test of raw bits."""
    if type_ in FORMATS:
        for name in (*_ORDER, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            for flush in ("", ".ftz") if type_ in ("f32", "f16") else ("",):
                yield name, flush, _float_test(FORMATS[type_], name, flush=bool(flush))
        return
    names = ("eq", "ne") if type_[0] == "b" else tuple(_ORDER)
    if type_[0] == "u":
        names += tuple(_UNSIGNED)
    kind = "u" + type_[1:] if type_[0] == "b" else type_
    for name in names:
        rule = _ORDER[_UNSIGNED.get(name, name)]
        yield name, "", lambda a, b, rule=rule, kind=kind: rule(integer(a, kind), integer(b, kind))


@cache
def _float_test(form: Format, name: str, *, flush: bool) -> Callable[[int, int], bool]:
    @cache
    def order(raw: int) -> object:
        value = form.value(form.flushed(raw) if flush else raw)
        return (
            {INF: float("inf"), NEG_INF: float("-inf")}.get(value, value) if isinstance(value, str) else value
        )

    @cache
    def test(a: int, b: int) -> bool:
        left, right = order(a), order(b)
        unordered = NAN in (left, right)
        if name in ("num", "nan"):
            return unordered == (name == "nan")
        if unordered:
            return name.endswith("u")
        return _ORDER[name.removesuffix("u") if name != "u" else name](left, right)

    return test


def _kind(type_: str) -> str:
    return f"{type_}:special" if type_ in FORMATS else f"i{type_[1:]}:20"


def _arch(type_: str) -> int:
    return 90 if type_.startswith("bf16") else 80


def _predicates() -> Iterator[Form]:
    """`setp` gives p and, with the test inverted, q; comparisons of halves give p alone."""
    for type_ in (*INTEGERS, "f32", "f64", "f16", "bf16"):
        for name, flush, test in tests(type_):
            yield _predicate(type_, f"setp.{name}{flush}.{type_}", "", test, None)
            for join, rule in _JOIN.items():
                for bang in ("", "!"):
                    yield _predicate(type_, f"setp.{name}.{join}{flush}.{type_}", bang, test, rule)


def _predicate(
    type_: str, name: str, bang: str, test: Callable[[int, int], bool], rule: Callable[[int, int], int] | None
) -> Form:
    alone = type_ in ("f16", "bf16")

    def raw(a: int, b: int, c: int = 0) -> tuple[int, ...]:
        found, other = int(test(a, b)), c ^ len(bang)
        both = (rule(found, other), rule(1 - found, other)) if rule else (found, 1 - found)
        return both[:1] if alone else both

    code = (
        f"{name} {'%p' if alone else '%p|%q'}, %a, %b{f', {bang}%c' if rule else ''}; selp.b32 %d, 1, 0, %p;"
    )
    code += "" if alone else " selp.b32 %e, 1, 0, %q;"
    kinds = (*((_kind(type_),) * 2), *(("pred",) if rule else ()))
    return Form(
        f"{name} {bang}".strip(), code, kinds, (32,) if alone else (32, 32), raw, "setp", _arch(type_)
    )


def _sets() -> Iterator[Form]:
    """A true result is all ones as an integer, 1.0 as a float."""
    for source in (*INTEGERS, "f32", "f64"):
        kinds = (_kind(source),) * 2
        for target in ("u32", "s32", "f32"):
            true = 0x3F80_0000 if target == "f32" else mask(32)
            for name, flush, test in tests(source):
                full = f"set.{name}{flush}.{target}.{source}"
                yield Form(
                    full, f"{full} %d, %a, %b;", kinds, (32,), lambda a, b, t=test, v=true: v if t(a, b) else 0, "set"
                )  # fmt: skip
                for join, rule in _JOIN.items():
                    for bang in ("", "!"):
                        full = f"set.{name}.{join}{flush}.{target}.{source}"
                        yield Form(
                            f"{full} {bang}", f"{full} %d, %a, %b, {bang}%c;", (*kinds, "pred"), (32,),
                            lambda a, b, c, t=test, v=true, r=rule, n=bool(bang): v if r(int(t(a, b)), c ^ n) else 0,
                            "set",
                        )  # fmt: skip


def _halves() -> Iterator[Form]:
    """A half as the result of any comparison, and integers as results of comparing halves; a pair compares each half."""
    for source in (*INTEGERS, "f32", "f64"):
        for target in ("f16", "bf16"):
            for name, flush, test in tests(source):
                if flush and target == "bf16":
                    continue  # .ftz is illegal there
                yield from _result(source, target, name, flush, test, FORMATS[target].encode(Fraction(1)))
    for source, form in (("f16", F16), ("bf16", BF16)):
        one = form.encode(Fraction(1))
        for name, flush, test in tests(source):
            for target in (source, "u16", "s16", "u32", "s32"):
                true = one if target == source else mask(int(target[1:]))
                yield from _result(source, target, name, flush, test, true)
            for target in (f"{source}x2", "u32", "s32"):
                true = mask(16) if target[0] in "us" else one
                yield from _result(f"{source}x2", target, name, flush, test, true)
            full = f"setp.{name}{flush}.{source}x2"
            code = f"{full} %p|%q, %a, %b; selp.b32 %d, 1, 0, %p; selp.b32 %e, 1, 0, %q;"
            kind = "h2:special" if source == "f16" else "bf2:special"
            yield Form(
                full, code, (kind, kind), (32, 32),
                lambda a, b, t=test: (int(t(a & 0xFFFF, b & 0xFFFF)), int(t(a >> 16, b >> 16))),
                "setp (half)", _arch(source),
            )  # fmt: skip


def _result(
    source: str, target: str, name: str, flush: str, test: Callable[[int, int], bool], true: int
) -> Iterator[Form]:
    """Yield `set` to one type: alone, and joined with a predicate in every way."""
    pair = source.endswith("x2")
    kind = {"f16x2": "h2:special", "bf16x2": "bf2:special"}.get(source) or _kind(source)
    bits = 32 if pair or target in ("u32", "s32") else 16
    arch = 90 if "bf16" in (source[:4], target[:4]) else 80

    def one(a: int, b: int, rule: Callable[[int, int], int], c: int) -> int:
        return true if rule(int(test(a, b)), c) else 0

    def raw(a: int, b: int, c: int, rule: Callable[[int, int], int], flip: int) -> int:
        if not pair:
            return one(a, b, rule, c ^ flip)
        return one(a >> 16, b >> 16, rule, c ^ flip) << 16 | one(a & 0xFFFF, b & 0xFFFF, rule, c ^ flip)

    full = f"set.{name}{flush}.{target}.{source}"
    yield Form(
        full, f"{full} %d, %a, %b;", (kind, kind), (bits,),
        lambda a, b: raw(a, b, 0, _JOIN["or"], 0), "set (half)", arch,
    )  # fmt: skip
    for join, rule in _JOIN.items():
        for flip, bang in enumerate(("", "!")):
            full = f"set.{name}.{join}{flush}.{target}.{source}"
            yield Form(
                f"{full} {bang}", f"{full} %d, %a, %b, {bang}%c;", (kind, kind, "pred"), (bits,),
                lambda a, b, c, rule=rule, flip=flip: raw(a, b, c, rule, flip), "set (half)", arch,
            )  # fmt: skip


def _selections() -> Iterator[Form]:
    for type_ in (*INTEGERS, "f32", "f64"):
        kind, bits = _kind(type_), int(type_[1:])
        code = f"selp.{type_} %d, %a, %b, %c;"
        yield Form(
            f"selp.{type_}", code, (kind, kind, "pred"), (bits,), lambda a, b, c: a if c else b, "selp"
        )
        for by, flush in (("s32", ""), ("f32", ""), ("f32", ".ftz")):
            full = f"slct{flush}.{type_}.{by}"
            rule = {"s32": _not_negative, "f32": _at_least_zero, "f32.ftz": _at_least_zero_flushed}[
                by + flush
            ]
            kinds = (kind, kind, "i32" if by == "s32" else "f32:special")
            yield Form(
                full, f"{full} %d, %a, %b, %c;", kinds, (bits,), lambda a, b, c, rule=rule: a if rule(c) else b, "slct"
            )  # fmt: skip


def _not_negative(raw: int) -> bool:
    return raw >> 31 == 0


def _at_least_zero(raw: int) -> bool:
    """Negative zero equals zero; NaN is unordered and selects b."""
    value = F32.value(raw)
    return value not in (NAN, NEG_INF) and (value == INF or value >= 0)  # type: ignore[operator]  # a Fraction here


def _at_least_zero_flushed(raw: int) -> bool:
    return _at_least_zero(F32.flushed(raw))
