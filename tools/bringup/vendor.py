"""The interface between the ladder and a vendor: rungs, uncertain values, kernels, evidence.

Not here: the vendors' own values. Next: `tools.bringup.nv.table`, `tools.bringup.amd.table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from drivers.kernel import Kernel
    from drivers.kernel_trace import TracedCall
    from tools.bringup.rung import Rung

Q = TypeVar("Q")
"""The vendor's `Quirks`: a dataclass with a field for each uncertain value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of a bench in a child process."""

    index: int
    """Index of the GPU."""
    dry: bool
    """Whether it runs few rounds on an emulated GPU, without comparing results."""
    emulate: str | None
    """Variant of the emulated GPU, "" for the default one, None for no emulation."""
    kernels: Path | None
    """Folder of prepared kernels."""
    boost: bool
    """Whether the highest clocks may be requested."""


class KernelMaker(Protocol):
    """Makes a rung's interface to the operating system's kernel."""

    def __call__(self, *, emulate: str | None) -> Kernel:
        """Return Linux for None, else an emulated GPU; raises `UsageError` for an unknown variant."""
        ...


class AnyBench(Protocol):
    """The part of a vendor's bench that the ladder uses."""

    stack: contextlib.ExitStack


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor(Generic[Q]):
    """One vendor. Devices are named NAME:N, emulated ones NAME-emu:VARIANT."""

    name: str
    rungs: Sequence[Rung]
    """In the order of execution."""
    alternatives: Mapping[str, tuple[object, ...]]
    """Name of an uncertain value -> its possible values, the default first."""
    expected: Mapping[str, str]
    """Text of a value ("name=value") -> why it may fail where the default works."""
    parse: Callable[[str], Q]
    describe: Callable[[Q], str]
    changes: Callable[[Q, Q], dict[str, Any]]
    """Fields in which the first setting differs from the second, with the values of the first."""
    presets: Callable[[Mapping[str, Any]], Iterable[tuple[str, Mapping[str, object]]]]
    """Facts of the rungs so far -> names and values of the sets that are known to work together."""
    held: Callable[[int], tuple[str, ...]]
    """Index of a GPU -> device nodes that stay open while the rungs run."""
    log_words: tuple[str, ...]
    """Lower-case words that mark the vendor's lines in the kernel's log."""
    check_variant: Callable[[str], object]
    """Raises `UsageError` for an unknown emulated GPU."""
    make_kernel: KernelMaker
    quirks: Mapping[str, str]
    """Uncertain value whose default an emulated GPU can refuse -> the variant of the GPU that shows it."""
    bench: Callable[[Kernel, Q, BenchOptions], AnyBench]
    line: Callable[[TracedCall], str]
    """Formats a kernel call."""
    memory: Callable[[Any], dict[str, str]]
    """Returns the contents of the rings of a bench; it never raises."""
    prepare: Callable[[Path], list[Path]]
    """Builds the kernels of the ladder into a folder and returns the files."""

    def reasons(self, choices: Q, start: Q) -> str:
        """Return why the difference between two settings may fail, or "" if no reason is known."""
        texts = [f"{name}={str(value).lower()}" for name, value in self.changes(choices, start).items()]
        return "; ".join(self.expected[text] for text in texts if text in self.expected)
