"""A rung, one step of a ladder, and the result of running it in a child process.

The shared part handles three rungs, which have the same numbers in every vendor's ladder: opening the nodes,
the first kernel, and the deliberate fault.

Not here: the test of each rung (`tools.bringup.nv`, `tools.bringup.amd`). Next: `ladder`, the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.bringup.checks import Facts

LIMIT_S: Final = 10.0
"""The time limit of most rungs, in seconds."""
NODES: Final = 1
"""The number of the rung that opens the device nodes."""
LAUNCH: Final = 18
"""The number of the rung that runs the first kernel."""
FAULT: Final = 23
"""The number of the rung that causes a fault."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    number: int
    name: str
    run: Callable[[Any], Facts]
    """The test: it takes the vendor's bench and returns facts, or raises."""
    quirks: tuple[str, ...] = ()
    """Uncertain values on which this rung depends: fields of the vendor's `Quirks`."""
    needs: tuple[int, ...] = ()
    """Numbers of the rungs that must pass before."""
    limit_s: float = LIMIT_S
    """Seconds that the rung may take, beside the start of its process."""


@dataclass
class Result:
    """The result of one child."""

    rung: int
    """The rung's number."""
    name: str
    choices: str
    """The uncertain values, in the form of --choices."""
    passed: bool
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    """What the rung returned; empty unless it passed."""
    error: str = ""
    """The error; "" if the rung passed."""
    calls: list[str] = field(default_factory=list)
    """The last kernel calls of a rung that failed, as text."""
    memory: dict[str, str] = field(default_factory=dict)
    """The contents of rings and semaphores of a rung that failed, by label."""
    tried: bool = True
    """False for a skipped rung; the reason is in `error`."""
    hung: bool = False
    """Whether there was no result within the limit."""
    offered: bool = True
    """False if the GPU or its driver does not have the chosen feature."""
    expected: str = ""
    """Why a variant was expected to fail; "" if no reason is known."""
    variant: str = ""
    """How the values differ from those in use: "preset hopper-launch", "one other value", ...; "" if not."""
