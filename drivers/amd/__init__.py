"""AMD GPUs, from CDNA3 and RDNA3 on, over the kernel's KFD interface.

From below: `layouts` (every number) - `kfd` (the calls, their errors with cures) - `topology` (which GPUs
there are) - `memory`, `process` - `queues`, `ring`, `aql_ring` - `encode`, `program` - `rings` - `events` -
`faults` - `device`, `driver`. `quirks` holds what public sources leave in doubt.

Not here: the emulated GPUs (`emulator.amd`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.amd.driver import AmdDriver
from emulator.amd.driver import Machines
from hcq.config import config

if TYPE_CHECKING:
    from emulator.amd.machine.runs import Engines
    from emulator.simt.engine import Settings


def _engines(settings: Settings) -> Engines:
    """Return what executes the queues of an emulated machine."""
    from emulator.amd.engines.engines import AmdEngines  # noqa: PLC0415 - heavy, not part of real hardware

    return AmdEngines(settings, report=config().emu_report)


DRIVER = AmdDriver()
"""The real hardware of this machine."""
MACHINES = Machines(_engines)
"""Makes emulated machines."""
EMULATED = AmdDriver("amd-emu", MACHINES, lasting=False, emulated=True)
"""GPUs emulated below the ioctl: "amd-emu", "amd-emu:gfx1201", "amd-emu:gfx942+6.12.107"."""

__all__ = ["DRIVER", "EMULATED", "MACHINES", "AmdDriver"]
