"""The driver's own copy channel, which zeroes new memory and uploads code. Each call waits for completion.

Not here: copies that users submit (`encode`), the channel itself (`channel`, `ring`). Next: `ring`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from drivers.nv import push
from hcq.errors import BringUpError, DeviceFault
from hcq.idle import SpentTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.memory import NvMemories
    from drivers.nv.ring import NvRing
    from hcq.errors import FaultReport

STAGE_BYTES: Final = 1 << 20
"""Size of the staging memory: the most bytes of one copy."""
_SLOT_BYTES: Final = 4096
TIMEOUT_S: Final = 20.0
"""Default seconds, of the uploader's `clock`, that one copy or fill may take."""


class NvUploader:
    """Synchronous copies and fills. Thread-safe. It owns its ring and its staging memory.

    Calls raise `DeviceFault` if the device faults, `BringUpError` if the channel does not finish in
    `timeout_s`. `clock` returns a new clock in seconds for each copy or fill. By default it measures the CPU
    time of the calling thread, which polls; for an emulated GPU the time for which the GPU's threads stand
    still (`hcq.idle.Standstill`).
    """

    def __init__(
        self,
        ring: NvRing,
        memories: NvMemories,
        fault: Callable[[], FaultReport | None],
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], Callable[[], float]] = SpentTime,
    ) -> None:
        self.ring = ring
        self._memories = memories
        self._fault = fault
        self._timeout_s, self._clock = timeout_s, clock
        self._lock = threading.Lock()
        self._value = 0
        self._stage = memories.host(_SLOT_BYTES + STAGE_BYTES, label="staging memory")
        view = self._stage.view
        assert view is not None, "host memory has a view"
        self._slot = view[:8].cast("Q")
        self._bytes = view[_SLOT_BYTES:]

    def zero(self, va: int, size: int) -> None:
        """Fill `size` bytes of device memory, a multiple of 4, with zeros."""
        with self._lock:
            self._run(push.fill(va, 0, size))

    def upload(self, va: int, data: bytes) -> None:
        """Copy host bytes to device memory, in parts of `STAGE_BYTES`."""
        with self._lock:
            for start in range(0, len(data), STAGE_BYTES):
                part = data[start : start + STAGE_BYTES]
                self._bytes[: len(part)] = part
                self._run(push.copy(va + start, self._stage.va + _SLOT_BYTES, len(part)))

    def _run(self, words: push.Words) -> None:
        self._value = value = (self._value + 1) & 0x7FFF_FFFF
        self._slot[0] = 0
        self.ring.send((*words, *push.copy_signal(self._stage.va, value)))
        clock = self._clock()
        while self._slot[0] != value:
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            if clock() > self._timeout_s:
                raise BringUpError(
                    f"the driver's copy channel did not finish in {self._timeout_s:.0f} s: "
                    f"{self.ring.stuck()}\n"
                    "hint: the doorbell did not reach the GPU, or its firmware (GSP) does not run the "
                    "channel: `dmesg | grep NVRM`; `python -m tools.bringup` tries other doorbells and rings "
                    "(rung 12 and on)"
                )
            time.sleep(0)

    def close(self) -> None:
        """Close the ring and free the staging memory."""
        self.ring.close()
        self._memories.free(self._stage)
