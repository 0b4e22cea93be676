"""Host methods of a channel: semaphores, waits for idle, barriers (docs/facts/nv.md 3.3).

A host error is a `ChannelError`.

Not here: fetching (`channel`), the engines (`compute`, `copy`). Next: `semaphore`, comparisons and stores.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from drivers.nv.layouts import host as layout
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.host import HostMethod, MemOperation, SemExecute, SemOperation, SemReduction
from emulator.nv.engines import semaphore
from emulator.nv.engines.pushbuffer import broken_rule
from emulator.nv.reports import ChannelError, FindingKind, host_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.engines.pushbuffer import MethodCall


_TLB = (MemOperation.MMU_TLB_INVALIDATE, MemOperation.MMU_TLB_INVALIDATE_TARGETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """The data word of SEM_EXECUTE."""

    operation: SemOperation
    bits: int
    """Width of the payload: 32 or 64."""
    switches: bool
    """Whether an acquire lets other channels run."""
    waits: bool
    """Whether a release waits for the engines."""
    stamps: bool
    """Whether a release writes the time."""
    reduction: SemReduction
    """The reduction, if `operation` is one."""
    signed: bool
    """Whether a reduction compares signed values."""


class HostEngine:
    """The host engine of one channel, with its registers."""

    def __init__(self, run: EngineChannel) -> None:
        self._run = run
        self.methods = layout.METHODS if run.gpu.profile.wide else layout.METHODS_AMPERE
        self.registers: dict[int, int] = {}

    def method(self, call: MethodCall) -> bool:
        """Run one method; return whether it did more than set a register.

        Raises `ChannelError` for a bad one.
        """
        address, value = call.address, call.value
        known = self.methods.get(address)
        if known is None:
            raise host_error(f"host method {address:#x} is not known")
        if known.data is not None:
            violation = broken_rule(known, value)
            if violation:
                raise host_error(f"{known.name} {value:#x}: {violation}")
        self.registers[address] = value
        action = self._ACTIONS.get(address)
        if action is None:
            return False
        action(self, value)
        return True

    def _reference(self, _value: int) -> None:
        raise _not_emulated("SET_REFERENCE, which writes the user area,")

    def _wfi(self, _value: int) -> None:
        self._run.when_idle(self._run.unflushed.idle)

    def _interrupt(self, _value: int) -> None:
        self._run.machine.notify_work(self._run)

    def _yield(self, _value: int) -> None:
        self._run.yielded = True

    def _address(self) -> int:
        if HostMethod.SEM_ADDR_LO not in self.registers or HostMethod.SEM_ADDR_HI not in self.registers:
            raise host_error("SEM_EXECUTE before SEM_ADDR_LO and SEM_ADDR_HI")
        return self.registers[HostMethod.SEM_ADDR_HI] << 32 | self.registers[HostMethod.SEM_ADDR_LO]

    def target(self, execute: Execute) -> semaphore.Release:
        """Return address, payload and width of a SEM_EXECUTE.

        Raises a host error if a register was never set.
        """
        if HostMethod.SEM_PAYLOAD_LO not in self.registers:
            raise host_error("SEM_EXECUTE before SEM_PAYLOAD_LO")
        bits = execute.bits
        if bits == 64 and HostMethod.SEM_PAYLOAD_HI not in self.registers:
            raise host_error("SEM_EXECUTE with 64 bits before SEM_PAYLOAD_HI")
        payload = self.registers[HostMethod.SEM_PAYLOAD_LO]
        if bits == 64:
            payload |= self.registers[HostMethod.SEM_PAYLOAD_HI] << 32
        return semaphore.Release(self._address(), payload, bits)

    def _semaphore(self, value: int) -> None:
        """Execute SEM_EXECUTE: begin an acquire, or write a release now or after earlier work."""
        execute, wrong = _execute(value)
        if wrong:
            raise host_error(wrong)
        one = self.target(execute)
        run = self._run
        if execute.operation not in (SemOperation.RELEASE, SemOperation.REDUCTION):
            semaphore.check_alignment(one.va, one.bits // 8, "SEM_EXECUTE")
            if not execute.switches:
                run.machine.lint(
                    "an acquire without ACQUIRE_SWITCH_TSG: the engine is idle while its channel waits"
                )
            run.waiting = semaphore.Acquire(one.va, execute.operation, one.payload, one.bits)
            return
        for engine in run.bound.values():
            error = engine.left_over()
            if error is not None:
                raise error
        if execute.waits:
            run.when_idle(partial(self._write, execute, one))
        else:
            if run.unflushed.done:
                raise ChannelError(
                    RcCode.PBDMA_ERROR,
                    FindingKind.COHERENCE,
                    f"a release without RELEASE_WFI after a wait for stores of {run.unflushed.done}: the "
                    "stores may not be visible, because only RELEASE_WFI makes the host insert a SYSMEMBAR",
                )
            if execute.stamps and run.inflight:
                run.machine.report_unverified(
                    "SEM_EXECUTE RELEASE with RELEASE_TIMESTAMP and without RELEASE_WFI after work in "
                    f"flight of {run.inflight.first().engine}: its time is before that work ends",
                    host_error,
                )
            self._write(execute, one)

    def _write(self, execute: Execute, one: semaphore.Release) -> None:
        run = self._run
        if execute.waits:
            run.unflushed.flushed()
        if execute.operation is SemOperation.REDUCTION:
            tell, signed = run.released, execute.signed
            semaphore.reduce(run.space, one, execute.reduction, "SEM_EXECUTE", tell, signed=signed)
            return
        time_ns = run.machine.time_ns() if execute.stamps else None
        semaphore.release(run.space, one, time_ns, "SEM_EXECUTE, at SEM_ADDR,", run.released)

    def _memory_operation(self, value: int) -> None:
        """Execute MEM_OP_D: only a MEMBAR of system scope. Raises `ChannelError` for others."""
        operation = layout.MemOpD.from_int(value).OPERATION
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

    _ACTIONS: ClassVar[dict[int, Callable[[HostEngine, int], None]]] = {
        HostMethod.SET_REFERENCE: _reference,
        HostMethod.SEM_EXECUTE: _semaphore,
        HostMethod.WFI: _wfi,
        HostMethod.MEM_OP_D: _memory_operation,
        HostMethod.NON_STALL_INTERRUPT: _interrupt,
        HostMethod.YIELD: _yield,
    }


@functools.lru_cache(maxsize=256)
def _execute(value: int) -> tuple[Execute, str]:
    """Return the decoded data word of SEM_EXECUTE, and an error, "" if it is valid.

    Streams repeat few of them.
    """
    data = SemExecute.from_int(value)
    return Execute(
        operation=data.OPERATION,
        bits=64 if data.PAYLOAD_SIZE else 32,
        switches=bool(data.ACQUIRE_SWITCH_TSG),
        waits=bool(data.RELEASE_WFI),
        stamps=bool(data.RELEASE_TIMESTAMP),
        reduction=data.REDUCTION,
        signed=bool(data.REDUCTION_FORMAT),
    ), _misplaced(data)


def _misplaced(execute: SemExecute) -> str:
    """Return an error for bits that belong to another operation, "" if there are none.

    Hardware ignores such bits, but they show a mistake of the driver.
    """
    release = execute.OPERATION is SemOperation.RELEASE
    reduction = execute.OPERATION is SemOperation.REDUCTION
    bits = {
        "an acquire": execute.ACQUIRE_SWITCH_TSG and (release or reduction),
        "a release": execute.RELEASE_WFI and not (release or reduction),
        "a plain release": execute.RELEASE_TIMESTAMP and not release,  # only releases write a record
        "a reduction": (execute.REDUCTION or execute.REDUCTION_FORMAT) and not reduction,
    }
    wrong = [
        f"SEM_EXECUTE {execute.OPERATION.name} with bits of {whose}" for whose, one in bits.items() if one
    ]
    return f"{wrong[0]}: {execute}" if wrong else ""


def _not_emulated(what: str) -> ChannelError:
    return ChannelError(RcCode.PBDMA_ERROR, FindingKind.UNSUPPORTED, f"{what} is not emulated")
