"""Variants that are expected to fail, with the reason: such a failure is marked as expected in the report.

Not here: the values (`drivers.amd.quirks`). Next: `tools.bringup.vendor`, which reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPECTED: Final[Mapping[str, str]] = {
    "acquire=order": "a kernel may read stale cache lines of what an earlier kernel of the queue stored",
    "copy_stamp=direct": "timestamps are aligned to 8 bytes by the header, to 32 by the checks of runtimes",
    "fence_mtype=false": "the store may stay in a cache unless the page is uncached",
    "priv=never": "context save of gfx1100 to gfx1103 needs it; only a preempted wave fails without it",
}
"""Text of a value ("name=value") -> why it may fail on a GPU where the default works."""
