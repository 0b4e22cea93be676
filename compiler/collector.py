"""Pause Python's garbage collector while graphs are made.

Nodes of graphs, schedules and programs form no cycles, and a full pass over them takes longer than making
them.

Next: `compiler.schedule.scheduler` and `frontend.evaluation.plan`, which pause it.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paused() -> Iterator[None]:
    """Keep the collector off in a block or, as a decorator, in a function; leave it as it was before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
