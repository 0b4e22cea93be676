"""The text of lines of several registers: rows that are loaded, transposed and stored together.

The text is that of as many lines of one register, in the same order, but takes a fraction of the time to
make.

Not here: all other lines (`llvm_ir`), which lines are bundles (`compiler.emit.linear`). Next: `llvm_ir`,
whose table includes `RENDERERS`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from compiler.emit.linear import BundleProducts
from compiler.text.llvm_text import suffix, type_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.dtype import DType
    from compiler.emit.linear import Line, LoadedFactor
    from compiler.text.llvm_text import Text


def _addresses(t: Text, line: Line, dtype: DType) -> list[tuple[str, str]]:
    """Return for each vector of an access the address as an operand, and the instruction that makes it."""
    assert isinstance(line.arg, tuple)
    pointer = line.src[0]
    base, kind = t.typed(pointer), t.pointer(pointer)
    scalar = type_text(dtype)
    return [
        (f"{kind} %a{line.id}.{k}", f"  %a{line.id}.{k} = getelementptr {scalar}, {base}, i64 {at}")
        if at
        else (base, "")
        for k, at in enumerate(line.arg)
    ]


def _load_rows(t: Text, line: Line) -> None:
    addresses = _addresses(t, line, line.dtype)
    t.lines += [text for _, text in addresses if text]
    kind, align = type_text(line.dtype, line.lanes), line.dtype.itemsize
    t.lines += [
        f"  {name} = load {kind}, {address}, align {align}"
        for name, (address, _) in zip(t.bundle(line, len(addresses)), addresses, strict=True)
    ]


def _store_rows(t: Text, line: Line) -> None:
    value = line.src[1]
    kind, align = type_text(value.dtype, value.lanes), value.dtype.itemsize
    for name, (address, text) in zip(t.rows[value], _addresses(t, line, value.dtype), strict=True):
        if text:
            t.lines.append(text)
        t.lines.append(f"  store {kind} {name}, {address}, align {align}")


def _bundle(t: Text, line: Line) -> None:
    t.rows[line] = [t.name(s) for s in line.src]


def _transpose(t: Text, line: Line) -> None:
    assert isinstance(line.arg, int)
    own, names = f"%v{line.id}.", t.rows[line.src[0]]
    equal = tuple([names.index(name) for name in names])
    text, rows = _transposed(type_text(line.dtype, line.lanes), equal, line.arg)
    t.lines.append(text.format(*names, own=own))
    t.rows[line] = [row.format(own=own) for row in rows]


@lru_cache(maxsize=16)
def _transposed(kind: str, sources: tuple[int, ...], wanted: int) -> tuple[str, list[str]]:
    """Return the shuffles that make the first rows of a transposed square, and the names of these rows.

    `sources` are the numbers of the rows of the square; equal rows have equal numbers. The text is a format:
    `{k}` is source k, `{own}` the prefix of names. Each step exchanges blocks of 1, 2, 4, ... elements.
    """
    count, step = len(sources), 1
    rows = [f"{{{k}}}" for k in sources]
    made: dict[tuple[str, str, str], str] = {}
    while step < count:
        low = [j if not j & step else count + j - step for j in range(count)]
        high = [j + step if not j & step else count + j for j in range(count)]
        for i in range(count):
            if not i & step:
                x, y = rows[i], rows[i + step]
                for at, lanes in ((i, low), (i + step, high)):
                    picks = f"<{count} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"
                    rows[at] = made.setdefault((x, y, picks), f"{{own}}{step}.{at}")
        step *= 2
    needed, lines = set(rows[:wanted]), list[str]()
    for (x, y, picks), name in reversed(made.items()):
        if name in needed:
            needed |= {x, y}
            lines.append(f"  {name} = shufflevector {kind} {x}, {kind} {y}, {picks}")
    return "\n".join(reversed(lines)), rows[:wanted]


def _row(t: Text, line: Line) -> None:
    assert isinstance(line.arg, int)
    t.names[line] = t.rows[line.src[0]][line.arg]


def _repeat(t: Text, line: Line) -> None:
    assert isinstance(line.arg, int)
    t.rows[line] = [t.name(line.src[0])] * line.arg


def _alu_rows(t: Text, line: Line) -> None:
    x, y = [t.rows[s] for s in line.src]
    instruction = f"{line.arg} {type_text(line.dtype, line.lanes)}"
    names = t.bundle(line, len(x))
    t.lines += [f"  {name} = {instruction} {a}, {b}" for name, a, b in zip(names, x, y, strict=True)]


def _products(t: Text, line: Line) -> None:
    assert isinstance(line.arg, BundleProducts)
    left, right, sums = line.src[:3]
    kind = type_text(line.dtype, line.lanes)
    function = f"llvm.fma.{suffix(line.dtype, line.lanes)}"
    t.intrinsic(kind, function, [f"{kind} 0"] * 3)
    text = _round(line.arg, line.dtype, line.lanes)
    t.bundle(line, len(line.arg.left.places))
    operands = {"left": t.typed(left), "right": t.typed(right)}
    t.lines.append(text.format(*t.rows[sums], own=f"%v{line.id}.", **operands))


@lru_cache(maxsize=16)
def _round(what: BundleProducts, dtype: DType, lanes: int) -> str:
    """Return the text of `products` as a format.

    `{k}` is accumulator k, `{own}` the prefix of names; `{left}` and `{right}` are the addresses. Each factor
    is loaded just before its first product.
    """
    kind, function = type_text(dtype, lanes), f"@llvm.fma.{suffix(dtype, lanes)}"
    lines: list[str] = []
    loaded = [
        _Factors("x", "{left}", what.left, dtype, lines),
        _Factors("y", "{right}", what.right, dtype, lines),
    ]
    for k, places in enumerate(zip(what.left.places, what.right.places, strict=True)):
        single = [of.loaded(at) for of, at in zip(loaded, places, strict=True)]
        x, y = [of.spread(name, lanes) for of, name in zip(loaded, single, strict=True)]
        lines.append(f"  {{own}}{k} = call {kind} {function}({kind} {x}, {kind} {y}, {kind} {{{k}}})")
    return "\n".join(lines)


class _Factors:
    """The loads of one factor of `products`, added to `lines` when they are first needed."""

    def __init__(self, letter: str, address: str, what: LoadedFactor, dtype: DType, lines: list[str]) -> None:
        self.prefix = f"{{own}}{letter}"
        self.address = address
        self.what = what
        self.dtype = dtype
        self.lines = lines
        self.names: dict[int, str] = {}
        self.wide: dict[str, str] = {}

    def loaded(self, at: int) -> str:
        """Return the register of the factor at an offset from the address, in elements."""
        found = self.names.get(at)
        if found is not None:
            return found
        what, lines, name = self.what, self.lines, f"{self.prefix}{len(self.names)}"
        memory, address = type_text(what.kind, what.lanes), self.address
        if at:
            lines.append(f"  {name}.at = getelementptr {type_text(what.kind)}, {address}, i64 {at}")
            address = f"ptr {name}.at"
        stored = name if what.kind is self.dtype else f"{name}.in"
        lines.append(f"  {stored} = load {memory}, {address}, align {what.kind.itemsize}")
        if stored != name:
            lines.append(f"  {name} = fpext {memory} {stored} to {type_text(self.dtype, what.lanes)}")
        self.names[at] = name
        return name

    def spread(self, name: str, lanes: int) -> str:
        """Return the register with a loaded factor in every lane."""
        if self.what.lanes == lanes:
            return name
        found = self.wide.get(name)
        if found is None:
            kind, found = type_text(self.dtype, lanes), f"{name}.all"
            first, zeros = f"{name}.one", f"<{lanes} x i32> zeroinitializer"
            self.lines += [
                f"  {first} = insertelement {kind} poison, {type_text(self.dtype)} {name}, i32 0",
                f"  {found} = shufflevector {kind} {first}, {kind} poison, {zeros}",
            ]
            self.wide[name] = found
        return found


RENDERERS: dict[str, Callable[[Text, Line], None]] = {
    "load_rows": _load_rows,
    "store_rows": _store_rows,
    "bundle": _bundle,
    "transpose": _transpose,
    "row": _row,
    "repeat": _repeat,
    "alu_rows": _alu_rows,
    "products": _products,
}
"""Operation -> the function that adds its text."""
