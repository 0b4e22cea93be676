"""The table of emulated GPUs, with the replies to queries, and the calls that a sandbox allows.

Not here: the numbers of classes and controls (`drivers.nv.layouts`), the replies to controls
(`emulator.nv.rm.controls`). Next: `emulator.nv.machine`, which opens an emulated GPU.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.chips import CHIPS, GENERATIONS, Generation, NvChip
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.rm import Escape
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.uvm import UvmCommand
from emulator.shared.counts import Board, MultiprocessorLimits
from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB: Final = 1 << 30
SMALL_BAR1: Final = 256 << 20
"""Bytes of BAR1 on a GPU without resizable BAR, and the most at which it is mapped in pages of 64 KiB."""
BIG_PAGE: Final = 64 << 10
"""The smallest page of BAR1, in bytes (virt_mem_allocator_gm107.c)."""


class Link(enum.Enum):
    """How GPUs of one machine reach each other's video memory.

    GPUs with NVLink are peers once both are registered with UVM, those on PCIe after UVM_ENABLE_PEER_ACCESS
    (register_gpu_peers and uvm_gpu_retain_pcie_peer_access of open-gpu-kernel-modules 595.45.04).
    """

    PCIE = "pcie"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One emulated GPU."""

    name: str
    """The architecture by which it is opened, such as "sm_90"."""
    generation: Generation
    listed: tuple[tuple[int, ...], tuple[int, ...]]
    """Channel classes and doorbell classes of its class list."""
    gpu_name: str
    """The reply to a query of the name."""
    device_id: int
    """PCI device number of the board that it resembles."""
    vram_bytes: int
    """Video memory; less than that of the board."""
    tpcs_per_gpc: int
    """Litter count of TPCs in a GPC: the number on the full die."""
    tpc_masks: tuple[int, ...]
    """Mask of the TPCs that are not floor-swept, for each GPC of the full die; 0 for a floor-swept GPC.

    NVIDIA states how many the board has. Which TPCs they are is made up here; it differs between boards of a
    kind.
    """
    copy_engines: int
    """Copy engines present."""
    graphics_copy_engines: int
    """Number of copy engines that share the graphics run list; these come first."""
    va_bits: int
    """UVM's limit of addresses (nv.md 2.5)."""
    context_bytes: int
    """The reply to GR_GET_CTX_BUFFER_SIZE in bytes."""
    assembler_arch: str
    """The architecture that determines its PTX features."""
    limits: MultiprocessorLimits
    boards: tuple[Board, ...]
    """Real boards with this GPU, for estimates of times."""

    @property
    def chip(self) -> NvChip:
        """The facts about its architecture."""
        return CHIPS[self.name]

    @property
    def gpcs(self) -> int:
        """Litter count of GPCs: the number on the full die."""
        return len(self.tpc_masks)

    @property
    def gpc_mask(self) -> int:
        """The GPCs that are not floor-swept: bit n for GPC n."""
        return sum(1 << gpc for gpc, mask in enumerate(self.tpc_masks) if mask)

    @property
    def tpcs(self) -> int:
        """The number of TPCs in use."""
        return sum(mask.bit_count() for mask in self.tpc_masks)

    @property
    def tpc_numbers(self) -> tuple[int, ...]:
        """The numbers on the die of the TPCs in use, in order, with gaps where some are floor-swept."""
        return tuple(
            gpc * self.tpcs_per_gpc + local
            for gpc, mask in enumerate(self.tpc_masks)
            for local in range(self.tpcs_per_gpc)
            if mask >> local & 1
        )

    @property
    def sms(self) -> int:
        """The number of streaming multiprocessors in use."""
        return self.tpcs * SMS_PER_TPC

    @property
    def wide(self) -> bool:
        """Whether methods have 57-bit addresses (Hopper and later)."""
        return self.generation.wide_addresses

    @property
    def classes(self) -> tuple[int, ...]:
        """The class list of the device."""
        row = self.generation
        return (*_EVERYWHERE, *self.channels, *self.doorbells, row.compute, *row.copy)

    @property
    def channels(self) -> tuple[int, ...]:
        """The channel classes, also those of older generations."""
        return self.listed[0]

    @property
    def doorbells(self) -> tuple[int, ...]:
        """The doorbell classes, also those of older generations."""
        return self.listed[1]

    @property
    def bar1_bytes(self) -> int:
        """BAR1 where it is resizable: it reaches all video memory, as on boards of this kind (nvidia-smi)."""
        return 2 * self.vram_bytes

    @property
    def runlist_doorbell(self) -> bool:
        """Whether a doorbell has no effect without RUNLIST_DOORBELL in the token (kernel_fifo_gb202.c)."""
        return self.generation.compute == _GB20X

    @property
    def space_bits(self) -> int:
        """The limit of an address space of the resource manager, which may exceed UVM's."""
        return 57 if self.wide else 49


