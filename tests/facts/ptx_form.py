"""One form of a PTX instruction: its text, its operands' edge values, and its meaning as a Python function."""

# ruff: noqa: E501 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests.facts.ptx_numbers import FORMATS, amounts, few, float_edges, integer_edges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = int | tuple[int, ...] | None
ANY_NAN = -1
"""A result that may be any NaN of the output's width: the manual names no payload for f64."""


@dataclass(frozen=True)
class Form:
    """A form, as it is run.

    `code` reads `%a`, `%b`, `%c` (`.bN` of the kind's width, or `.pred`) and writes `%d` (and `%e`) of the widths in
    `outputs`. Temporaries: `%t %u` are .b32, `%x %y` .b64, `%h %i` .b16, `%p %q` .pred. `meaning` takes raw inputs and
    returns raw outputs, ANY_NAN, or None where the manual leaves the result open.
    """

    name: str
    code: str
    kinds: tuple[str, ...]
    outputs: tuple[int, ...]
    meaning: Callable[..., Result]
    section: str
    arch: int = 80
    """First architecture that has the form."""
    nan: str = ""
    """Format of the output where ANY_NAN or a NaN's bits are meant."""

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        return vectors(self.kinds)


def width(kind: str) -> int:
    """Return the width in bits of the register that holds an operand of a kind."""
    if kind == "pred":
        return 8
    kind = kind.partition(":")[0]
    return _WIDTHS.get(kind) or max(16, int("".join(c for c in kind if c.isdigit())))


_WIDTHS = {
    "shift": 32,
    "h2": 32,
    "bf2": 32,
    "i2": 32,
    "e4m3": 16,
    "e5m2": 16,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "wide8": 32,
    "sel": 32,
}


@cache
def edges(kind: str) -> tuple[int, ...]:
    """Return the edge values of an operand's kind.

    Kinds: `i16 i32 i64` integers, or `i32:N` about N of them, `f16 bf16 f32 f64`, or `f32:special` without ties, `shift:N` amounts for N bits, `h2` and `bf2` two halves,
    `i2` two 16-bit integers, `e4m3 e5m2` two bytes, `wide8` bytes with other bits above, `sel` selectors of prmt, `pred`.
    """
    kind, _, rest = kind.partition(":")
    if kind == "pred":
        return (0, 1)
    if kind == "shift":
        return tuple(amounts(int(rest)))
    if kind in ("h2", "bf2", "i2"):
        half = {"h2": "f16", "bf2": "bf16", "i2": "i16"}[kind]
        found = edges(f"{half}:{rest}" if rest else half)
        return tuple(h << 16 | found[(i * 7 + 3) % len(found)] for i, h in enumerate(found))
    if kind in ("e4m3", "e5m2"):
        return tuple(b << 8 | (b * 37 + 11) & 255 for b in range(256))
    if kind == "wide8":
        return tuple(b | (0, 0xABCD_EF00, 0xFFFF_FF00)[b % 3] for b in range(256))
    if kind == "sel":
        odd = (0x3210, 0x7654, 0x1357, 0xFEDC, 0x89AB, 0xFFFF_0000, 0xABCD_5140)
        return (*range(0, 0x10000, 0x111), *odd, *range(8))
    if kind in FORMATS:
        return tuple(float_edges(FORMATS[kind], special=rest == "special"))
    found = integer_edges(int(kind[1:]))
    return tuple(few(found, int(rest)) if rest else found)


