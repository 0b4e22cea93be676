"""AMD GPUs, from CDNA3 and RDNA3 on, over the kernel's KFD interface.

From below: `layouts` (every number) - `kfd` (the calls, their errors with cures) - `topology` (which GPUs
there are) - `memory`, `process` - `queues`, `ring`, `aql_ring` - `events` - `encode`, `program` - `faults` -
`device`, `driver`. `quirks` holds what public sources leave in doubt.

Not here: kernels (`compiler.targets.amdgcn`). Next: `device`, where the parts meet; `layouts`, every number.
"""

from __future__ import annotations

from drivers.amd.driver import AmdDriver

DRIVER = AmdDriver()
"""The real hardware of this machine."""

__all__ = ["DRIVER", "AmdDriver"]
