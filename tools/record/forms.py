"""Forms, the units of a recording: their texts, inputs, results and allowed differences; vendor-neutral.

Inputs are arrays of u64 of shape (rows, operands): a column holds the bit patterns of one operand. Results
are columns of `count` values each, one after the other; every column begins at a multiple of 8 bytes.

Not here: the kernels of a vendor's forms (`tools.record.nv`, `tools.record.amd`). Next: `recording`, the
files.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from hcq.program import ArgKind, ArgSlot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq import KernelImage

Inputs = Any
"""A read-only NumPy array of u64, of shape (rows, operands). Forms with equal inputs share one object."""
BYTES: Final = {
    "u8": 1, "s8": 1, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4,
    "bf16x2": 4, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "pred": 1,
}  # fmt: skip
"""Type of an operand or result -> its bytes. A predicate is a byte, 0 or 1."""
FLOATS: Final = {
    "f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "f16x2": (5, 10), "bf16x2": (8, 7),
    "f32x2": (8, 23),
}  # fmt: skip
"""Floating-point type -> (bits of exponent, bits of mantissa), of each part of a packed type."""
Column = tuple[int, tuple[int, ...]]
"""Number of an operand, and its values."""
_ALIGN: Final = 8


@dataclass(frozen=True, slots=True)
class Allowed:
    """How far an emulated result may differ from that of silicon, and by which rule.

    Raises `ValueError` for a kind other than "exact" without a rule.
    """

    kind: Literal["exact", "ulp", "absolute", "zero", "free"] = "exact"
    """exact: equal bits. ulp: at most `amount` steps of the type apart. absolute: |a - b| at most `amount`.
    zero: a count of an outcome that must never happen, 0 in both. free: recorded, and not compared."""
    amount: float = 0.0
    """The largest difference of "ulp" and "absolute"; the other kinds ignore it."""
    rule: str = ""
    """The document's rule that allows the difference; "" only for "exact"."""
    or_absolute: float = 0.0
    """For "ulp": results also agree if |a - b| is at most this."""

    def __post_init__(self) -> None:
        if self.kind != "exact" and not self.rule:
            raise ValueError(f"a result that may differ ({self.kind}) needs the rule that allows it")


EXACT: Final = Allowed()
"""Equal bits."""


@dataclass(frozen=True, slots=True)
class Result:
    """One column of results."""

    name: str
    type: str
    """A key of `BYTES`."""
    allowed: Allowed = EXACT
    """How far results of two devices may be apart."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The shape of a launch: workgroups along (x, y, z), threads in each, workgroups of a cluster along x."""

    groups: tuple[int, int, int] = (1, 1, 1)
    threads: tuple[int, int, int] = (32, 1, 1)
    cluster: int = 1
    shared_bytes: int = 0
    """Dynamic shared memory of a workgroup."""
    scratch_bytes: int = 0
    """Bytes after the results in `out` that a kernel may use; they begin as zeros."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One unit of a recording. Two forms are the same if their keys are equal."""

    name: str
    """The name in reports, unique within a vendor: "add.sat.s32"."""
    text: str
    """The vendor's text of what the kernel does: PTX, or words of machine code."""
    operands: tuple[str, ...]
    """Types of the columns of `inputs`, keys of `BYTES`."""
    inputs: Inputs
    """An array with a row of bits for each evaluation."""
    results: tuple[Result, ...]
    doubt: int = 0
    """How uncertain it is that the emulated GPU is right, from 0 to 9. The highest are recorded first."""
    group: str = ""
    """Forms with an equal group may share a kernel; "" for a kernel of its own."""
    launch: Launch = field(default=Launch())
    rows: int = 0
    """Rows of results; 0 for as many as `inputs` has."""
    needs: int = 0
    """The number of the first architecture that has the instruction: the SM version of NVIDIA; 0 for all."""
    until: int = 1 << 30
    """The number of the last architecture that has it."""

    @property
    def count(self) -> int:
        """Rows of results."""
        return self.rows or len(self.inputs)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each column in the results, in bytes, and after them the size of all."""
        sizes = (_aligned(self.count * BYTES[one.type]) for one in self.results)
        return tuple(itertools.accumulate(sizes, initial=0))

    @property
    def result_bytes(self) -> int:
        """Bytes of all columns."""
        return self.offsets[-1]

    def key(self) -> str:
        """Return 12 hexadecimal digits of a digest of all that decides the results."""
        parts = (self.name, self.text, self.operands, self.launch, self.count)
        layout = [(one.name, one.type) for one in self.results]
        digest = hashlib.sha256(repr((parts, layout)).encode())
        digest.update(_bytes_of(self.inputs))
        return digest.hexdigest()[:12]

    def columns(self, results: bytes) -> list[Any]:
        """Return the columns of recorded results, as arrays of unsigned integers of each result's size.

        Raises `ValueError` if `results` is too short.
        """
        return [
            np.frombuffer(results, f"<u{BYTES[one.type]}", self.count, at)
            for one, at in zip(self.results, self.offsets, strict=False)
        ]

    def row(self, at: int) -> str:
        """Return a row as text: its number and, if each row of results has its own inputs, these."""
        if self.rows and self.rows != len(self.inputs):
            return f"row {at}"
        shown = [
            f"{type_} {int(value):#0{2 + 2 * BYTES[type_]}x}"
            for type_, value in zip(self.operands, self.inputs[at], strict=True)
        ]
        return f"row {at}: {', '.join(shown)}" if shown else f"row {at}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel that runs some forms. Its image takes two pointers: to the results, and to the inputs."""

    image: KernelImage
    launch: Launch
    inputs: bytes
    """The inputs of all forms, as the kernel reads them."""
    out_bytes: int
    """Bytes of results and scratch memory."""
    at: Mapping[str, int]
    """Name of a form -> the offset of its results, in bytes."""