@cache
def vectors(kinds: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Return inputs such that every two operands take all pairs of their edge values."""
    lists = [edges(kind) for kind in kinds]
    if len(lists) <= 2:
        return tuple(itertools.product(*lists))
    found: dict[tuple[int, ...], None] = {}
    for first, second in itertools.combinations(range(len(lists)), 2):
        for row, (i, j) in enumerate(itertools.product(range(len(lists[first])), range(len(lists[second])))):
            picks = [(row * (2 * at + 1) + i * 5 + j * 3) % len(values) for at, values in enumerate(lists)]
            picks[first], picks[second] = i, j
            found[tuple(values[at] for values, at in zip(lists, picks, strict=True))] = None
    return tuple(found)


def registers(form: Form) -> str:
    """Return the declarations that a form's code needs, for one scope."""
    lines = [f".reg .b{n} {name};" for n, name in ((32, "%t, %u, %v"), (64, "%x, %y"), (16, "%h, %i, %j"))]
    lines += [f".reg .b{n} {name};" for n, name in zip(form.outputs, ("%d", "%e"), strict=False)]
    return " ".join([*lines, ".reg .pred %p, %q, %s;"])


def kernel_name(index: int) -> str:
    return f"k{index}"


def operand(kind: str, name: str) -> tuple[str, str]:
    """Return the register's declaration, and the code that makes it of the loaded value in %l{name}."""
    if kind == "pred":
        return f".reg .pred %{name};", f"setp.ne.b16 %{name}, %l{name}, 0;"
    return f".reg .b{width(kind)} %{name};", f"mov.b{width(kind)} %{name}, %l{name};"


def batch(forms: list[Form], arch: str, version: str = "8.8") -> str:
    """Return a kernel that runs forms of one signature: thread i takes input i of every operand's array.

    Parameters: an array for each operand, and one for the results: for each output of each form, 8 bytes an input,
    one form after the other; and the number of inputs.
    """
    kinds = forms[0].kinds
    names = "abcf"[: len(kinds)]
    text = [f".version {version}", f".target {arch}", ".address_size 64"]
    params = ", ".join([f".param .u64 p{name}" for name in names] + [".param .u64 po", ".param .u32 pn"])
    text += [
        f".visible .entry k({params}) {{",
        ".reg .b32 %id, %nt, %ct, %n; .reg .b64 %at, %o, %step; .reg .pred %in;",
    ]
    text += ["mov.u32 %ct, %ctaid.x; mov.u32 %nt, %ntid.x; mov.u32 %id, %tid.x; mad.lo.s32 %id, %ct, %nt, %id;"]  # fmt: skip
    text += ["ld.param.u32 %n, [pn]; setp.ge.u32 %in, %id, %n; @%in bra END; mul.wide.u32 %step, %n, 8;"]
    for kind, name in zip(kinds, names, strict=True):
        size = 16 if kind == "pred" else width(kind)
        declared, made = operand(kind, name)
        text += [f".reg .b{size} %l{name}; {declared} ld.param.u64 %at, [p{name}];"]
        text += [f"mad.wide.u32 %at, %id, 8, %at; ld.global.b{size} %l{name}, [%at]; {made}"]
    text += ["ld.param.u64 %o, [po]; mad.wide.u32 %o, %id, 8, %o;"]
    for form in forms:
        stores = " ".join(
            f"st.global.b{bits} [%o], {name}; add.u64 %o, %o, %step;"
            for bits, name in zip(form.outputs, ("%d", "%e"), strict=False)
        )
        text += ["{", registers(form), form.code, stores, "}"]
    text += ["END: ret;", "}", ""]
    return "\n".join(text)


def constant(value: int, bits: int) -> str:
    return f"0x{value & ((1 << bits) - 1):x}"


def folded(forms: list[tuple[Form, list[tuple[int, ...]]]], arch: str, version: str = "8.8") -> str:
    """Return a module with one kernel a form, whose inputs are immediates: result i of output j goes to 16 i + 8 j."""
    text = [f".version {version}", f".target {arch}", ".address_size 64"]
    for index, (form, inputs) in enumerate(forms):
        text += [
            f".visible .entry {kernel_name(index)}(.param .u64 po) {{",
            ".reg .b64 %o; ld.param.u64 %o, [po];",
        ]
        text += ["cvta.to.global.u64 %o, %o;"]
        for row, values in enumerate(inputs):
            text += ["{", registers(form)]
            for kind, name, value in zip(form.kinds, "abcf", values, strict=False):
                if kind == "pred":
                    text += [f".reg .pred %{name}; .reg .b32 %l{name}; mov.b32 %l{name}, {value}; setp.ne.b32 %{name}, %l{name}, 0;"]  # fmt: skip
                else:
                    bits = width(kind)
                    text += [f".reg .b{bits} %{name}; mov.b{bits} %{name}, {constant(value, bits)};"]
            text += [form.code]
            for column, (bits, name) in enumerate(zip(form.outputs, ("%d", "%e"), strict=False)):
                text += [f"st.global.b{bits} [%o+{16 * row + 8 * column}], {name};"]
            text += ["}"]
        text += ["ret;", "}"]
    return "\n".join([*text, ""])


def same(form: Form, wanted: int | None, seen: int, bits: int) -> bool:
    """Say whether a result is one that the meaning allows."""
    if wanted is None:
        return True
    if wanted == ANY_NAN:
        return FORMATS[form.nan].value(seen) == "nan"
    return wanted == seen & ((1 << bits) - 1)


def results(form: Form, inputs: tuple[int, ...]) -> tuple[int | None, ...]:
    """Return what the meaning says, one item an output."""
    found = form.meaning(*inputs)
    if found is None or isinstance(found, int):
        return (found,) * len(form.outputs)
    return found


def packed(values: Iterator[int]) -> bytes:
    return b"".join(struct.pack("<Q", value) for value in values)
