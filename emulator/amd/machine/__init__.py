"""The emulated AMD GPUs below the ioctl: `open_machine("gfx1100")` returns their kernel.

Next: `kernel`, the operating system's interface; `machine`, the state; `doorbells`, what the CPU stores to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emulator.amd.machine.kernel import AmdKernel
    from emulator.amd.machine.runs import Engines
    from emulator.shared.otherwise import Otherwise

__all__ = ["open_machine"]


def open_machine(
    *profiles: str,
    linux: str = "6.12",
    engines: Engines | None = None,
    seed: int = 0,
    first_minor: int = 128,
    masked: Sequence[int] = (),
    peers: bool = True,
    tracks: bool = False,
    fences: bool = False,
    surprises: Mapping[str, object] | None = None,
    other: Otherwise | None = None,
) -> AmdKernel:
    """Return the kernel of a machine with emulated GPUs, one a name: "gfx1100", "gfx1201", "gfx942".

    `linux` is the kernel's version ("6.1", "6.12", which is the strictest, "6.12.107"). `engines` execute the
    queues; without them a doorbell is reported as unsupported. `seed` decides every order that hardware
    leaves open, `first_minor` is the number of the first render node, `masked` are indices of GPUs that the
    device cgroup hides, `peers` says whether GPUs reach each other's video memory, `tracks` whether reads of
    video memory that was never written are found, `fences` whether doorbells without a `fence()` of the
    kernel before them are, `other` what is taken the other way, `surprises` what goes otherwise than on a
    healthy machine (`emulator.shared.surprises`). Unknown names are `UnsupportedError`.

    The kernel's `reports` are what the machine objected to, `machine.refusals` why calls were refused,
    `machine.leaks` what a process left behind.
    """
    from emulator.amd.machine.kernel import AmdKernel  # noqa: PLC0415 - the same
    from emulator.amd.machine.machine import AmdMachine  # noqa: PLC0415 - the same
    from emulator.amd.profiles import find_gpu, find_kernel  # noqa: PLC0415 - loaded when opened

    gpus = [find_gpu(name) for name in profiles or ("gfx1100",)]
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
        other=other,
    )
    machine.surprises.table = surprises or {}
    return AmdKernel(machine)
