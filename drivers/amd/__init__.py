"""The driver for AMD GPUs since CDNA3 and RDNA3, which uses the KFD interface of the kernel driver amdgpu.

In order of dependence: `layouts` (all hardware numbers) - `kfd` (the calls, with their errors) - `topology`
(the list of GPUs) - `memory`, `process` - `queues`, `ring`, `aql_ring` - `encode`, `program` - `rings` -
`events` - `faults` - `device`, `driver`. `quirks` holds the settings that public sources leave uncertain.

Not here: the emulated GPUs (`emulator.amd`), code generation (`compiler.targets.amdgcn`). Next: docs/amd.md;
`device`, which assembles the parts.
"""

from __future__ import annotations

from drivers.amd.driver import AmdDriver

DRIVER = AmdDriver()
"""The driver of the GPUs of this machine."""

__all__ = ["DRIVER", "AmdDriver"]
