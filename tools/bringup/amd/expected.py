"""Variants that are expected to fail, with the reason: such a failure is marked as expected in the report.

Not here: the values (`drivers.amd.quirks`). Next: `tools.bringup.vendor`, the reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED: Final[Mapping[str, str]] = {
    "acquire=order": "a kernel may read what a cache held before an earlier one of the queue stored",
    "copy_stamp=direct": "the alignment of a timestamp is 8 bytes in the header, 32 in the runtimes' checks",
    "fence_mtype=false": "the store may stay in a cache where the memory type of the page is not uncached",
    "priv=never": "context save of gfx1100 to gfx1103 needs it: only a preempted wave shows its lack",
}
"""A value as it is written -> why it may fail on a GPU where the default works."""
