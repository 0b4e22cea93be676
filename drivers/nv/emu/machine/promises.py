"""The future releases of a channel, decoded from the words that it has not executed yet.

Deadlock detection (`drivers.emu.waits`) reads them. Not here: executing methods
(`drivers.nv.emu.engines.host`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from drivers.nv.emu.engines.pushbuffer import decode
from drivers.nv.emu.engines.semaphore import Release
from drivers.nv.emu.machine.reports import ChannelError
from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.dma import DmaMethod, DmaSemaphoreType, LaunchDma
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, Subchannel
from drivers.nv.layouts.host import HostMethod, SemExecute, SemOperation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.emu.engines.channel import ChannelRun
    from drivers.nv.emu.engines.pushbuffer import MethodCall


def promised(run: ChannelRun) -> Iterator[Release]:
    """Yield the releases that a channel has not executed yet, in stream order."""
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
    """Yield the method calls that a channel has not executed yet, up to the first unreadable words."""
    yield from run.calls
    for entry in run.pending():
        decoded = GpfifoEntry.from_int(entry.raw)
        try:
            data = run.space.read(decoded.ADDRESS, decoded.LENGTH * 4, "a push buffer")
            yield from decode(struct.unpack(f"<{decoded.LENGTH}I", data))
        except ChannelError:
            return
