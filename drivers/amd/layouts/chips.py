"""The table of AMD GPUs: the properties of each target for queues, packets and kernels.

A target is found by the kernel's `gfx_target_version`. The driver reads properties of a row and never
compares names.

Not here: packets and registers of a generation (`pm4_generations`, `registers`), settings that public sources
leave uncertain (`drivers.amd.quirks`), properties of one device (`drivers.amd.context`). Next:
docs/how-to/add-a-chip.md.

Source: LLVM AMDGPUUsage (targets, `e_flags`, descriptor granules), AMDGPUBaseInfo (registers and waves of a
SIMD), Linux 6.12 kfd_device.c and amdgpu_discovery.c (versions), ROCr amd_aql_queue.cpp (scratch).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from drivers.amd.layouts.topology import target_name
from hcq.errors import UnsupportedError

_ALLOCATIONS: Final = 64
"""Units into which the vector registers of a SIMD are divided, on every target."""


class Generation(enum.IntEnum):
    """A generation of packets and registers."""

    GFX9 = 9
    GFX10 = 10
    GFX11 = 11
    GFX12 = 12


class Scratch(enum.Enum):
    """How a wave finds its scratch memory."""

    DESCRIPTOR = "descriptor"
    """By a buffer descriptor and an offset in user SGPRs, which the kernel's prologue adds."""
    ARCHITECTED = "architected"
    """By the dispatch register SCRATCH_BASE, without SGPRs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdChip:
    """The properties of one target."""

    name: str
    """LLVM's name and `DeviceInfo.arch`, such as "gfx1100"."""
    version: int
    """`gfx_target_version` of the topology: major * 10000 + minor * 100 + step."""
    mach: int
    """Bits [7:0] of a code object's `e_flags`."""
    generation: Generation
    waves: tuple[int, ...]
    """Lanes of a wave that kernels may be compiled for, the native one first."""
    sdma: tuple[int, int, int]
    """Version of the SDMA engines: (major, minor, revision)."""
    scratch: Scratch = Scratch.ARCHITECTED
    scratch_unit: int
    """The unit of WAVESIZE in TMPRING_SIZE, in bytes; a wave's scratch is a multiple of it."""
    scratch_waves_per_engine: bool
    """Whether WAVES of TMPRING_SIZE counts the waves of a shader engine; False: of the XCC."""
    lds_bytes: int = 64 << 10
    """The most LDS of a workgroup, in bytes."""
    lds_granule: int = 512
    """The unit of LDS_SIZE in RSRC2, in bytes."""
    vgprs: int = 256
    """The most vector registers of a lane, accumulation registers included."""
    vgpr_granule: tuple[int, int] = (8, 4)
    """The unit of VGPRS in RSRC1, in registers, for waves of 32 and of 64 lanes."""
    simd_vgprs: int = 1536
    """Vector registers of a SIMD for each lane of a wave of the native width, shared by all its waves."""
    simd_waves: int = 16
    """The most waves of a SIMD."""
    packed_ids: bool = True
    """Whether the three work-item ids are in one register, 10 bits each."""
    trap_workaround: bool = False
    """Whether context save needs PRIV in RSRC1 of a PM4 dispatch (GC 11.0.0 to 11.0.3: kernel, kfdtest)."""
    apu: bool = False
    """Whether the GPU has no memory of its own: its VRAM is memory of the host."""
    refusal: str = ""
    """Reason why devices of this target are not opened; "": they are."""

    @property
    def vgpr_allocation(self) -> int:
        """The unit in which vector registers are allocated to a wave of the native width, in registers."""
        return self.simd_vgprs // _ALLOCATIONS

    @property
    def compute_aql(self) -> bool:
        """Whether devices of this target may have several XCCs, which only AQL queues drive."""
        return self.generation is Generation.GFX9 and self.scratch is Scratch.ARCHITECTED

    def open_or_refuse(self) -> AmdChip:
        """Return this target, or raise `UnsupportedError` with the reason why its devices are not opened."""
        if self.refusal:
            raise UnsupportedError(f"{self.name} is not driven: {self.refusal}\n{_hint()}")
        return self


_WAVE32: Final = (32, 64)
_PREBUILT: Final = "compile target only"

