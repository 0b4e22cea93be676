"""Presets: sets of doubtful values with which a public driver has launched kernels, and its GPUs.

Other drivers differ from the defaults here in several values at once, so trying one or two changed values is
not enough. The bring-up ladder tries presets when a rung fails, then restores as many defaults as it can
(`tools.bringup.ladder`). A device is opened with a preset as "nv:hopper-launch". `docs/sources.md` grades the
evidence for each.

Not here: the single values (`quirks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from drivers.nv.layouts.compute import PcasAction
from drivers.nv.layouts.qmd import GROUP_ID_NVK, GROUP_ID_TINYGRAD

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A set of values that worked together."""

    values: Mapping[str, Any]
    """Field of `Quirks` -> value; other fields are not changed."""
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