SMS_PER_TPC: Final = 2
MAX_WARPS_PER_SM: Final = 64
"""The reply to the query of that name, for all GPUs; `Profile.limits` has what kernels can use."""

_EVERYWHERE: Final = tuple(int(one) for one in RmClass)
"""Classes that every GPU has."""

_GB20X = 0xCEC0
"""The compute class of GB20x."""
_AMPERE = (0xC56F, 0xC46F, 0xC36F), (0xC561, 0xC461, 0xC361)
_HOPPER = (0xC86F, *_AMPERE[0]), (0xC661, *_AMPERE[1])
_GB100 = (0xC96F, *_HOPPER[0]), _HOPPER[1]
_BLACKWELL = (0xCA6F, *_GB100[0]), (0xC761, *_HOPPER[1])
"""Channel classes and doorbell classes of a GPU, the newest first.

Source: open-gpu-kernel-modules 570.211.01, 580.142 and 595.45.04, g_gpu_class_list.c (alike in all three).
"""

_A100 = "NVIDIA A100 Tensor Core GPU Architecture, white paper, tables 1 and 4; A100 data sheet (80 GB SXM)"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture, white paper, table 3 (SXM5)"
_HOPPER_VECTOR: Final = {"f64": 33.5, "f32": 66.9, "f16": 133.8, "bf16": 133.8}
_HOPPER_MATRIX: Final = {
    "f64": 66.9, "tf32": 494.7, "f16": 989.4, "bf16": 989.4, "e4m3": 1978.9, "e5m2": 1978.9, "s8": 1978.9,
    "u8": 1978.9,
}  # fmt: skip


def _limits(warps: int, groups: int, shared_kib: int) -> MultiprocessorLimits:
    """Return the limits of one SM, from the CUDA C programming guide; docs/counters.md names the tables.

    The parameters are the most warps and workgroups, and the size of shared memory in KiB.
    """
    return MultiprocessorLimits(
        warps=warps, groups=groups, parts=4, registers=65536 // 4 // 32, granule=8, shared=shared_kib << 10,
        shared_granule=128, reserved=1024,
    )  # fmt: skip


PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        row.name: row
        for row in (
            Profile(
                name="sm_80", listed=_AMPERE, generation=GENERATIONS[0xC6C0], gpu_name="Emulated A100",
                device_id=0x20B2,
                vram_bytes=16 * GIB, tpcs_per_gpc=8, tpc_masks=(0xFF, 0xFE, 0xFF, 0, 0xFF, 0xDF, 0xFF, 0xFF),
                copy_engines=5, graphics_copy_engines=2, va_bits=47, context_bytes=0x1_2340_00,
                assembler_arch="sm_80",
                limits=_limits(64, 32, 164),
                boards=(
                    Board(
                        name="A100", parts=108, clock_mhz=1410, bandwidth=2039, source=_A100,
                        vector={"f64": 9.7, "f32": 19.5, "f16": 78, "bf16": 39},
                        matrix={"f64": 19.5, "tf32": 156, "f16": 312, "bf16": 312, "s8": 624, "u8": 624,
                            "s4": 1248, "u4":
                        1248},
                    ),
                ),
            ),
            Profile(
                name="sm_86", listed=_AMPERE, generation=GENERATIONS[0xC7C0], gpu_name="Emulated RTX 3090",
                device_id=0x2204,
                vram_bytes=16 * GIB, tpcs_per_gpc=6, tpc_masks=(0x3F, 0x3F, 0x2F, 0x3F, 0x3F, 0x3F, 0x3F),
                copy_engines=5, graphics_copy_engines=2, va_bits=47, context_bytes=0x1_2340_00,
                assembler_arch="sm_86",
                limits=_limits(48, 16, 100),
                boards=(
                    Board(
                        name="RTX 3090", parts=82, clock_mhz=1695, bandwidth=936,
                        vector={"f64": 0.556, "f32": 35.6, "f16": 35.6, "bf16": 35.6},
                        matrix={"tf32": 35.6, "f16": 71, "bf16": 71, "s8": 284, "u8": 284, "s4": 568,
                            "u4": 568},
                        source="NVIDIA Ampere GA102 GPU Architecture, white paper, appendix A",
                    ),
                ),
            ),
            Profile(
                name="sm_89", listed=_AMPERE, generation=GENERATIONS[0xC9C0], gpu_name="Emulated RTX 4090",
                device_id=0x2684,
                vram_bytes=16 * GIB, tpcs_per_gpc=6, tpc_masks=(0x3F, 0x3D, 0x3F, 0x3F, 0x3F, 0x1F, 0x3F, 0,
                0x3F, 0x3F, 0x3F, 0x3F), copy_engines=5, graphics_copy_engines=2, va_bits=47,
                context_bytes=0x1_2340_00, assembler_arch="sm_89",
                limits=_limits(48, 24, 100),
                boards=(
                    Board(
                        name="RTX 4090", parts=128, clock_mhz=2520, bandwidth=1008,
                        vector={"f64": 1.29, "f32": 82.6, "f16": 82.6, "bf16": 82.6},
                        matrix={
                            "tf32": 82.6, "f16": 165.2, "bf16": 165.2, "e4m3": 330.3, "e5m2": 330.3,
                            "s8": 660.6, "u8": 660.6,
                            "s4": 1321.2, "u4": 1321.2,
                        },
                        source="NVIDIA Ada GPU Architecture, white paper, appendix A",
                    ),
                ),
            ),
            Profile(
                name="sm_90", listed=_HOPPER, generation=GENERATIONS[0xCBC0], gpu_name="Emulated H200",
                device_id=0x2335,
                vram_bytes=16 * GIB, tpcs_per_gpc=9, tpc_masks=(0x1FE, 0x1FB, 0x1FF, 0x1EF, 0x1FD, 0x1BF,
                0x0FF, 0x1FF), copy_engines=6, graphics_copy_engines=2, va_bits=56, context_bytes=0x2_3450_00,
                assembler_arch="sm_90a",
                limits=_limits(64, 32, 228),
                boards=(
                    Board(
                        name="H100", parts=132, clock_mhz=1980, bandwidth=3350, vector=_HOPPER_VECTOR,
                        matrix=_HOPPER_MATRIX, source=_H100 + "; H100 data sheet",
                    ),
                    Board(
                        name="H200", parts=132, clock_mhz=1980, bandwidth=4800, vector=_HOPPER_VECTOR,
                        matrix=_HOPPER_MATRIX, source=_H100 + "; NVIDIA H200 data sheet",
                    ),
                ),
            ),
            Profile(  # 8 GPCs of 10 TPCs: NVIDIA, "Inside NVIDIA Blackwell Ultra" (developer blog)
                name="sm_100", listed=_GB100, generation=GENERATIONS[0xCDC0], gpu_name="Emulated B200",
                device_id=0x2901,
                vram_bytes=16 * GIB, tpcs_per_gpc=10, tpc_masks=(0x3FF, 0x3FE, 0x3DF, 0x3FF, 0x1FF, 0x3FB,
                0x37F, 0x3EF), copy_engines=6, graphics_copy_engines=2, va_bits=56, context_bytes=0x2_3450_00,
                assembler_arch="sm_100a",
                limits=_limits(64, 32, 228),
                boards=(
                    Board(
                        name="B200", parts=148, clock_mhz=1980, bandwidth=7700,
                        vector={"f64": 37, "f32": 75},
                        matrix={
                            "tf32": 1100, "f16": 2250, "bf16": 2250, "e4m3": 4500, "e5m2": 4500, "s8": 4500,
                            "u8": 4500,
                        },
                        source="NVIDIA Blackwell data sheet, HGX B200",
                    ),
                ),
            ),
            Profile(
                name="sm_120", listed=_BLACKWELL, generation=GENERATIONS[0xCEC0],
                gpu_name="Emulated RTX 5090", device_id=0x2B85,
                vram_bytes=16 * GIB, tpcs_per_gpc=8, tpc_masks=(0xFF, 0xFF, 0xFD, 0xFF, 0, 0xFF, 0xBF, 0xFF,
                0xFF, 0xFE, 0xFF, 0xFF), copy_engines=4, graphics_copy_engines=1, va_bits=56,
                context_bytes=0x2_3450_00, assembler_arch="sm_120a",
                limits=_limits(48, 24, 100),
                boards=(
                    Board(
                        name="RTX 5090", parts=170, clock_mhz=2407, bandwidth=1792,
                        vector={"f64": 1.64, "f32": 104.8, "f16": 104.8, "bf16": 104.8},
                        matrix={
                            "tf32": 104.8, "f16": 209.5, "bf16": 209.5, "e4m3": 419, "e5m2": 419, "s8": 838,
                            "u8": 838,
                        },
                        source="NVIDIA RTX Blackwell GPU Architecture, white paper, appendix A",
                    ),
                ),
            ),
        )
    }
)  # fmt: skip
"""Name -> GPU."""

