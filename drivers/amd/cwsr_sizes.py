"""The context-save sizes of one GPU: what sysfs says, else by formula as the kernel computes it.

Not here: the layout of the area (`drivers.amd.layouts.cwsr`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.layouts import cwsr

if TYPE_CHECKING:
    from drivers.amd.context import Geometry
    from drivers.amd.kfd import Kfd
    from drivers.amd.targets import Target
    from drivers.amd.topology import Gpu

_CHECKED_SINCE: Final = (1, 17)
"""Linux 6.12, the first kernel that compares the sizes, speaks this version."""


def of(gpu: Gpu, target: Target, geometry: Geometry, kfd: Kfd) -> cwsr.Sizes:
    """Return the sizes that CREATE_QUEUE takes for a compute queue of this GPU."""
    get = gpu.properties.get
    return cwsr.sizes(
        target.name,
        units=geometry.compute_units,
        engines=geometry.engines,
        xccs=geometry.xccs,
        lds_bytes=get("lds_size_in_kb", 0) << 10,
        checked=kfd.version >= _CHECKED_SINCE,
        known_context=get("cwsr_size", 0),
        known_stack=get("ctl_stack_size", 0),
    )
