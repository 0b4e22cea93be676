"""AMD GPUs, from CDNA3 and RDNA3 on, over the kernel's KFD interface.

From below: `layouts` (every number) - `kfd` (the calls, their errors with cures) - `topology` (which GPUs
there are) - `memory`, `process` - `queues`, `ring`, `aql_ring` - `encode`, `program` - `rings` - `events` -
`faults` - `device`, `driver`. `quirks` holds what public sources leave in doubt.

Not here: the emulated GPUs (`emulator.amd`).
"""

from __future__ import annotations

from drivers.amd.driver import AmdDriver

DRIVER = AmdDriver()
"""The driver of the GPUs of this machine."""

__all__ = ["DRIVER", "AmdDriver"]
