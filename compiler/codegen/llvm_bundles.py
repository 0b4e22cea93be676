"""The text of lines of several registers: rows that are loaded, transposed and stored together.

It is the text of as many single lines, in the order in which they would be written; made at once, it takes a
fraction of the time.

Not here: all other lines (`llvm_ir`, which includes `RENDERERS`), which lines are bundles
(`compiler.kernel.linear`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from compiler.codegen.llvm_text import type_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.codegen.llvm_text import Text
    from compiler.dtype import DType
    from compiler.kernel.linear import Line


def _addresses(t: Text, line: Line, dtype: DType) -> list[tuple[str, str]]:
    """Return the address of each vector of an access as an operand, and the instruction that makes it."""
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
    own, count = f"%v{line.id}.", line.lanes
    names = t.rows[line.src[0]]
    text, rows = _transposed(type_text(line.dtype, count), tuple([names.index(name) for name in names]))
    t.lines.append(text.format(*names, own=own))
    t.rows[line] = [own + name for name in rows]


@lru_cache(maxsize=16)
def _transposed(kind: str, sources: tuple[int, ...]) -> tuple[str, list[str]]:
    """Return the shuffles that transpose a square, and what follows the prefix in the names of its rows.

    `sources` are the numbers of its rows; equal ones may repeat. The text is a format: `{k}` is source k,
    `{own}` the prefix. Blocks of 1, 2, 4, ... elements are exchanged.
    """
    count, step = len(sources), 1
    rows = [f"{{{k}}}" for k in sources]
    made: dict[str, str] = {}
    while step < count:
        low = [j if not j & step else count + j - step for j in range(count)]
        high = [j + step if not j & step else count + j for j in range(count)]
        for i in range(count):
            if not i & step:
                x, y = rows[i], rows[i + step]
                for at, lanes in ((i, low), (i + step, high)):
                    picks = f"<{count} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"
                    text = f"shufflevector {kind} {x}, {kind} {y}, {picks}"
                    rows[at] = made.setdefault(text, f"{{own}}{step}.{at}")
        step *= 2
    lines = [f"  {name} = {text}" for text, name in made.items()]
    return "\n".join(lines), [row.removeprefix("{own}") for row in rows]


def _row(t: Text, line: Line) -> None:
    assert isinstance(line.arg, int)
    t.names[line] = t.rows[line.src[0]][line.arg]


RENDERERS: dict[str, Callable[[Text, Line], None]] = {
    "load_rows": _load_rows,
    "store_rows": _store_rows,
    "bundle": _bundle,
    "transpose": _transpose,
    "row": _row,
}
"""Operation -> the function that adds its text."""
