"""A machine with emulated AMD GPUs: `open_machine("gfx1100")` returns its kernel.

`Variant` is what "amd-emu:VARIANT" names; `Machines` opens it, and says which opens share a machine.

Not here: the kernel driver's calls (`emulator.amd.kfd`), the command processors (`emulator.amd.engines`).
Next: `kernel`, the operating system's interface; `machine`, the state; `doorbells`, the registers of the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from emulator.shared.machines import OpenMachines
from hcq.config import config
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emulator.amd.machine.kernel import AmdKernel
    from emulator.amd.machine.runs import Engines
    from emulator.shared.surprises import Rejections
    from emulator.simt.engine import Settings

__all__ = ["open_machine"]


def open_machine(
    *profiles: str,
    linux: str = "6.12",
    engines: Engines | None = None,
    seed: int = 0,
    first_minor: int = 128,
    masked: Sequence[int] = (),
    peers: bool = True,
    small_bar: bool = False,
    tracks: bool = False,
    fences: bool = False,
    surprises: Mapping[str, object] | None = None,
    rejections: Rejections | None = None,
) -> AmdKernel:
    """Return the kernel of a machine with one emulated GPU for each profile name; "gfx1100" if there is none.

    - `profiles`: "gfx1100", "gfx1151", "gfx1200", "gfx1201", "gfx942", "gfx942-cpx", "gfx950".
    - `linux`: the kernel's version: "6.1", "6.12" (the strictest), "6.12.107".
    - `engines`: execute the queues; None reports a doorbell as unsupported.
    - `seed`: chooses every order that hardware leaves undefined.
    - `first_minor`: the number of the first render node.
    - `masked`: indices of GPUs that the device cgroup hides.
    - `peers`: whether GPUs reach each other's video memory; those with a small BAR are never reached.
    - `small_bar`: whether the CPU reaches 256 MiB of video memory alone.
    - `tracks`: whether reads of video memory that was never written, and unverified behaviour, are findings.
    - `fences`: whether doorbells without a `fence()` of the kernel before them are reported.
    - `surprises`: failures to inject (`emulator.shared.surprises`).
    - `rejections`: the quirks whose default value the machine refuses (`emulator.shared.surprises`).

    The caller closes the kernel's descriptors; the last close ends the machine's thread. The kernel's
    `reports` are its findings, `machine.refusals` the reasons of refused calls, `machine.leaks` the resources
    that a process did not release. Raises `UnsupportedError` for an unknown profile or version, and for an
    APU with a small BAR.
    """
    from emulator.amd.machine.kernel import AmdKernel  # noqa: PLC0415 - the same
    from emulator.amd.machine.machine import AmdMachine  # noqa: PLC0415 - the same
    from emulator.amd.profiles import SMALL_BAR, find_gpu, find_kernel  # noqa: PLC0415 - loaded when opened

    gpus = [find_gpu(name) for name in profiles or ("gfx1100",)]
    if small_bar and any(gpu.target.apu for gpu in gpus):
        raise UnsupportedError("bar256 is for GPUs with memory of their own: an APU's is the host's")
    if small_bar:
        gpus = [replace(gpu, visible_bytes=SMALL_BAR) for gpu in gpus]
    machine = AmdMachine(
        gpus,
        find_kernel(linux),
        engines=engines,
        seed=seed,
        first_minor=first_minor,
        masked=masked,
        peers=peers,
        tracks=tracks,
        fences=fences,
        rejections=rejections,
    )
    machine.surprises.table = surprises or {}
    return AmdKernel(machine)


TARGETS: Final = ("gfx1100", "gfx1201", "gfx942", "gfx942-cpx", "gfx1151", "gfx1200", "gfx950")
LINUX: Final = ("6.1", "6.12", "6.12.107")
_OPTIONS: Final = ("bar256", "checked")
"""A GPU without resizable BAR; kernels run with all sanitizers."""
_STRICTEST: Final = "6.12"
"""The version of Linux with the most checks, which is the default."""


def hint() -> str:
    """Return a line that lists the variants, for error messages."""
    return (
        f"an emulated machine is named by its GPUs ({', '.join(TARGETS)}; several are GPUs of one machine), "
        f"and at most once each by a version of Linux ({', '.join(LINUX)}), "
        f"{', '.join(map(repr, _OPTIONS))}, joined by '+': amd-emu:gfx1201, amd-emu:gfx1100+bar256, "
        "amd-emu:gfx1100+gfx1100, amd-emu:gfx942+6.12.107+checked"
    )


@dataclass(frozen=True, slots=True)
class Variant:
    """The GPUs and options that a variant's name selects."""

    targets: tuple[str, ...] = ("gfx1100",)
    """A profile for each GPU."""
    linux: str = _STRICTEST
    options: frozenset[str] = frozenset()
    """Those of `_OPTIONS`."""

    @classmethod
    def of(cls, text: str | None) -> Variant:
        """Parse a variant; None and "" select the defaults. Raises `UsageError`, which lists the variants."""
        parts = [part for part in (text or "").split("+") if part]
        targets = tuple(part for part in parts if part in TARGETS)
        versions = [part for part in parts if part in LINUX]
        options = frozenset(parts).intersection(_OPTIONS)
        if len(targets) + len(versions) + len(options) != len(parts) or len(versions) > 1:
            raise UsageError(f"no emulated AMD GPU is called {text!r}\nhint: {hint()}")
        return cls(targets or ("gfx1100",), (versions or [_STRICTEST])[0], options)


def _engines(settings: Settings) -> Engines:
    from emulator.amd.engines.engines import AmdEngines  # noqa: PLC0415 - loaded when a machine is opened

    return AmdEngines(settings, report=config().emu_report)


class Machines:
    """Returns a machine for each open, as `OpenMachines` says. Thread-safe."""

    def __init__(self, engines: Callable[[Settings], Engines] | None = None) -> None:
        """`engines` creates the engines of a machine; None creates `AmdEngines`."""
        self._engines = engines or _engines
        self._open: OpenMachines[Variant, AmdKernel] = OpenMachines(self._make)

    def __call__(self, text: str | None, rejections: Rejections | None = None) -> AmdKernel:
        """Return the kernel of a variant's machine. Raises `UsageError` for an unknown variant.

        `rejections`: see `open_machine`; with it the machine is never shared.
        """
        variant = Variant.of(text)
        return self._open.kernel(variant, rejections, gpus=len(variant.targets))

    def _make(self, variant: Variant, rejections: Rejections | None) -> AmdKernel:
        """Open a new machine of a variant."""
        from emulator.ir.library import Sanitizers  # noqa: PLC0415 - the same
        from emulator.simt.engine import Settings  # noqa: PLC0415 - the same

        settings = Settings(cache=config().cache)
        if "checked" in variant.options or config().emu_checked:
            settings = replace(settings, checks=Sanitizers.all())
        return open_machine(
            *variant.targets,
            linux=variant.linux,
            engines=self._engines(settings),
            seed=config().seed,
            small_bar="bar256" in variant.options,
            tracks=settings.checks.uninitialised,
            fences=settings.checks.uninitialised,
            rejections=rejections,
        )
