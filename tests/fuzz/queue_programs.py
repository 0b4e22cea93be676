"""Random legal programs of submissions to several queues and devices, and their sequential execution.

A program is data, made from a seed. Every conflict between queues is ordered by a point in `after=`, by a
signal, or by a wait of the host; conflicts between kernels of one submission are ordered by a barrier.
Therefore every order that the program allows gives the memory of the sequential execution.

Not here: running and comparing (`queues`), faults (`queue_faults`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

Array = np.ndarray[Any, Any]
WORDS: Final = 32
"""Number of u32 words of a buffer."""
_BUFFERS: Final = 5
_BEGINS: Final = (0, 0, 1, 2, 3, 8, 13, 16, 31)
_SIZES: Final = (0, 1, 1, 2, 2, 3, 8, 13, 16, WORDS)
"""First words and sizes of ranges: none, one word, primes, powers of two, to the end."""

Kind = Literal["fill", "copy", "write", "mix", "barrier"]


@dataclass(frozen=True, slots=True)
class Range:
    """Words [begin, end) of a buffer."""

    buffer: int
    begin: int
    end: int

    def meets(self, other: Range) -> bool:
        """Return whether two ranges share words."""
        return self.buffer == other.buffer and self.begin < other.end and other.begin < self.end


@dataclass(frozen=True, slots=True)
class Command:
    """One command: writes `dst`, reads `src`; `value` is the fill, the written or the kernel's term."""

    kind: Kind
    dst: Range | None = None
    src: Range | None = None
    value: int = 0

    def touches(self) -> list[tuple[Range, bool]]:
        """Return the accesses as (range, whether it is written)."""
        out = []
        if self.dst is not None:
            out.append((self.dst, True))
        if self.src is not None:
            out.append((self.src, False))
        return out


@dataclass(slots=True)
class Submission:
    """Commands for one queue, and their order after earlier submissions."""

    queue: int
    """Index into the queues of all devices."""
    commands: list[Command]
    after: list[int] = field(default_factory=list)
    """Earlier submissions whose points are waited for."""
    awaits: list[int] = field(default_factory=list)
    """Earlier submissions whose signals are waited for."""
    raises: bool = False
    """Whether it sets its own signal at its end."""
    graph: int = 0
    """Number of replays as a graph with the kernels' terms as parameters; 0 for a plain submission."""
    host_waits: bool = False
    """Whether the host waits for it."""
    frees: int = -1
    """A buffer that is closed after the submission and replaced by a new, filled one; -1 for none."""
    drops: bool = False
    """Whether that buffer is only dropped, not closed."""


@dataclass(slots=True)
class Program:
    """Submissions in the order of sequential execution; `order` is the order in which they are submitted."""

    seed: int
    compute: tuple[bool, ...]
    """Whether each queue is a compute queue."""
    submissions: list[Submission]
    order: list[int]
    before: list[list[int]]
    """For each submission the earlier ones that must be submitted first."""
    threads: bool
    """Whether each queue has a host thread of its own, which submits in any order that `before` allows."""


def start(program_seed: int) -> list[Array]:
    """Return the initial contents of the buffers."""
    rng = np.random.default_rng(program_seed)
    return [rng.integers(0, 1 << 32, WORDS, np.uint32) for _ in range(_BUFFERS)]


def apply(commands: list[Command], memory: list[Array], *, lap: int = 0) -> None:
    """Execute commands in order on NumPy arrays; `lap` is added to the kernels' terms."""
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
    """Return the fill value of the buffer that replaces the one freed by submission `number`."""
    return 0x5EED0000 + number


class Maker:
    """Makes the program of one seed."""

    def __init__(self, seed: int, compute: tuple[bool, ...]) -> None:
        self.r = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.compute = compute
        self.submissions: list[Submission] = []
        self.done: set[int] = set()
        """Submissions that the host knows to be complete."""
        self._known: list[set[int]] = []
        """For each submission, the submissions that are complete when it is, itself included."""
        for _ in range(self.r.randint(2, 9)):
            self._submission()
        each = range(len(self.submissions))
        before = [[m for m in range(n) if not self._may_follow(n, [m])] for n in each]
        threads = self.r.random() < 0.3
        self.program = Program(seed, compute, self.submissions, self._order(), before, threads)

    def _range(self, least: int = 0) -> Range:
        begin = self.r.choice(_BEGINS)
        end = min(WORDS, begin + max(least, self.r.choice(_SIZES)))
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
        least = 1 if kind == "mix" else 0
        dst, value = self._range(least), self.r.randrange(1 << 31)
        if kind == "fill":
            return Command("fill", dst, value=value)
        if kind == "write":
            return Command("write", Range(dst.buffer, dst.begin, dst.begin + 1), value=value)
        while True:
            src = self._range(least)
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
            new.frees, new.drops = self.r.randrange(_BUFFERS), self.r.random() < 0.5
        self._known.append(known | {number})
        if new.host_waits:
            self.done |= known | {number}
        self.submissions.append(new)

    def _order(self) -> list[int]:
        """Return an order of submission; a waiting submission may precede the one that sets its signal."""
        out: list[int] = []
        left = list(range(len(self.submissions)))
        while left:
            ready = [n for n in left if self._may_follow(n, left)]
            out.append(ready[0] if self.r.random() < 0.6 else self.r.choice(ready))
            left.remove(out[-1])
        return out

    def _may_follow(self, number: int, left: list[int]) -> bool:
        """Return whether all submissions that must precede submission `number` were submitted."""
        one = self.submissions[number]
        for n in left:
            if n >= number:
                return True
            other = self.submissions[n]
            # Freeing replaces a buffer, so its index means another buffer afterwards.
            if other.frees >= 0 or one.frees >= 0:
                return False
            # Where the host waits, the work that it waits for must be submitted before.
            if other.queue == one.queue or n in one.after or other.host_waits or one.host_waits:
                return False
            # Without a point or a signal the validation layer checks by the order of submission.
            if n not in one.awaits and conflict(touched(other), touched(one)):
                return False
        return True


def touched(submission: Submission) -> list[tuple[Range, bool]]:
    """Return all accesses of a submission; a freed buffer counts as written completely."""
    out = [entry for command in submission.commands for entry in command.touches()]
    if submission.frees >= 0:
        out.append((Range(submission.frees, 0, WORDS), True))
    return out


def conflict(one: list[tuple[Range, bool]], two: list[tuple[Range, bool]]) -> bool:
    """Return whether two sets of accesses share words that at least one of them writes."""
    return any(a.meets(b) and (x or y) for a, x in one for b, y in two)
