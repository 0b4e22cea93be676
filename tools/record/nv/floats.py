"""Forms of floating-point arithmetic that is exact to the bit. Source of the lists: PTX ISA 9.7.3 to 9.7.5.

Not here: approximations (`approximations`), comparisons (`comparisons`). Next: `vendor`, the list of all
forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import Form, Result, grid, joined, near
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDINGS: Final = (".rn", ".rz", ".rm", ".rp")
_FTZ: Final = ("", ".ftz")
_SAT: Final = ("", ".sat")
_HOPPER: Final = 90
_BLACKWELL: Final = 100


def floating(
    name: str, result: str, *operands: str, doubt: int = 1, since: int = 0, most: int = 360, close: int = 60,
    label: str = "",
) -> Form:  # fmt: skip
    """Return the form of an instruction on edge values of floats, and on `close` rows of `forms.near`.

    `result` and `operands` are types; `most` limits the combinations of edge values; `since` is the first SM
    number; `label` replaces the form's name.
    """
    few = len(operands) > 2
    inputs = joined(grid(operands, few=few, most=most), near(operands, close))
    sources = ", ".join(f"$a{n}" for n in range(len(operands)))
    return lanes(
        label or name,
        f"{name} $d0, {sources};",
        operands,
        inputs,
        (Result("d", result),),
        doubt=doubt,
        needs=since,
    )


def _single() -> Iterator[Form]:
    """Yield the arithmetic of f32."""
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        operands = ("f32",) * count
        roundings = ROUNDINGS if count > 2 else ("", *ROUNDINGS)
        for rounding in roundings:
            for ftz in _FTZ:
                for sat in _SAT:
                    doubt = 3 if rounding not in ("", ".rn") or ftz else 1
                    yield floating(f"{name}{rounding}{ftz}{sat}.f32", "f32", *operands, doubt=doubt)
    for name, count in (("div", 2), ("rcp", 1), ("sqrt", 1)):
        for rounding in ROUNDINGS:
            for ftz in _FTZ:
                yield floating(f"{name}{rounding}{ftz}.f32", "f32", *("f32",) * count, doubt=3)
    for name in ("neg", "abs"):
        for ftz in _FTZ:
            yield floating(f"{name}{ftz}.f32", "f32", "f32", doubt=2)
    for name in ("min", "max"):
        for ftz in _FTZ:
            for nan in ("", ".NaN"):
                for sign in ("", ".xorsign.abs"):
                    since = 86 if sign else 0
                    yield floating(f"{name}{ftz}{nan}{sign}.f32", "f32", "f32", "f32", doubt=4, since=since)
                for magnitude in ("", ".abs"):
                    form = f"{name}{ftz}{nan}{magnitude}.f32"
                    yield floating(
                        form, "f32", "f32", "f32", "f32", doubt=4, since=_BLACKWELL, label=f"{form} of three"
                    )


def _double() -> Iterator[Form]:
    """Yield the arithmetic of f64, and copysign and testp of f32 and f64."""
    counts = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "mad": 3, "div": 2, "rcp": 1, "sqrt": 1}
    for name, count in counts.items():
        plain = ("",) if name in ("add", "sub", "mul") else ()
        for rounding in (*plain, *ROUNDINGS):
            doubt = 3 if rounding in (".rm", ".rp", ".rz") else 1
            yield floating(f"{name}{rounding}.f64", "f64", *("f64",) * count, doubt=doubt, most=240, close=40)
    for name in ("neg", "abs"):
        yield floating(f"{name}.f64", "f64", "f64", doubt=2)
    for name in ("min", "max"):
        yield floating(f"{name}.f64", "f64", "f64", "f64", doubt=3, most=240)
    for type_ in ("f32", "f64"):
        yield floating(f"copysign.{type_}", type_, type_, type_, most=240)
        for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield floating(f"testp.{what}.{type_}", "pred", type_)


def _small(type_: str) -> Iterator[Form]:
    """Yield the arithmetic of a 16-bit format, or of pairs of it."""
    half = type_.startswith("f16")
    since = 0 if half else _HOPPER
    ftz, sat = (_FTZ, _SAT) if half else (("",), ("",))
    for name in ("add", "sub", "mul"):
        for rounding in ("", ".rn"):
            for f in ftz:
                for s in sat:
                    yield floating(
                        f"{name}{rounding}{f}{s}.{type_}", type_, type_, type_, doubt=3, since=since, most=300
                    )
    for f in ftz:
        for s in (*sat, ".relu"):
            yield floating(f"fma.rn{f}{s}.{type_}", type_, type_, type_, type_, doubt=4)
        for name in ("neg", "abs"):
            yield floating(f"{name}{f}.{type_}", type_, type_, doubt=2)
        for name in ("min", "max"):
            for nan in ("", ".NaN"):
                for sign in ("", ".xorsign.abs"):
                    yield floating(
                        f"{name}{f}{nan}{sign}.{type_}",
                        type_,
                        type_,
                        type_,
                        doubt=4,
                        since=86 if sign else 0,
                        most=300,
                    )


def _pairs() -> Iterator[Form]:
    """Yield the arithmetic of pairs of f32, and of f32 with 16-bit floats."""
    for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for rounding in ROUNDINGS if count > 2 else ("", *ROUNDINGS):
            for ftz in _FTZ:
                yield floating(
                    f"{name}{rounding}{ftz}.f32x2",
                    "f32x2",
                    *("f32x2",) * count,
                    doubt=4,
                    since=_BLACKWELL,
                    most=200,
                )
    for type_ in ("f16", "bf16"):
        for name, count in (("add", 2), ("sub", 2), ("fma", 3)):
            for rounding in ROUNDINGS if count > 2 else ("", *ROUNDINGS):
                for sat in _SAT:
                    operands = (*(type_,) * (count - 1), "f32")
                    yield floating(
                        f"{name}{rounding}{sat}.f32.{type_}",
                        "f32",
                        *operands,
                        doubt=5,
                        since=_BLACKWELL,
                        most=200,
                    )


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _single()
    yield from _double()
    for type_ in ("f16", "f16x2", "bf16", "bf16x2"):
        yield from _small(type_)
    yield from _pairs()
