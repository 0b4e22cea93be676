"""The doubtful values: what public sources do not settle, each with what some working driver uses.

A device is opened with one `Quirks`, a choice for each value. The bring-up ladder tries the other values in
turn and reports which work. Each field has a row in nv.md 9. Not here: sets of values that are known to work
together (`presets`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.qmd import GROUP_ID_NVK, GROUP_ID_TINYGRAD, TYPE_GRID_CTA
from drivers.nv.presets import PRESETS
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """One setting of every doubtful value; the defaults have the most evidence."""

    stack: Literal["high", "low"] = "high"
    """Local memory: "high" is the top of the window with a fixed stack pointer, "low" counts from 0."""
    all_sms: bool = True
    """Local memory's MAX_SM_COUNT: 0xff, or the number of TPCs."""
    windows: Literal["low", "high"] = "low"
    """Shared and local window below all memory, or above it."""
    qmd_type: int = TYPE_GRID_CTA
    """QMD_TYPE of V04: GRID_CTA, or 0 as NVK leaves it."""
    group_id: int | None = None
    """QMD_GROUP_ID; none is what is known to launch with the descriptor's version."""
    sampler_via_header: bool = False
    """SAMPLER_INDEX by header, or apart from it, as in the launches known on Hopper."""
    full_descriptor: bool = True
    """Descriptors set more than Hopper's one known launch did: invalidations, membar, prefetch of code.
    Without them a store of a kernel may become visible some time after its release."""
    carveout: Literal["wanted", "least", "none"] = "wanted"
    """The target carve-out holds all groups that an SM can run, or one; or carve-outs and shared memory are
    left unset where a kernel has none of its own, as in Hopper's one known launch."""
    pcas: PcasAction = PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE
    """How a descriptor is launched; the others leave its cached copy or its prefetch alone."""
    channel_class: Literal["newest", "c96f", "c86f", "c56f"] = "newest"
    """The class of channels: the newest that the GPU lists, or an older one that it lists as well."""
    doorbell_class: Literal["newest", "c661", "c461", "c561", "c361"] = "newest"
    """The class of the doorbell page, likewise."""
    doorbell_bar1: bool = True
    """The doorbell page through BAR1, or BAR0."""
    doorbell_owner: Literal["subdevice", "device"] = "subdevice"
    """The object that the doorbell page is mapped through."""
    notifier: bool = True
    """Channels name an error notifier, or none."""
    pitch_kind: bool = True
    """Memory is allocated with format 6, or 0."""
    persistent_vidmem: bool = True
    """Video memory is allocated with PERSISTENT_VIDMEM."""
    huge_pages: bool = True
    """Large video memory requests 2 MiB pages, or leaves the page size to the driver."""
    small_pages: Literal["4k", "default", "64k"] = "4k"
    """Small video memory requests 4 KiB pages, leaves the page size to the driver, or requests 64 KiB."""
    system_cached: bool = True
    """System memory of the resource manager is cached, or left to the driver."""
    register_copy_channels: bool = True
    """Copy channels are registered with UVM as well."""
    copy_engine: Literal["first", "second", "last"] = "first"
    """Which copy engine off the graphics run list comes first."""
    context_share: bool = True
    """Compute channels use a context share, or the group's own address space."""
    subcontext: Literal["async", "sync"] = "async"
    """The kind of a context share."""
    context_window: Literal[256, 64, 128, 512] = 256
    """MiB of addresses for the context buffers of a compute channel."""
    gr_parameters: bool = True
    """The compute object is allocated with its parameters, or without any."""
    object_buffer: bool = False
    """Channels name the ring memory in hObjectBuffer, or nothing."""
    graphics_copy: bool = True
    """Compute channels carry a copy object as well."""
    vaspace: Literal["uvm", "rm"] = "uvm"
    """UVM owns the address space, or the resource manager does, without UVM; sandboxes refuse the latter."""
    vaspace_faulting: bool = False
    """The address space also sets ENABLE_PAGE_FAULTING."""
    ring: Literal["video", "system", "pages"] = "video"
    """Ring entries and user area lie in video memory or in system memory of the resource manager; or the
    entries in pages of this process and only the user area in system memory."""
    gp_level: Literal["main", "subroutine"] = "main"
    """LEVEL of ring entries: both are known to work."""
    host_memory: Literal["pages", "system"] = "pages"
    """Host memory is pages of this process, or system memory of the resource manager."""
    push_in_vram: bool = False
    """Push buffers lie in video memory, or in host memory."""
    arguments_in_vram: bool = False
    """Coherent host memory, arguments above all, is video memory that the CPU maps."""
    plausible: bool = True
    """Counts and sizes that no supported GPU has are refused (`topology`)."""
    qmd_version_method: bool = False
    """SET_QMD_VERSION and SET_SPA_VERSION are sent at the start."""


