"""The reasons why a channel does not continue (error, semaphore, no doorbell), and its future releases.

Future releases are decoded from the words that a channel has not executed yet, for the detection of
deadlocks.

Not here: executing methods (`emulator.nv.engines.host`). Next: `emulator.shared.waits`, the search for cycles
and the history of semaphores.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.dma import DmaMethod, DmaSemaphoreType, LaunchDma
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Subchannel
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation
from emulator.nv.engines.pushbuffer import decode
from emulator.nv.engines.semaphore import Release
from emulator.nv.reports import ChannelError
from emulator.shared.vaspace import AccessKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.engines.pushbuffer import MethodCall
    from emulator.nv.rm.objects import RmChannel
    from emulator.shared.waits import SemaphoreHistory

_WHAT = "SEM_EXECUTE acquire"


def passed(run: ChannelRun, history: SemaphoreHistory) -> str:
    """Return the reason why the channel's equality acquire never ends; "" if it may end, or none waits."""
    wait = run.waiting
    if wait is None:
        return ""
    at = run.space.host(wait.va, wait.bits // 8, AccessKind.READ, _WHAT)
    seen = run.space.word(wait.va, wait.bits, _WHAT)
    if not history.passed(at, wait, seen):
        return ""
    return (
        f"{run.name} waits until the semaphore at {wait.va:#x} equals {wait.payload:#x}, seen {seen:#x}: the "
        "value has passed, and only rises. ACQUIRE compares for equality, ACQ_STRICT_GEQ does not"
    )


def standing(channel: RmChannel) -> list[str]:
    """Describe why a channel makes no progress, one sentence for each reason; empty if none is known."""
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
    """Describe ring entries that the driver has written and not submitted: no doorbell, or GPPut too low."""
    put = run.host_put
    if put != run.put:
        text = f"the last doorbell had {run.put}: the entries between were never submitted"
        return [f"{run.name}: GPPut is {put}, {text}"]
    va = run.setup.ring_va + put * GpfifoEntry.SIZE
    raw = int.from_bytes(run.space.read(va, GpfifoEntry.SIZE, f"ring entry {put}"), "little")
    if raw != run.stale(put):
        return [f"{run.name}: ring entry {put} is written, and GPPut is still {put}"]
    return []


def promised(run: ChannelRun) -> Iterator[Release]:
    """Yield the releases that a channel has not executed yet, in stream order.

    Releases by grids are left out, and all after a word that cannot be decoded.
    """
    host = dict(run.host.registers)
    engines: dict[int, dict[int, int]] = {}
    for call in _ahead(run):
        if call.address < HOST_METHODS_END:
            host[call.address] = call.value
            if call.address == HostMethod.SEM_EXECUTE:
                execute = SemExecute.from_int(call.value)
                if execute.OPERATION == SemOperation.RELEASE:
                    yield Release(
                        host.get(HostMethod.SEM_ADDR_HI, 0) << 32 | host.get(HostMethod.SEM_ADDR_LO, 0),
                        host.get(HostMethod.SEM_PAYLOAD_HI, 0) << 32 | host.get(HostMethod.SEM_PAYLOAD_LO, 0),
                        64,
                    )
            continue
        registers = engines.setdefault(call.subchannel, {})
        registers[call.address] = call.value
        yield from _engine_release(call, registers)


def _engine_release(call: MethodCall, registers: dict[int, int]) -> Iterator[Release]:
    """Yield the release that a method call to an engine makes, if any; `registers` were set before it."""
    get = registers.get
    if call.subchannel == Subchannel.COPY and call.address == DmaMethod.LAUNCH_DMA:
        if LaunchDma.from_int(call.value).SEMAPHORE_TYPE != DmaSemaphoreType.NONE:
            payload = get(DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, 0) << 32 | get(
                DmaMethod.SET_SEMAPHORE_PAYLOAD, 0
            )
            yield Release(
                get(DmaMethod.SET_SEMAPHORE_A, 0) << 32 | get(DmaMethod.SET_SEMAPHORE_B, 0), payload, 64
            )
    elif call.subchannel == Subchannel.COMPUTE and call.address == ComputeMethod.SET_REPORT_SEMAPHORE_D:
        va = get(ComputeMethod.SET_REPORT_SEMAPHORE_A, 0) << 32 | get(ComputeMethod.SET_REPORT_SEMAPHORE_B, 0)
        yield Release(va, get(ComputeMethod.SET_REPORT_SEMAPHORE_C, 0), 32)
    elif call.subchannel == Subchannel.COMPUTE and call.address == ComputeMethod.REPORT_SEMAPHORE_EXECUTE:
        m = ComputeMethod
        va = get(m.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, 0) << 32 | get(m.SET_REPORT_SEMAPHORE_ADDRESS_LOWER, 0)
        payload = get(m.SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, 0) << 32 | get(
            m.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, 0
        )
        yield Release(va, payload, 64)


def _ahead(run: ChannelRun) -> Iterator[MethodCall]:
    """Yield the method calls that a channel has not executed yet, up to the first unreadable segment."""
    yield from run.calls
    for entry in run.pending():
        decoded = GpfifoEntry.from_int(entry.raw)
        try:
            data = run.space.read(decoded.ADDRESS, decoded.LENGTH * 4, "a push buffer")
            yield from decode(struct.unpack(f"<{decoded.LENGTH}I", data))
        except ChannelError:
            return
