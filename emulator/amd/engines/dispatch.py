"""One launch (`DispatchLaunch`): code, registers and dimensions, with the checks that need no kernel.

`ShRegisters` are the SH registers of one command processor. They keep their values from packet to packet, are
unknown at first, and record which values no launch has used yet.

Not here: what the kernel's descriptor demands (`kernels`), the packets of AQL queues (`aql`), other
registers and packets (`pm4`). Source: docs/sources-amd.md, Compute registers. Next: `kernels`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.aql import KERNARG_ALIGN
from drivers.amd.layouts.chips import Scratch
from drivers.amd.layouts.events import QueueException
from drivers.amd.layouts.registers import (
    NUM_THREAD,
    OWN_REGISTERS,
    PROGRAM_SHIFT,
    RSRC1,
    RSRC2,
    SH_BASE,
    SH_END,
    TMPRING,
    USER_DATA_COUNT,
    Initiator,
    Rsrc1,
    Rsrc2,
    ShRegister,
    TmpringSize,
    register,
    register_names,
)
from emulator.amd.reports import (
    code_fault,
    dispatch_fault,
    packet_fault,
    register_fault,
    size_fault,
    unsupported,
)
from emulator.shared.vaspace import AccessKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivers.amd.layouts.pm4 import DispatchDirect, SetShReg
    from emulator.amd.engines.bus import Bus

_WRITTEN: Final = re.compile(
    r"COMPUTE_(START|NUM_THREAD|RESTART)_[XYZ]|COMPUTE_(PIPELINESTAT|PERFCOUNT)_ENABLE|COMPUTE_PGM_\w+"
    r"|COMPUTE_DISPATCH_SCRATCH_BASE_(LO|HI)|COMPUTE_RESOURCE_LIMITS|COMPUTE_TMPRING_SIZE|COMPUTE_USER_DATA_\d+"
)
"""Registers that a driver writes for a launch; the others belong to the kernel driver or the firmware."""
_ALL_NAMES: Final = tuple((generation, register_names(generation)) for generation in OWN_REGISTERS)


class ShRegisters:
    """The registers that SET_SH_REG writes, by their offset from `SH_BASE` in dwords."""

    def __init__(self, bus: Bus, generation: int) -> None:
        self._bus, self._generation = bus, generation
        self._values: dict[int, int] = {}
        self._fresh: set[int] = set()
        """Offsets that were written since the last launch."""
        self._names = register_names(generation)
        self._own = {place for place, name in self._names.items() if _WRITTEN.match(name)}
        """Offsets that the driver may write."""

    def write(self, packet: SetShReg, values: list[int]) -> None:
        """Execute SET_SH_REG. Raises `QueueFault` for COMPUTE_VMID, a bad range, VMID_SHIFT or INDEX.

        Three cases are reported as unverified: a register that the generation lacks, one that the driver
        should not write, and one whose last value no launch has used.
        """
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
                self._bus.report_unverified(
                    f"SET_SH_REG writes register {place:#x}, which gfx{self._generation} lacks"
                )
            elif place not in self._own:
                others = {f"{names[place]} on gfx{of}" for of, names in _ALL_NAMES if place in names}
                others -= {f"{self._names[place]} on gfx{of}" for of, _ in _ALL_NAMES}
                text = f"SET_SH_REG writes {self._names[place]}, which a driver does not write"
                self._bus.report_unverified(
                    text + "".join(f"; the place is that of {one}" for one in sorted(others))
                )
            if place in self._fresh:
                name = self._names.get(place, f"register {place:#x}")
                self._bus.report_unverified(
                    f"SET_SH_REG writes {name} again, and no launch has used its last value"
                )
            self._values[place] = value
            self._fresh.add(place)

    @property
    def unused(self) -> str:
        """The names of at most four registers that were written since the last launch; "" for none."""
        return ", ".join(sorted(self._names.get(place, f"{place:#x}") for place in self._fresh)[:4])

    def for_launch(self) -> dict[int, int]:
        """Return the values that a launch uses, by offset, and mark them as used.

        User data is dropped, so the next launch must set its own. If accesses are recorded (all checks on),
        only values written since the last launch are returned.
        """
        values = dict(self._values)
        if self._bus.order is not None:  # a value left by the last kernel is legal, but probably a mistake
            values = {place: value for place, value in values.items() if place in self._fresh}
        self._fresh.clear()
        for place in range(ShRegister.COMPUTE_USER_DATA_0, ShRegister.COMPUTE_USER_DATA_15 + 1):
            self._values.pop(place, None)
        return values


Dim3 = tuple[int, int, int]
MAX_THREADS: Final = 1024
MAX_GROUPS: Final = (1 << 31) - 1
"""Workgroups of a grid that HIP allows (maxGridSize)."""
_POISON: Final = 0xCCCC_CCCC
"""The value of user SGPRs that nothing set."""
_PRIVILEGED: Final = 11
"""The generation whose launches set PRIV (docs/sources-amd.md, D9)."""
_KERNARG_ALIGN: Final = 8
"""Alignment of the kernel arguments in bytes, as compilers state it (`.kernarg_segment_align`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLaunch:
    """The launch of a grid, by a DISPATCH_DIRECT or a kernel-dispatch packet."""

    code: int
    """Device address of the first instruction."""
    rsrc1: Rsrc1
    rsrc2: Rsrc2
    rsrc3: int
    user_data: tuple[int | None, ...]
    """The user SGPRs, in dwords; None for those that nothing set."""
    groups: Dim3
    """Workgroups along x, y and z."""
    block: Dim3
    """Work-items of a workgroup along x, y and z."""
    last: Dim3
    """The size of the last workgroup along each axis; less than `block` if the grid ends inside it."""
    lanes: int
    """Lanes of a wave: 32 or 64."""
    lds_bytes: int
    """LDS of a workgroup."""
    scratch_bytes: int
    """Scratch of a lane."""

    def sgprs(self) -> tuple[int, ...]:
        """Return the user SGPRs of a wave; 0xCCCCCCCC for those that nothing set."""
        return tuple(_POISON if value is None else value for value in self.user_data)


def _written(registers: Mapping[int, int], place: int) -> int:
    """Return a register's value. Raises `QueueFault` if it was not written for this launch."""
    if place not in registers:
        name = ShRegister(place).name if place in set(ShRegister) else f"register {place:#x}"
        raise register_fault(
            f"DISPATCH_DIRECT before {name} was written for this launch: it is another's, or unknown"
        )
    return registers[place]


def check_block(block: Dim3, groups: Dim3) -> None:
    """Raise `QueueFault` for an empty grid, or a workgroup of no or more than 1,024 work-items."""
    if not all(groups):
        raise size_fault(f"a grid of {groups} workgroups")
    threads = block[0] * block[1] * block[2]
    if not 1 <= threads <= MAX_THREADS:
        raise dispatch_fault(
            f"a workgroup of {block} work-items (WORKGROUP_SIZE, NUM_THREAD) has {threads}, "
            f"1 to {MAX_THREADS} are possible",
            QueueException.PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID,
        )


def check_grid(bus: Bus, groups: Dim3) -> None:
    """Report a grid of more than `MAX_GROUPS` workgroups."""
    if groups[0] * groups[1] * groups[2] > MAX_GROUPS:
        bus.report_unverified(
            f"a grid of {groups} workgroups: at most {MAX_GROUPS} end within any time limit"
        )


def check_arguments_place(bus: Bus, va: int) -> None:
    """Check the address of kernel arguments. Raises `QueueFault` unless it is aligned to 8 bytes.

    hsa.h asks for 16 bytes; less is a lint.
    """
    bus.aligned(va, _KERNARG_ALIGN, "the address of kernel arguments")
    if va % KERNARG_ALIGN:
        bus.lint(f"the address of kernel arguments is not aligned to {KERNARG_ALIGN} bytes, as hsa.h asks")


def from_registers(bus: Bus, registers: Mapping[int, int], packet: DispatchDirect) -> DispatchLaunch:
    """Return the launch that `registers` (`ShRegisters.for_launch`) and a DISPATCH_DIRECT describe.

    Raises `QueueFault` for a register that was not written, a field that contradicts another, or a feature
    that is not emulated; `MemoryFault` for scratch that is not mapped.
    """
    generation = int(bus.gpu.profile.target.generation)
    initiator = Initiator.from_int(packet.INITIATOR)
    _check_initiator(initiator, generation)

    def get(place: int) -> int:
        return _written(registers, place)

    for place in (ShRegister.COMPUTE_PIPELINESTAT_ENABLE, ShRegister.COMPUTE_PERFCOUNT_ENABLE):
        if registers.get(place):
            bus.report_unverified(f"{place.name} is {registers[place]:#x}: launches count nothing")
    sizes = [get(ShRegister.COMPUTE_NUM_THREAD_X + axis) for axis in range(3)]
    block, last = _block(bus, sizes, generation, partial=bool(initiator.PARTIAL_TG_EN))
    groups = (packet.DIM_X, packet.DIM_Y, packet.DIM_Z)
    check_block(block, groups)
    if initiator.USE_THREAD_DIMENSIONS:
        items = groups
        groups, cut = whole_and_rest(items, block)
        if initiator.PARTIAL_TG_EN and cut != last:
            raise register_fault(
                f"a grid of {items} work-items ends with workgroups of {cut}, COMPUTE_NUM_THREAD says {last}"
            )
        if cut != block and not initiator.PARTIAL_TG_EN:
            bus.report_unverified(
                f"a grid of {items} work-items in workgroups of {block}, and PARTIAL_TG_EN is 0"
            )
        last = cut
    check_grid(bus, groups)
    for first in (ShRegister.COMPUTE_START_X, ShRegister.COMPUTE_RESTART_X):
        values = [get(first + axis) for axis in range(3)]
        if any(values) and not (initiator.FORCE_START_AT_000 and first == ShRegister.COMPUTE_START_X):
            raise unsupported(f"{first.name} to Z are {values}: grids that do not start at 0")
    get(ShRegister.COMPUTE_RESOURCE_LIMITS)
    rsrc1 = RSRC1[generation].from_int(get(ShRegister.COMPUTE_PGM_RSRC1))
    rsrc2 = RSRC2[generation].from_int(get(ShRegister.COMPUTE_PGM_RSRC2))
    if rsrc1.PRIV and generation != _PRIVILEGED:
        bus.report_unverified(
            f"RSRC1 has PRIV, which only gfx{_PRIVILEGED} wants for context saves: not gfx{generation}"
        )
    if any(size > 1 for size in block[rsrc2.TIDIG_COMP_CNT + 1 :]):
        bus.report_unverified(
            f"workgroups of {block} for a kernel that gets {rsrc2.TIDIG_COMP_CNT + 1} coordinates of a "
            "work-item: some work-items get the same coordinates"
        )
    lanes = 32 if initiator.CS_W32_EN else 64
    return DispatchLaunch(
        code=(get(ShRegister.COMPUTE_PGM_HI) << 32 | get(ShRegister.COMPUTE_PGM_LO)) << PROGRAM_SHIFT,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        rsrc3=get(register(generation, "COMPUTE_PGM_RSRC3")),
        user_data=tuple(
            registers.get(ShRegister.COMPUTE_USER_DATA_0 + n) if n < USER_DATA_COUNT else None
            for n in range(rsrc2.USER_SGPR)
        ),
        groups=groups,
        block=block,
        last=last,
        lanes=lanes,
        lds_bytes=rsrc2.LDS_SIZE * bus.gpu.profile.target.lds_granule,
        scratch_bytes=_scratch(bus, registers, lanes) if rsrc2.SCRATCH_EN else 0,
    )


@functools.lru_cache(maxsize=256)
def _check_initiator(initiator: Initiator, generation: int) -> None:
    """Raise `QueueFault` for an initiator that starts nothing, is not legal, or is not emulated."""
    found = initiator.check()
    if found:
        raise register_fault(f"DISPATCH_INITIATOR: {'; '.join(map(str, found))}")
    if not initiator.COMPUTE_SHADER_EN:
        raise code_fault("DISPATCH_INITIATOR without COMPUTE_SHADER_EN starts nothing")
    if initiator.CS_W32_EN and generation < 10:
        raise register_fault(f"CS_W32_EN: gfx{generation} has waves of 64 lanes only")
    rare = {
        "ORDERED_APPEND_ENBL", "ORDERED_APPEND_MODE", "TUNNEL_ENABLE", "RESTORE", "AMP_SHADER_EN",
        "PING_PONG_EN", "INTERLEAVE_2D_EN",
    }  # fmt: skip
    for name in sorted(rare):
        if getattr(initiator, name):
            raise unsupported(f"DISPATCH_INITIATOR with {name} is not emulated")


def whole_and_rest(items: Dim3, block: Dim3) -> tuple[Dim3, Dim3]:
    """Return, for each axis of a grid of `items`, the number of workgroups and the size of the last."""
    x, y, z = (-(-count // size) for count, size in zip(items, block, strict=True))
    a, b, c = (count % size or size for count, size in zip(items, block, strict=True))
    return (x, y, z), (a, b, c)


@functools.cache
def _declared(generation: int) -> int:
    """Return the bits of COMPUTE_NUM_THREAD that fields declare."""
    return sum(field.mask() for field in NUM_THREAD[generation].FIELDS.values())


def _block(bus: Bus, values: list[int], generation: int, *, partial: bool) -> tuple[Dim3, Dim3]:
    """Return the size of a workgroup, and of the last one along each axis."""
    layout, known = NUM_THREAD[generation], _declared(generation)
    for value in values:
        if value & ~known:
            raise register_fault(f"COMPUTE_NUM_THREAD {value:#x} has bits that no field declares")
        if "INTERLEAVE_BITS" in layout.FIELDS and layout.FIELDS["INTERLEAVE_BITS"].extract(value):
            raise unsupported(f"COMPUTE_NUM_THREAD {value:#x}: work-items in tiles (INTERLEAVE_BITS)")
    x, y, z = (layout.FIELDS["FULL"].extract(value) for value in values)
    a, b, c = (layout.FIELDS["PARTIAL"].extract(value) for value in values)
    if not partial:
        if a or b or c:
            bus.report_unverified(
                f"COMPUTE_NUM_THREAD has PARTIAL sizes of {(a, b, c)}, and PARTIAL_TG_EN is 0"
            )
        return (x, y, z), (x, y, z)
    if not (1 <= a <= x and 1 <= b <= y and 1 <= c <= z):
        raise register_fault(
            f"PARTIAL_TG_EN with last workgroups of {(a, b, c)}, others of {(x, y, z)}: wanted 1 to the full "
            "size along each axis, and the full size where the grid ends with a whole workgroup"
        )
    return (x, y, z), (a, b, c)


def _scratch(bus: Bus, registers: Mapping[int, int], lanes: int) -> int:
    """Return the scratch bytes of a lane. Raises `MemoryFault` if the scratch memory is not mapped."""
    target = bus.gpu.profile.target
    if target.scratch is not Scratch.ARCHITECTED:
        raise unsupported(f"scratch of {target.name}, which has a descriptor in user SGPRs")
    size = TMPRING[int(target.generation)].from_int(_written(registers, ShRegister.COMPUTE_TMPRING_SIZE))
    low, high = (
        _written(registers, place)
        for place in (
            ShRegister.COMPUTE_DISPATCH_SCRATCH_BASE_LO,
            ShRegister.COMPUTE_DISPATCH_SCRATCH_BASE_HI,
        )
    )
    waves, bytes_of_wave = waves_of_scratch(bus, size)
    base = (high << 32 | low) << PROGRAM_SHIFT
    check_scratch(bus, base, waves * bytes_of_wave, f"scratch of {waves} waves")
    return int(bytes_of_wave // lanes)


def waves_of_scratch(bus: Bus, size: TmpringSize) -> tuple[int, int]:
    """Return for how many waves of an XCC a TMPRING_SIZE reserves scratch, and the bytes of each wave.

    Raises `QueueFault` if either is 0.
    """
    if not size.WAVES or not size.WAVESIZE:
        raise register_fault(f"SCRATCH_EN with TMPRING_SIZE {int(size):#x}")
    target = bus.gpu.profile.target
    waves = size.WAVES * (bus.gpu.profile.engines if target.scratch_waves_per_engine else 1)
    return waves, size.WAVESIZE * target.scratch_unit


def check_scratch(bus: Bus, base: int, size: int, what: str) -> None:
    """Raise `MemoryFault` for scratch that is not mapped; report scratch that extends past its buffer."""
    bus.space.check_range(base, size, AccessKind.WRITE, what)
    buffer = bus.space.buffer_at(base)
    if buffer is not None and base + size > buffer.end:
        bus.report_unverified(f"{what} is [{base:#x}, +{size:#x}), which goes beyond {buffer}")
