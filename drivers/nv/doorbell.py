"""The usermode page of a device: the doorbell of all its channels, and its clock.

Not here: the stores before the doorbell (`channel`, `ring`). Next: `emulator.nv.engines.usermode`, the
emulated page.
"""

from __future__ import annotations

import contextlib
from typing import Final

from drivers.kernel import Mmio
from drivers.nv.layouts.chips import USERMODE_WITH_PARAMS
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, UsermodeRegister
from drivers.nv.layouts.rm_classes import NV_HOPPER_USERMODE_A_PARAMS
from drivers.nv.quirks import DEFAULT, NvQuirks
from drivers.nv.rm import Rm
from drivers.nv.topology import Handles, NvGpu

_ALL_ONES: Final = 0xFFFF_FFFF
"""The value of a load that no device answers. TIME_1 never has it: its upper three bits are 0 (nv.md 2.3)."""


class Doorbell:
    """The mappings of the page, which `close` unmaps.

    A mapping through BAR1 accepts stores only, so the clock is read through a second mapping, through BAR0.
    Source: nvidia-push writes doorbells through BAR1 and states that it cannot be read; UVM reads the time
    through BAR0. Raises `DriverError` if the kernel driver refuses a mapping.
    """

    def __init__(self, rm: Rm, handles: Handles, gpu: NvGpu, choices: NvQuirks = DEFAULT) -> None:
        with contextlib.ExitStack() as stack:
            bar1 = choices.doorbell_bar1 and gpu.usermode_class >= USERMODE_WITH_PARAMS
            owner = handles.device if choices.doorbell_owner == "device" else handles.subdevice
            self.registers = _page(rm, handles, gpu, stack, owner, bar1=bar1)
            """The doorbell registers; write only."""
            self._clock = self.registers
            if bar1:
                self._clock = _page(rm, handles, gpu, stack, owner, bar1=False)
            self._undo = stack.pop_all()

    def time_ns(self) -> int:
        """Return the GPU's time in nanoseconds; the halves are read until they are consistent (nv.md 2.3)."""
        read = self._clock.read32
        high = read(UsermodeRegister.TIME_1)
        while True:
            low = read(UsermodeRegister.TIME_0)
            again = read(UsermodeRegister.TIME_1)
            if again == high:
                return high << 32 | low
            high = again

    def lost(self) -> bool:
        """Return whether the registers read as all ones, as they do once the GPU is off the bus."""
        return self._clock.read32(UsermodeRegister.TIME_1) == _ALL_ONES

    def close(self) -> None:
        """Unmap the page; idempotent."""
        self._undo.close()


def _page(
    rm: Rm, handles: Handles, gpu: NvGpu, stack: contextlib.ExitStack, owner: int, *, bar1: bool
) -> Mmio:
    params = None
    if gpu.usermode_class >= USERMODE_WITH_PARAMS:
        params = NV_HOPPER_USERMODE_A_PARAMS(bBar1Mapping=bar1)
    handle = rm.alloc(handles.subdevice, gpu.usermode_class, params)
    stack.callback(rm.free, handle)
    page = rm.map_registers(owner, handle, USERMODE_BYTES)
    stack.callback(page.close)
    return page
