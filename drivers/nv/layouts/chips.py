"""The table of GPUs: a row for each generation, with a row for each of its chips.

A device's classes are chosen from its class list, the newest of each kind first. The row of a generation
holds the classes that work together; the row of a chip holds the facts of its compute capability.

Not here: the queries of a GPU (`drivers.nv.topology`). Next: docs/how-to/add-a-chip.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.cubin import Bank0Sm80, Bank0Sm90, Bank0Sm100
from hcq.layout import Struct

SOURCE = "open-gpu-kernel-modules 570.86.15 to 595.45.04, g_gpu_class_list.c (nv.md 2.1)"

GPFIFO_CLASSES: Final = (0xCA6F, 0xC96F, 0xC86F, 0xC56F)
"""Channel classes, the newest first."""
USERMODE_CLASSES: Final = (0xC761, 0xC661, 0xC461, 0xC561, 0xC361)
"""Doorbell classes in order of preference: c461 precedes c561 and c361, which sandboxes do not list (nv.md
7.2)."""
WIDE_CHANNEL: Final = 0xC86F
"""The first channel class whose host semaphores have addresses of 57 bits and not 40 (clc56f.h, clc86f.h)."""
SILENT_CHANNEL: Final = 0xC96F
"""The first channel class whose user area has no get index (nv.md 2.4)."""
USERMODE_WITH_PARAMS: Final = 0xC661
"""The first doorbell class with allocation parameters; older classes have none."""
COMPUTE_CLASSES: Final = (0xCEC0, 0xCDC0, 0xCBC0, 0xC9C0, 0xC7C0, 0xC6C0)
COMPUTE_LOW_BYTE: Final = 0xC0
"""The low byte of the number of every compute class."""
COPY_CLASSES: Final = (0xCAB5, 0xC9B5, 0xC8B5, 0xC7B5, 0xC6B5)

_KIB_100: Final = (0, 8, 16, 32, 64, 100)
_KIB_164: Final = (*_KIB_100, 132, 164)
_KIB_228: Final = (*_KIB_164, 196, 228)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvChip:
    """The facts that follow from a compute capability, and hold for later members of its family."""

    sm: int
    """The number of the architecture, such as 90."""
    sm_versions: tuple[int, ...]
    """The values of GR SM_VERSION that this chip reports (ctrl2080gr.h)."""
    suffix: str = ""
    """Appended to the architecture's name, it gives the compile target with the full instruction set."""
    bank0: type[Struct]
    """The driver's words of constant bank 0; a kernel's parameters start at its SIZE."""
    carveouts_kib: tuple[int, ...]
    """Shared-memory carve-outs of an SM, in KiB (nv.md 4.2)."""
    groups: int
    """The most workgroups that an SM runs at once (CUDA C programming guide, compute capabilities)."""
    cluster: int = 0
    """The largest number of workgroups of a cluster that every GPU of this chip can place: the portable size
    of the CUDA C++ programming guide; 0: no clusters."""

    @property
    def name(self) -> str:
        """The architecture without suffix: "sm_90"."""
        return f"sm_{self.sm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The facts that follow from a compute class."""

    name: str
    compute: int
    """Compute class."""
    gpfifo: tuple[int, ...]
    """Channel classes that work with it."""
    usermode: tuple[int, ...]
    """Doorbell classes that work with it."""
    copy: tuple[int, ...]
    """Copy classes that work with it."""
    qmd: str
    """Version of the launch descriptor (`qmd.QMDS`)."""
    architecture: int
    """Architecture in the reply of NV2080_CTRL_CMD_MC_GET_ARCH_INFO."""
    sm_version: int
    """GR SM_VERSION of the first chip."""
    reports_get: bool
    """Whether the user area of its newest channel class has the get index (nv.md 2.4)."""
    wide_addresses: bool
    """Whether host and engine methods have addresses of 57 bits (Hopper and later)."""
    window_bits: int
    """Context-buffer windows must lie below 2 to this power (nv.md 2.5)."""
    chips: tuple[NvChip, ...]

    def chip(self, sm_version: int) -> NvChip:
        """Return the chip with a GR SM_VERSION; the first chip for a version without a row.

        A version without a row is a later member of the first chip's family.
        """
        return next((chip for chip in self.chips if sm_version in chip.sm_versions), self.chips[0])


