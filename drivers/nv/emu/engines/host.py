"""Host methods of a channel: semaphores, waits for idle, barriers (nv.md 3.3).

Not here: fetching (`channel`), the engines (`compute`, `copy`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from drivers.nv.emu.engines import semaphore
from drivers.nv.emu.machine.reports import ChannelError, Kind, host_error
from drivers.nv.layouts import host as layout
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import HostMethod, MemOperation, SemExecute, SemOperation

if TYPE_CHECKING:
    from drivers.nv.emu.engines.engine import Run
    from drivers.nv.emu.engines.pushbuffer import MethodCall


_TLB = (MemOperation.MMU_TLB_INVALIDATE, MemOperation.MMU_TLB_INVALIDATE_TARGETED)


class Host:
    """The host engine's registers of one channel."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.methods = layout.METHODS if run.machine.profile.wide else layout.METHODS_AMPERE
        self.registers: dict[int, int] = {}

    def method(self, call: MethodCall) -> None:
        """Run one method."""
        known = self.methods.get(call.address)
        if known is None:
            raise host_error(f"host method {call.address:#x} is not known")
        if known.data is not None:
            violations = known.data.from_int(call.value).check()
            if violations:
                raise host_error(f"{known.name} {call.value:#x}: {violations[0]}")
        self.registers[call.address] = call.value
        match HostMethod(call.address):
            case HostMethod.SET_REFERENCE:
                raise _not_emulated("SET_REFERENCE, which writes the user area,")
            case HostMethod.SEM_EXECUTE:
                self._semaphore(SemExecute.from_int(call.value))
            case HostMethod.WFI:
                self._run.when_idle(self._run.unflushed.idle)
            case HostMethod.MEM_OP_D:
                self._memory_operation(layout.MemOpD.from_int(call.value).OPERATION)
            case HostMethod.NON_STALL_INTERRUPT:
                self._run.machine.notify_work(self._run)
            case HostMethod.YIELD:
                self._run.yielded = True

    def _address(self) -> int:
        if HostMethod.SEM_ADDR_LO not in self.registers or HostMethod.SEM_ADDR_HI not in self.registers:
            raise host_error("SEM_EXECUTE before SEM_ADDR_LO and SEM_ADDR_HI")
        return self.registers[HostMethod.SEM_ADDR_HI] << 32 | self.registers[HostMethod.SEM_ADDR_LO]

    def target(self, execute: SemExecute) -> semaphore.Release:
        """Return address, payload and width in bits of a SEM_EXECUTE."""
        if HostMethod.SEM_PAYLOAD_LO not in self.registers:
            raise host_error("SEM_EXECUTE before SEM_PAYLOAD_LO")
        bits = 64 if execute.PAYLOAD_SIZE else 32
        if bits == 64 and HostMethod.SEM_PAYLOAD_HI not in self.registers:
            raise host_error("SEM_EXECUTE with 64 bits before SEM_PAYLOAD_HI")
        payload = self.registers[HostMethod.SEM_PAYLOAD_LO]
        if bits == 64:
            payload |= self.registers[HostMethod.SEM_PAYLOAD_HI] << 32
        return semaphore.Release(self._address(), payload, bits)

    def _semaphore(self, execute: SemExecute) -> None:
        _judge_bits(execute)
        one = self.target(execute)
        run = self._run
        if execute.OPERATION not in (SemOperation.RELEASE, SemOperation.REDUCTION):
            semaphore.check_alignment(one.va, one.bits // 8, "SEM_EXECUTE")
            if not execute.ACQUIRE_SWITCH_TSG:
                run.machine.lint(
                    "an acquire without ACQUIRE_SWITCH_TSG: the engine stands still while its channel waits"
                )
            run.waiting = semaphore.Acquire(one.va, execute.OPERATION, one.payload, one.bits)
            return
        for engine in run.bound.values():
            error = engine.left_over()
            if error is not None:
                raise error
        if execute.RELEASE_WFI:
            run.when_idle(partial(self._write, execute, one))
        else:
            if run.unflushed.done:
                raise ChannelError(
                    RcCode.PBDMA_ERROR,
                    Kind.COHERENCE,
                    f"a release without RELEASE_WFI behind a wait for stores of {run.unflushed.done}: "
                    "they may not be seen, only with it the host inserts a SYSMEMBAR",
                )
            self._write(execute, one)

    def _write(self, execute: SemExecute, one: semaphore.Release) -> None:
        run = self._run
        if execute.RELEASE_WFI:
            run.unflushed.flushed()
        if execute.OPERATION is SemOperation.REDUCTION:
            signed = bool(execute.REDUCTION_FORMAT)
            semaphore.reduce(run.space, one, execute.REDUCTION, "SEM_EXECUTE", run.released, signed=signed)
            return
        time_ns = run.machine.time_ns() if execute.RELEASE_TIMESTAMP else None
        semaphore.release(run.space, one, time_ns, "SEM_EXECUTE", run.released)

    def _memory_operation(self, operation: MemOperation) -> None:
        if operation in _TLB:
            raise host_error(f"MEM_OP {operation.name} needs a privileged channel")
        if operation is not MemOperation.MEMBAR:
            raise _not_emulated(f"MEM_OP {operation.name}")
        rest = (HostMethod.MEM_OP_A, HostMethod.MEM_OP_B, HostMethod.MEM_OP_C)
        if HostMethod.MEM_OP_C not in self.registers:
            raise host_error("MEM_OP MEMBAR before MEM_OP_C, which sets its scope")
        if any(self.registers.get(one, 0) for one in rest):
            raise host_error("MEM_OP MEMBAR takes zeros in A, B and C (system scope)")
        self._run.when_idle(self._run.unflushed.flushed)


def _judge_bits(execute: SemExecute) -> None:
    """Refuse bits that belong to another operation: hardware ignores them, so the driver made a mistake."""
    release = execute.OPERATION is SemOperation.RELEASE
    reduction = execute.OPERATION is SemOperation.REDUCTION
    bits = {
        "an acquire": execute.ACQUIRE_SWITCH_TSG and (release or reduction),
        "a release": execute.RELEASE_WFI and not (release or reduction),
        "a plain release": execute.RELEASE_TIMESTAMP and not release,  # only releases write a record
        "a reduction": (execute.REDUCTION or execute.REDUCTION_FORMAT) and not reduction,
    }
    for whose, wrong in bits.items():
        if wrong:
            raise host_error(f"SEM_EXECUTE {execute.OPERATION.name} with bits of {whose}: {execute}")


def _not_emulated(what: str) -> ChannelError:
    return ChannelError(RcCode.PBDMA_ERROR, Kind.UNSUPPORTED, f"{what} is not emulated")
