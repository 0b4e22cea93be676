"""The doorbell of the scripted NVIDIA kernel: it decodes submissions and executes their semaphore releases.

No kernel runs and no copy moves data. Each submission is kept as decoded lines for tests and golden files.

Not here: ioctls and mappings (`scripted`). Next: `drivers.nv.decode`, the decoder.
"""

# ruff: noqa: D102 - the methods of `Registers` are those of `drivers.kernel.Mmio`

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivers.kernel import view_at
from drivers.nv import decode
from drivers.nv.layouts.chips import SILENT_CHANNEL, WIDE_CHANNEL
from drivers.nv.layouts.compute import ComputeMethod
from drivers.nv.layouts.dma import DataTransferType, DmaMethod, DmaSemaphoreType
from drivers.nv.layouts.gpfifo import GpfifoEntry, HopperAControlGPFifo, Subchannel, UsermodeRegister
from drivers.nv.layouts.host import HostMethod, SemOperation
from tests.support.nv.scripted_host import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.nv.script import Script

_TIME_NS = 0x1234_5678_0000
_DOORBELL = int(UsermodeRegister.NOTIFY_CHANNEL_PENDING)


class Doorbell:
    """Executes the releases of a channel when its token is written to the doorbell.

    `objects` and `tokens` are the kernel's objects by handle and its channels by token; `shown` maps a device
    address to its size and the host address behind it, `views` a memory object to where this process maps it.
    """

    def __init__(
        self,
        script: Script,
        objects: dict[int, tuple[int, int, dict[str, Any]]],
        tokens: dict[int, int],
        shown: dict[int, tuple[int, int]],
        views: dict[int, int],
    ) -> None:
        self._script, self._objects, self._tokens, self._shown = script, objects, tokens, shown
        self._views = views
        self._gets: dict[int, int] = {}
        self.streams: list[list[str]] = []
        """The decoded words of each doorbell write, the newest last."""
        self.watch: Callable[[list[tuple[str, list[int]]]], None] | None = None
        """Called at each doorbell write: ("engine N", []), then ("", words) of each GPFIFO entry."""
        self.stalled = False
        """Whether the GPU executes nothing, as when it hangs or is busy; `resume` ends the stall."""
        self._unserved: dict[int, None] = {}
        """Tokens written while stalled or ignored, in order."""
        self.ignored: set[int] = set()
        """Tokens of channels that execute nothing: benchmarks write the results themselves."""

    def ring(self, token: int) -> None:
        """Execute the releases in a channel's new GPFIFO entries, and advance GPGet."""
        if self.stalled or token in self.ignored:
            self._unserved[token] = None
            return
        handle = self._tokens[token]
        class_, _, channel = self._objects[handle]
        ring, entries = channel["gpFifoOffset"], channel["gpFifoEntries"]
        userd = self._views[channel["hUserdMemory"][0]] + channel["userdOffset"][0]
        put = view_at(userd + HopperAControlGPFifo.offset_of("GPPut"), 4).cast("I")[0]
        words = view_at(ring, 8 * entries).cast("Q")
        get = self._gets.get(handle, 0)
        lines: list[str] = []
        raw: list[tuple[str, list[int]]] = [(f"engine {channel['engineType']}", [])]
        while get != put:
            segment = GpfifoEntry.from_int(words[get])
            data = view_at(segment.ADDRESS, 4 * segment.LENGTH).cast("I").tolist()
            lines.append(f"entry {segment.LENGTH} words")
            raw.append(("", data))
            lines += self._run(data, wide_host=class_ >= WIDE_CHANNEL)
            get = (get + 1) % entries
        self._gets[handle] = get
        if class_ < SILENT_CHANNEL:
            view_at(userd + HopperAControlGPFifo.offset_of("GPGet"), 4).cast("I")[0] = get
        self.streams.append(lines)
        if self.watch is not None:
            self.watch(raw)

    def resume(self) -> None:
        """End a stall, and execute the submissions made during it."""
        self.stalled = False
        unserved, self._unserved = self._unserved, {}
        for token in unserved:
            self.ring(token)

    def _run(self, words: list[int], *, wide_host: bool) -> list[str]:
        state: dict[str, int] = {}
        lines = []
        for write in decode.methods(words, wide=self._script.generation.wide_addresses, wide_host=wide_host):
            lines.append("  " + str(write))
            state[write.name] = write.data
            fields: Any = write.fields
            if write.method == HostMethod.SEM_EXECUTE and fields.OPERATION == SemOperation.RELEASE:
                va = state["SEM_ADDR_HI"] << 32 | state["SEM_ADDR_LO"]
                value = state["SEM_PAYLOAD_HI"] << 32 | state["SEM_PAYLOAD_LO"]
                self._store(va, value, 8 if fields.PAYLOAD_SIZE else 4, time=fields.RELEASE_TIMESTAMP)
            elif write.name == ComputeMethod.SET_REPORT_SEMAPHORE_D.name:
                va = state["SET_REPORT_SEMAPHORE_A"] << 32 | state["SET_REPORT_SEMAPHORE_B"]
                self._store(va, state["SET_REPORT_SEMAPHORE_C"], 4, time=not fields.STRUCTURE_SIZE)
            elif write.method == DmaMethod.LAUNCH_DMA and write.subchannel == Subchannel.COPY:
                self._copy(fields, state)
        return lines

    def host(self, va: int) -> int:
        """Return the host address behind a device address; `RefusedError` if nothing is mapped there."""
        for base, (length, where) in self._shown.items():
            if base <= va < base + length:
                return va + where - base
        raise RefusedError(f"a release to {va:#x}, where nothing is mapped")

    def _store(self, va: int, value: int, size: int, *, time: bool) -> None:
        va = self.host(va)
        view_at(va, size)[:] = value.to_bytes(8, "little")[:size]
        if time:
            view_at(va + 8, 8)[:] = _TIME_NS.to_bytes(8, "little")

    def _copy(self, launch: Any, state: dict[str, int]) -> None:
        if launch.SEMAPHORE_TYPE in (DmaSemaphoreType.RELEASE_ONE_WORD, DmaSemaphoreType.RELEASE_FOUR_WORD):
            va = state["SET_SEMAPHORE_A"] << 32 | state["SET_SEMAPHORE_B"]
            time = launch.SEMAPHORE_TYPE == DmaSemaphoreType.RELEASE_FOUR_WORD
            self._store(va, state["SET_SEMAPHORE_PAYLOAD"], 4, time=time)
        if launch.DATA_TRANSFER_TYPE == DataTransferType.PREFETCH:
            raise RefusedError("a prefetch")


class Registers:
    """The usermode register page: clock and doorbell. A page mapped through BAR1 is not `readable`."""

    def __init__(self, doorbell: Doorbell, calls: list[str], *, readable: bool) -> None:
        self._doorbell, self._calls, self._readable = doorbell, calls, readable
        self._ticks = 0

    def read32(self, offset: int) -> int:
        if not self._readable:
            raise RefusedError(f"read32 {offset:#x} of a write-only page")
        self._ticks += 32
        time = _TIME_NS + self._ticks
        return time >> 32 if offset == UsermodeRegister.TIME_1 else time & 0xFFFF_FFFF

    def read64(self, offset: int) -> int:
        raise RefusedError(f"read64 {offset:#x}")

    def write32(self, offset: int, value: int) -> None:
        if offset != _DOORBELL:
            raise RefusedError(f"write32 {offset:#x} {value:#x}")
        self._doorbell.ring(value)

    def write64(self, offset: int, value: int) -> None:
        raise RefusedError(f"write64 {offset:#x} {value:#x}")

    def close(self) -> None:
        self._calls.append("mmio.close")
