"""A running channel: fetches ring entries, decodes methods, runs host methods, hands the others to the engine of their subchannel.

Sources: nv.md 3.1 to 3.3. An error writes the notifier and ends the channel, as a robust-channel error
does.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from drivers.nv.emu.engines import ComputeEngine, CopyEngine
from drivers.nv.emu.stops import Blocked, ChannelError, DeviceMemory
from drivers.nv.layouts import compute, dma, host
from drivers.nv.layouts.fault import NOTIFIER_POSTED, NvNotification, NvTimeStamp, RcCode
from drivers.nv.layouts.gpfifo import (
    HOST_METHODS_END,
    GpfifoControl,
    GpfifoEntry,
    GpfifoOpcode,
    HopperAControlGPFifo,
    MethodHeader,
    SecOp,
)
from drivers.nv.layouts.host import HostMethod, MemOperation, SemOperation
from drivers.nv.layouts.rm_classes import EngineType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drivers.emu.memory import AddressSpace
    from drivers.nv.emu.gpu import Gpu
    from drivers.nv.layouts.gpfifo import Method

_PUT, _GET = HopperAControlGPFifo.offset_of("GPPut"), HopperAControlGPFifo.offset_of("GPGet")
_TLB = {
    MemOperation.MMU_TLB_INVALIDATE,
    MemOperation.MMU_TLB_INVALIDATE_TARGETED,
    MemOperation.ACCESS_COUNTER_CLR,
}


class Channel:
    """One GPFIFO channel of one address space."""

    def __init__(
        self,
        gpu: Gpu,
        space: AddressSpace,
        *,
        ring: int,
        entries: int,
        userd: int,
        notifier: int,
        engine: int,
        cls: int,
    ) -> None:
        self.gpu = gpu
        self.memory = DeviceMemory(space)
        self.engine = engine
        self.number = 0
        self.runlist = 0 if engine == EngineType.GR0 else engine - EngineType.COPY0 + 1
        self.classes: set[int] = set()
        self.scheduled = self.rung = self.running = self.dead = False
        self.warp_error = self.warp_pc = self.fault_address = self.fault_access = 0
        self.mmu_fault = False
        self._ring, self._entries, self._userd, self._notifier = ring, entries, userd, notifier
        self._get = self._put = 0
        self._base = 0
        self._stalled = False
        self._work: Iterator[None] | None = None
        self._bound: dict[int, int] = {}
        self._host: dict[int, int] = {}
        row = gpu.profile.generation
        wide = row.wide_addresses
        self._host_methods = host.METHODS if wide else host.METHODS_AMPERE
        self._compute_methods = compute.METHODS if wide else compute.METHODS_AMPERE
        self._copy_methods = dma.METHODS if wide else dma.METHODS_AMPERE
        self.compute = ComputeEngine(self)
        self.copy = CopyEngine(self)
        del cls

    # ---- life

    def wants_to_run(self) -> bool:
        """Whether the scheduler should give it a turn."""
        return (
            self.scheduled
            and not self.dead
            and (self.rung or self._work is not None or self._get != self._put)
        )

    def close(self) -> None:
        """Stop for good."""
        self.dead = True
        self.compute.cancel()
        self.gpu.remove(self)

    def preempt(self) -> None:
        """Stop running for now; a hung grid is ended."""
        self.compute.cancel()

    def advance(self, steps: int) -> bool:
        """Run at most `steps` methods; returns whether anything happened."""
        moved = False
        try:
            for _ in range(steps):
                if self.dead:
                    return moved
                if self._work is None and not self._fetch():
                    self.wait_for_idle()
                    return moved
                assert self._work is not None
                self._stalled = False
                if next(self._work, self) is self:
                    self._work = None
                if self._stalled:
                    return moved
                moved = True
        except ChannelError as error:
            self.fail(error)
        return True

    def fail(self, error: ChannelError) -> None:
        """Post an error to the notifier and die."""
        self.dead = True
        self.gpu.complain(f"channel {self.number}: Xid {int(error.code)}: {error}")
        if error.code == RcCode.MMU_FAULT:
            self.mmu_fault, self.fault_address, self.fault_access = True, error.address or 0, error.access
        if self._notifier:
            now = time.monotonic_ns()
            stamp = NvTimeStamp(nanoseconds=(now & 0xFFFF_FFFF, now >> 32))
            raw = NvNotification(timeStamp=stamp, info32=int(error.code), status=NOTIFIER_POSTED).to_bytes()
            ctypes.memmove(self._notifier, raw, len(raw))

    # ---- the ring

    def _fetch(self) -> bool:
        """Begin the next ring entry; False when there is none."""
        if self.rung:
            self.rung = False
            self._put = ctypes.c_uint32.from_address(self._userd + _PUT).value
            if self._put >= self._entries:
                raise ChannelError(RcCode.PBDMA_ERROR, f"GPPut {self._put} of a ring of {self._entries}")
        if self._get == self._put:
            return False
        raw = self.memory.read64(self._ring + 8 * self._get)
        self._work = self._segment(raw)
        return True

    def _consumed(self) -> None:
        self._get = (self._get + 1) % self._entries
        if self.gpu.profile.generation.reports_get:
            ctypes.c_uint32.from_address(self._userd + _GET).value = self._get

    def _segment(self, raw: int) -> Iterator[None]:
        """Run the methods of one ring entry; yields after each."""
        entry = GpfifoEntry.from_int(raw)
        if entry.LENGTH == 0:
            self._control(raw)
            self._consumed()
            return
        violations = entry.check()
        if violations or entry.FETCH:
            raise ChannelError(
                RcCode.PBDMA_ERROR, f"ring entry {raw:#x}: {violations or 'conditional fetch'}"
            )
        va = entry.ADDRESS | self._base << 40
        words = self.memory.read_words(va, entry.LENGTH)
        at = 0
        while at < len(words):
            header = MethodHeader.from_int(words[at])
            for violation in header.check():
                raise ChannelError(
                    RcCode.PBDMA_ERROR, f"header {words[at]:#x} at {va + 4 * at:#x}: {violation}"
                )
            at += 1
            if header.OPCODE == SecOp.END_PB_SEGMENT:
                break
            if header.OPCODE == SecOp.IMMEDIATE:
                yield from self._until_done(header.SUBCHANNEL, header.ADDRESS, header.COUNT)
                continue
            if at + header.COUNT > len(words):
                raise ChannelError(
                    RcCode.PBDMA_ERROR,
                    f"header {words[at - 1]:#x} wants {header.COUNT} words, {len(words) - at} are left",
                )
            for i in range(header.COUNT):
                step = {
                    SecOp.INCREMENTING: 4 * i,
                    SecOp.NON_INCREMENTING: 0,
                    SecOp.INCREMENT_ONCE: 4 * min(i, 1),
                }[header.OPCODE]
                yield from self._until_done(header.SUBCHANNEL, header.ADDRESS + step, words[at + i])
            at += header.COUNT
        self._consumed()

    def _until_done(self, subchannel: int, address: int, data: int) -> Iterator[None]:
        """Run a method; one that must wait is tried again at each turn."""
        while True:
            try:
                self._method(subchannel, address, data)
            except Blocked:
                self._stalled = True
                yield None
                continue
            yield None
            return

    def _control(self, raw: int) -> None:
        control = GpfifoControl.from_int(raw)
        for violation in control.check():
            raise ChannelError(RcCode.PBDMA_ERROR, f"control entry {raw:#x}: {violation}")
        if (
            control.OPCODE == GpfifoOpcode.SET_PB_SEGMENT_EXTENDED_BASE
            and self.gpu.profile.generation.wide_addresses
        ):
            self._base = control.OPERAND
        elif control.OPCODE != GpfifoOpcode.NOP:
            raise ChannelError(RcCode.PBDMA_ERROR, f"control entry {control!r}")

    # ---- methods

    def _method(self, subchannel: int, address: int, data: int) -> None:
        if address == HostMethod.SET_OBJECT:
            self._bind(subchannel, data)
        elif address < HOST_METHODS_END:
            self._check(self._host_methods, address, data, RcCode.PBDMA_ERROR)
            self._host_method(address, data)
        else:
            bound = self._bound.get(subchannel)
            if bound is None:
                raise ChannelError(
                    RcCode.PBDMA_ERROR,
                    f"method {address:#x} on subchannel {subchannel}, to which nothing is bound",
                )
            if bound == self.gpu.profile.generation.compute:
                self._check(self._compute_methods, address, data, RcCode.GR_EXCEPTION)
                self.compute.method(address, data)
            else:
                self._check(self._copy_methods, address, data, RcCode.CE0_ERROR)
                self.copy.method(address, data)

    def _check(self, table: Mapping[int, Method], address: int, data: int, code: RcCode) -> None:
        method = table.get(address)
        if method is None:
            raise ChannelError(code, f"method {address:#x} (data {data:#x}) is unknown")
        if method.data is not None:
            for violation in method.data.from_int(data).check():
                raise ChannelError(code, f"{method.name}: {violation}")

    def _bind(self, subchannel: int, data: int) -> None:
        word = host.SetObject.from_int(data)
        if word.check() or word.ENGINE or word.CLASS not in self.classes:
            raise ChannelError(
                RcCode.PBDMA_ERROR,
                f"SET_OBJECT {data:#x} on subchannel {subchannel}: this channel has no such object",
            )
        self._bound[subchannel] = word.CLASS

    def wait_for_idle(self) -> None:
        """Wait for the engines of this channel."""
        self.copy.drain()
        self.compute.drain()

    def _host_method(self, address: int, data: int) -> None:
        method = HostMethod(address)
        if method == HostMethod.SEM_EXECUTE:
            self._semaphore(host.SemExecute.from_int(data))
        elif method == HostMethod.WFI:
            self.wait_for_idle()
        elif method == HostMethod.MEM_OP_D:
            operation = host.MemOpD.from_int(data).OPERATION
            if operation in _TLB:
                raise ChannelError(RcCode.PBDMA_ERROR, f"{operation!r} needs a privileged channel")
        elif method == HostMethod.NOP:
            pass
        self._host[address] = data

    def _semaphore(self, word: host.SemExecute) -> None:
        wide = 8 if word.PAYLOAD_SIZE else 4
        va = self._host.get(HostMethod.SEM_ADDR_LO, 0) | self._host.get(HostMethod.SEM_ADDR_HI, 0) << 32
        payload = self._host.get(HostMethod.SEM_PAYLOAD_LO, 0)
        if word.PAYLOAD_SIZE:
            payload |= self._host.get(HostMethod.SEM_PAYLOAD_HI, 0) << 32
        if va % (16 if word.RELEASE_TIMESTAMP else wide):
            raise ChannelError(RcCode.PBDMA_ERROR, f"semaphore at {va:#x} is misaligned")
        if word.OPERATION in (SemOperation.RELEASE, SemOperation.REDUCTION):
            if word.RELEASE_WFI:
                self.wait_for_idle()
            if word.OPERATION == SemOperation.REDUCTION:
                payload = self.memory.reduce(
                    int(word.REDUCTION),
                    self.memory.read(va, wide),
                    payload,
                    wide,
                    signed=word.REDUCTION_FORMAT,
                )
            self.memory.release(va, payload, wide, timestamp=bool(word.RELEASE_TIMESTAMP))
            self.gpu.wake()
            return
        if word.RELEASE_WFI or word.RELEASE_TIMESTAMP:
            raise ChannelError(RcCode.PBDMA_ERROR, f"an acquire with the bits of a release: {word!r}")
        seen = self.memory.read(va, wide)
        top = 1 << (8 * wide)
        met = {
            SemOperation.ACQUIRE: seen == payload, SemOperation.ACQ_STRICT_GEQ: seen >= payload,
            SemOperation.ACQ_CIRC_GEQ: (seen - payload) % top < top // 2, SemOperation.ACQ_AND: bool(seen & payload),
            SemOperation.ACQ_NOR: bool(~(seen | payload) % top),
        }[SemOperation(word.OPERATION)]  # fmt: skip
        if not met:
            raise Blocked
