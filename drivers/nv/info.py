"""The `DeviceInfo` of a GPU, from the results of its queries.

Not here: the queries (`topology`), opening (`device`). Next: `hcq.hardware.DeviceInfo`, the fields.
"""

from __future__ import annotations

from typing import Final

from drivers.nv.layouts.cubin import RESERVED_SHARED
from drivers.nv.topology import NvGpu
from hcq.driver import DeviceInfo

COMPUTE_QUEUES: Final = 2
COPY_QUEUES: Final = 2


def device_info(driver: str, index: int, gpu: NvGpu) -> DeviceInfo:
    """Return the public facts of a GPU, from the results of its queries."""
    return DeviceInfo(
        driver=driver,
        index=index,
        name=gpu.name,
        arch=gpu.arch,
        vram_bytes=gpu.vram_bytes,
        compute_queues=COMPUTE_QUEUES,
        copy_queues=COPY_QUEUES,
        compute_units=gpu.sms,
        word_bits=32,
        limits={
            "max_threads": 1024,
            "max_groups_x": (1 << 31) - 1,
            "max_groups_y": (1 << 16) - 1,
            "max_groups_z": (1 << 16) - 1,
            "max_shared_bytes": (gpu.chip.carveouts_kib[-1] << 10) - RESERVED_SHARED,
            **({"max_cluster": gpu.chip.cluster} if gpu.chip.cluster else {}),
        },
    )