# fmt: off
GENERATIONS: Final[Mapping[int, Generation]] = MappingProxyType(
    {
        row.compute: row
        for row in (
            Generation(
                name="Ampere GA100", compute=0xC6C0, gpfifo=(0xC56F,), usermode=(0xC461, 0xC561),
                copy=(0xC6B5,),
                qmd="V03", architecture=0x170, sm_version=0x802, reports_get=True,
                wide_addresses=False, window_bits=40,
                chips=(
                    # 8.2 is GA100, which runs code for 8.0
                    NvChip(sm=80, sm_versions=(0x802,), bank0=Bank0Sm80, carveouts_kib=_KIB_164, groups=32),
                ),
            ),
            Generation(
                name="Ampere GA10x", compute=0xC7C0, gpfifo=(0xC56F,), usermode=(0xC461, 0xC561),
                copy=(0xC7B5, 0xC6B5), qmd="V03", architecture=0x170, sm_version=0x806, reports_get=True,
                wide_addresses=False, window_bits=40,
                chips=(
                    NvChip(sm=86, sm_versions=(0x806,), bank0=Bank0Sm80, carveouts_kib=_KIB_100, groups=16),
                    NvChip(sm=87, sm_versions=(0x807,), bank0=Bank0Sm80, carveouts_kib=_KIB_164, groups=16),
                ),
            ),
            Generation(
                name="Ada AD10x", compute=0xC9C0, gpfifo=(0xC56F,), usermode=(0xC461, 0xC561), copy=(0xC7B5,),
                qmd="V03", architecture=0x190, sm_version=0x809, reports_get=True,
                wide_addresses=False, window_bits=40,
                chips=(
                    NvChip(sm=89, sm_versions=(0x809,), bank0=Bank0Sm80, carveouts_kib=_KIB_100, groups=24),
                ),
            ),
            Generation(
                name="Hopper GH100", compute=0xCBC0, gpfifo=(0xC86F, 0xC56F),
                usermode=(0xC661, 0xC461, 0xC561, 0xC361), copy=(0xC8B5,), qmd="V04",
                architecture=0x180, sm_version=0x900, reports_get=True, wide_addresses=True, window_bits=57,
                chips=(
                    NvChip(
                        sm=90, sm_versions=(0x900,), suffix="a", bank0=Bank0Sm90, carveouts_kib=_KIB_228,
                        groups=32, cluster=8,
                    ),
                ),
            ),
            Generation(
                name="Blackwell GB100", compute=0xCDC0, gpfifo=(0xC96F,), usermode=(0xC661,), copy=(0xC9B5,),
                qmd="V05", architecture=0x1A0, sm_version=0xA00, reports_get=False,
                wide_addresses=True, window_bits=57,
                chips=(
                    NvChip(
                        sm=100, sm_versions=(0xA00,), suffix="a", bank0=Bank0Sm100, carveouts_kib=_KIB_228,
                        groups=32, cluster=8,
                    ),
                ),
            ),
            Generation(
                name="Blackwell GB20x", compute=0xCEC0, gpfifo=(0xCA6F, 0xC96F, 0xC86F, 0xC56F),
                usermode=(0xC761, 0xC661, 0xC561, 0xC461, 0xC361), copy=(0xCAB5,), qmd="V05",
                architecture=0x1B0, sm_version=0xC00, reports_get=False,
                wide_addresses=True, window_bits=57,
                chips=(
                    # 12.0 is 10.4 on some branches
                    NvChip(
                        sm=120, sm_versions=(0xC00, 0xA04), suffix="a", bank0=Bank0Sm100,
                        carveouts_kib=_KIB_100, groups=24, cluster=8,
                    ),
                ),
            ),
        )
    }
)
"""Compute class -> generation."""

CHIPS: Final[Mapping[str, NvChip]] = MappingProxyType(
    {chip.name: chip for row in GENERATIONS.values() for chip in row.chips}
)
"""Architecture without suffix -> chip."""
_NUMBERS: Final = {version: chip.sm for chip in CHIPS.values() for version in chip.sm_versions}


def sm_number(sm_version: int) -> int:
    """Return the number of the architecture for GR SM_VERSION: 0x900 -> 90, 0x802 -> 80."""
    return _NUMBERS.get(sm_version, 10 * (sm_version >> 8) + (sm_version & 0xFF))


UNSUPPORTED_COMPUTE: Final[Mapping[int, str]] = MappingProxyType({0xC5C0: "Turing"})
"""Unsupported compute classes -> name, for the error message."""

CLASS_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        0xC46F: "TURING_CHANNEL_GPFIFO_A", 0xC56F: "AMPERE_CHANNEL_GPFIFO_A",
        0xC86F: "HOPPER_CHANNEL_GPFIFO_A",
        0xC96F: "BLACKWELL_CHANNEL_GPFIFO_A", 0xCA6F: "BLACKWELL_CHANNEL_GPFIFO_B",
        0xC361: "VOLTA_USERMODE_A",
        0xC461: "TURING_USERMODE_A", 0xC561: "AMPERE_USERMODE_A", 0xC661: "HOPPER_USERMODE_A",
        0xC761: "BLACKWELL_USERMODE_A",
        0xC5C0: "TURING_COMPUTE_A", 0xC6C0: "AMPERE_COMPUTE_A", 0xC7C0: "AMPERE_COMPUTE_B",
        0xC9C0: "ADA_COMPUTE_A",
        0xCBC0: "HOPPER_COMPUTE_A", 0xCDC0: "BLACKWELL_COMPUTE_A", 0xCEC0: "BLACKWELL_COMPUTE_B",
        0xC5B5: "TURING_DMA_COPY_A", 0xC6B5: "AMPERE_DMA_COPY_A", 0xC7B5: "AMPERE_DMA_COPY_B",
        0xC8B5: "HOPPER_DMA_COPY_A", 0xC9B5: "BLACKWELL_DMA_COPY_A", 0xCAB5: "BLACKWELL_DMA_COPY_B",
    }
)
"""Engine class -> name, for messages."""
