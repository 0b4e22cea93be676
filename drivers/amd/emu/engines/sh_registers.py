"""The SH registers of a command processor: what packets wrote, and what of it no launch has used yet.

They keep their values from packet to packet, and begin unknown. Not here: their fields (`dispatch`), other
registers and packets (`pm4`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from drivers.amd.emu.engines.errors import packet_fault
from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.registers import OWN_REGISTERS, SH_BASE, SH_END, ShRegister, register_names

if TYPE_CHECKING:
    from drivers.amd.emu.engines.bus import Bus
    from drivers.amd.layouts.pm4 import SetShReg

_WRITTEN: Final = re.compile(
    r"COMPUTE_(START|NUM_THREAD|RESTART)_[XYZ]|COMPUTE_(PIPELINESTAT|PERFCOUNT)_ENABLE|COMPUTE_PGM_\w+"
    r"|COMPUTE_DISPATCH_SCRATCH_BASE_(LO|HI)|COMPUTE_RESOURCE_LIMITS|COMPUTE_TMPRING_SIZE|COMPUTE_USER_DATA_\d+"
)
"""Registers that a launch sets (facts 4.4); the others are the kernel driver's or the firmware's."""
_ALL_NAMES: Final = tuple((generation, register_names(generation)) for generation in OWN_REGISTERS)


class ShRegisters:
    """The registers that SET_SH_REG writes, by their places."""

    def __init__(self, bus: Bus, generation: int) -> None:
        self._bus, self._generation = bus, generation
        self._values: dict[int, int] = {}
        self._fresh: set[int] = set()
        """Places that were written since the last launch."""
        self._names = register_names(generation)
        self._own = {place for place, name in self._names.items() if _WRITTEN.match(name)}
        """Places that the driver may write."""

    def write(self, packet: SetShReg, values: list[int]) -> None:
        """Execute SET_SH_REG. Raises `QueueFault` for what a queue may not write; doubts go to the bus."""
        if packet.VMID_SHIFT or packet.INDEX:
            raise packet_fault(
                f"SET_SH_REG with VMID_SHIFT {packet.VMID_SHIFT}, INDEX {packet.INDEX}: both are 0"
            )
        first = packet.REG_OFFSET
        if first + len(values) > SH_END - SH_BASE:
            raise packet_fault(
                f"SET_SH_REG writes {len(values)} registers from {first:#x}, SH registers end at "
                f"{SH_END - SH_BASE:#x}",
                QueueException.PACKET_DISPATCH_REGISTER_INVALID,
            )
        for place, value in enumerate(values, first):
            if place == ShRegister.COMPUTE_VMID:
                raise packet_fault(
                    "SET_SH_REG writes COMPUTE_VMID, which is the kernel driver's",
                    QueueException.PACKET_DISPATCH_REGISTER_INVALID,
                )
            if place not in self._names:
                self._bus.doubt(f"SET_SH_REG writes register {place:#x}, which gfx{self._generation} has not")
            elif place not in self._own:
                others = {f"{names[place]} on gfx{of}" for of, names in _ALL_NAMES if place in names}
                others -= {f"{self._names[place]} on gfx{of}" for of, _ in _ALL_NAMES}
                text = f"SET_SH_REG writes {self._names[place]}, which is not the driver's to write"
                self._bus.doubt(text + "".join(f"; the place is that of {one}" for one in sorted(others)))
            if place in self._fresh:
                name = self._names.get(place, f"register {place:#x}")
                self._bus.doubt(f"SET_SH_REG writes {name} again, and no launch has used what it had")
            self._values[place] = value
            self._fresh.add(place)

    @property
    def unused(self) -> str:
        """The names of at most four registers that were written since the last launch; empty for none."""
        return ", ".join(sorted(self._names.get(place, f"{place:#x}") for place in self._fresh)[:4])

    def for_launch(self) -> dict[int, int]:
        """Return the values of a launch, and count them as used; the next launch sets its own user data."""
        values = dict(self._values)
        if self._bus.order is not None:  # a register that is left as the last kernel's is legal, and no good
            values = {place: value for place, value in values.items() if place in self._fresh}
        self._fresh.clear()
        for place in range(ShRegister.COMPUTE_USER_DATA_0, ShRegister.COMPUTE_USER_DATA_15 + 1):
            self._values.pop(place, None)
        return values