_NVLINKED: Final = frozenset({"sm_80", "sm_90", "sm_100"})
"""The profiles whose boards are SXM modules, which NVLink joins (the white papers of A100, H100 and B200)."""

VERSIONS: Final[Mapping[str, tuple[int, str]]] = MappingProxyType(
    {
        "570": (570, "570.211.01"),
        "580": (580, "580.159.03"),
        "590": (590, "590.48.01"),
        "595": (595, "595.45.04"),
    }
)
"""Valid value of `driver` -> branch and version string."""

SANDBOX_ESCAPES: Final = frozenset(
    {
        Escape.NV_ESC_CARD_INFO,
        Escape.NV_ESC_CHECK_VERSION_STR,
        Escape.NV_ESC_REGISTER_FD,
        Escape.NV_ESC_SYS_PARAMS,
        Escape.NV_ESC_ATTACH_GPUS_TO_FD,
        Escape.NV_ESC_ALLOC_OS_EVENT,
        Escape.NV_ESC_FREE_OS_EVENT,
        Escape.NV_ESC_RM_ALLOC_MEMORY,
        Escape.NV_ESC_RM_ALLOC,
        Escape.NV_ESC_RM_FREE,
        Escape.NV_ESC_RM_CONTROL,
        Escape.NV_ESC_RM_DUP_OBJECT,
        Escape.NV_ESC_RM_SHARE,
        Escape.NV_ESC_RM_VID_HEAP_CONTROL,
        Escape.NV_ESC_RM_MAP_MEMORY,
        Escape.NV_ESC_RM_UNMAP_MEMORY,
        Escape.NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO,
        Escape.NV_ESC_WAIT_OPEN_COMPLETE,
    }
)
"""Frontend ioctls that the sandbox allows (nv.md 7.2); all others are EINVAL."""

SANDBOX_REFUSES_CLASSES: Final = frozenset({int(RmClass.NV01_MEMORY_VIRTUAL), 0xC561, 0xC361, 0xC36F})
"""Classes that the sandbox refuses although the device has them (nv.md 7.2)."""

SANDBOX_REFUSES_CONTROLS: Final = frozenset(
    {
        Control.NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2,
        Control.NV2080_CTRL_CMD_FB_FLUSH_GPU_CACHE,
        Control.NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO,
        Control.NV906F_CTRL_GET_MMU_FAULT_INFO,
    }
)
"""Controls for which the sandbox returns NOT_SUPPORTED (nv.md 7.2)."""

SANDBOX_REFUSES_UVM: Final = frozenset({UvmCommand.UVM_MAP_EXTERNAL_SPARSE})
"""UVM commands that are EINVAL in the sandbox (nv.md 7.2)."""


def find_profile(name: str) -> Profile:
    """Return the emulated GPU of that name.

    Raises `UnsupportedError`, which lists the names, if it is unknown.
    """
    if name not in PROFILES:
        raise UnsupportedError(f"there is no emulated GPU {name!r}; there are: {', '.join(PROFILES)}")
    return PROFILES[name]


def link_of(names: Sequence[str], *, pcie: bool) -> Link:
    """Return how GPUs of these profiles reach each other in one machine: over PCIe, or NVLink if all have it.

    `pcie`: over PCIe, even if all have NVLink.
    """
    one = not pcie and len(set(names)) == 1 and names[0] in _NVLINKED
    return Link.NVLINK if one else Link.PCIE


def find_version(driver: str) -> tuple[int, str]:
    """Return branch and version string of an emulated kernel driver; `driver` is a key of `VERSIONS`.

    Raises `UnsupportedError`, which lists the keys, if it is unknown.
    """
    if driver not in VERSIONS:
        raise UnsupportedError(f"there is no emulated driver {driver!r}; there are: {', '.join(VERSIONS)}")
    return VERSIONS[driver]
