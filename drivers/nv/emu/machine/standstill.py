"""Why a channel that waits will not go on: what its semaphore was and is, and what the host never told.

Not here: channels that wait for each other (`waitgraph`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.nv.emu.machine.reports import ChannelError
from drivers.nv.layouts.fault import MmuAccess
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.host import SemOperation

if TYPE_CHECKING:
    from drivers.nv.emu.engines.channel import ChannelRun
    from drivers.nv.emu.engines.semaphore import Acquire, Written
    from drivers.nv.emu.rm.objects import Channel

_REMEMBERED = 64
_WHAT = "SEM_EXECUTE acquire"


@dataclass(slots=True)
class _Word:
    """What engines wrote to a word."""

    values: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    rising: bool = True
    """Each value is above the one before, and nobody else wrote between."""
    bits: int = 64
    """Of the last store."""


class Words:
    """The semaphores that engines of a machine wrote, by host address."""

    def __init__(self) -> None:
        self._words: dict[int, _Word] = {}

    def width(self, at: int) -> int:
        """Return with how many bits engines last wrote a word; 0 if none did."""
        word = self._words.get(at)
        return 0 if word is None else word.bits

    def forget(self, start: int, end: int) -> None:
        """The memory is given back: what is made there next is another's."""
        for at in [at for at in self._words if start <= at < end]:
            del self._words[at]

    def note(self, one: Written) -> None:
        """Take note of a store."""
        word = self._words.get(one.at)
        if word is None or (word.values and one.old != word.values[-1] and one.old == 0):
            word = self._words[one.at] = _Word()  # new, or begun anew by its owner
        if (word.values and one.old != word.values[-1]) or one.new <= one.old:
            word.rising = False
        word.values.append(one.new)
        word.bits = one.bits

    def passed(self, at: int, wait: Acquire, seen: int) -> bool:
        """Say whether a wait for one value will never end: the word had it, rose above it and never fell."""
        word = self._words.get(at)
        return (
            word is not None
            and wait.operation is SemOperation.ACQUIRE
            and word.rising
            and seen > wait.payload
            and word.values[-1] == seen
            and wait.payload in word.values
        )


def passed(run: ChannelRun, words: Words) -> str:
    """Return why an equality acquire never ends, or nothing."""
    wait = run.waiting
    if wait is None:
        return ""
    at = run.space.host(wait.va, wait.bits // 8, MmuAccess.READ, _WHAT)
    seen = run.space.word(wait.va, wait.bits, _WHAT)
    if not words.passed(at, wait, seen):
        return ""
    return (
        f"{run.name} waits until the semaphore at {wait.va:#x} equals {wait.payload:#x}, seen {seen:#x}: the "
        "value has passed, and only rises. ACQUIRE compares for equality, ACQ_STRICT_GEQ does not"
    )


def standing(channel: Channel) -> list[str]:
    """Return what a channel that makes no progress waits for, each as a sentence."""
    run = channel.run
    if run.dead is not None:
        return []
    out = []
    try:
        if run.waiting is not None:
            seen = run.space.word(run.waiting.va, run.waiting.bits, _WHAT)
            if not run.waiting.satisfied(seen):
                above = run.waiting.operation is SemOperation.ACQUIRE and seen > run.waiting.payload
                why = ": it ends when both are equal, and the value has passed" if above else ""
                out.append(f"{run.name} waits: {run.waiting}, seen {seen:#x}; at {run.at}{why}")
        if run.busy and not channel.runs:
            why = "was disabled" if channel.disabled else "is not scheduled"
            out.append(f"{run.name} has work and {why}")
        out += _untold(run)
    except ChannelError as error:
        out.append(f"{run.name}: {error.message}")
    return out


def _untold(run: ChannelRun) -> list[str]:
    """Tell what lies in the ring and was never rung, or is not within GPPut."""
    put = run.told_put
    if put != run.put:
        told = f"the doorbell last told of {run.put}: the entries between were never rung"
        return [f"{run.name}: GPPut is {put}, {told}"]
    va = run.setup.ring_va + put * GpfifoEntry.SIZE
    raw = int.from_bytes(run.space.read(va, GpfifoEntry.SIZE, f"ring entry {put}"), "little")
    if raw != run.stale(put):
        return [f"{run.name}: ring entry {put} is written, and GPPut is still {put}"]
    return []
