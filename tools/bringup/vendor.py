"""What the shared part of the ladder knows of a vendor: rungs, doubtful values, kernels, evidence.

Not here: the vendors' own values (`tools.bringup.nv.table`, `tools.bringup.amd.table`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from drivers.kernel import Call, Kernel
    from tools.bringup.rung import Rung

Q = TypeVar("Q")
"""The vendor's `Quirks`: one setting of every doubtful value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says of the bench of a child."""

    index: int
    dry: bool
    emulate: str | None
    kernels: Path | None
    boost: bool


class KernelMaker(Protocol):
    """Makes what a rung's calls go to."""

    def __call__(self, *, dry: bool, emulate: str | None) -> Kernel:
        """Return Linux, the scripted driver, or an emulated GPU."""
        ...


class AnyBench(Protocol):
    """What the shared part needs of a vendor's bench."""

    stack: contextlib.ExitStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor(Generic[Q]):
    """One vendor. Devices are named NAME:N, emulated ones NAME-emu:VARIANT."""

    name: str
    rungs: Sequence[Rung]
    """In the order they run."""
    alternatives: Mapping[str, tuple[object, ...]]
    """Doubtful value -> what it may be, the default first."""
    expected: Mapping[str, str]
    """A value as it is written -> why it may fail where the default works."""
    parse: Callable[[str], Q]
    describe: Callable[[Q], str]
    changes: Callable[[Q, Q], dict[str, Any]]
    """Fields in which the first differs from the second, with its values."""
    changed: Callable[[Q, Mapping[str, Any]], Q]
    presets: Callable[[Mapping[str, Any]], Iterable[tuple[str, Mapping[str, object]]]]
    """Facts of the rungs so far -> sets of values that are known to work together, by name."""
    held: Callable[[int], tuple[str, ...]]
    """Nodes of a GPU that are kept open during the climb."""
    log_words: tuple[str, ...]
    """Lower-case words of the lines of the kernel's log that concern the vendor."""
    check_variant: Callable[[str], object]
    """Raises `UsageError` for an emulated GPU that there is not."""
    make_kernel: KernelMaker
    bench: Callable[[Kernel, Q, Given], AnyBench]
    line: Callable[[Call], str]
    """A kernel call as text."""
    memory: Callable[[Any], dict[str, str]]
    """What lies in the rings of a bench; it raises for nothing."""
    prepare: Callable[[Path], list[Path]]
    """Builds the kernels of the ladder into a folder."""

    def reasons(self, choices: Q, start: Q) -> str:
        """Return why the difference between two settings may fail, or empty where nothing is known."""
        texts = [f"{name}={str(value).lower()}" for name, value in self.changes(choices, start).items()]
        return "; ".join(self.expected[text] for text in texts if text in self.expected)
