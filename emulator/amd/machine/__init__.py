"""A machine with emulated AMD GPUs: `open_machine("gfx1100")` returns its kernel.

Not here: the kernel driver's calls (`emulator.amd.kfd`), the command processors (`emulator.amd.engines`).
Next: `kernel`, the operating system's interface; `machine`, the state; `doorbells`, the registers of the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emulator.amd.machine.kernel import AmdKernel
    from emulator.amd.machine.runs import Engines
    from emulator.shared.surprises import Rejections

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
    rejections: Rejections | None = None,
) -> AmdKernel:
    """Return the kernel of a machine with one emulated GPU for each profile name; "gfx1100" if there is none.

    - `profiles`: "gfx1100", "gfx1201", "gfx942", "gfx942-cpx".
    - `linux`: the kernel's version: "6.1", "6.12" (the strictest), "6.12.107".
    - `engines`: execute the queues; None reports a doorbell as unsupported.
    - `seed`: chooses every order that hardware leaves undefined.
    - `first_minor`: the number of the first render node.
    - `masked`: indices of GPUs that the device cgroup hides.
    - `peers`: whether GPUs reach each other's video memory.
    - `tracks`: whether reads of video memory that was never written, and unverified behaviour, are findings.
    - `fences`: whether doorbells without a `fence()` of the kernel before them are reported.
    - `surprises`: failures to inject (`emulator.shared.surprises`).
    - `rejections`: the quirks whose default value the machine refuses (`emulator.shared.surprises`).

    The caller closes the kernel's descriptors; the last close ends the machine's thread. The kernel's
    `reports` are its findings, `machine.refusals` the reasons of refused calls, `machine.leaks` the resources
    that a process did not release. Raises `UnsupportedError` for an unknown profile or version.
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
        rejections=rejections,
    )
    machine.surprises.table = surprises or {}
    return AmdKernel(machine)