# fmt: off
_ROWS: Final = (
    AmdChip(
        name="gfx90a", version=90010, mach=0x3F, sdma=(4, 4, 0), scratch=Scratch.DESCRIPTOR,
        generation=Generation.GFX9, waves=(64,), vgprs=512, vgpr_granule=(8, 8), scratch_unit=1024,
        scratch_waves_per_engine=False, simd_vgprs=512, simd_waves=8,
        refusal=f"{_PREBUILT}: its scratch needs buffer descriptors in user registers",
    ),
    AmdChip(
        name="gfx942", version=90402, mach=0x4C, sdma=(4, 4, 2),
        generation=Generation.GFX9, waves=(64,), vgprs=512, vgpr_granule=(8, 8), scratch_unit=1024,
        scratch_waves_per_engine=False, simd_vgprs=512, simd_waves=8,
    ),
    AmdChip(
        name="gfx950", version=90500, mach=0x4F, sdma=(4, 4, 4), lds_bytes=160 << 10, lds_granule=1280,
        generation=Generation.GFX9, waves=(64,), vgprs=512, vgpr_granule=(8, 8), scratch_unit=1024,
        scratch_waves_per_engine=False, simd_vgprs=512, simd_waves=8,
    ),
    AmdChip(
        name="gfx1030", version=100300, mach=0x36, sdma=(5, 2, 0), scratch=Scratch.DESCRIPTOR,
        generation=Generation.GFX10, waves=_WAVE32, scratch_unit=1024, scratch_waves_per_engine=False,
        packed_ids=False, simd_vgprs=1024,
        refusal=f"{_PREBUILT}: its scratch needs buffer descriptors in user registers",
    ),
    *(
        AmdChip(
            name=name, version=version, mach=mach, sdma=(6, 0, 0), generation=Generation.GFX11,
            waves=_WAVE32, scratch_unit=256, scratch_waves_per_engine=True, trap_workaround=True, apu=apu,
            simd_vgprs=vgprs,
        )
        for name, version, mach, apu, vgprs in (
            ("gfx1100", 110000, 0x41, False, 1536), ("gfx1101", 110001, 0x46, False, 1536),
            ("gfx1102", 110002, 0x47, False, 1024), ("gfx1103", 110003, 0x44, True, 1024),
        )
    ),
    *(
        AmdChip(
            name=name, version=version, mach=mach, sdma=(6, 1, 0), generation=Generation.GFX11,
            waves=_WAVE32, scratch_unit=256, scratch_waves_per_engine=True, apu=True,
            simd_vgprs=vgprs,
        )
        for name, version, mach, vgprs in (("gfx1150", 110500, 0x43, 1024), ("gfx1151", 110501, 0x4A, 1536))
    ),
    *(
        AmdChip(
            name=name, version=version, mach=mach, sdma=(7, 0, 0), generation=Generation.GFX12,
            waves=_WAVE32, scratch_unit=256, scratch_waves_per_engine=True,
        )
        for name, version, mach in (("gfx1200", 120000, 0x48), ("gfx1201", 120001, 0x4E))
    ),
)
# fmt: on

CHIPS: Final[Mapping[str, AmdChip]] = MappingProxyType({row.name: row for row in _ROWS})
"""Name -> target."""
_VERSIONS: Final[Mapping[int, AmdChip]] = MappingProxyType({row.version: row for row in _ROWS})
_MACHS: Final[Mapping[int, AmdChip]] = MappingProxyType({row.mach: row for row in _ROWS})


def _hint() -> str:
    driven = ", ".join(row.name for row in _ROWS if not row.refusal)
    return f"hint: driven are {driven}"


def by_version(version: int) -> AmdChip:
    """Return the target of a `gfx_target_version`. Raises `UnsupportedError` for one without a row."""
    found = _VERSIONS.get(version)
    if found is None:
        raise UnsupportedError(f"gfx_target_version {version} ({target_name(version)}) is unknown\n{_hint()}")
    return found


def by_mach(mach: int) -> AmdChip | None:
    """Return the target with a value of bits [7:0] of `e_flags`; None for one without a row."""
    return _MACHS.get(mach)
