"""Quirks: settings of the driver that public sources do not settle. A working driver uses each alternative.

A device is opened with one `NvQuirks`, which selects a value for each field. The bring-up ladder tries the
other values and reports which of them work. Each field has a row in nv.md 9.

A preset is a set of values with which a public driver has launched kernels, with the GPUs on which it did.
Such drivers differ from the defaults here in several values at once, so the ladder also tries presets when a
rung fails, and then restores as many defaults as it can. "nv:hopper-launch" opens a device with a preset.
`docs/sources.md` grades the evidence for each preset.

Not here: reading and printing values (`drivers.shared.choices`), the search (`tools.bringup.ladder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.qmd import GROUP_ID_NVK, GROUP_ID_TINYGRAD, TYPE_GRID_CTA, TYPE_GRID_GPC_CGA
from drivers.shared.choices import alternatives, known, read, value_text
from hcq.names import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A set of values with which one public driver worked."""

    values: Mapping[str, Any]
    """Field of `NvQuirks` -> value; other fields are not changed."""
    computes: tuple[int, ...]
    """Compute classes of the GPUs on which it worked."""
    source: str
    """Short name in `docs/sources.md`, and the work that was run."""


_HOPPER_LAUNCH: Final[dict[str, Any]] = {
    "full_descriptor": False,
    "carveout": "none",
    "context_share": False,
    "graphics_copy": False,
}
_TINYGRAD: Final[dict[str, Any]] = {
    "pcas": PcasAction.PREFETCH_SCHEDULE,
    "group_id": GROUP_ID_TINYGRAD,
    "sampler_via_header": True,
    "windows": "high",
    "doorbell_bar1": False,
    "doorbell_owner": "device",
    "small_pages": "default",
    "context_window": 64,
    "gr_parameters": False,
    "object_buffer": True,
    "vaspace_faulting": True,
    "gp_level": "subroutine",
    "push_in_vram": True,
}

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        "hopper-launch": Preset(
            values=_HOPPER_LAUNCH,
            computes=(0xCBC0,),
            source="LIBMC: the descriptor and channel of the one public raw launch on H100 and H200",
        ),
        "hopper-launch-rm": Preset(
            values=_HOPPER_LAUNCH
            | {
                "vaspace": "rm",
                "notifier": False,
                "ring": "system",
                "host_memory": "system",
                "system_cached": False,
                "register_copy_channels": False,
            },
            computes=(0xCBC0,),
            source="LIBMC: the same with its memory: no UVM, no notifier, rings in system memory",
        ),
        "tinygrad": Preset(
            values=_TINYGRAD,
            computes=(0xC7C0, 0xC9C0),
            source="TG on Ampere GA10x and Ada",
        ),
        "tinygrad-blackwell": Preset(
            values=_TINYGRAD | {"channel_class": "c96f", "doorbell_class": "c661"},
            computes=(0xCEC0,),
            source="TG on Blackwell GB20x",
        ),
        "nvk-rm": Preset(
            values={
                "vaspace": "rm",
                "subcontext": "sync",
                "gr_parameters": False,
                "ring": "pages",
                "small_pages": "64k",
                "group_id": GROUP_ID_NVK,
                "pcas": PcasAction.INVALIDATE_COPY_SCHEDULE,
            },
            computes=(0xCEC0,),
            source="NVKRM on an RTX 5090 under GSP: compute through Mesa",
        ),
    }
)
"""Name -> preset; the one with the fewest changes is first."""


