"""The devices "nv-emu" and "amd-emu": a real driver on an emulated kernel.

The package's entry points name `NV` and `AMD`. This is the only module that imports both a driver and an
emulator. Not here: the syntax of a device's name (`nv.machine`, `amd.machine`). Next:
docs/how-to/add-a-device.md, how any package registers a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.amd.driver import AmdDriver
from drivers.nv.driver import NvDriver
from emulator.amd.machine import Machines
from emulator.nv.machine import NvMachines, hint

if TYPE_CHECKING:
    from emulator.shared.counts import Board

NV_MACHINES: Final = NvMachines()
"""Opens the machines of `NV`. The devices of one machine with several GPUs share it."""
NV: Final = NvDriver(
    "nv-emu",
    NV_MACHINES,
    hint=lambda: f"a bare number is the index of a GPU; {hint()}",
    emulated=True,
)
"""GPUs emulated below the ioctl: "nv-emu", "nv-emu:sm_80+570"."""
AMD_MACHINES: Final = Machines()
"""Opens the machines of `AMD`. The devices of one machine with several GPUs share it."""
AMD: Final = AmdDriver("amd-emu", AMD_MACHINES, lasting=False, emulated=True)
"""GPUs emulated below the ioctl: "amd-emu", "amd-emu:gfx1201", "amd-emu:gfx942+6.12.107"."""


def boards() -> dict[str, tuple[Board, ...]]:
    """Return, by the name of each emulated architecture, its boards with published rates, for estimates."""
    from emulator.amd.profiles import GPUS  # noqa: PLC0415 - loaded when a machine is opened
    from emulator.nv.profiles import PROFILES  # noqa: PLC0415 - the same

    nvidia = {one.name: one.boards for one in PROFILES.values()}
    return nvidia | {one.name: one.boards for one in GPUS.values()}
