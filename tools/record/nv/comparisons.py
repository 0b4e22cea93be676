"""Forms of comparisons and selections. Source of the lists: PTX ISA 9.7.6.

Not here: minima and maxima (`integers`, `floats`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Form, Result, grid
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

_EQUAL: Final = ("eq", "ne")
_SIGNED: Final = (*_EQUAL, "lt", "le", "gt", "ge")
_UNSIGNED: Final = (*_SIGNED, "lo", "ls", "hi", "hs")
_FLOATING: Final = (*_SIGNED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_JOINS: Final = ("and", "or", "xor")
_TYPES: Final = (
    "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2",
)  # fmt: skip
_JOINED: Final = 64
"""Rows of a form that combines all comparisons of a type with a predicate."""
_SMALL: Final = ("f16", "bf16", "f16x2", "bf16x2")


def _operators(type_: str) -> tuple[str, ...]:
    kinds = {"b": _EQUAL, "u": _UNSIGNED, "s": _SIGNED}
    return _FLOATING if type_ in _SMALL or type_[0] == "f" else kinds[type_[0]]


def _since(*types: str) -> int:
    return 90 if any(one.startswith("bf16") for one in types) else 0


def _held(type_: str) -> str:
    """Return the type of a form's operands for a type of comparison: u32 for b32, u32 and s32."""
    return type_ if type_ in _SMALL or type_[0] == "f" else f"u{type_[1:]}"


def _setp(type_: str) -> Iterator[Form]:
    """Yield the forms of setp of a type, alone and combined with a predicate."""
    held = _held(type_)
    ftzs = ("", ".ftz") if type_ in ("f32", "f16", "f16x2") else ("",)
    for operator in _operators(type_):
        for ftz in ftzs:
            pair = type_.endswith("x2")
            results = (Result("p", "pred"), Result("q", "pred"))
            operands = (held, held)
            inputs = grid(operands, most=240, more=16)
            name = f"setp.{operator}{ftz}.{type_}"
            if pair:
                yield lanes(name, f"{name} $d0|$d1, $a0, $a1;", operands, inputs, results, doubt=3, needs=_since(type_))  # fmt: skip
                continue
            yield lanes(name, f"{name} $d0, $a0, $a1;", operands, inputs, results[:1], doubt=2, needs=_since(type_))  # fmt: skip
    joined = (held, held, "pred")
    for join in _JOINS:
        for ftz in ftzs:
            names: list[str] = []
            text = ""
            for operator in _operators(type_):
                one = type_ in ("f16", "bf16")  # these write one predicate
                target = f"$d{len(names)}" if one else f"$d{len(names)}|$d{len(names) + 1}"
                text += f"setp.{operator}.{join}{ftz}.{type_} {target}, $a0, $a1, $a2; "
                names += [operator] if one else [operator, f"{operator} second"]
            columns = tuple(Result(name, "pred") for name in names)
            yield lanes(
                f"setp.*.{join}{ftz}.{type_}", text, joined, grid(joined, most=_JOINED), columns, doubt=3,
                needs=_since(type_),
            )  # fmt: skip


def _set(target: str, type_: str) -> Iterator[Form]:
    """Yield the forms of set of a type, with results of a target type."""
    held, since = _held(type_), _since(target, type_)
    ftzs = ("", ".ftz") if type_ in ("f32", "f16", "f16x2") and target != "bf16" else ("",)
    for operator in _operators(type_):
        for ftz in ftzs:
            name = f"set.{operator}{ftz}.{target}.{type_}"
            result = (Result("d", _held(target)),)
            yield lanes(
                name, f"{name} $d0, $a0, $a1;", (held, held), grid((held, held), few=True), result, doubt=2,
                needs=since,
            )  # fmt: skip
    operands, operators = (held, held, "pred"), _operators(type_)
    results = tuple(Result(operator, _held(target)) for operator in operators)
    for join in _JOINS:
        for ftz in ftzs:
            text = " ".join(f"set.{operator}.{join}{ftz}.{target}.{type_} $d{n}, $a0, $a1, $a2;" for n, operator in enumerate(operators))  # fmt: skip
            yield lanes(
                f"set.*.{join}{ftz}.{target}.{type_}", text, operands, grid(operands, few=True, most=_JOINED),
                results, doubt=3, needs=since,
            )  # fmt: skip


def _selections() -> Iterator[Form]:
    for type_ in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        held = _held(type_)
        operands = (held, held, "pred")
        yield lanes(
            f"selp.{type_}", f"selp.{type_} $d0, $a0, $a1, $a2;", operands, grid(operands, few=True, most=40),
            (Result("d", held),),
        )  # fmt: skip
        for by in ("s32", "f32"):
            for ftz in ("", ".ftz") if by == "f32" else ("",):
                name = f"slct{ftz}.{type_}.{by}"
                third = (held, held, _held(by))
                yield lanes(
                    name, f"{name} $d0, $a0, $a1, $a2;", third, grid(third, few=True, most=60),
                    (Result("d", held),), doubt=2,
                )  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    for type_ in _TYPES:
        yield from _setp(type_)
        if type_ in _SMALL:
            continue
        for target in ("u32", "s32", "f32", "f16", "bf16"):
            yield from _set(target, type_)
    for type_ in ("f16", "bf16"):
        for target in ("f16", "bf16", "u16", "s16", "u32", "s32"):
            if target in _SMALL and target != type_:
                continue
            yield from _set(target, type_)
        for target in (f"{type_}x2", "u32", "s32"):
            yield from _set(target, f"{type_}x2")
    yield from _selections()
