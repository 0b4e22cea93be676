"""Forms of matrix operations: WMMA, SWMMAC, MFMA, SMFMAC, on inputs that show order and rounding of the sums.

There are three sets of inputs. "integers": small integers, whose sums are exact in every order. "sizes":
numbers of all sizes, whose sums depend on the order of additions, truncation and rounding, which no document
states. "specials": infinities, NaNs, subnormals and zeros of both signs among ordinary numbers. Operands A, B
and C lie one after another from v32 on; each begins at an even register.

An unknown architecture raises `UnsupportedError`.

Not here: the position of a matrix element in the registers, which the inputs do not depend on. Next:
`vendor`, the list of all forms.
"""

# ruff: noqa: E501, PLR0917 - tables and words of code read best on one line; a form has that many parts

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from emulator.amd.isa.opcodes import Opcode, target
from tools.record.amd.build import FIRST, THREADS
from tools.record.amd.encode import VECTOR, Code, packed, text_of
from tools.record.forms import Allowed, Form, Inputs, Result, frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS: Final = ("integers", "sizes", "specials")
_RESULTS: Final = 96
"""The first vector register of the results."""
_UNKNOWN: Final = Allowed(
    "free", 0, rule="no document states order, cuts and rounding of the sums: recorded to learn them"
)
_NAN: Final = Allowed(
    "ulp", 0, rule="NaNs are equal, whatever their payloads; sums of small integers are exact"
)
_SPECIALS: Final = {
    "f16": (0x7C00, 0xFC00, 0x7E01, 0x0001, 0x8001, 0x8000, 0x7BFF), "bf16": (0x7F80, 0xFF80, 0x7FC1, 0x0001, 0x8001, 0x8000, 0x7F7F),
    "f32": (0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 1, 0x8000_0001, 0x8000_0000, 0x7F7F_FFFF), "xf32": (0x7F80_0000, 0x7FC0_0001, 1, 0x8000_0000),
    "fp8": (0x80, 0x7F, 0xFF, 0x01, 0x7E), "bf8": (0x80, 0x7C, 0x7F, 0x01, 0xFC), "f64": (0x7FF0 << 48, 0x7FF8 << 48, 1, 1 << 63),
}  # fmt: skip
_BITS: Final = {
    "f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "f32": 32, "xf32": 32, "f64": 64, "i8": 8, "iu8": 8, "iu4": 4, "i32": 32,
}  # fmt: skip


def forms(arch: str) -> Iterator[Form]:
    """Yield every matrix operation with every set of inputs, and its modifiers with small integers."""
    for (_, number), opcode in target(arch).opcodes.items():
        if not re.match(r"v_(s?wmma|swmmac|mfma|smfmac)", opcode.stem):
            continue
        integer = bool(re.match(r"v_\w+?_i32_", opcode.stem))
        for what in SETS if not integer else SETS[:1]:
            yield form(arch, number, opcode, what, "", {})
        for label, fields in modifiers(opcode):
            yield form(arch, number, opcode, "integers", label, fields)


def modifiers(opcode: Opcode) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield (label, fields) of each modifier that an operation has."""
    known = opcode.modifiers
    if "neg" in known and "0" in known["neg"] and "iu" in opcode.stem:
        yield from ((f" neg {n}", {"neg": n}) for n in (1, 2, 3))
    if "clamp" in known:
        yield " clamp", {"clamp": 1}
    if "op_sel" in known:
        yield from ((f" op_sel {1 << int(n)}", {"op_sel": 1 << int(n)}) for n in known["op_sel"])
    blocks = re.search(r"_(\d+)b_", opcode.stem)
    if "cbsz" in known and blocks:
        yield from ((f" cbsz {n} abid {n}", {"cbsz": n, "abid": n}) for n in range(1, int(blocks[1]).bit_length()))  # fmt: skip
    if "abid" in known and "smfmac" in opcode.stem:
        yield " abid 1", {"abid": 1}
    if "blgp" in known:
        yield from ((f" blgp {n}", {"blgp": n}) for n in range(1, 8))


def types_of(stem: str) -> tuple[str, str, str]:
    """Return the types of A, of B, and of C and D, by an operation's name: ("f16", "f16", "f32")."""
    d, tail = re.match(r"v_\w+?_(b?f\d+|i32)_\d+x\d+x\d+(?:_\d+b)?_(\w+)", stem).groups()  # type: ignore[union-attr]
    kinds = tail.split("_")
    return kinds[0], kinds[-1], d


