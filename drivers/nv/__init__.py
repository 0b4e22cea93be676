"""NVIDIA GPUs, from Ampere to Blackwell, over the kernel driver's own ioctls.

From below: `layouts` (every number) - `rm`, `uvm` (the two kernel interfaces) - `topology` (what the GPU
is) - `vaspace`, `memory` - `channel`, `ring`, `push`, `encode` - `cubin`, `qmd`, `program` - `faults` -
`device`, `driver`. `choices` holds what public sources leave in doubt.
"""

from __future__ import annotations

from drivers.nv.driver import NvDriver

DRIVER = NvDriver()
"""The real hardware of this machine."""

__all__ = ["DRIVER", "NvDriver"]
