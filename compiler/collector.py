"""Pause Python's garbage collector while graphs are made.

Nodes of graphs, schedules and programs form no cycles, and a full collection over them takes longer than
making them.

Not here: nodes that are dropped (`compiler.ir.uop.trim_table`). Next: `compiler.schedule.scheduler` and
`frontend.evaluation.plan`, which pause the collector.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off in a block or, as a decorator, in a function; then restore its state."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
