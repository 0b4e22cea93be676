"""Random programs for queues: submissions over several queues and devices, and what memory holds after each.

A program is data, made from a seed; NumPy runs its submissions one after the other. Every conflict between
queues is ordered, by a point given to `after=`, by a user's signal, or by the host that waited; conflicts
between kernels of one submission by a barrier. So a program is legal, and any order that its points allow
gives the bytes of the sequential run.

Not here: running and comparing (`queues`), faults (`queue_faults`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, Any]
WORDS: Final = 32
"""u32 of a buffer."""
_BUFFERS: Final = 5

Kind = Literal["fill", "copy", "write", "mix", "barrier"]


@dataclass(frozen=True, slots=True)
class Range:
    """Words [begin, end) of a buffer."""

    buffer: int
    begin: int
    end: int

    def meets(self, other: Range) -> bool:
        """Return whether the two share words."""
        return self.buffer == other.buffer and self.begin < other.end and other.begin < self.end


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `dst` is written, `src` read, `value` what is filled, written, or the kernel's term."""

    kind: Kind
    dst: Range | None = None
    src: Range | None = None
    value: int = 0

    def touches(self) -> list[tuple[Range, bool]]:
        """Return (range, whether it is written)."""
        out = []
        if self.dst is not None:
            out.append((self.dst, True))
        if self.src is not None:
            out.append((self.src, False))
        return out


@dataclass(slots=True)
class Submission:
    """Commands for one queue, and what they must come after."""

    queue: int
    """Index into the queues of all devices."""
    commands: list[Command]
    after: list[int] = field(default_factory=list)
    """Earlier submissions, by point."""
    awaits: list[int] = field(default_factory=list)
    """Earlier submissions, by the signal that each raises at its end."""
    raises: bool = False
    """It raises a signal of its own at its end."""
    graph: int = 0
    """Replayed so often as a graph of its own, the kernels' terms being parameters; 0: submitted."""
    host_waits: bool = False
    """The host waits for it."""
    frees: int = -1
    """A buffer that is closed once it was submitted, in flight or not, and allocated and filled anew."""


@dataclass(slots=True)
class Program:
    """Submissions in an order in which they may run; `order` is the one in which they are submitted."""

    seed: int
    compute: tuple[bool, ...]
    """By queue: whether it takes kernels."""
    submissions: list[Submission]
    order: list[int]


def start(program_seed: int) -> list[Array]:
    """Return what the buffers hold at first."""
    rng = np.random.default_rng(program_seed)
    return [rng.integers(0, 1 << 32, WORDS, np.uint32) for _ in range(_BUFFERS)]


def apply(commands: list[Command], memory: list[Array], *, lap: int = 0) -> None:
    """Run commands one after the other; `lap` is added to the kernels' terms."""
    for command in commands:
        dst, src = command.dst, command.src
        if dst is None:
            continue
        out = memory[dst.buffer][dst.begin : dst.end]
        if command.kind in {"fill", "write"}:
            out[:] = np.uint32(command.value)
        elif src is not None:
            given = memory[src.buffer][src.begin : src.end]
            if command.kind == "copy":
                out[:] = given.copy()
            else:
                out[:] = (out.astype(np.uint64) * 3 + given + command.value + lap).astype(np.uint32)


def freed_fill(number: int) -> int:
    """Return what a buffer is filled with that was closed by submission `number` and allocated anew."""
    return 0x5EED0000 + number


