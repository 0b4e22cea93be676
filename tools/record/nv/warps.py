"""Forms of exchanges in a warp: shfl, vote, match, redux, elect, activemask, bar.warp. Source: PTX ISA 9.7.9.6, 9.7.13.

The rows of a form are whole warps. Lanes outside of a mask do not execute the instruction; their results are
zeros, but for bar.warp.sync, whose result is each lane's number. A shuffle reads only lanes of its mask,
because the values of other lanes are undefined.

Not here: matrices (`matrices`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from tools.record.forms import Form, Result, frozen, scattered
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.record.forms import Inputs

WARP: Final = 32
ALL: Final = 0xFFFFFFFF
MASKS: Final = (ALL, 1, 0x80000000, 0x55555555, 0xFFFF0000, 0x00F0F00F, 0x80000001, 0x7FFFFFFE, 0x12345678)
_PATTERNS: Final = (0, ALL, 1, 0x80000000, 0xAAAAAAAA, 0x55555555, 0x0000FFFF, 0x13579BDF)
_IN: Final = ".reg .pred in; .reg .b32 m; shr.u32 m, {mask}, $lane; and.b32 m, m, 1; setp.ne.u32 in, m, 0; "
"""Code that sets the predicate `in` in the lanes of a mask."""
_BLACKWELL: Final = 100
_FAMILY: Final = 109
"""Redux of floats is recorded for the architectures from `_BLACKWELL` to this one."""


@functools.cache
def _warps(rows: Callable[[], Sequence[Sequence[int]]]) -> Inputs:
    return frozen(rows())


def _shuffles() -> list[list[int]]:
    """Return rows of (value, b, c, mask) of whole warps: each control word c with many values of b."""
    rows = []
    values = scattered(("u32",), WARP, seed=3)[:, 0].tolist()
    for control in (0x1F, 0x00, 0x181F, 0x1C1F, 0x1E00, 0x1803, 0x0F):
        for b in (0, 1, 2, 5, 16, 31, 32, 33, 63, 0xFFFFFFFF):
            rows += [[values[lane], b, control, ALL] for lane in range(WARP)]
    for shift in range(4):  # each lane has its own b
        rows += [[values[lane], lane * (2 * shift + 1) + shift, 0x1F, ALL] for lane in range(WARP)]
    return rows


def _masked(mode: str) -> list[list[int]]:
    """Return rows (value, b, c, mask) of shuffles by index or exclusive or, with sources inside each mask."""
    rows = []
    for mask in MASKS:
        inside = [lane for lane in range(WARP) if mask >> lane & 1]
        for step in range(3):
            for lane in range(WARP):
                source = inside[(lane + step) % len(inside)]
                b = source if mode == "idx" else (lane ^ source)
                rows.append([0x1000 + 17 * lane, b, 0x1F, mask])
    return rows


@functools.cache
def _shuffle_rows(mode: str) -> Inputs:
    return frozen(_shuffles() + (_masked(mode) if mode in ("idx", "bfly") else []))


def _votes() -> list[list[int]]:
    return [[pattern >> lane & 1, mask] for mask in MASKS for pattern in _PATTERNS for lane in range(WARP)]


def _matches() -> list[list[int]]:
    kinds: tuple[Callable[[int], int], ...] = (
        lambda _: 5, lambda n: n, lambda n: n % 2, lambda n: n % 3, lambda n: n // 5, lambda n: n >> 4 << 40,
        lambda n: -1 if n % 7 else 0, lambda n: (n % 4) << 32 | 9,
    )  # fmt: skip
    return [[kind(lane) % 2**64, mask] for mask in MASKS for kind in kinds for lane in range(WARP)]


def _reductions() -> list[list[int]]:
    values = scattered(("u32",), WARP * 4, seed=5)[:, 0].tolist()
    kinds: tuple[Callable[[int], int], ...] = (
        lambda n: n, lambda n: -n, lambda n: values[n], lambda n: values[n + 32], lambda n: values[n + 64] >> 8,
        lambda _: 0x80000000, lambda _: 0x7FFFFFFF, lambda n: 1 << n,
    )  # fmt: skip
    return [[kind(lane) % 2**32, mask] for mask in MASKS for kind in kinds for lane in range(WARP)]


_FLOATS: Final = (
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00000, 0x00000001,
    0x80000001, 0x7F800001, 0x7F7FFFFF,
)  # fmt: skip


def _float_reductions() -> list[list[int]]:
    return [[_FLOATS[(lane * step + start) % (2 if start == 0 else len(_FLOATS))], mask] for mask in MASKS for step, start in ((1, 0), (1, 2), (5, 3), (7, 1)) for lane in range(WARP)]  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        text = _IN.format(mask="$a3") + "mov.u32 $d0, 0; .reg .pred q; setp.ne.u32 q, 0, 0;"
        text += f" @in {name} $d0|q, $a0, $a1, $a2, $a3; selp.u32 $d1, 1, 0, q;"
        results = (Result("d", "u32"), Result("p", "u32"))
        yield lanes(name, text, ("u32",) * 4, _shuffle_rows(mode), results, doubt=6)
        constant = f"{name} $d0|p, $a0, 3, 0x181f, -1; selp.u32 $d1, 1, 0, p;"
        yield lanes(f"{name} constant", ".reg .pred p; " + constant, ("u32",), scattered(("u32",), WARP), results, doubt=4)  # fmt: skip
    yield from _voting()
    for how in ("any", "all"):
        for bits in (32, 64):
            name = f"match.{how}.sync.b{bits}"
            value = "v" if bits == 32 else "$a0"
            text = (_IN.format(mask="$a1") + ".reg .b32 v, u; .reg .pred q; mov.b64 {v, u}, $a0; mov.u32 $d0, 0;")  # fmt: skip
            target = "$d0|q" if how == "all" else "$d0"
            text += f" setp.ne.u32 q, 0, 0; @in {name} {target}, {value}, $a1; selp.u32 $d1, 1, 0, q;"
            results = (Result("d", "u32"), Result("p", "u32"))
            yield lanes(name, text, ("u64", "u32"), _warps(_matches), results, doubt=6)
    yield from _reducing()
    yield from _electing()


def _voting() -> Iterator[Form]:
    for how in ("all", "any", "uni"):
        name = f"vote.sync.{how}.pred"
        text = _IN.format(mask="$a1") + ".reg .pred v, q; setp.ne.u32 v, $a0, 0; setp.ne.u32 q, 0, 0;"
        text += f" @in {name} q, v, $a1; selp.u32 $d0, 1, 0, q;"
        yield lanes(name, text, ("u32", "u32"), _warps(_votes), (Result("d", "u32"),), doubt=5)
    name = "vote.sync.ballot.b32"
    text = _IN.format(mask="$a1") + ".reg .pred v; setp.ne.u32 v, $a0, 0; mov.u32 $d0, 0;"
    text += f" @in {name} $d0, v, $a1;"
    yield lanes(name, text, ("u32", "u32"), _warps(_votes), (Result("d", "u32"),), doubt=5)


def _reducing() -> Iterator[Form]:
    kinds = [(name, t) for name in ("add", "min", "max") for t in ("u32", "s32")]
    kinds += [(name, "b32") for name in ("and", "or", "xor")]
    for operation, type_ in kinds:
        name = f"redux.sync.{operation}.{type_}"
        text = _IN.format(mask="$a1") + f"mov.u32 $d0, 0; @in {name} $d0, $a0, $a1;"
        yield lanes(name, text, ("u32", "u32"), _warps(_reductions), (Result("d", "u32"),), doubt=5)
    for operation in ("min", "max"):
        for magnitude in ("", ".abs"):
            for nan in ("", ".NaN"):
                name = f"redux.sync.{operation}{magnitude}{nan}.f32"
                text = _IN.format(mask="$a1") + f"mov.b32 $d0, 0; @in {name} $d0, $a0, $a1;"
                yield lanes(
                    name, text, ("f32", "u32"), _warps(_float_reductions), (Result("d", "f32"),), doubt=7,
                    needs=_BLACKWELL, until=_FAMILY,
                )  # fmt: skip


def _masks_only() -> list[list[int]]:
    return [[mask] for mask in MASKS for _ in range(WARP)]


def _electing() -> Iterator[Form]:
    text = _IN.format(mask="$a0") + "mov.u32 $d0, 0; @in activemask.b32 $d0;"
    yield lanes("activemask.b32", text, ("u32",), _warps(_masks_only), (Result("d", "u32"),), doubt=6)
    text = _IN.format(mask="$a0") + ".reg .pred q; setp.ne.u32 q, 0, 0; mov.u32 $d0, 0;"
    text += " @in elect.sync $d0|q, $a0; selp.u32 $d1, 1, 0, q;"
    results = (Result("d", "u32"), Result("p", "u32"))
    yield lanes("elect.sync", text, ("u32",), _warps(_masks_only), results, doubt=6, needs=90)
    text = _IN.format(mask="$a0") + "@in bar.warp.sync $a0; mov.u32 $d0, $lane;"
    yield lanes("bar.warp.sync", text, ("u32",), _warps(_masks_only), results[:1], doubt=3)
