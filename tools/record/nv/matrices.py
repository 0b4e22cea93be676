"""Forms of matrix instructions of a warp: mma, wmma, ldmatrix, stmatrix, movmatrix. Source: PTX ISA 9.7.14.

The manual does not specify the order of additions and their rounding. Therefore a product of floats has forms
of four kinds. "exact": small integers and halves, whose sums are exact in every order. "near": operands near
1, whose results may differ by the error of rounding all sums. "special": infinities and NaNs. "far": terms of
far exponents and sums that cancel; they are recorded and not compared, because they show the order and
rounding of the hardware. wmma has the first two kinds, kind::f8f6f4 the first.

Not here: products of a warpgroup (`warpgroups`). Next: `vendor`, the list of all forms.
"""

# ruff: noqa: E501 - tables of forms read best one form a line

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.record.forms import EXACT, Allowed, Form, Launch, Result, frozen, scattered
from tools.record.nv.build import lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.record.forms import Inputs

WARP: Final = 32
_HOPPER: Final = 90
_RULE: Final = "PTX ISA 9.7.14: the order and the rounding of the additions are not specified"
_PROBE: Final = Allowed("free", rule=_RULE)
_NAN: Final = Allowed("ulp", 0, "PTX ISA 9.7.14: payloads of NaNs are not specified")
FORMATS: Final = {
    "f16": (16, 5, 10), "bf16": (16, 8, 7), "tf32": (32, 8, 23), "e4m3": (8, 4, 3), "e5m2": (8, 5, 2), "f32": (32, 8, 23),
    "f64": (64, 11, 52),
}  # fmt: skip
"""Type of an element -> its bits in a register, bits of exponent, bits of mantissa. A tf32 is held as a float32;
the lowest 13 of its mantissa bits are 0 in all inputs, because their meaning is not specified."""
BITS: Final = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}
KINDS: Final = ("exact", "near", "special", "far")


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a product: A is m x k, B is k x n, C and D are m x n."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


def _float(type_: str, raw: Any, kind: str) -> Any:
    """Return elements of a float type, as u64 of their bits, made from pseudo-random bits."""
    _, exponent, mantissa = FORMATS[type_]
    bias, sign = (np.uint64((1 << (exponent - 1)) - 1), (raw >> np.uint64(63)) << np.uint64(exponent + mantissa))  # fmt: skip
    wide = np.uint64(mantissa)
    if kind == "exact":  # 0.5, 1, 1.5, 2, 3 and 0
        table = np.array([bias - np.uint64(1), bias, bias, bias + np.uint64(1), bias + np.uint64(1), 0], "u8")
        which = raw % np.uint64(6)
        halves = np.array([0, 0, 1, 0, 1, 0], "u8")[which] << np.uint64(mantissa - 1)
        return sign * (which != 5) | table[which] << wide | halves
    spread = {"near": 1, "special": 1, "far": (1 << (exponent - 1)) - 3 if exponent < 8 else 13}[kind]
    power = bias + raw % np.uint64(2 * spread + 1) - np.uint64(spread)
    bits = raw >> np.uint64(8) & np.uint64((1 << mantissa) - 1)
    if type_ == "tf32":
        bits &= ~np.uint64(0x1FFF)  # the manual does not say what the low bits of a tf32 do
    found = sign | power << wide | bits
    if kind == "special":
        largest = np.uint64((1 << exponent) - 1)
        infinity = largest << wide if type_ != "e4m3" else np.uint64(0x7E)
        rare = raw >> np.uint64(40) & np.uint64(63)
        found = np.where(rare == 0, infinity | sign, found)
        found = np.where(rare == 1, infinity | np.uint64(1 << (mantissa - 1)), found)
        found = np.where(rare == 2, sign, found)
        found = np.where(rare == 3, sign | np.uint64(1), found) if type_ != "tf32" else found
    return found


def elements(type_: str, count: int, kind: str, seed: int) -> Any:
    """Return `count` elements of a type and a kind of `KINDS`, as u64 of their bits; the same every time."""
    raw = scattered(("u64",), count, seed=seed)[:, 0].copy()
    if type_ in FORMATS:
        return _float(type_, raw, kind)
    if type_ == "s32":
        near = np.array([0, 1, -1, 0x7FFFFFF0, -0x7FFFFFF0, 12345], "i8").astype("u8") & np.uint64(0xFFFFFFFF)
        return near[raw % np.uint64(6)]
    return raw & np.uint64((1 << BITS[type_]) - 1)


