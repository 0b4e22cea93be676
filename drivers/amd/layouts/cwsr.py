"""Context-save areas (CWSR): memory to which the waves of a queue are saved when it is preempted.

Since Linux 6.12 the kernel requires that `ctl_stack_size` and `ctx_save_restore_size` equal its own numbers,
and that the memory of the area is exactly `Sizes.total` bytes. Since 6.17.9 (d15deafab5d7)
`ctx_save_restore_size` may also be larger. Newer kernels state both numbers in sysfs; for older ones the
formula below computes them.

Not here: the header's use, and the sizes of one GPU. Next: `drivers.amd.context.of`, which calls `sizes`.
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hcq.layout import Struct, u32, u64

SOURCE = (
    "Linux 6.12 drivers/gpu/drm/amd/amdkfd/kfd_queue.c, kfd_queue_ctx_save_restore_size; libhsakmt queues.c"
)

_PAGE: Final = 4096
_VGPR_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"), 0x80000),
        **dict.fromkeys(("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"), 0x60000),
    }
)
"""Target -> bytes of vector registers of a compute unit; other targets have `_VGPR_BYTES_ELSEWHERE`."""
_VGPR_BYTES_ELSEWHERE: Final = 0x40000
_MENDED_LATER: Final = frozenset({"gfx1151"})
"""Targets whose registers older kernels count wrongly; mended with the sizes in sysfs (6.17.9,
b42f3bf9536c)."""
_SGPR_BYTES: Final = 0x4000
_LDS_BYTES: Final = 0x10000
_LARGE_LDS: Final = frozenset({"gfx950"})
"""Targets whose whole LDS is saved, by the size in the topology; of other targets 64 KiB are saved."""
_HW_BYTES: Final = 0x1000
_GFX9_WAVES_PER_CU, _GFX9_WAVES_PER_ENGINE = 40, 512
_WAVES_PER_CU: Final = 32
_GFX9_STACK_BYTES_PER_WAVE: Final = 8
_STACK_BYTES_PER_WAVE: Final = 12
_STACK_TAIL: Final = 8
_GFX10_STACK_CAP: Final = 0x7000
_DEBUG_BYTES_PER_WAVE: Final = 32
_DEBUG_ALIGN: Final = 64


class kfd_context_save_area_header(Struct, size=40, source="Linux 6.12 kfd_ioctl.h; libhsakmt queues.c"):
    """The start of each XCC's area. The driver writes the last four fields before it creates the queue."""

    control_stack_offset: int = u32(0)
    control_stack_size: int = u32(4)
    wave_state_offset: int = u32(8)
    wave_state_size: int = u32(12)
    debug_offset: int = u32(16, doc="from the start of this XCC's area")
    debug_size: int = u32(20, doc="bytes of all XCCs together")
    err_payload_addr: int = u64(24, doc="address of a u64 into which exceptions are ORed")
    err_event_id: int = u32(32, doc="the event that an exception sets")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a context-save area for CREATE_QUEUE, in bytes."""

    control_stack: int
    """`ctl_stack_size`, of one XCC."""
    context: int
    """`ctx_save_restore_size`, of one XCC: control stack and wave data."""
    debug: int
    """Memory of the debugger, of one XCC."""
    xccs: int

    @property
    def total(self) -> int:
        """Bytes of the memory that holds the areas of all XCCs."""
        return _up((self.context + self.debug) * self.xccs, _PAGE)


def sizes(
    arch: str,
    *,
    units: int,
    engines: int,
    xccs: int,
    lds_bytes: int,
    checked: bool = False,
    known_context: int = 0,
    known_stack: int = 0,
) -> Sizes:
    """Return the sizes for a GPU with `units` compute units and `engines` shader engines in each XCC.

    `arch` is the target's name, `lds_bytes` the LDS of a compute unit in the topology. `known_context` and
    `known_stack` are the sizes in sysfs and take precedence; 0: absent. `checked`: the kernel compares the
    sizes, so the result equals the kernel's own numbers, even if they are too small.
    """
    generation = int(arch.removeprefix("gfx")[:-2])
    if generation < 10:
        waves = min(units * _GFX9_WAVES_PER_CU, engines * _GFX9_WAVES_PER_ENGINE)
    else:
        waves = units * _WAVES_PER_CU
    lds = lds_bytes if arch in _LARGE_LDS else _LDS_BYTES
    vgprs = _VGPR_BYTES.get(arch, _VGPR_BYTES_ELSEWHERE)
    if checked and not known_context and arch in _MENDED_LATER:
        vgprs = _VGPR_BYTES_ELSEWHERE
    data = _up(units * (vgprs + _SGPR_BYTES + lds + _HW_BYTES), _PAGE)
    per_wave = _GFX9_STACK_BYTES_PER_WAVE if generation < 10 else _STACK_BYTES_PER_WAVE
    stack = _up(kfd_context_save_area_header.SIZE + waves * per_wave + _STACK_TAIL, _PAGE)
    if generation == 10:
        stack = min(stack, _GFX10_STACK_CAP)
    return Sizes(
        control_stack=known_stack or stack,
        context=known_context or (known_stack or stack) + data,
        debug=_up(waves * _DEBUG_BYTES_PER_WAVE, _DEBUG_ALIGN),
        xccs=xccs,
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