DEFAULT: Final = Quirks()

ALTERNATIVES: Final[Mapping[str, tuple[object, ...]]] = {
    "stack": ("high", "low"),
    "all_sms": (True, False),
    "windows": ("low", "high"),
    "qmd_type": (TYPE_GRID_CTA, 0),
    "group_id": (None, 0, GROUP_ID_NVK, GROUP_ID_TINYGRAD),
    "sampler_via_header": (False, True),
    "full_descriptor": (True, False),
    "carveout": ("wanted", "least", "none"),
    "pcas": (
        PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE,
        PcasAction.INVALIDATE_COPY_SCHEDULE,
        PcasAction.PREFETCH_SCHEDULE,
    ),
    "channel_class": ("newest", "c96f", "c86f", "c56f"),
    "doorbell_class": ("newest", "c661", "c461", "c561", "c361"),
    "doorbell_bar1": (True, False),
    "doorbell_owner": ("subdevice", "device"),
    "notifier": (True, False),
    "pitch_kind": (True, False),
    "persistent_vidmem": (True, False),
    "huge_pages": (True, False),
    "small_pages": ("4k", "default", "64k"),
    "system_cached": (True, False),
    "register_copy_channels": (True, False),
    "copy_engine": ("first", "second", "last"),
    "context_share": (True, False),
    "subcontext": ("async", "sync"),
    "context_window": (256, 64, 128, 512),
    "gr_parameters": (True, False),
    "object_buffer": (False, True),
    "graphics_copy": (True, False),
    "vaspace": ("uvm", "rm"),
    "vaspace_faulting": (False, True),
    "ring": ("video", "system", "pages"),
    "gp_level": ("main", "subroutine"),
    "host_memory": ("pages", "system"),
    "push_in_vram": (False, True),
    "arguments_in_vram": (False, True),
    "plausible": (True, False),
    "qmd_version_method": (False, True),
}
"""Field -> its values, the default first."""


def parse(text: str) -> Quirks:
    """Return the choices that "stack=low+group_id=63" names; `describe` writes what this reads.

    A word without "=" is a preset ("hopper-launch", see `presets`), which what follows it may change. Raises
    `UsageError` that names what is known.
    """
    if text == describe(DEFAULT):
        return DEFAULT
    values: dict[str, Any] = {}
    for part in text.replace(", ", "+").split("+"):
        name, _, given = part.partition("=")
        if part in PRESETS:
            values |= PRESETS[part].values
            continue
        fitting = [value for value in ALTERNATIVES.get(name, ()) if spelt(value) == given.lower()]
        if not fitting:
            raise UsageError(_unknown(part, name, tuple(PRESETS)))
        values[name] = fitting[0]
    return Quirks(**values)


def _unknown(part: str, name: str, presets: tuple[str, ...]) -> str:
    """Return what is wrong with a part of a text: the value of a choice, or its name."""
    if name in ALTERNATIVES:
        values = ", ".join(map(spelt, ALTERNATIVES[name]))
        return f"{part!r} is no choice of the NVIDIA driver: {name} takes {values}"
    near = get_close_matches(name, (*ALTERNATIVES, *presets), n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    known = "; ".join(f"{n}={'|'.join(map(spelt, v))}" for n, v in ALTERNATIVES.items())
    return (
        f"{part!r} is no choice of the NVIDIA driver.{guess}\n"
        f"hint: there are: {known}; and sets of them: {', '.join(presets)}"
    )


def spelt(value: object) -> str:
    """Return how a value is written."""
    if isinstance(value, bool | None):
        return str(value).lower()
    return str(int(value)) if isinstance(value, int) else str(value)


def changes(choices: Quirks, start: Quirks = DEFAULT) -> dict[str, Any]:
    """Return the fields of `choices` that differ from `start`, with their values."""
    return {
        field.name: getattr(choices, field.name)
        for field in fields(Quirks)
        if getattr(choices, field.name) != getattr(start, field.name)
    }


def describe(choices: Quirks) -> str:
    """Return the settings that are not the default, or "default"."""
    return "+".join(f"{name}={spelt(value)}" for name, value in changes(choices).items()) or "default"
