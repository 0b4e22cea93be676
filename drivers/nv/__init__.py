"""The driver for NVIDIA GPUs from Ampere to Blackwell, which uses the ioctls of NVIDIA's kernel driver.

In order of dependence: `layouts` (all hardware numbers) - `rm`, `uvm` (the two kernel interfaces) -
`topology` (queries of the GPU) - `vaspace`, `memory`, `shared_memory` - `channel`, `ring`, `push`, `encode` -
`cubin`, `qmd`, `program` - `faults` - `device`, `driver`. `quirks` holds the values that public sources leave
uncertain.

Not here: the emulated GPU (`emulator.nv`), code generation (`compiler.targets.nvptx`). Next: docs/nv.md;
`device`, which assembles the parts.
"""

from __future__ import annotations

from drivers.nv.driver import NvDriver

DRIVER = NvDriver()
"""The driver of the GPUs of this machine."""

__all__ = ["DRIVER", "NvDriver"]
