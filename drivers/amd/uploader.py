"""The driver's own copy queue, which uploads code. Each call waits for completion.

Not here: copies that users submit (`encode_sdma`), the queue itself (`queues`, `ring`). Next: `ring`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import sdma
from hcq.errors import BringUpError, DeviceFault
from hcq.idle import SpentTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.layouts.chips import AmdChip
    from drivers.amd.memory import AmdMemories
    from drivers.amd.ring import AmdRing
    from hcq.errors import FaultReport

STAGE_BYTES: Final = 1 << 20
"""Size of the staging memory: the most bytes of one copy."""
_SLOT_BYTES: Final = 4096
_LOW: Final = 0xFFFF_FFFF
TIMEOUT_S: Final = 20.0
"""Default seconds, of the uploader's `clock`, that one copy may take."""
_SNOOPED_SINCE: Final = 5
"""The major version of SDMA since which fences have a memory type."""


class AmdUploader:
    """Synchronous copies into device memory. Thread-safe. It owns its ring and its staging memory.

    Calls raise `DeviceFault` if the device faults, `BringUpError` if the queue does not finish in
    `timeout_s`. `clock` returns a new clock in seconds for each copy. By default it measures the CPU time
    that the calling thread spends polling, so that a loaded host causes no false timeout; for an emulated GPU
    the time for which the GPU's threads stand still (`hcq.idle.Standstill`). `fence_mtype`: see
    `AmdQuirks.fence_mtype`.
    """

    def __init__(
        self,
        ring: AmdRing,
        memories: AmdMemories,
        target: AmdChip,
        *,
        fence_mtype: bool,
        fault: Callable[[], FaultReport | None],
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], Callable[[], float]] = SpentTime,
    ) -> None:
        self.ring = ring
        self._memories = memories
        self._fault = fault
        self._timeout_s, self._clock = timeout_s, clock
        self._lock = threading.Lock()
        self._value = 0
        packets = sdma.packets(target.sdma)
        self._copy, self._fence = packets[sdma.Op.COPY].pack, packets[sdma.Op.FENCE].pack
        typed = fence_mtype and target.sdma[0] >= _SNOOPED_SINCE
        self._fence_options = {"MTYPE": sdma.FENCE_MTYPE_UC} if typed else {}
        self._stage = memories.system(_SLOT_BYTES + STAGE_BYTES, label="staging memory", zeroed=False)
        view = self._stage.view
        assert view is not None, "system memory is mapped"
        self._slot = view[:4].cast("I")
        self._bytes = view[_SLOT_BYTES:]

    def upload(self, va: int, data: bytes) -> None:
        """Copy host bytes to device memory, in parts of `STAGE_BYTES`."""
        with self._lock:
            for start in range(0, len(data), STAGE_BYTES):
                part = data[start : start + STAGE_BYTES]
                self._bytes[: len(part)] = part
                source, target = self._stage.va + _SLOT_BYTES, va + start
                self._run(
                    self._copy(
                        COUNT_MINUS_ONE=len(part) - 1,
                        SRC_LO=source & _LOW,
                        SRC_HI=source >> 32,
                        DST_LO=target & _LOW,
                        DST_HI=target >> 32,
                    )
                )

    def prove(self, timeout_s: float) -> None:
        """Wait until the queue has run a packet. Raises `DeviceFault`; `BringUpError` after `timeout_s`."""
        with self._lock:
            self._run((), timeout_s)

    def _run(self, words: tuple[int, ...], timeout_s: float | None = None) -> None:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        # The slot is cleared to 0 first, so no value is 0.
        self._value = value = self._value % _LOW + 1
        self._slot[0] = 0
        at = self._stage.va
        words = (
            *words,
            *self._fence(ADDRESS_LO=at & _LOW, ADDRESS_HI=at >> 32, DATA=value, **self._fence_options),
        )
        self.ring.send((*words, *(sdma.NOP_WORD,) * (-len(words) % sdma.ALIGN_WORDS)))
        clock = self._clock()
        while self._slot[0] != value:
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            if clock() > timeout_s:
                raise BringUpError(
                    f"the driver's copy queue ran no packet in {timeout_s:.1f} s: {self.ring.stuck()}\n"
                    "hint: the doorbell did not reach the GPU, or its scheduler (MES or HWS) does not run "
                    "the queue: `dmesg | grep -E 'amdgpu|kfd'`; `python -m tools.bringup --device amd` shows "
                    "the step"
                )
            time.sleep(0)

    def close(self) -> None:
        """Close the ring and free the staging memory."""
        try:
            self.ring.close()
        finally:
            self._memories.free(self._stage)
