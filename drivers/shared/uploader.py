"""The driver's own copies on a GPU, which upload code: a call waits until the GPU has done them.

Not here: the words of a copy (`drivers.nv.push`, `drivers.amd.encode_sdma`), copies that users submit, which
are commands of a queue (`hcq.commands`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hcq.errors import BringUpError, DeviceFault, DriverError, FaultReport
from hcq.idle import STANDSTILL_S, Standstill, spent_time

STAGE_BYTES: Final = 1 << 20
"""The most bytes of one copy."""
SLOT_BYTES: Final = 4096
"""Offset of the bytes to copy in staging memory: before them is the signal, a u32 at the start."""
MEMORY_BYTES: Final = SLOT_BYTES + STAGE_BYTES
"""Size of the staging memory."""
TIMEOUT_S: Final = 20.0
"""Seconds that one copy or fill may take on a real GPU."""
_VALUES: Final = (1 << 31) - 1
"""Number of signal values, which begin at 1: 0 says that the GPU has not finished."""


class StagingMemory(Protocol):
    """Memory that the host and the GPU access."""

    @property
    def va(self) -> int:
        """The device address."""

    @property
    def view(self) -> memoryview | None:
        """The host's view of the bytes; None: it has none."""


class ServiceRing(Protocol):
    """The part of a vendor's ring that an uploader uses."""

    def send(self, words: tuple[int, ...], /) -> None:
        """Send words to the GPU."""

    def stuck(self) -> str:
        """Return the current operation of the ring as text; see `hcq.driver.Ring.stuck`."""

    def close(self) -> None:
        """Release the ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWords:
    """The words of a vendor's copy engine, and its texts."""

    copy: Callable[[int, int, int], tuple[int, ...]]
    """(target, source, bytes) -> words that copy between device addresses."""
    signalled: Callable[[tuple[int, ...], int, int], tuple[int, ...]]
    """(words, address, value) -> the words, then those that store a u32 there when the words are done."""
    late: str
    """What the error of a timeout says did not happen in time."""
    hint: str
    """Usual causes of a timeout, and the commands that tell them apart."""


class Uploader:
    """Synchronous copies into device memory. Thread-safe. It owns its ring and its staging memory.

    Calls raise `DeviceFault` if `fault` returns a report, `BringUpError` if the GPU does not finish in time,
    and the `DriverError` of `fault` once the GPU has finished.
    `clock` returns a new clock in seconds for each copy or fill. By default it measures the CPU time that the
    calling thread spends polling, so that a loaded host causes no false timeout; for an `emulated` GPU the
    time for which the GPU's threads stand still (`hcq.idle.Standstill`).

    `stage` has `MEMORY_BYTES` bytes that the host can access; `free` frees it.
    """

    def __init__(
        self,
        ring: ServiceRing,
        stage: StagingMemory,
        free: Callable[[Any], object],
        fault: Callable[[], FaultReport | None],
        engine: CopyWords,
        *,
        emulated: bool = False,
        clock: Callable[[], Callable[[], float]] | None = None,
    ) -> None:
        self.ring = ring
        self._stage, self._free = stage, free
        self._fault, self._engine = fault, engine
        self._timeout_s = STANDSTILL_S if emulated else TIMEOUT_S
        self._clock = clock or (Standstill if emulated else spent_time)
        self._lock = threading.RLock()
        self._value = 0
        """The signal value of the last copy or fill."""
        assert stage.view is not None, "the host can access staging memory"
        self._slot = stage.view[:4].cast("I")
        self._bytes = stage.view[SLOT_BYTES:]

    def upload(self, va: int, data: bytes) -> None:
        """Copy host bytes to device memory, in parts of `STAGE_BYTES`."""
        with self._lock:
            for start in range(0, len(data), STAGE_BYTES):
                part = data[start : start + STAGE_BYTES]
                self._bytes[: len(part)] = part
                self.run(self._engine.copy(va + start, self._stage.va + SLOT_BYTES, len(part)))

    def run(
        self,
        words: tuple[int, ...],
        timeout_s: float | None = None,
        clock: Callable[[], Callable[[], float]] | None = None,
    ) -> None:
        """Send words and wait until they are done; `timeout_s` and `clock` None: the default."""
        limit_s, engine = self._timeout_s if timeout_s is None else timeout_s, self._engine
        with self._lock:
            self._value = value = self._value % _VALUES + 1
            self._slot[0] = 0
            self.ring.send(engine.signalled(words, self._stage.va, value))
            read = (clock or self._clock)()
            refused: DriverError | None = None
            while self._slot[0] != value:
                report = None
                try:
                    report = self._fault()
                except DriverError as error:
                    refused = error  # raised when the copy is done: the caller frees its memory then
                if report is not None:
                    raise DeviceFault(report)
                if read() > limit_s:
                    stuck = self.ring.stuck()
                    text = f"{engine.late} in {limit_s:.1f} s: {stuck}\nhint: {engine.hint}"
                    raise BringUpError(text) from refused
                time.sleep(0)
            if refused is not None:
                raise refused

    def close(self) -> None:
        """Close the ring and free the staging memory."""
        try:
            self.ring.close()
        finally:
            self._free(self._stage)