def fitting(compute: int | None) -> list[str]:
    """Return the names of the presets that worked on GPUs with a compute class; all names for None."""
    return [name for name, preset in PRESETS.items() if compute is None or compute in preset.computes]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvQuirks:
    """A value for each setting; the defaults have the most evidence.

    The text of a bool states the meaning of True first, then that of False.
    """

    stack: Literal["high", "low"] = "high"
    """The stack in local memory: at the top of the window with a fixed stack pointer, or from offset 0."""
    all_sms: bool = True
    """MAX_SM_COUNT of local memory: 0xff, or the number of TPCs."""
    windows: Literal["low", "high"] = "low"
    """The shared and local windows lie below all memory, or above it."""
    qmd_type: int = TYPE_GRID_CTA
    """QMD_TYPE of V04: GRID_CTA, or 0 as NVK leaves it."""
    cluster_type: int = TYPE_GRID_GPC_CGA
    """QMD_TYPE of a launch in clusters: GRID_GPC_CGA, or GRID_CTA with the dimensions of the cluster set."""
    cluster_size: Literal["gpc", "both"] = "gpc"
    """The fields that hold the size of a cluster: GPC_CGA_*, or GPU_CGA_* as well."""
    cluster_spread: Literal["balanced", "multicast"] = "balanced"
    """CGA_CTA_DISTRIBUTION_MODE of a launch in clusters: LOAD_BALANCING, or MULTI_CAST."""
    group_id: int | None = None
    """QMD_GROUP_ID; None selects the value that is known to work with the descriptor's version."""
    sampler_via_header: bool = False
    """SAMPLER_INDEX is VIA_HEADER_INDEX, or INDEPENDENTLY as in the known launches on Hopper."""
    full_descriptor: bool = True
    """Descriptors set cache invalidations, a membar and code prefetch, or omit them as in Hopper's one known
    launch. Without the membar a kernel's stores may become visible after its release."""
    carveout: Literal["wanted", "least", "none"] = "wanted"
    """The target carve-out holds all workgroups that an SM can run ("wanted") or one workgroup ("least").
    "none" is "wanted" for kernels that declare shared memory; for others it leaves carve-outs and shared
    memory unset, as in Hopper's one known launch."""
    pcas: PcasAction = PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE
    """The action that launches a descriptor. The alternatives omit the prefetch, or omit invalidating the
    cached copy of the descriptor."""
    dependent_launch: Literal["prefetch", "schedule", "off"] = "prefetch"
    """How a kernel that follows one other kernel and a barrier is launched: by the other's descriptor with a
    prefetch ("prefetch") or without ("schedule"), or by the host engine after a wait for idle ("off")."""
    channel_class: Literal["newest", "c96f", "c86f", "c56f"] = "newest"
    """The class of channels: the newest that the GPU lists, or an older one that it also lists."""
    doorbell_class: Literal["newest", "c661", "c461", "c561", "c361"] = "newest"
    """The class of the doorbell page: the newest that the GPU lists, or an older one that it also lists."""
    doorbell_bar1: bool = True
    """The doorbell page is mapped through BAR1, or through BAR0."""
    doorbell_owner: Literal["subdevice", "device"] = "subdevice"
    """The object through which the doorbell page is mapped."""
    notifier: bool = True
    """Channels have an error notifier, or none."""
    pitch_kind: bool = True
    """Memory is allocated with format 6, or 0."""
    persistent_vidmem: bool = True
    """Video memory is allocated with PERSISTENT_VIDMEM."""
    huge_pages: bool = True
    """Large allocations of video memory request 2 MiB pages, or leave the page size to the kernel driver."""
    small_pages: Literal["4k", "default", "64k"] = "4k"
    """Small allocations request 4 KiB pages, leave the page size to the kernel driver, or request 64 KiB."""
    system_cached: bool = True
    """System memory of the resource manager is requested as cached, or as uncached."""
    register_copy_channels: bool = True
    """Copy channels are registered with UVM as well."""
    copy_engine: Literal["first", "second", "last"] = "first"
    """Which copy engine outside the graphics run list is used first."""
    context_share: bool = True
    """Compute channels use a context share, or the group's own address space."""
    subcontext: Literal["async", "sync"] = "async"
    """The kind of a context share."""
    context_window: Literal[256, 64, 128, 512] = 256
    """MiB of addresses for the context buffers of a compute channel."""
    gr_parameters: bool = True
    """The compute object is allocated with its parameters, or without any."""
    object_buffer: bool = False
    """Channels pass the ring memory in hObjectBuffer, or 0."""
    graphics_copy: bool = True
    """Compute channels also have a copy engine object, or not."""
    vaspace: Literal["uvm", "rm"] = "uvm"
    """The owner of the address space: UVM, or the resource manager without UVM, which sandboxes refuse."""
    vaspace_faulting: bool = False
    """The address space sets ENABLE_PAGE_FAULTING, or not."""
    ring: Literal["video", "system", "pages"] = "video"
    """Where ring entries and user area are: both in video memory; both in system memory of the resource
    manager ("system"); or the entries in pages of this process and the user area in system memory ("pages").
    """
    gp_level: Literal["main", "subroutine"] = "main"
    """LEVEL of ring entries; both values are known to work."""
    host_memory: Literal["pages", "system"] = "pages"
    """Host memory consists of pages of this process, or is system memory of the resource manager."""
    push_in_vram: bool = False
    """Push buffers are in video memory, or in host memory."""
    arguments_in_vram: bool = True
    """Kernel arguments and prebuilt words are in video memory that the CPU maps, or in host memory."""
    plausible: bool = True
    """Counts and sizes that no supported GPU has are refused (`topology`), or accepted."""
    qmd_version_method: bool = False
    """SET_QMD_VERSION and SET_SPA_VERSION are sent when a channel is set up, or not."""


DEFAULT: Final = NvQuirks()

ALTERNATIVES: Final = alternatives(
    DEFAULT,
    qmd_type=(TYPE_GRID_CTA, 0),
    cluster_type=(TYPE_GRID_GPC_CGA, TYPE_GRID_CTA),
    group_id=(None, 0, GROUP_ID_NVK, GROUP_ID_TINYGRAD),
    pcas=(
        PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
        PcasAction.INVALIDATE_COPY_SCHEDULE,
        PcasAction.PREFETCH_SCHEDULE,
    ),
)
"""Field -> its values; the default is first."""


def parse(text: str) -> NvQuirks:
    """Parse a text such as "stack=low+group_id=63"; the inverse of `describe`.

    A word without "=" names a preset ("hopper-launch", see `PRESETS`); later parts may override its values.
    Raises `UsageError`, which lists the valid names, for an unknown part.
    """
    presets = {name: preset.values for name, preset in PRESETS.items()}
    return read(text, DEFAULT, ALTERNATIVES, _unknown, presets)


def _unknown(part: str, name: str) -> str:
    """Return the message on an unknown part of a text: a wrong value, or a wrong name."""
    if name in ALTERNATIVES:
        values = ", ".join(map(value_text, ALTERNATIVES[name]))
        return f"{part!r} is not an option of the NVIDIA driver: {name} takes {values}"
    near = nearest(name, (*ALTERNATIVES, *PRESETS))
    guess = f" Did you mean {near!r}?" if near else ""
    return (
        f"{part!r} is not an option of the NVIDIA driver.{guess}\n"
        f"hint: the options are: {known(ALTERNATIVES)}; the presets are: {', '.join(PRESETS)}"
    )
