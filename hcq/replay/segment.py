"""Segments: the units of a graph that an Executable submits.

Next: `hcq.graph`, which cuts a graph into segments; `executable`, which submits them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.commands import Command
from hcq.queue import Queue


@dataclass(slots=True)
class Segment:
    """Commands that one queue runs without waiting for another queue in between."""

    queue: Queue
    index: int
    """Index of the segment in its graph."""
    label: str = ""
    commands: list[Command] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """Indices of segments in other queues that must be complete before."""
