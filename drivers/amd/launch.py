"""The words of a kernel's launch: PM4 packets that set registers and dispatch, or one AQL packet.

The words of a launch are made once for each shape. Addresses in them are 0, and the encoder fills them in at
the indices in `Sites`.

Not here: argument blocks and kernels (`program`), packets (`drivers.amd.layouts`), decoding (`decode`). Next:
`program`. Source: the order in which tinygrad and kfdtest send a PM4 dispatch; the dispatch packet of HSA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drivers.amd import packets
from drivers.amd.code import AmdKernelFacts
from drivers.amd.layouts import aql, registers
from drivers.amd.layouts.chips import AmdChip, Scratch
from drivers.amd.layouts.code import USER_SGPRS, Preload
from drivers.amd.layouts.pm4 import DispatchDirect
from drivers.amd.quirks import AmdQuirks
from hcq.errors import UnsupportedError, UsageError
from hcq.program import Dim3

DIMENSIONS: Final = 3
(_GRID,) = aql.KernelDispatch.sites("GRID_SIZE_X")
(_KERNARG, _) = aql.KernelDispatch.sites("KERNARG_ADDRESS")
PACKET_GRID: Final = 4 * _GRID.word
PACKET_KERNARG: Final = 4 * _KERNARG.word
"""Offsets in a dispatch packet of the grid and of the address of the arguments, in bytes."""
_LOW: Final = 0xFFFF_FFFF
_GFX11, _GFX12 = 11, 12
_REFUSED: Final = {
    "PRIVATE_SEGMENT_BUFFER": "a buffer descriptor of scratch memory",
    "QUEUE_PTR": "the address of an AQL queue",
    "FLAT_SCRATCH_INIT": "the address of scratch memory",
}
"""Properties whose user SGPRs a PM4 dispatch of this driver does not set -> their contents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Indices of words of a launch that the encoder may fill in; -1: the launch does not have them."""

    kernarg: int
    """Address of the argument block, two words."""
    grid: int
    """The grid, three words: workgroups (PM4) or work-items (AQL)."""
    packet: int = -1
    """Address of the dispatch packet that the kernel reads, two words."""
    scratch: int = -1
    """Address of scratch memory, shifted right by 8, two words."""
    tmpring: int = -1
    """TMPRING_SIZE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdLaunchable:
    """The facts of a program that a launch needs."""

    kernel: AmdKernelFacts
    descriptor_va: int
    """Device address of the kernel descriptor."""
    entry_va: int
    """Device address of the code."""
    group_bytes: int
    """LDS of a workgroup, static and dynamic."""
    scratch_bytes: int
    """Scratch memory of a work-item."""


class Pm4Launch:
    """The PM4 words of one program's launches.

    Raises `UnsupportedError` if the kernel expects user SGPRs that a PM4 dispatch does not set.
    """

    def __init__(self, what: AmdLaunchable, target: AmdChip, choices: AmdQuirks) -> None:
        self._words: list[int] = []
        generation = int(target.generation)
        self._threads = registers.NUM_THREAD[generation]
        if choices.acquire == "launch":
            self._words += packets.Pm4Words(target, choices).acquire_launch
        code = what.entry_va >> registers.PROGRAM_SHIFT
        self._set(registers.ShRegister.COMPUTE_PGM_LO, code & _LOW, code >> 32)
        self._set(registers.ShRegister.COMPUTE_PGM_RSRC1, *_resources(what, target, choices))
        self._set(registers.register(generation, "COMPUTE_PGM_RSRC3"), what.kernel.fields.compute_pgm_rsrc3)
        tmpring = self._set(registers.ShRegister.COMPUTE_TMPRING_SIZE, 0)
        scratch = -1
        if target.scratch is Scratch.ARCHITECTED:
            scratch = self._set(registers.ShRegister.COMPUTE_DISPATCH_SCRATCH_BASE_LO, 0, 0)
        self._set(registers.ShRegister.COMPUTE_RESTART_X, 0, 0, 0)
        data, offsets = _user_data(what)
        first = self._set(registers.ShRegister.COMPUTE_USER_DATA_0, *data)
        self._set(registers.ShRegister.COMPUTE_RESOURCE_LIMITS, 0)
        # Three starts, three sizes, and two registers that enable measurements, which follow them.
        self._sizes = self._set(registers.ShRegister.COMPUTE_START_X, 0, 0, 0, 0, 0, 0, 0, 0) + DIMENSIONS
        wave32 = what.kernel.properties.WAVEFRONT_SIZE32
        start = registers.Initiator(
            COMPUTE_SHADER_EN=True,
            FORCE_START_AT_000=choices.force_start,
            ORDER_MODE=choices.order_mode,
            CS_W32_EN=wave32,
        )
        grid = len(self._words) + 1
        self._words += DispatchDirect.pack(DIM_X=0, DIM_Y=0, DIM_Z=0, INITIATOR=int(start))
        needs = what.scratch_bytes > 0
        self.sites = Sites(
            kernarg=first + offsets["KERNARG_SEGMENT_PTR"],
            packet=first + offsets["DISPATCH_PTR"] if "DISPATCH_PTR" in offsets else -1,
            grid=grid,
            scratch=scratch if needs else -1,
            tmpring=tmpring if needs else -1,
        )

    def _set(self, place: int, *values: int) -> int:
        """Append a write of consecutive registers; return the index of its first value."""
        self._words += packets.set_registers(place, *values)
        return len(self._words) - len(values)

    def words(self, groups: Dim3, threads: Dim3) -> packets.Words:
        """Return the words of a launch of `groups` workgroups; 0 groups: the encoder patches the axis.

        Raises `UsageError` for more workgroups along an axis than 32 bits hold.
        """
        out = self._words[:]
        for axis in range(DIMENSIONS):
            (out[self._sizes + axis],) = self._threads.pack(FULL=threads[axis])
            if groups[axis] >> 32:
                raise UsageError(
                    f"{groups[axis]} workgroups along one axis; at most {_LOW} can be dispatched"
                )
            out[self.sites.grid + axis] = groups[axis]
        return tuple(out)

    @staticmethod
    def grid_shift(_threads: Dim3, _axis: int) -> int:
        """Return the bits by which the number of workgroups is shifted left in the words: none."""
        return 0