def registers(type_: str, count: int, rows: int, kind: str, seed: int) -> Any:
    """Return an array (rows, count) of the registers of `rows` lanes, filled with elements of a type."""
    bits = FORMATS[type_][0] if type_ in FORMATS else BITS[type_]
    parts = max(1, 32 // bits)
    found = elements(type_, rows * count * parts, kind, seed).reshape(rows, count, parts)
    return sum(found[:, :, n] << np.uint64(n * bits) for n in range(parts))


def allowance(kind: str, a: str, d: str, k: int) -> Allowed:
    """Return the difference that is allowed in the sums of a product, of types `a` and `d` and `k` terms."""
    if d == "s32" or kind == "exact" or a == "f64":
        return EXACT
    if kind == "special":
        return _NAN if d != "f16" else _PROBE
    if kind == "far":
        return _PROBE
    largest = (k + 1) * 16.0  # operands are below 4
    return Allowed("absolute", largest * (2.0**-9 if d == "f16" else 2.0**-21), _RULE)


@functools.cache
def _inputs(types: tuple[str, ...], counts: tuple[int, ...], kind: str, warps: int) -> Inputs:
    parts = [registers(one, count, warps * WARP, kind, 31 + n) for n, (one, count) in enumerate(zip(types, counts, strict=True))]  # fmt: skip
    return frozen(np.concatenate(parts, axis=1))


@dataclass(frozen=True, slots=True)
class _Family:
    """Forms of mma.sync that differ in types, shapes and operations only."""

    types: tuple[str, ...]
    """Types of A and B, in all combinations."""
    bits: int
    """Bits of an element of A and B."""
    shapes: tuple[tuple[int, int, int], ...]
    """m, n and k."""
    sums: tuple[str, ...]
    """Types of C and D."""
    needs: int = 80
    """The first SM version."""
    operations: tuple[str, ...] = ("",)
    """Parts of the name that select the operation."""


_MMA: Final = (
    _Family(("f16",), 16, ((16, 8, 8), (16, 8, 16)), ("f16", "f32")),
    _Family(("bf16",), 16, ((16, 8, 8), (16, 8, 16)), ("f32",)),
    _Family(("tf32",), 32, ((16, 8, 4), (16, 8, 8)), ("f32",)),
    _Family(("e4m3", "e5m2"), 8, ((16, 8, 16), (16, 8, 32)), ("f32", "f16"), 89),
    _Family(("s8", "u8"), 8, ((8, 8, 16), (16, 8, 16), (16, 8, 32)), ("s32",), 80, ("", ".satfinite")),
    _Family(("s4", "u4"), 4, ((8, 8, 32), (16, 8, 32), (16, 8, 64)), ("s32",), 80, ("", ".satfinite")),
    _Family(("b1",), 1, ((8, 8, 128), (16, 8, 128), (16, 8, 256)), ("s32",), 80, (".xor.popc", ".and.popc")),
    _Family(("f64",), 64, ((8, 8, 4),), ("f64",)),
    _Family(("f64",), 64, ((16, 8, 4), (16, 8, 8), (16, 8, 16)), ("f64",), _HOPPER),
)


def _list(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"${letter}{first + n}" for n in range(count)) + "}"


def _products() -> Iterator[Form]:
    for family in _MMA:
        for m, n, k in family.shapes:
            for a in family.types:
                for b in family.types:
                    for d in family.sums:
                        for operation in family.operations:
                            yield from _product(family, Shape(m, n, k), (a, b, d), operation)


def _product(family: _Family, shape: Shape, types: tuple[str, str, str], operation: str) -> Iterator[Form]:
    """Yield the forms of one mma.sync of a family, shape and types."""
    a, b, d = types
    wide = 64 if family.bits == 64 else 32
    held = max(family.bits, 32)
    counts = (shape.m * shape.k * family.bits // (WARP * held), shape.n * shape.k * family.bits // (WARP * held))  # fmt: skip
    sums = shape.m * shape.n // WARP // (2 if d == "f16" else 1)
    before = operation if operation == ".satfinite" else ""
    after = "" if operation == ".satfinite" else operation
    name = f"mma.sync.aligned.{shape}.row.col{before}.{d}.{a}.{b}.{d}{after}"
    total = sum(counts)
    text = f"{name} {_list('d', 0, sums)}, {_list('a', 0, counts[0])}, {_list('a', counts[0], counts[1])}, {_list('a', total, sums)};"
    type_ = {"f16": "f16x2", "f32": "f32", "s32": "s32", "f64": "f64"}[d]
    for kind in KINDS if a in FORMATS else ("exact",):
        inputs = _inputs((a, b, d), (*counts, sums), kind, 2 if kind == "exact" else 1)
        allowed = allowance(kind, a, d, shape.k)
        results = tuple(Result(f"d{n}", type_, allowed) for n in range(sums))
        operands = (f"u{wide}",) * (total + sums)
        yield lanes(f"{name} {kind}", text, operands, inputs, results, doubt=9 if kind == "far" else 6, needs=family.needs)  # fmt: skip
    if a in ("e4m3", "e5m2") and shape.k == WARP:
        named = name.replace(".row.col", ".row.col.kind::f8f6f4")
        inputs = _inputs((a, b, d), (*counts, sums), "exact", 1)
        results = tuple(Result(f"d{n}", type_) for n in range(sums))
        yield lanes(named, text.replace(name, named), ("u32",) * (total + sums), inputs, results, doubt=6, needs=120)  # fmt: skip


_WIDE: Final = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_WMMA: Final = {
    ("f16", "f16"): (_WIDE, ("f16", "f32"), 2), ("bf16", "bf16"): (_WIDE, ("f32",), 2), ("tf32", "tf32"): (((16, 16, 8),), ("f32",), 4),
    ("f64", "f64"): (((8, 8, 4),), ("f64",), 8), ("s8", "s8"): (_WIDE, ("s32",), 1), ("u8", "u8"): (_WIDE, ("s32",), 1),
    ("s4", "s4"): (((8, 8, 32),), ("s32",), 0), ("u4", "u4"): (((8, 8, 32),), ("s32",), 0), ("b1", "b1"): (((8, 8, 128),), ("s32",), 0),
}  # fmt: skip
"""Types of A and B -> shapes, types of the sums, bytes of an element of A (0: less than one)."""
_FRAGMENT: Final = {
    "f16": {_WIDE[0]: (8, 8), _WIDE[1]: (8, 8), _WIDE[2]: (8, 8)},
    "bf16": {_WIDE[0]: (4, 4), _WIDE[1]: (8, 2), _WIDE[2]: (2, 8)},
    "s8": {_WIDE[0]: (2, 2), _WIDE[1]: (4, 1), _WIDE[2]: (1, 4)},
    "tf32": {(16, 16, 8): (4, 4)}, "f64": {(8, 8, 4): (1, 1)}, "s4": {(8, 8, 32): (1, 1)}, "b1": {(8, 8, 128): (1, 1)},
}  # fmt: skip
"""Registers of the fragments of A and B, as the manual's tables of wmma.mma state them."""
_ACCUMULATORS: Final = {"f16": 4, "f32": 8, "s32": 8, "f64": 2}


def _wmma() -> Iterator[Form]:
    for (a, b), (shapes, sums, size) in _WMMA.items():
        for shape in shapes:
            for d in sums:
                for layouts in (("row", "col"), ("col", "row"), ("row", "row"), ("col", "col")):
                    if size == 0 and layouts != ("row", "col"):
                        continue
                    yield from _wmma_form((a, b, d), Shape(*shape), layouts, size)


def _wmma_form(
    types: tuple[str, str, str], shape: Shape, layouts: tuple[str, str], size: int
) -> Iterator[Form]:
    """Yield the forms of one wmma, with loads and a store of its fragments."""
    a, b, d = types
    which = {"u8": "s8", "u4": "s4"}.get(a, a)
    fa, fb = _FRAGMENT[which][shape.m, shape.n, shape.k]
    held = 64 if a == "f64" else 32
    fc = 2 if a == "f64" else _ACCUMULATORS[d] if (shape.m * shape.n) == 256 else shape.m * shape.n // WARP
    bits = size * 8 or BITS[a]
    kinds = ("exact", "near") if a in FORMATS else ("exact",)
    count = shape.m * shape.n
    strides = (shape.k if layouts[0] == "row" else shape.m, shape.n if layouts[1] == "row" else shape.k)
    a_bytes, b_bytes = shape.m * shape.k * bits // 8, shape.k * shape.n * bits // 8
    names = [", ".join(f"{letter}{n}" for n in range(c)) for letter, c in (("x", fa), ("y", fb), ("z", fc), ("w", fc))]  # fmt: skip
    sat = ".satfinite" if a[0] in "su" else ""
    form = f"wmma.mma{'.xor.popc' if a == 'b1' else ''}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}"
    form += f".{d}.{d}" if a == "f16" else f".{d}.{a}.{b}.{d}"
    form += sat
    text = f" .reg .b{held} {names[0]}, {names[1]}, {names[2]}, {names[3]}; .reg .b64 p, q;\n"
    text += f" add.u64 p, %in, {-(-a_bytes // 64) * 64}; add.u64 q, p, {-(-b_bytes // 64) * 64};\n"
    text += f" wmma.load.a.sync.aligned.{layouts[0]}.{shape}.global.{a} {{{names[0]}}}, [%in], {strides[0]};\n"
    text += f" wmma.load.b.sync.aligned.{layouts[1]}.{shape}.global.{a} {{{names[1]}}}, [p], {strides[1]};\n"
    text += f" wmma.load.c.sync.aligned.row.{shape}.global.{d} {{{names[2]}}}, [q], {shape.n};\n"
    text += f" {form} {{{names[3]}}}, {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}};\n"
    text += f" wmma.store.d.sync.aligned.row.{shape}.global.{d} [%out+$c0], {{{names[3]}}}, {shape.n};"
    for kind in kinds:
        data = b"".join(_matrix(one, number, kind, 41 + n) for n, (one, number) in enumerate(((a, shape.m * shape.k), (b, shape.k * shape.n), (d, count))))  # fmt: skip
        inputs = frozen(np.frombuffer(data, "u8"))
        result = Result("d", d, allowance(kind, a, d, shape.k))
        yield Form(
            f"{form} {kind}", text, ("u64",), inputs, (result,), doubt=5, rows=count, launch=Launch(), needs=80,
        )  # fmt: skip


def _fragments_in_shared_memory() -> Iterator[Form]:
    """Yield forms that store an accumulator to shared memory, and load it transposed."""
    for type_, count in (("f16", 4), ("f32", 8), ("s32", 8)):
        shape, names = "m16n16k16", ", ".join(f"x{n}" for n in range(count))
        text = f" .shared .align 32 .b8 s[1024]; .reg .b32 {names};\n wmma.load.c.sync.aligned.row.{shape}.global.{type_} {{{names}}}, [%in], 16;\n"
        text += f" wmma.store.d.sync.aligned.row.{shape}.shared.{type_} [s], {{{names}}}, 16; bar.warp.sync -1;\n"
        text += f" wmma.load.c.sync.aligned.col.{shape}.shared.{type_} {{{names}}}, [s], 16;\n wmma.store.d.sync.aligned.row.{shape}.global.{type_} [%out+$c0], {{{names}}}, 16;"
        inputs = frozen(np.frombuffer(_matrix("f16" if type_ == "f16" else "s32", 256, "exact", 45), "u8"))
        yield Form(
            f"wmma.store.d.sync.aligned.row.{shape}.shared.{type_}", text, ("u64",), inputs, (Result("d", type_),), doubt=5, rows=256, launch=Launch(), needs=80,
        )  # fmt: skip


def _matrix(type_: str, count: int, kind: str, seed: int) -> bytes:
    """Return the bytes of a matrix of `count` elements in memory, padded to a multiple of 64 bytes."""
    bits = FORMATS[type_][0] if type_ in FORMATS else BITS[type_]
    found = elements(type_, count, kind, seed)
    if bits >= 8:
        data: bytes = found.astype(f"<u{bits // 8}").tobytes()
    else:
        parts = found.reshape(-1, 8 // bits)
        data = sum(parts[:, n] << np.uint64(n * bits) for n in range(8 // bits)).astype("u1").tobytes()
    return data + bytes(-len(data) % 64)


def _rows_of_memory() -> Iterator[Form]:
    """Yield the forms of ldmatrix, stmatrix and movmatrix."""
    operands = ("u64", "u64")
    inputs = scattered(operands, WARP * 2, seed=37)
    for count in (1, 2, 4):
        names = _list("d", 0, count)
        results = tuple(Result(f"d{n}", "u32") for n in range(count))
        for trans in ("", ".trans"):
            for space in ("shared", "shared::cta"):
                name = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16"
                text = f"st.shared.v2.b64 [$cell], {{$a0, $a1}}; bar.warp.sync -1; {name} {names}, [$cell];"
                yield lanes(name, text, operands, inputs, results, doubt=3)
                name = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16"
                given = ", ".join(f"r{n}" for n in range(count))
                text = ".reg .b32 r0, r1, r2, r3; mov.b64 {r0, r1}, $a0; mov.b64 {r2, r3}, $a1; st.shared.v2.b64 [$cell], {0, 0};"
                text += f" bar.warp.sync -1; {name} [$cell], {{{given}}}; bar.warp.sync -1; ld.shared.v2.b64 {{$d0, $d1}}, [$cell];"
                yield lanes(name, text, operands, inputs, (Result("low", "u64"), Result("high", "u64")), doubt=3, needs=_HOPPER)  # fmt: skip
    yield lanes(
        "movmatrix.sync.aligned.m8n8.trans.b16", "movmatrix.sync.aligned.m8n8.trans.b16 $d0, $a0;", ("u32",), scattered(("u32",), WARP * 4, seed=37), (Result("d", "u32"),), doubt=3,
    )  # fmt: skip


def forms() -> Iterator[Form]:
    """Yield all forms of this file."""
    yield from _products()
    yield from _wmma()
    yield from _fragments_in_shared_memory()
    yield from _rows_of_memory()
