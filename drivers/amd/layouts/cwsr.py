"""Context-save areas: where waves of a queue are saved when it is taken off the hardware.

Since Linux 6.12 the kernel compares `ctl_stack_size` and `ctx_save_restore_size` for equality (the latter
must only be as large since 6.17.9, d15deafab5d7); the memory of the area is exactly as large as
`Sizes.total`. Newer kernels print both numbers in sysfs; for older ones the formula below computes them.

Not here: the sizes on one GPU (`drivers.amd.context`).
"""

# ruff: noqa: N801 - names are the kernel's own

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hcq.layout import Struct, u32, u64

if TYPE_CHECKING:
    from collections.abc import Mapping

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
"""Bytes of vector registers a compute unit; others have `_VGPR_BYTES_ELSEWHERE`."""
_VGPR_BYTES_ELSEWHERE: Final = 0x40000
_MENDED_LATER: Final = frozenset({"gfx1151"})
"""Targets whose registers the kernel counts right only since it prints the sizes (6.17.9, b42f3bf9536c)."""
_SGPR_BYTES: Final = 0x4000
_LDS_BYTES: Final = 0x10000
_LARGE_LDS: Final = frozenset({"gfx950"})
"""Targets whose LDS is as large as the topology says; of the others 64 KiB are saved."""
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
    """The start of each XCC's area; the driver writes the last four fields before the queue is created."""

    control_stack_offset: int = u32(0)
    control_stack_size: int = u32(4)
    wave_state_offset: int = u32(8)
    wave_state_size: int = u32(12)
    debug_offset: int = u32(16, doc="from the start of this XCC's area")
    debug_size: int = u32(20, doc="of all XCCs together")
    err_payload_addr: int = u64(24, doc="a word that exceptions are ORed into")
    err_event_id: int = u32(32, doc="the event that is set then")


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
    """Return the sizes for a GPU with `units` compute units and `engines` shader engines an XCC.

    `known_context` and `known_stack` are the sizes in sysfs (0: absent) and take precedence. `checked`: the
    kernel compares the sizes with its own, which are returned then, also where they are too small.
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
