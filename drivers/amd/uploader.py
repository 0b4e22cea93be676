"""The driver's own copy queue, which uploads code.

Not here: how a copy is waited for (`drivers.uploader`), copies that users submit (`encode_sdma`), the queue
itself (`queues`). Next: `ring`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.amd.layouts import sdma
from drivers.uploader import TIMEOUT_S, ServiceRing, StagingMemory, Uploader
from hcq.idle import SpentTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.layouts.chips import AmdChip
    from hcq.errors import FaultReport

_LOW: Final = 0xFFFF_FFFF
_SNOOPED_SINCE: Final = 5
"""The major version of SDMA since which fences have a memory type."""


class AmdUploader(Uploader):
    """Synchronous copies on an SDMA queue; errors and arguments as of `Uploader`.

    `fence_mtype`: see `AmdQuirks.fence_mtype`.
    """

    LATE = "the driver's copy queue ran no packet"
    HINT = (
        "the doorbell did not reach the GPU, or its scheduler (MES or HWS) does not run the queue: `dmesg | "
        "grep -E 'amdgpu|kfd'`; `python -m tools.bringup --device amd` shows the step"
    )

    def __init__(
        self,
        ring: ServiceRing,
        stage: StagingMemory,
        free: Callable[[Any], object],
        fault: Callable[[], FaultReport | None],
        *,
        target: AmdChip,
        fence_mtype: bool,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], Callable[[], float]] = SpentTime,
    ) -> None:
        super().__init__(ring, stage, free, fault, timeout_s=timeout_s, clock=clock)
        packets = sdma.packets(target.sdma)
        self._pack_copy, self._pack_fence = packets[sdma.Op.COPY].pack, packets[sdma.Op.FENCE].pack
        typed = fence_mtype and target.sdma[0] >= _SNOOPED_SINCE
        self._fence_options = {"MTYPE": sdma.FENCE_MTYPE_UC} if typed else {}

    def prove(self, timeout_s: float) -> None:
        """Wait until the queue has run a packet. Raises `DeviceFault`; `BringUpError` after `timeout_s`."""
        with self._lock:
            self._run((), timeout_s)

    def _copy(self, target: int, source: int, size: int) -> tuple[int, ...]:
        return self._pack_copy(
            COUNT_MINUS_ONE=size - 1,
            SRC_LO=source & _LOW,
            SRC_HI=source >> 32,
            DST_LO=target & _LOW,
            DST_HI=target >> 32,
        )

    def _signalled(self, words: tuple[int, ...], value: int) -> tuple[int, ...]:
        at = self._stage.va
        fence = self._pack_fence(ADDRESS_LO=at & _LOW, ADDRESS_HI=at >> 32, DATA=value, **self._fence_options)
        words = (*words, *fence)
        return (*words, *(sdma.NOP_WORD,) * (-len(words) % sdma.ALIGN_WORDS))
