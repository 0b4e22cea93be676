"""The memory that each command of a submission accesses, with the values of its Params.

`accesses` gives the byte ranges of one command; `UnorderedKernels` checks the kernels between two barriers
against one another. `Intervals` is a set of byte ranges, each with a note that names its last access.

Not here: order between submissions (`hazards`, the user of this module).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hcq.commands import Command, Touch
from hcq.errors import UsageError
from hcq.memory import Buffer
from hcq.params import Expr, Param, Value, look_up


class Intervals:
    """Disjoint ranges in order; ranges that overlap or touch become one."""

    __slots__ = ("_begins", "_ends", "_notes")

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._notes: list[str] = []

    def add(self, begin: int, end: int, note: str) -> None:
        """Add bytes [begin, end) with a note.

        Ranges that it overlaps or touches are merged and get the note.
        """
        if begin >= end:
            return
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        self._notes[first:last] = [note]

    def find(self, begin: int, end: int) -> str | None:
        """Return the note of a range that overlaps bytes [begin, end), or None."""
        i = bisect_right(self._ends, begin)
        return self._notes[i] if i < len(self._ends) and self._begins[i] < end else None

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        return iter(zip(self._begins, self._ends, self._notes, strict=True))


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes [begin, end) of a root buffer that one command reads or writes."""

    root: Buffer
    begin: int
    end: int
    writes: bool
    what: str
    """The command and its part, for errors: "kernel add, argument out,"; the comma continues the sentence."""
    align: int = 1
    """Bytes that the address and the size must be multiples of."""

    def overlaps(self, other: Access) -> bool:
        """Return whether the two have bytes in common."""
        return self.root is other.root and self.begin < other.end and other.begin < self.end


def number(word: int | Param | Expr, values: Mapping[Param, Value]) -> int:
    """Return the value of a word, given the values of Params. Raises `UsageError` for a missing one."""
    if isinstance(word, int):
        return word
    expr = word if isinstance(word, Expr) else Expr(word)
    value = look_up(expr.param, values)
    return expr.evaluate(value.va if isinstance(value, Buffer) else value)


def accesses(command: Command, values: Mapping[Param, Value]) -> Iterator[Access]:
    """Yield the reads and writes of a command; execution as words of the queue ("x") is neither.

    Raises `UsageError` for a range outside its buffer, a Param without a value, and a closed buffer; not for
    a closed buffer that is itself a kernel's argument.
    """
    for touch in command.touches():
        if touch.access != "x":
            yield _access(command, touch, values)


def resolved(pointer: Buffer | Param | Expr, values: Mapping[Param, Value]) -> tuple[Buffer, int]:
    """Return the buffer that a pointer refers to, and the byte offset added to it.

    Raises `UsageError` if the value of a Param is no Buffer or a closed one.
    """
    if isinstance(pointer, Buffer):
        return pointer, 0
    expr = pointer if isinstance(pointer, Expr) else Expr(pointer)
    value = values.get(expr.param)
    if not isinstance(value, Buffer):
        raise UsageError(f"{expr.param.name}: wanted a Buffer, seen {value!r}")
    value.live()
    return value, expr.add


def _access(command: Command, touch: Touch, values: Mapping[Param, Value]) -> Access:
    buffer, add = resolved(touch.pointer, values)
    what = command.title() + (f", {touch.part}," if touch.part else "")
    if touch.size is None:
        if not 0 <= add < buffer.size:
            raise UsageError(f"{what.rstrip(',')}: byte {add} lies outside {buffer!r}")
        size = buffer.size - add
    else:
        buffer.live()
        size = number(touch.size, values)
        if add < 0 or add + size > buffer.size:
            raise UsageError(f"{what}: bytes {add} to {add + size} lie outside {buffer!r}")
    begin = buffer.offset + add
    return Access(buffer.root or buffer, begin, begin + size, "w" in touch.access, what, touch.align)


class UnorderedKernels:
    """The kernels since the last barrier, which may run at the same time and in any order."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._touched: dict[Buffer, tuple[Intervals, Intervals]] = {}

    def clear(self) -> None:
        """Forget the kernels: a barrier orders them before all later ones."""
        self._touched.clear()

    def add(self, touched: list[Access]) -> None:
        """Add the accesses of one kernel. Raises `UsageError` if it conflicts with another kernel here."""
        for one in touched:
            reads, writes = self._touched.get(one.root, (_NONE, _NONE))
            for others, verb in ((writes, "writes"), (reads, "reads")):
                other = others.find(one.begin, one.end)
                if other and (one.writes or others is writes):
                    raise UsageError(
                        f"missing barrier in {self._label or 'a submission'}: {other} {verb} {one.root!r} "
                        f"and {one.what} {'writes' if one.writes else 'reads'} it; nothing orders the two\n"
                        f"hint: record .barrier() between them"
                    )
        for one in touched:
            entry = self._touched.setdefault(one.root, (Intervals(), Intervals()))
            entry[one.writes].add(one.begin, one.end, one.what)


_NONE = Intervals()
