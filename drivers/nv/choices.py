"""The doubtful values: what public sources do not settle, each with what some working driver uses.

A device is opened with one `Choices`; the bring-up ladder tries the others in turn and says which work. A
row of nv.md 9 stands behind each field.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.qmd import GROUP_ID_NVK, GROUP_ID_TINYGRAD, TYPE_GRID_CTA
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """One setting of every doubtful value; the defaults are what most evidence speaks for."""

    stack: Literal["high", "low"] = "high"
    """Local memory: "high" is the top of the window with a fixed stack pointer, "low" counts from 0."""
    all_sms: bool = True
    """Local memory's MAX_SM_COUNT: 0xff, or the number of TPCs."""
    qmd_type: int = TYPE_GRID_CTA
    """QMD_TYPE of V04: GRID_CTA, or 0 as NVK leaves it."""
    group_id: int | None = None
    """QMD_GROUP_ID; none is what is known to launch with the descriptor's version."""
    sampler_via_header: bool = False
    """SAMPLER_INDEX by header, or apart from it, as the launches known on Hopper say."""
    full_descriptor: bool = True
    """Descriptors say more than Hopper's one known launch did: invalidations, membar, prefetch of code."""
    carveout: Literal["wanted", "least", "none"] = "wanted"
    """The target carve-out holds all groups that an SM can run, or one; or nothing is said of carve-outs, nor
    of shared memory where a kernel has none of its own: so was Hopper's one known launch."""
    pcas: PcasAction = PcasAction.INVALIDATE_PREFETCH_COPY_SCHEDULE
    """How a descriptor is launched; the others leave its cached copy or its prefetch alone."""
    doorbell_bar1: bool = True
    """The doorbell page through BAR1, or BAR0."""
    notifier: bool = True
    """Channels name an error notifier, or none."""
    pitch_kind: bool = True
    """Memory is allocated with format 6, or 0."""
    persistent_vidmem: bool = True
    """Video memory is allocated with PERSISTENT_VIDMEM."""
    huge_pages: bool = True
    """Large video memory asks for 2 MiB pages, or leaves the page size to the driver."""
    system_cached: bool = True
    """System memory of the resource manager is cached, or left to the driver."""
    register_copy_channels: bool = True
    """UVM is told of copy channels as well."""
    context_share: bool = True
    """Compute channels use a context share, or the group's own address space."""
    object_buffer: bool = False
    """Channels name the ring memory in hObjectBuffer, or nothing."""
    graphics_copy: bool = True
    """Compute channels carry a copy object as well."""
    vaspace_faulting: bool = False
    """The address space asks for ENABLE_PAGE_FAULTING as well."""
    host_memory: Literal["pages", "system"] = "pages"
    """Host memory is pages of this process, or system memory of the resource manager."""
    push_in_vram: bool = False
    """Push buffers lie in video memory, or in host memory."""
    arguments_in_vram: bool = False
    """Coherent host memory, arguments above all, is video memory that the CPU maps."""
    plausible: bool = True
    """What the GPU says of itself is refused when no supported GPU can be so (`plausible`)."""
    qmd_version_method: bool = False
    """SET_QMD_VERSION and SET_SPA_VERSION are sent at the start."""


DEFAULT: Final = Choices()

ALTERNATIVES: Final[Mapping[str, tuple[object, ...]]] = {
    "stack": ("high", "low"),
    "all_sms": (True, False),
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
    "doorbell_bar1": (True, False),
    "notifier": (True, False),
    "pitch_kind": (True, False),
    "persistent_vidmem": (True, False),
    "huge_pages": (True, False),
    "system_cached": (True, False),
    "register_copy_channels": (True, False),
    "context_share": (True, False),
    "object_buffer": (False, True),
    "graphics_copy": (True, False),
    "vaspace_faulting": (False, True),
    "host_memory": ("pages", "system"),
    "push_in_vram": (False, True),
    "arguments_in_vram": (False, True),
    "plausible": (True, False),
    "qmd_version_method": (False, True),
}
"""Field -> its values, the default first."""


def parse(text: str) -> Choices:
    """Return the choices that "stack=low+group_id=63" names; `describe` writes what this reads."""
    if text == describe(DEFAULT):
        return DEFAULT
    values: dict[str, Any] = {}
    for part in text.replace(", ", "+").split("+"):
        name, _, given = part.partition("=")
        fitting = [value for value in ALTERNATIVES.get(name, ()) if _text(value) == given.lower()]
        if not fitting:
            known = "; ".join(f"{n}={'|'.join(map(_text, v))}" for n, v in ALTERNATIVES.items())
            raise UsageError(f"{part!r} is no choice of the NVIDIA driver; there are: {known}")
        values[name] = fitting[0]
    return Choices(**values)


def _text(value: object) -> str:
    if isinstance(value, bool | None):
        return str(value).lower()
    return str(int(value)) if isinstance(value, int) else str(value)


def describe(choices: Choices) -> str:
    """Return the settings that are not the default, or "default"."""
    changed = [
        f"{field.name}={_text(getattr(choices, field.name))}"
        for field in fields(Choices)
        if getattr(choices, field.name) != getattr(DEFAULT, field.name)
    ]
    return "+".join(changed) or "default"
