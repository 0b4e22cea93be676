"""A rung, one step of a ladder, and the result of running it in a child process.

In every vendor's ladder the rungs that the shared part handles have the same numbers: opening the nodes, the
first kernel, the deliberate fault.

Not here: the order (`ladder`), the test of each rung (`tools.bringup.nv`, `tools.bringup.amd`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.bringup.checks import Facts

LIMIT_S: Final = 10.0
NODES: Final = 1
LAUNCH: Final = 18
FAULT: Final = 23


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the ladder."""

    number: int
    name: str
    run: Callable[[Any], Facts]
    """The test: it takes the vendor's bench and returns facts, or raises."""
    doubts: tuple[str, ...] = ()
    """Fields of the vendor's `Quirks` whose other values are tried at this rung."""
    needs: tuple[int, ...] = ()
    """Numbers of the rungs that must pass before."""
    limit_s: float = LIMIT_S


@dataclass
class Result:
    """The result of one child."""

    rung: int
    name: str
    choices: str
    passed: bool
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    calls: list[str] = field(default_factory=list)
    memory: dict[str, str] = field(default_factory=dict)
    """The contents of rings and semaphores when it failed."""
    tried: bool = True
    """False for a skipped rung; the reason is in `error`."""
    hung: bool = False
    """Whether there was no result within the limit."""
    offered: bool = True
    """False if the GPU or its driver does not have the chosen feature."""
    expected: str = ""
    """Why a variant was expected to fail, if known; else empty."""
    variant: str = ""
    """How the values differ from those in use: "preset hopper-launch", "one other value", ...; else empty."""