SLOTS: Final = (ArgSlot("out", ArgKind.POINTER, 0, 8), ArgSlot("in", ArgKind.POINTER, 8, 8))
"""The arguments of the kernels: the results, and the inputs."""


def gathered(forms: Sequence[Form], begin: int = 0) -> tuple[bytes, list[int]]:
    """Return the inputs of forms, each array once, and the offset of those of each form, from `begin` on."""
    arrays: list[bytes] = []
    places: dict[int, int] = {}
    for form in forms:
        if id(form.inputs) not in places:
            places[id(form.inputs)] = begin
            arrays.append(np.ascontiguousarray(form.inputs).tobytes())
            begin += len(arrays[-1])
    return b"".join(arrays), [places[id(form.inputs)] for form in forms]


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


@functools.lru_cache(4096)
def _digest(held: _Held) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(held.arrays[0]).tobytes()).digest()


class _Held:
    """Arrays as the key of a cache: two keys are equal if they hold the same objects."""

    def __init__(self, *arrays: Inputs) -> None:
        self.arrays = arrays

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and all(
            a is b for a, b in itertools.zip_longest(self.arrays, other.arrays)
        )

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.arrays)))


def _bytes_of(inputs: Inputs) -> bytes:
    return _digest(_Held(inputs)) + repr(inputs.shape).encode()


def frozen(rows: object) -> Inputs:
    """Return a read-only copy of rows as inputs: u64, of shape (rows, operands)."""
    array = np.array(rows, "u8")
    array = array.reshape(len(array), -1) if array.size else array
    array.flags.writeable = False
    return array


NOTHING: Final = frozen(np.zeros((1, 0)))
"""The inputs of a form that has none."""


