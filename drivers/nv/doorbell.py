"""The doorbell page of a device: doorbells of all its channels, and its clock."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from drivers.nv.layouts.families import USERMODE_WITH_PARAMS
from drivers.nv.layouts.gpfifo import USERMODE_BYTES, UsermodeRegister
from drivers.nv.layouts.rm_classes import NV_HOPPER_USERMODE_A_PARAMS

if TYPE_CHECKING:
    from drivers.nv.rm import Rm
    from drivers.nv.topology import Gpu, Handles


class Doorbell:
    """Owns the register mapping."""

    def __init__(self, rm: Rm, handles: Handles, gpu: Gpu, *, bar1: bool) -> None:
        params = None
        if gpu.usermode_class >= USERMODE_WITH_PARAMS:
            params = NV_HOPPER_USERMODE_A_PARAMS(bBar1Mapping=bar1)
        with contextlib.ExitStack() as stack:
            handle = rm.alloc(handles.subdevice, gpu.usermode_class, params)
            stack.callback(rm.free, handle)
            self.registers = rm.map_registers(handles.subdevice, handle, USERMODE_BYTES)
            stack.callback(self.registers.close)
            self._undo = stack.pop_all()

    def time_ns(self) -> int:
        """Return the GPU's time, read until its halves belong together (nv.md 2.3)."""
        read = self.registers.read32
        high = read(UsermodeRegister.TIME_1)
        while True:
            low = read(UsermodeRegister.TIME_0)
            again = read(UsermodeRegister.TIME_1)
            if again == high:
                return high << 32 | low
            high = again

    def close(self) -> None:
        """Unmap; idempotent."""
        self._undo.close()