class Maker:
    """Makes the program of one seed."""

    def __init__(self, seed: int, compute: tuple[bool, ...]) -> None:
        self.r = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.compute = compute
        self.submissions: list[Submission] = []
        self.done: set[int] = set()
        """What the host has seen done."""
        self._known: list[set[int]] = []
        """By submission: what is certain to be done before it starts, itself included once it is done."""
        for _ in range(self.r.randint(2, 9)):
            self._submission()
        self.program = Program(seed, compute, self.submissions, self._order())

    def _range(self) -> Range:
        begin = self.r.choice((0, 0, 2, 8, 16))
        end = min(WORDS, begin + self.r.choice((2, 8, 16, WORDS)))
        return Range(self.r.randrange(_BUFFERS), begin, end)

    def _commands(self, *, kernels: bool) -> list[Command]:
        out: list[Command] = []
        group: list[tuple[Range, bool]] = []
        for _ in range(self.r.randint(1, 5)):
            kind: Kind = self.r.choice(
                ("fill", "copy", "write", "mix", "mix") if kernels else ("fill", "copy", "write")
            )
            command = self._command(kind)
            if kind == "mix":
                if conflict(group, command.touches()):
                    out.append(Command("barrier"))
                    group = []
                group += command.touches()
            else:
                group = []
            out.append(command)
        return out

    def _command(self, kind: Kind) -> Command:
        dst, value = self._range(), self.r.randrange(1 << 31)
        if kind == "fill":
            return Command("fill", dst, value=value)
        if kind == "write":
            return Command("write", Range(dst.buffer, dst.begin, dst.begin + 1), value=value)
        while True:
            src = self._range()
            size = min(dst.end - dst.begin, src.end - src.begin)
            dst = Range(dst.buffer, dst.begin, dst.begin + size)
            src = Range(src.buffer, src.begin, src.begin + size)
            if not dst.meets(src):
                return Command(kind, dst, src, value)

    def _submission(self) -> None:
        number = len(self.submissions)
        queue = self.r.randrange(len(self.compute))
        new = Submission(queue, self._commands(kernels=self.compute[queue]))
        before = {n for n, s in enumerate(self.submissions) if s.queue == queue}
        known = set(self.done)
        for n in before:
            known |= self._known[n]
        for n in reversed(range(number)):
            other = self.submissions[n]
            if n in known or not conflict(touched(other), touched(new)):
                continue
            if other.raises and other.graph == 0 and self.r.random() < 0.5:
                new.awaits.append(n)
            else:
                new.after.append(n)
            known |= self._known[n]
        new.raises = self.r.random() < 0.3
        if self.r.random() < 0.2 and not new.awaits:
            new.graph, new.raises = self.r.randint(1, 3), False
        new.host_waits = self.r.random() < 0.25
        if self.r.random() < 0.15:
            new.frees = self.r.randrange(_BUFFERS)
        self._known.append(known | {number})
        if new.host_waits:
            self.done |= known | {number}
        self.submissions.append(new)

    def _order(self) -> list[int]:
        """Return an order of submitting: what waits for a signal may come before what raises it."""
        out: list[int] = []
        left = list(range(len(self.submissions)))
        while left:
            ready = [n for n in left if self._may_follow(n, left)]
            out.append(ready[0] if self.r.random() < 0.6 else self.r.choice(ready))
            left.remove(out[-1])
        return out

    def _may_follow(self, number: int, left: list[int]) -> bool:
        """Return whether everything that submission `number` must follow was submitted."""
        one = self.submissions[number]
        for n in left:
            if n >= number:
                return True
            other = self.submissions[n]
            # A name is another buffer before than after it is freed.
            if other.frees >= 0 or one.frees >= 0:
                return False
            # The host continues after it only when it waited; the awaited work must all have been submitted.
            if other.queue == one.queue or n in one.after or other.host_waits or one.host_waits:
                return False
            # Without a point or a signal between them the validation layer checks by the order of submission.
            if n not in one.awaits and conflict(touched(other), touched(one)):
                return False
        return True


def touched(submission: Submission) -> list[tuple[Range, bool]]:
    """Return everything that a submission touches; what it frees counts as written whole."""
    out = [entry for command in submission.commands for entry in command.touches()]
    if submission.frees >= 0:
        out.append((Range(submission.frees, 0, WORDS), True))
    return out


def conflict(one: list[tuple[Range, bool]], two: list[tuple[Range, bool]]) -> bool:
    """Return whether two sets of accesses share words, one of them writing."""
    return any(a.meets(b) and (x or y) for a, x in one for b, y in two)
