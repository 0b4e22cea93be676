"""The compute and the copy engine of a channel: what their methods do. Sources: nv.md 3.4, 3.5, 4.3.

Grids start where a launch method asks for them, but run only when somebody waits: all that are pending then
run in an order made from the seed, as unordered grids may on hardware. Pipelined copies wait the same way.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.nv.emu.grid import Grid, run_grid
from drivers.nv.emu.stops import ChannelError
from drivers.nv.layouts import compute, dma
from drivers.nv.layouts.compute import ComputeMethod, PcasAction, ReportOperation
from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaSemaphoreType, RemapSource
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.qmd import ALIGNMENT, QMDS
from drivers.nv.layouts.qmd_values import DependentAction

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.emu.channel import Channel

_M = ComputeMethod
_UNSUPPORTED = {
    _M.SEND_SIGNALING_PCAS_B, _M.SET_VALID_SPAN_OVERFLOW_AREA_A, _M.SET_VALID_SPAN_OVERFLOW_AREA_B, _M.SET_VALID_SPAN_OVERFLOW_AREA_C,
    _M.SET_INLINE_QMD_ADDRESS_A, _M.SET_INLINE_QMD_ADDRESS_B, _M.LOAD_INLINE_QMD_DATA, _M.SET_TRAP_HANDLER_A, _M.SET_TRAP_HANDLER_B,
    _M.SET_TEX_SAMPLER_POOL, _M.SET_TEX_HEADER_POOL,
}  # fmt: skip
_SCHEDULES = {
    PcasAction.SCHEDULE,
    PcasAction.INVALIDATE_COPY_SCHEDULE,
    PcasAction.PREFETCH_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
}
_INVALIDATES = {
    PcasAction.INVALIDATE,
    PcasAction.INVALIDATE_COPY_SCHEDULE,
    PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
}
_MOST_CHAINED = 1 << 16


class ComputeEngine:
    """Runs grids."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.state: dict[int, int] = {}
        """The last data of every method."""
        self._pending: list[int] = []
        self._cached: dict[int, bytes] = {}
        """Launch descriptors that the scheduler unit remembers by address."""
        self._inline: list[int] = []
        self._inline_left = 0
        self.cancelled = False

    def pair(self, upper: int, lower: int) -> int:
        """Return an address or size given by two methods."""
        return self.state.get(upper, 0) << 32 | self.state.get(lower, 0)

    def cancel(self) -> None:
        """Forget what has not run."""
        self._pending.clear()
        self.cancelled = True

    def method(self, address: int, data: int) -> None:
        """Run one method."""
        if address in _UNSUPPORTED:
            raise ChannelError(
                RcCode.GR_CLASS_ERROR, f"{ComputeMethod(address).name} is not supported by the emulated GPU"
            )
        self.state[address] = data
        if address == _M.SEND_SIGNALING_PCAS2_B:
            self._launch(PcasAction(compute.SendSignalingPcas2B.from_int(data).PCAS_ACTION))
        elif address == _M.WAIT_FOR_IDLE:
            self.drain()
        elif address == _M.INVALIDATE_SKED_CACHES:
            self._cached.clear()
        elif address == _M.INVALIDATE_SHADER_CACHES:
            self.drain()
        elif address == _M.SET_REPORT_SEMAPHORE_D:
            self._report_classic(compute.ReportSemaphoreD.from_int(data))
        elif address == _M.REPORT_SEMAPHORE_EXECUTE:
            self._report(compute.ReportSemaphoreExecute.from_int(data))
        elif address == _M.LAUNCH_DMA:
            self._begin_inline(compute.LaunchDmaInline.from_int(data))
        elif address == _M.LOAD_INLINE_DATA:
            self._load_inline(data)

    # ---- inline uploads

    def _begin_inline(self, word: compute.LaunchDmaInline) -> None:
        if not word.DST_MEMORY_LAYOUT or self.state.get(_M.LINE_COUNT, 0) != 1:
            raise ChannelError(
                RcCode.GR_EXCEPTION,
                f"inline upload {word!r} of {self.state.get(_M.LINE_COUNT, 0)} lines: one pitch line wanted",
            )
        self._inline, self._inline_left = [], -(-self.state.get(_M.LINE_LENGTH_IN, 0) // 4)

    def _load_inline(self, data: int) -> None:
        if self._inline_left == 0:
            raise ChannelError(RcCode.GR_EXCEPTION, "more inline data than LINE_LENGTH_IN said")
        self._inline.append(data)
        self._inline_left -= 1
        if self._inline_left == 0:
            raw = b"".join(w.to_bytes(4, "little") for w in self._inline)
            self._channel.memory.store(
                self.pair(_M.OFFSET_OUT_UPPER, _M.OFFSET_OUT), raw[: self.state[_M.LINE_LENGTH_IN]]
            )

    # ---- semaphores

    def _report_classic(self, word: compute.ReportSemaphoreD) -> None:
        if word.OPERATION != ReportOperation.RELEASE or word.REDUCTION_ENABLE:
            raise ChannelError(RcCode.GR_EXCEPTION, f"{word!r} is not supported by the emulated GPU")
        self.drain()
        va = self.pair(_M.SET_REPORT_SEMAPHORE_A, _M.SET_REPORT_SEMAPHORE_B)
        self._release(va, self.state.get(_M.SET_REPORT_SEMAPHORE_C, 0), 4, timestamp=not word.STRUCTURE_SIZE)

    def _report(self, word: compute.ReportSemaphoreExecute) -> None:
        if word.OPERATION != ReportOperation.RELEASE or word.REDUCTION_ENABLE or word.STRUCTURE_SIZE > 2:
            raise ChannelError(RcCode.GR_EXCEPTION, f"{word!r} is not supported by the emulated GPU")
        self.drain()
        va = self.pair(_M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER, _M.SET_REPORT_SEMAPHORE_ADDRESS_LOWER)
        payload = self.pair(_M.SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, _M.SET_REPORT_SEMAPHORE_PAYLOAD_LOWER)
        size = 8 if word.PAYLOAD_SIZE64 else 4
        self._release(va, payload % (1 << 8 * size), size, timestamp=word.STRUCTURE_SIZE == 0)

    def _release(self, va: int, payload: int, size: int, *, timestamp: bool) -> None:
        if va % (16 if timestamp else size):
            raise ChannelError(RcCode.GR_EXCEPTION, f"report semaphore at {va:#x} is misaligned")
        self._channel.memory.release(va, payload, size, timestamp=timestamp)
        self._channel.gpu.wake()

    # ---- launches

    def _launch(self, action: PcasAction) -> None:
        va = compute.SendPcasA.from_int(self.state.get(_M.SEND_PCAS_A, 0)).QMD_ADDRESS_SHIFTED8
        if action in _INVALIDATES:
            self._cached.pop(va, None)
        if action in _SCHEDULES:
            self._pending.append(va)
        elif action not in (PcasAction.INVALIDATE, PcasAction.PREFETCH):
            raise ChannelError(RcCode.GR_EXCEPTION, f"{action!r} is not supported by the emulated GPU")

    def _read(self, va: int) -> Grid:
        row = self._channel.gpu.profile.generation
        layout = QMDS[row.qmd]
        if va == 0 or va % ALIGNMENT:
            raise ChannelError(RcCode.MMU_FAULT, f"launch descriptor at {va:#x}", address=va)
        raw = self._channel.memory.fetch(va, layout.SIZE)
        if self._cached.setdefault(va, raw) != raw:
            raise ChannelError(
                RcCode.GR_EXCEPTION,
                f"the launch descriptor at {va:#x} was changed and launched again without invalidation",
            )
        return Grid(row.qmd, layout.from_bytes(raw), va)

    def drain(self) -> None:
        """Run every pending grid, and those that they start, in an order made from the seed."""
        ran = 0
        order = self._channel.gpu.order
        while self._pending and not self._channel.dead:
            va = self._pending.pop(order.randrange(len(self._pending)))
            grid = self._read(va)
            run_grid(self._channel, grid)
            for pointer, what in grid.dependents():
                if what not in (DependentAction.QMD_SCHEDULE, DependentAction.QMD_INVALIDATE_COPY_SCHEDULE):
                    raise ChannelError(
                        RcCode.GR_EXCEPTION, f"dependent action {what!r} is not supported by the emulated GPU"
                    )
                if what == DependentAction.QMD_INVALIDATE_COPY_SCHEDULE:
                    self._cached.pop(pointer, None)
                self._pending.append(pointer)
            ran += 1
            if ran > _MOST_CHAINED:
                raise ChannelError(
                    RcCode.CONTEXT_SWITCH_TIMEOUT, f"more than {_MOST_CHAINED} grids start each other"
                )


class CopyEngine:
    """Copies, fills and signals."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.state: dict[int, int] = {}
        self._pending: list[Callable[[], None]] = []

    def _pair(self, upper: DmaMethod, lower: DmaMethod) -> int:
        return self.state.get(upper, 0) << 32 | self.state.get(lower, 0)

    def drain(self) -> None:
        """Make every copy that is still in flight."""
        while self._pending and not self._channel.dead:
            self._pending.pop(self._channel.gpu.order.randrange(len(self._pending)))()

    def _error(self, text: str) -> ChannelError:
        return ChannelError(RcCode.CE0_ERROR, text)

    def method(self, address: int, data: int) -> None:
        """Run one method."""
        method = DmaMethod(address)
        if (
            method == DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER
            and max(self._channel.classes) < dma.PAYLOAD_UPPER_SINCE
        ):
            raise self._error("SET_SEMAPHORE_PAYLOAD_UPPER does not exist in this copy class")
        self.state[address] = data
        if method == DmaMethod.LAUNCH_DMA:
            self._launch(dma.LaunchDma.from_int(data))

    def _launch(self, word: dma.LaunchDma) -> None:
        refused = (
            "INTERRUPT_TYPE",
            "SRC_TYPE",
            "DST_TYPE",
            "SEMAPHORE_REDUCTION_ENABLE",
            "VPRMODE",
            "MEMORY_SCRUB_ENABLE",
            "COPY_TYPE",
        )
        for name in refused:
            if getattr(word, name):
                raise self._error(f"LAUNCH_DMA with {name} is not supported by the emulated GPU")
        kind = DataTransferType(word.DATA_TRANSFER_TYPE)
        if kind == DataTransferType.PREFETCH:
            raise self._error("prefetching is not supported by the emulated GPU")
        if kind == DataTransferType.NON_PIPELINED:
            self.drain()
        if kind != DataTransferType.NONE:
            if not (word.SRC_MEMORY_LAYOUT and word.DST_MEMORY_LAYOUT):
                raise self._error(f"block-linear layout is not supported by the emulated GPU: {word!r}")
            transfer = self._transfer(word)
            if kind == DataTransferType.PIPELINED:
                self._pending.append(transfer)
            else:
                transfer()
        if word.SEMAPHORE_TYPE != DmaSemaphoreType.NONE:
            self._signal(word)

    def _signal(self, word: dma.LaunchDma) -> None:
        if word.SEMAPHORE_TYPE == DmaSemaphoreType.CONDITIONAL_INTERRUPT:
            raise self._error("conditional interrupts are not supported by the emulated GPU")
        if word.FLUSH_ENABLE:
            self.drain()
        timestamp = word.SEMAPHORE_TYPE == DmaSemaphoreType.RELEASE_FOUR_WORD
        size = 8 if word.SEMAPHORE_PAYLOAD_SIZE else 4
        va = self._pair(DmaMethod.SET_SEMAPHORE_A, DmaMethod.SET_SEMAPHORE_B)
        payload = self._pair(DmaMethod.SET_SEMAPHORE_PAYLOAD_UPPER, DmaMethod.SET_SEMAPHORE_PAYLOAD)
        if va % (16 if timestamp else size):
            raise self._error(f"semaphore at {va:#x} is misaligned")
        self._channel.memory.release(va, payload % (1 << 8 * size), size, timestamp=timestamp)
        self._channel.gpu.wake()

    def _transfer(self, word: dma.LaunchDma) -> Callable[[], None]:
        """Return the transfer that the present state describes."""
        source = self._pair(DmaMethod.OFFSET_IN_UPPER, DmaMethod.OFFSET_IN_LOWER)
        target = self._pair(DmaMethod.OFFSET_OUT_UPPER, DmaMethod.OFFSET_OUT_LOWER)
        length = self.state.get(DmaMethod.LINE_LENGTH_IN, 0)
        lines = self.state.get(DmaMethod.LINE_COUNT, 1) if word.MULTI_LINE_ENABLE else 1
        pitch_in, pitch_out = self.state.get(DmaMethod.PITCH_IN, 0), self.state.get(DmaMethod.PITCH_OUT, 0)
        memory = self._channel.memory
        if length == 0 or lines == 0:
            raise self._error(f"a transfer of {lines} lines of {length}")
        if word.REMAP_ENABLE:
            remap = dma.RemapComponents.from_int(self.state.get(DmaMethod.SET_REMAP_COMPONENTS, 0))
            constants = (
                self.state.get(DmaMethod.SET_REMAP_CONST_A, 0),
                self.state.get(DmaMethod.SET_REMAP_CONST_B, 0),
            )
            pitch = (pitch_in, pitch_out)
            return lambda: self._remap(remap, constants, source, target, length, lines, pitch)

        def copy() -> None:
            for line in range(lines):
                a, b = source + line * pitch_in, target + line * pitch_out
                memory.host(b, length, write=True)
                memory.store(b, memory.fetch(a, length))

        return copy

    def _remap(
        self,
        remap: dma.RemapComponents,
        constants: tuple[int, int],
        source: int,
        target: int,
        count: int,
        lines: int,
        pitch: tuple[int, int],
    ) -> None:
        """Copy or fill by components."""
        for violation in remap.check():
            raise self._error(str(violation))
        size = remap.COMPONENT_SIZE + 1
        picks = [remap.DST_X, remap.DST_Y, remap.DST_Z, remap.DST_W][: remap.NUM_DST_COMPONENTS + 1]
        if RemapSource.NO_WRITE in picks:
            raise self._error("NO_WRITE components are not supported by the emulated GPU")
        width_in, width_out = size * (remap.NUM_SRC_COMPONENTS + 1), size * len(picks)
        memory = self._channel.memory
        parts = [
            (constants[p - RemapSource.CONST_A] % (1 << 8 * size)).to_bytes(size, "little")
            if p >= RemapSource.CONST_A
            else b""
            for p in picks
        ]
        for line in range(lines):
            if all(parts):
                memory.store(target + line * pitch[1], b"".join(parts) * count)
                continue
            raw = memory.fetch(source + line * pitch[0], width_in * count)
            out = bytearray()
            for i in range(count):
                pixel = raw[width_in * i : width_in * (i + 1)]
                for pick, constant in zip(picks, parts, strict=True):
                    out += constant or pixel[size * pick : size * (pick + 1)]
            assert len(out) == width_out * count
            memory.store(target + line * pitch[1], bytes(out))
