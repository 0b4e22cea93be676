"""Forms of conversions between types. Source of the lists: PTX ISA 9.7.9.21 (cvt), 9.7.9.22 (cvt.pack).

Not here: conversions of addresses (`moves`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: PLR0917 - tables of forms read best one form a line

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tools.record.forms import FLOATS, Form, Result, chosen, floats, grid, integers, joined, near, scattered
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.record.forms import Inputs

_INTEGERS: Final = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS: Final = ("f16", "bf16", "f32", "f64")
_INTEGRAL: Final = (".rni", ".rzi", ".rmi", ".rpi")
_ROUNDINGS: Final = (".rn", ".rz", ".rm", ".rp")
_HOPPER: Final = 90
_BLACKWELL: Final = 100
_BYTE: Final = 8
_FP8: Final = ("e4m3x2", "e5m2x2")


def _around(type_: str, to: str) -> Inputs:
    """Return floats of `type_`: its edges, limits of the integer type `to` with their neighbours, halves."""
    exponent, mantissa = FLOATS[type_]
    bias = (1 << (exponent - 1)) - 1
    found = list(floats(type_))
    for power in {int(to[1:]), int(to[1:]) - 1, mantissa, mantissa - 1, 0, 1, -1, 2}:
        if not -bias < power <= bias:
            continue
        whole = (bias + power) << mantissa
        for bits in (
            whole - 1,
            whole,
            whole + 1,
            whole + (1 << (mantissa - 1)),
            whole + (1 << max(0, mantissa - 2)),
        ):
            found += [bits, bits | 1 << (exponent + mantissa)]
    return joined(chosen(tuple(dict.fromkeys(found))), near((type_,), 24, spread=40))


def _one(
    name: str, result: str, operands: tuple[str, ...], inputs: Inputs, doubt: int, since: int = 0
) -> Form:
    sources = ", ".join(f"$a{n}" for n in range(len(operands)))
    return lanes(
        name, f"{name} $d0, {sources};", operands, inputs, (Result("d", result),), doubt=doubt, needs=since
    )


def _bfloat(*types: str) -> int:
    return _HOPPER if "bf16" in types else 0


def _narrows(target: str, source: str) -> bool:
    """Return whether `target` lacks a value of `source`: only then `.sat` is legal."""
    wide, narrow = (int(one[1:]) - (one[0] == "s") for one in (source, target))
    return wide > narrow or (source[0] == "s" and target[0] == "u")


def _between_integers() -> Iterator[Form]:
    for source in _INTEGERS:
        inputs = joined(chosen(integers(int(source[1:]))), scattered((source,), 12))
        for target in _INTEGERS:
            for sat in ("", ".sat") if _narrows(target, source) else ("",):
                yield _one(f"cvt{sat}.{target}.{source}", target, (source,), inputs, 2 if sat else 1)


def _integers_to_floats() -> Iterator[Form]:
    for source in _INTEGERS:
        bits = int(source[1:])
        ties = tuple(
            (1 << n) + (k << n >> m) & ((1 << bits) - 1)
            for n in range(8, bits)
            for m, k in ((9, 1), (12, 3), (25, 1), (25, 3))
        )
        inputs = joined(chosen(tuple(dict.fromkeys((*integers(bits), *ties)))), scattered((source,), 24))
        for target in _FLOATS:
            if target == "bf16" and bits == _BYTE:
                continue
            for rounding in _ROUNDINGS:
                yield _one(f"cvt{rounding}.{target}.{source}", target, (source,), inputs, 4, _bfloat(target))
                if target != "bf16":
                    yield _one(f"cvt{rounding}.sat.{target}.{source}", target, (source,), inputs, 3)


def _floats_to_integers() -> Iterator[Form]:
    for source in _FLOATS:
        for target in _INTEGERS:
            if source == "bf16" and int(target[1:]) == _BYTE:
                continue
            inputs = _around(source, target)
            for integral in _INTEGRAL:
                for ftz in ("", ".ftz") if source == "f32" else ("",):
                    for sat in ("", ".sat") if source != "bf16" else ("",):
                        name = f"cvt{integral}{ftz}{sat}.{target}.{source}"
                        yield _one(name, target, (source,), inputs, 5, _bfloat(source))


def _between_floats() -> Iterator[Form]:
    """Yield the conversions among f16, f32 and f64."""
    for source in ("f16", "f32", "f64"):
        inputs = joined(
            _around(source, "s32"), near((source,), 60, spread=14), near((source,), 60, spread=30)
        )
        for integral in _INTEGRAL:
            for ftz in ("", ".ftz") if source == "f32" else ("",):
                for sat in ("", ".sat"):
                    yield _one(f"cvt{integral}{ftz}{sat}.{source}.{source}", source, (source,), inputs, 3)
        for target in ("f16", "f32", "f64"):
            width = FLOATS[target][1] - FLOATS[source][1]
            for rounding in _ROUNDINGS if width < 0 else ("",):
                for ftz in ("", ".ftz") if "f32" in (source, target) else ("",):
                    for sat in ("", ".sat"):
                        yield _one(f"cvt{rounding}{ftz}{sat}.{target}.{source}", target, (source,), inputs, 3)
    singles = joined(_around("f32", "s32"), near(("f32",), 60, spread=14), near(("f32",), 60, spread=30))
    for target in ("f16", "bf16"):
        for rounding in (".rn", ".rz"):
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):
                    if target == "bf16" or relu or finite:
                        name = f"cvt{rounding}{relu}{finite}.{target}.f32"
                        yield _one(name, target, ("f32",), singles, 4, 80 if finite else 0)
    yield from _bfloats(singles)
    for form in ("rna", "rn", "rz"):
        for relu in ("", ".relu") if form != "rna" else ("",):
            yield _one(
                f"cvt.{form}{relu}.tf32.f32", "u32", ("f32",), singles, 5, 0 if form == "rna" else _HOPPER
            )
    yield _one("cvt.rna.satfinite.tf32.f32", "u32", ("f32",), singles, 5, 80)
    for form in ("rn", "rz"):
        for relu in ("", ".relu"):
            name = f"cvt.{form}{relu}.satfinite.tf32.f32"
            yield _one(name, "u32", ("f32",), singles, 5, _BLACKWELL)


def _bfloats(singles: Inputs) -> Iterator[Form]:
    """Yield conversions of bfloat16: with float32 on every architecture, others from Hopper on."""
    bfloats = joined(_around("bf16", "s32"), near(("bf16",), 60, spread=30))
    for words, target in (("", "f32"), (".ftz", "f32"), ("", "f64"), ("", "bf16")):
        since = 0 if (words, target) == ("", "f32") else _HOPPER
        yield _one(f"cvt{words}.{target}.bf16", target, ("bf16",), bfloats, 3, since)
    for integral in _INTEGRAL:
        yield _one(f"cvt{integral}.bf16.bf16", "bf16", ("bf16",), bfloats, 3, _HOPPER)
    for rounding in _ROUNDINGS:
        yield _one(f"cvt{rounding}.f16.bf16", "f16", ("bf16",), bfloats, 4, _HOPPER)
        for source in ("f16", "f64"):
            inputs = joined(_around(source, "s32"), near((source,), 60, spread=14))
            yield _one(f"cvt{rounding}.bf16.{source}", "bf16", (source,), inputs, 4, _HOPPER)
        for ftz in ("", ".ftz"):
            if ftz or rounding in (".rm", ".rp"):
                yield _one(f"cvt{rounding}{ftz}.bf16.f32", "bf16", ("f32",), singles, 4)


def _packed() -> Iterator[Form]:
    """Yield conversions to and from packed values: pairs of f16 and bf16, 8-bit floats, integers."""
    pair = ("f32", "f32")
    inputs = joined(grid(pair, most=200), near(pair, 120, spread=14), near(pair, 40, spread=10))
    for target in ("f16x2", "bf16x2"):
        for rounding in (".rn", ".rz"):
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):
                    yield _one(f"cvt{rounding}{relu}{finite}.{target}.f32", target, pair, inputs, 5, 80)
    for target in _FP8:
        for relu in ("", ".relu"):
            yield _one(f"cvt.rn.satfinite{relu}.{target}.f32", "u16", pair, inputs, 6, 89)
            halves = joined(grid(("f16x2",)), near(("f16x2",), 150, spread=10))
            yield _one(f"cvt.rn.satfinite{relu}.{target}.f16x2", "u16", ("f16x2",), halves, 6, 89)
            every = chosen(tuple(n | (255 - n) << 8 for n in range(256)))
            yield _one(f"cvt.rn{relu}.f16x2.{target}", "f16x2", ("u16",), every, 6, 89)
    signed = ("s32", "s32")
    edges = tuple(
        v & 0xFFFFFFFF
        for n in (1, 2, 3, 4, 7, 8, 15, 16)
        for v in (1 << n, (1 << n) - 1, -(1 << n), -(1 << n) - 1, -1, 0)
    )
    rows = grid(signed, given=((0, edges), (1, edges)), most=200)
    for target in ("s16", "u16"):
        yield _one(f"cvt.pack.sat.{target}.s32", "u32", signed, rows, 5, 72)
    third = ("s32", "s32", "u32")
    for target in ("s8", "u8", "s4", "u4", "s2", "u2"):
        yield _one(
            f"cvt.pack.sat.{target}.s32.b32",
            "u32",
            third,
            grid(third, given=((0, edges), (1, edges)), most=300),
            5,
            72,
        )


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _between_integers()
    yield from _integers_to_floats()
    yield from _floats_to_integers()
    yield from _between_floats()
    yield from _packed()
