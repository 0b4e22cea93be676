"""Variants that are expected to fail, with the reason: such a failure is marked as expected in the report.

Not here: the values (`drivers.nv.quirks`). Next: `tools.bringup.vendor`, which reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED: Final[Mapping[str, str]] = {
    "qmd_type=0": "0 is a queue in the header, not a grid; no public launch on Hopper is known",
    "cluster_type=2": "a descriptor of type GRID_CTA has no clusters by its name",
    "full_descriptor=false": "no cache is invalidated: a launch may read stale data",
    "vaspace=rm": "sandboxes filter NV_ESC_RM_MAP_MEMORY_DMA and the class 0x70",
    "doorbell_class=c561": "sandboxes do not list the class",
    "doorbell_class=c361": "sandboxes do not list the class",
    "context_window=64": "the context buffers of an H100 are estimated at 100 to 110 MiB",
    "windows=high": "no public driver places both windows above all memory on this GPU",
}
"""Text of a value ("name=value") -> why it may fail on a GPU where the default works."""
