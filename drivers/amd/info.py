"""The `DeviceInfo` of a GPU before it is opened, from the topology and the table of targets.

Not here: reading the topology (`topology`), opening (`device`). Next: `hcq.hardware.DeviceInfo`, the fields.
"""

from __future__ import annotations

from typing import Final

from drivers.amd.layouts.chips import AmdChip
from drivers.amd.topology import AmdGpu
from hcq.driver import DeviceInfo

COMPUTE_QUEUES: Final = 2
COPY_QUEUES: Final = 2


def device_info(
    driver: str, index: int, gpu: AmdGpu, target: AmdChip, *, apu: bool, vram: int = 0
) -> DeviceInfo:
    """Return the public facts of a GPU.

    `vram`: bytes of video memory that the kernel can allocate; it is used if the topology lists fewer, as for
    APUs. Raises `BringUpError` as `AmdGpu.geometry` does.
    """
    geometry = gpu.geometry()
    vram = max(vram, gpu.vram_bytes)
    codename = f" {gpu.codename}" if gpu.codename not in {"", target.name} else ""
    return DeviceInfo(
        driver=driver,
        index=index,
        name=f"AMD {target.name}{codename}" + (" (APU, memory shared with the host)" if apu else ""),
        arch=target.name,
        vram_bytes=vram,
        compute_queues=COMPUTE_QUEUES,
        copy_queues=COPY_QUEUES,
        compute_units=geometry.compute_units * geometry.xccs,
        word_bits=32,
        limits={
            "max_threads": 1024,
            # Work-items of a dispatch packet have 32 bits.
            "max_groups_x": (1 << 22) - 1 if geometry.xccs > 1 else (1 << 31) - 1,
            "max_groups_y": (1 << 16) - 1,
            "max_groups_z": (1 << 16) - 1,
            "max_shared_bytes": target.lds_bytes,
        },
    )
