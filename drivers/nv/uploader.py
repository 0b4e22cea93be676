"""The driver's own copy channel, which zeroes new memory and uploads code. Each call waits for completion.

Not here: copies that users submit (`encode`), the channel itself (`channel`, `ring`).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from drivers.nv import push
from drivers.nv.refusals import BringUpError
from hcq.errors import DeviceFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.nv.memory import Memories
    from drivers.nv.ring import NvRing
    from hcq.errors import FaultReport

STAGE_BYTES: Final = 1 << 20
_SLOT_BYTES: Final = 4096
TIMEOUT_S: Final = 20.0
"""CPU time that a call spends on looking whether its work is over. A loaded machine slows the looks as it
slows an emulated GPU."""


class Uploader:
    """Synchronous copies and fills. Thread-safe. It owns its ring and its staging memory.

    Calls raise `DeviceFault` if the device faults, `BringUpError` if the channel does not finish in 20 s.
    `clock` returns the seconds that count: the CPU time of the calling thread, which looks without a pause.
    """

    def __init__(
        self,
        ring: NvRing,
        memories: Memories,
        fault: Callable[[], FaultReport | None],
        *,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.ring = ring
        self._memories = memories
        self._fault = fault
        self._clock = clock
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
        """Copy host bytes to device memory."""
        with self._lock:
            for start in range(0, len(data), STAGE_BYTES):
                part = data[start : start + STAGE_BYTES]
                self._bytes[: len(part)] = part
                self._run(push.copy(va + start, self._stage.va + _SLOT_BYTES, len(part)))

    def _run(self, words: push.Words) -> None:
        self._value = value = (self._value + 1) & 0x7FFF_FFFF
        self._slot[0] = 0
        self.ring.send((*words, *push.copy_signal(self._stage.va, value)))
        deadline = self._clock() + TIMEOUT_S
        while self._slot[0] != value:
            report = self._fault()
            if report is not None:
                raise DeviceFault(report)
            if self._clock() > deadline:
                raise BringUpError(
                    f"the driver's copy channel did not finish in {TIMEOUT_S:.0f} s: {self.ring.stuck()}"
                )
            time.sleep(0)

    def close(self) -> None:
        """Free the ring and the staging memory."""
        self.ring.close()
        self._memories.free(self._stage)