def form(arch: str, number: int, opcode: Opcode, what: str, label: str, fields: dict[str, int]) -> Form:
    """Return the form of an operation on the set of inputs `what`, with fields that `label` names."""
    c = Code(arch)
    sizes = {s.field: s.dwords for s in opcode.operands}
    a, b, d = types_of(opcode.stem)
    sparse = "smfmac" in opcode.stem or "swmmac" in opcode.stem
    columns = [(size + 1) // 2 for size in (sizes["src0"], sizes["src1"], sizes["src2"], sizes["vdst"] if sparse else 0)]  # fmt: skip
    at = [FIRST + 2 * sum(columns[:n]) for n in range(4)]
    chosen = {"vdst": _RESULTS, "src0": VECTOR + at[0], "src1": VECTOR + at[1], "src2": VECTOR + at[2], "op_sel_hi": 3, "op_sel_hi2": 1}  # fmt: skip
    moves = [w for n in range(sizes["vdst"]) for w in c.vector(_RESULTS + n, VECTOR + at[3] + n if sparse else 128)]  # fmt: skip
    words = [*moves, *c.settle, *packed(opcode, number, chosen | fields), *c.settle, *c.settle]
    kinds = (a, b, "index" if sparse else d, d)
    inputs = rows(tuple(zip(kinds, (sizes["src0"], sizes["src1"], sizes["src2"], sizes["vdst"] if sparse else 0), strict=True)),
                  what, twice=c.family == "gfx11")
    exact = what == "integers"
    type_ = {"f16": "u64", "bf16": "u64", "f32": "f32x2", "f64": "f64", "i32": "u64"}[d]
    allowed = (_NAN if type_[0] == "f" else Allowed()) if exact else _UNKNOWN
    results = tuple(Result(f"v{_RESULTS + n}", type_, allowed) for n in range(0, sizes["vdst"], 2))
    name = f"matrix.{opcode.stem}{label} {what}"
    return Form(name, text_of(name, words), ("u64",) * (inputs.shape[1]), inputs, results, doubt=9 if not exact else 7, group="lanes")  # fmt: skip


@functools.cache
def rows(parts: tuple[tuple[str, int], ...], what: str, *, twice: bool) -> Inputs:
    """Return the operands of 128 lanes; `parts` has (type, dwords) of each operand.

    With `twice`, A and B of lanes 16 to 31 are those of lanes 0 to 15, as gfx11 needs them.
    """
    made = []
    for number, (type_, dwords) in enumerate(parts):
        if not dwords:
            continue
        words = dwords_of(type_, dwords, what, seed=7 * number + 1)
        if twice and number < 2:
            words = words.reshape(-1, 2, 16, dwords)
            words[:, 1] = words[:, 0]
            words = words.reshape(THREADS, dwords)
        if dwords % 2:
            words = np.concatenate([words, np.zeros((THREADS, 1), "u4")], 1)
        made.append(np.ascontiguousarray(words).view("u8"))
    return frozen(np.concatenate(made, 1))


def dwords_of(type_: str, count: int, what: str, seed: int) -> Any:
    """Return an array (128, count) of the words of one operand, of a type and a set of inputs."""
    rng = np.random.default_rng(seed)
    if type_ == "index":  # two of four positions, the lower one first
        pairs = rng.choice(np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], "u4"), (THREADS, count, 8))  # fmt: skip
        return np.bitwise_or.reduce([pairs[:, :, n] << np.uint32(4 * n) for n in range(8)])
    bits = _BITS[type_]
    shape = (THREADS, 32 * count // bits)
    small = rng.integers(-3, 4, shape).astype("f8")
    if type_[0] == "i":
        raw = (rng.integers(0, 1 << min(bits, 31), shape).astype("u8") if bits < 32 else rng.integers(-99, 99, shape).astype("i4").view("u4").astype("u8"))  # fmt: skip
    else:
        if what == "sizes":
            reach = {"fp8": 5, "bf8": 12, "f16": 10}.get(type_, 20)
            small = rng.standard_normal(shape) * 2.0 ** rng.integers(-reach, reach // 2, shape)
        raw = patterns(small, type_)
        if what == "specials":
            raw = np.where(rng.random(shape) < 0.02, rng.choice(np.array(_SPECIALS[type_], "u8"), shape), raw)
    if bits == 64:
        return np.ascontiguousarray(raw.astype("u8")).view("u4")
    joined = raw.reshape(THREADS, count, 32 // bits)
    total = np.zeros((THREADS, count), "u8")
    for n in range(32 // bits):
        total |= (joined[:, :, n] & np.uint64((1 << bits) - 1)) << np.uint64(bits * n)
    return total.astype("u4")


def patterns(values: Any, type_: str) -> Any:
    """Return numbers as u64 of their bits in a type; 8-bit floats are truncated, not rounded."""
    if type_ == "f64":
        return values.astype("f8").view("u8")
    if type_ == "f16":
        return values.astype("f2").view("u2").astype("u8")
    single = values.astype("f4").view("u4").astype("u8")
    if type_ in ("f32", "xf32"):
        return single
    if type_ == "bf16":
        return single >> np.uint64(16)
    mantissa, bias = (3, 7) if type_ == "fp8" else (2, 15)
    exponent = (single >> np.uint64(23) & np.uint64(255)).astype("i8") - 127 + bias
    code = np.clip(exponent, 0, 14 if type_ == "fp8" else 29).astype("u8") << np.uint64(mantissa)
    code |= single >> np.uint64(23 - mantissa) & np.uint64((1 << mantissa) - 1)
    return np.where(exponent > 0, code | (single >> np.uint64(31)) << np.uint64(7), 0)
