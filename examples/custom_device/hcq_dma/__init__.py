"""The driver "dma-emu": two DMA engines emulated in Python. The entry point names `DRIVER`.

It lists one device, which can be opened any number of times. Next: `packets`, `engine`, `device`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq import DeviceInfo, UsageError
from hcq_dma.device import DmaDevice

if TYPE_CHECKING:
    from hcq.driver import Tool

MEMORY_BYTES = 1 << 30

INFO = DeviceInfo(
    driver="dma-emu",
    index=0,
    name="DMA engines in Python",
    arch="dma",
    vram_bytes=MEMORY_BYTES,
    compute_queues=1,
    copy_queues=1,
    word_bits=64,
    host_addressable=True,
    limits={
        "max_threads": 0,  # runs no kernels
        "max_groups_x": 0,
        "max_groups_y": 0,
        "max_groups_z": 0,
        "max_shared_bytes": 0,
    },
)


class DmaDriver:
    """See `hcq.driver.Driver`."""

    name = "dma-emu"
    emulated = True
    tools: tuple[Tool, ...] = ()

    def enumerate(self) -> list[DeviceInfo]:
        """Return the one device, which exists on every machine."""
        return [INFO]

    def open(self, index: int, variant: str | None) -> DmaDevice:
        """Open the device. Raises `UsageError` for another index and for a variant."""
        if index or variant:
            raise UsageError(f"there is one DMA device, dma-emu:0, and not dma-emu:{variant or index}")
        return DmaDevice(INFO)


DRIVER = DmaDriver()
