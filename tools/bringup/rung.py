"""A rung, one step of a ladder, and the result of running it in a child.

Every vendor's ladder has the same numbers for what the shared part must know: opening the nodes, the first
kernel, the fault on purpose. Not here: their order (`ladder`), what each tests (`tools.bringup.nv`, `amd`).
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
    """Takes the vendor's bench."""
    doubts: tuple[str, ...] = ()
    """Fields of `Quirks` whose other values are tried here."""
    needs: tuple[int, ...] = ()
    """Rungs without which this one cannot pass."""
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
    """What lay in rings and semaphores when it failed."""
    tried: bool = True
    """False: left out; the reason is in `error`."""
    hung: bool = False
    """No result within its limit."""
    offered: bool = True
    """False: this GPU or its driver does not have what was chosen."""
    expected: str = ""
    """Why a variant was expected to fail, where that is known."""
    variant: str = ""
    """What is tried beside the values in use: "preset hopper-launch", "one other value", ...; else empty."""
