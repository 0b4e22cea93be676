"""The reasons why a channel does not continue: an error, its semaphore's history, entries without a doorbell.

Not here: the search for cycles and the history of semaphores (`drivers.emu.waits`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.vaspace import Access
from drivers.nv.emu.machine.reports import ChannelError
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.host import SemOperation

if TYPE_CHECKING:
    from drivers.emu.waits import SemaphoreHistory
    from drivers.nv.emu.engines.channel import ChannelRun
    from drivers.nv.emu.rm.objects import Channel

_WHAT = "SEM_EXECUTE acquire"


def passed(run: ChannelRun, history: SemaphoreHistory) -> str:
    """Return the reason why an equality acquire never ends, or ""."""
    wait = run.waiting
    if wait is None:
        return ""
    at = run.space.host(wait.va, wait.bits // 8, Access.READ, _WHAT)
    seen = run.space.word(wait.va, wait.bits, _WHAT)
    if not history.passed(at, wait, seen):
        return ""
    return (
        f"{run.name} waits until the semaphore at {wait.va:#x} equals {wait.payload:#x}, seen {seen:#x}: the "
        "value has passed, and only rises. ACQUIRE compares for equality, ACQ_STRICT_GEQ does not"
    )


def standing(channel: Channel) -> list[str]:
    """Describe the waits of a channel without progress, each in a sentence."""
    run = channel.run
    if run.dead is not None:
        code = int(run.dead.rc)
        return [f"{run.name} was stopped, and its error notifier has the code {code}: {run.dead.message}"]
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
        out += _unrung(run)
    except ChannelError as error:
        out.append(f"{run.name}: {error.message}")
    return out


def _unrung(run: ChannelRun) -> list[str]:
    """Describe entries in the ring without a doorbell, or beyond GPPut."""
    put = run.host_put
    if put != run.put:
        text = f"the last doorbell had {run.put}: the entries between were never submitted"
        return [f"{run.name}: GPPut is {put}, {text}"]
    va = run.setup.ring_va + put * GpfifoEntry.SIZE
    raw = int.from_bytes(run.space.read(va, GpfifoEntry.SIZE, f"ring entry {put}"), "little")
    if raw != run.stale(put):
        return [f"{run.name}: ring entry {put} is written, and GPPut is still {put}"]
    return []