@functools.cache
def integers(bits: int, *, few: bool = False) -> tuple[int, ...]:
    """Return edge values of integers of `bits` bits: around 0, extremes of both signs, alternating bits.

    With `few` they are about half as many; so in the functions below.
    """
    top, ones = 1 << (bits - 1), (1 << bits) - 1
    least = (0, 1, ones, top, top - 1, 0x5A & ones)
    if few:
        return least
    half = 1 << (bits // 2)
    more = (2, ones - 1, top + 1, half - 1, half, half + 1, ones // 3, 0x0123456789ABCDEF & ones)
    return tuple(dict.fromkeys((*least, *more)))


@functools.cache
def floats(type_: str, *, few: bool = False) -> tuple[int, ...]:
    """Return edge values of a floating-point type, as bits: zeros, subnormals, ties, limits, NaNs."""
    exponent, mantissa = FLOATS[type_]
    bits = 1 + exponent + mantissa
    one = ((1 << (exponent - 1)) - 1) << mantissa
    infinity, smallest, step = ((1 << exponent) - 1) << mantissa, 1 << mantissa, 1 << mantissa
    positive = [0, one, infinity, 1, smallest, infinity | 1 << (mantissa - 1), infinity - 1, one + 1]
    if not few:
        positive += [
            smallest - 1, one - 1, one + step, one + step + 1, one - step, infinity | 1,  # a signalling NaN
            one + (step >> 1), smallest + 1, infinity - step, one + step * min(mantissa, exponent * 2),
            one + 0x2AAAAAAAAAAAA % step, one + 3 * step + 5 % step, one - 2 * step + 0x155555555555 % step,
        ]  # fmt: skip
    sign = 1 << (bits - 1)
    chosen = positive[:-1] if few else positive
    return tuple(dict.fromkeys(value for one in chosen for value in (one, one | sign)))


def edges(type_: str, *, few: bool = False) -> tuple[int, ...]:
    """Return the edge values of a type, as bits; a packed type has pairs of different values."""
    if type_ == "pred":
        return (0, 1)
    if type_ in FLOATS and not type_.endswith("x2"):
        return floats(type_, few=few)
    if type_.endswith("x2"):
        bits = 4 * BYTES[type_]
        part = floats(type_, few=few) if type_ in FLOATS else integers(bits, few=few)
        return tuple(low | part[(7 * n + 3) % len(part)] << bits for n, low in enumerate(part))
    return integers(8 * BYTES[type_], few=few)


@functools.cache
def grid(
    types: tuple[str, ...],
    *,
    few: bool = False,
    more: int = 0,
    most: int = 400,
    given: tuple[Column, ...] = (),
) -> Inputs:
    """Return the combinations of the operands' edge values, and `more` rows of `scattered` after them.

    If there are more than `most` combinations, `most` of them are taken, spread evenly. `given` has pairs
    (number of an operand, values): they replace the edge values of that operand's type.
    """
    values = [dict(given).get(n) or edges(one, few=few) for n, one in enumerate(types)]
    count = math.prod(map(len, values))
    step = 1
    if count > most:
        step = round(count * 0.6180339887)
        while math.gcd(step, count) != 1:
            step += 1
    rows = []
    for number in range(min(count, most)):
        rest, row = number * step % count, []
        for choices in values:
            rest, at = divmod(rest, len(choices))
            row.append(choices[at])
        rows.append(row)
    return frozen([*rows, *scattered(types, more).tolist()])


@functools.cache
def scattered(types: tuple[str, ...], count: int, seed: int = 1) -> Inputs:
    """Return `count` rows of pseudo-random bits, the same in every run."""
    state, rows = 0x9E3779B97F4A7C15 * (2 * seed + 1) % 2**64, []
    for _ in range(count):
        row = []
        for type_ in types:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            mixed = (state ^ state >> 29) * 0xBF58476D1CE4E5B9 % 2**64
            row.append(
                (mixed ^ mixed >> 32) & ((1 << 8 * BYTES[type_]) - 1) if type_ != "pred" else mixed >> 63
            )
        rows.append(row)
    return frozen(np.array(rows, "u8").reshape(count, len(types)))


@functools.cache
def near(types: tuple[str, ...], count: int, *, spread: int = 26) -> Inputs:
    """Return `count` rows of floats with pseudo-random signs and mantissas.

    Exponents are within `spread` of that of 1.0. Sums and products of such operands cancel, round and carry,
    which sums and products of `scattered` bits rarely do. Operands of other types are scattered bits.
    """
    rows = scattered(types, count, seed=7).copy()
    for n, type_ in enumerate(types):
        if type_ not in FLOATS:
            continue
        exponent, mantissa = FLOATS[type_]
        bits, bias = 1 + exponent + mantissa, (1 << (exponent - 1)) - 1
        around = min(spread, bias - 2)
        column = rows[:, n].copy()
        rows[:, n] = 0
        for at in range(0, 8 * BYTES[type_], bits):
            part = column >> np.uint64(at) & np.uint64((1 << bits) - 1)
            power = part % np.uint64(2 * around + 1) + np.uint64(bias - around)
            kept = part & np.uint64((1 << (bits - 1)) | ((1 << mantissa) - 1))
            rows[:, n] |= (kept | power << np.uint64(mantissa)) << np.uint64(at)
    rows.flags.writeable = False
    return rows


@functools.cache
def _joined(held: _Held) -> Inputs:
    return frozen(np.concatenate(held.arrays))


def joined(*arrays: Inputs) -> Inputs:
    """Return the rows of several arrays one after another; the same arguments give the same object."""
    return _joined(_Held(*arrays))


def chosen(values: Sequence[int]) -> Inputs:
    """Return inputs with one operand of these values."""
    return frozen([[value] for value in values])