class AqlLaunch:
    """The dispatch packets of one program's launches."""

    def __init__(self, what: AmdLaunchable, target: AmdChip, choices: AmdQuirks) -> None:
        del target
        self._what = what
        self._barrier = not choices.aql_overlap
        self.sites = Sites(kernarg=_KERNARG.word, grid=_GRID.word)

    def words(self, groups: Dim3, threads: Dim3) -> packets.Words:
        """Return the packet of a launch of `groups` workgroups; 0 groups: the encoder patches the axis.

        Raises `UsageError` for more work-items along an axis than 32 bits hold.
        """
        grid = [count * size for count, size in zip(groups, threads, strict=True)]
        if max(grid) >> 32:
            raise UsageError(
                f"{groups} workgroups of {threads} threads: {max(grid)} threads along one axis; at most "
                f"{_LOW} can be dispatched"
            )
        return dispatch_packet(self._what, grid, threads, barrier=self._barrier)

    @staticmethod
    def grid_shift(threads: Dim3, axis: int) -> int:
        """Return the bits by which the number of workgroups is shifted left; raises as `work_items_shift`."""
        return work_items_shift(threads, axis)


def work_items_shift(threads: Dim3, axis: int) -> int:
    """Return the left shift that turns workgroups along an axis into work-items, as in dispatch packets.

    Raises `UnsupportedError` if the threads along the axis are no power of two.
    """
    size = threads[axis]
    if size & (size - 1):
        raise UnsupportedError(
            "a number of groups that is set at submit needs a power of two of threads along its axis on "
            f"this GPU, whose packets count threads; saw {size}"
        )
    return size.bit_length() - 1


def dispatch_packet(
    what: AmdLaunchable, grid: list[int] | Dim3, threads: Dim3, *, barrier: bool, kernarg: int = 0
) -> packets.Words:
    """Return a kernel dispatch packet. `grid` counts work-items, `kernarg` is a device address."""
    return aql.KernelDispatch.pack(
        BARRIER=barrier,
        ACQUIRE_SCOPE=aql.FenceScope.SYSTEM,
        RELEASE_SCOPE=aql.FenceScope.SYSTEM,
        DIMENSIONS=DIMENSIONS,
        WORKGROUP_SIZE_X=threads[0],
        WORKGROUP_SIZE_Y=threads[1],
        WORKGROUP_SIZE_Z=threads[2],
        GRID_SIZE_X=grid[0],
        GRID_SIZE_Y=grid[1],
        GRID_SIZE_Z=grid[2],
        PRIVATE_SEGMENT_SIZE=what.scratch_bytes,
        GROUP_SEGMENT_SIZE=what.group_bytes,
        KERNEL_OBJECT=what.descriptor_va,
        KERNARG_ADDRESS=kernarg,
    )


def _resources(what: AmdLaunchable, target: AmdChip, choices: AmdQuirks) -> tuple[int, int]:
    """Return RSRC1 and RSRC2: the descriptor's, with the bits that an AQL packet processor would add."""
    generation, fields = int(target.generation), what.kernel.fields
    first = registers.RSRC1[generation].from_int(fields.compute_pgm_rsrc1)
    second = registers.RSRC2[generation].from_int(fields.compute_pgm_rsrc2)
    everywhere = choices.priv == "gfx11" and generation == _GFX11
    if everywhere or (choices.priv == "listed" and target.trap_workaround):
        first = first.replace(PRIV=True)
    second = second.replace(LDS_SIZE=-(-what.group_bytes // target.lds_granule))
    if choices.trap_present and generation < _GFX12:
        second = second.replace(TRAP_PRESENT=True)
    return int(first), int(second)


def _user_data(what: AmdLaunchable) -> tuple[list[int], dict[str, int]]:
    """Return the values of the user SGPRs, with 0 for addresses, and property -> its first SGPR."""
    kernel = what.kernel
    values: list[int] = []
    offsets: dict[str, int] = {}
    for name, count in USER_SGPRS:
        if not getattr(kernel.properties, name):
            continue
        if name in _REFUSED:
            raise UnsupportedError(
                f"kernel {kernel.name} needs {_REFUSED[name]} in registers, which PM4 queues do not provide\n"
                "hint: compile it for code object V5 with architected scratch"
            )
        if name == "PRIVATE_SEGMENT_SIZE":
            values += [0] * Preload.from_int(kernel.fields.kernarg_preload).LENGTH
        offsets[name] = len(values)
        values += [what.scratch_bytes] if name == "PRIVATE_SEGMENT_SIZE" else [0] * count
    if "KERNARG_SEGMENT_PTR" not in offsets:  # the kernel reads no arguments: unused SGPRs hold the address
        offsets["KERNARG_SEGMENT_PTR"] = len(values)
        values += [0, 0]
    return values, offsets
