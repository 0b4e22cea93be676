"""The steps of listing and opening GPUs that are the same for every vendor.

Not here: the vendors' drivers (`drivers.nv.driver`, `drivers.amd.driver`). Next: `hcq.driver.Driver`.
"""

from __future__ import annotations

from drivers.kernel import Kernel, LinuxKernel
from hcq.driver import DeviceInfo, QueueKind
from hcq.errors import HcqError, UnsupportedError, UsageError

QUEUES = {QueueKind.COMPUTE: 2, QueueKind.COPY: 2}
"""The number of queues of each kind that a GPU has here."""


class Linux:
    """A factory of the Linux kernel of this machine, which makes it once; the variant has no effect."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None

    def __call__(self, _variant: str | None) -> Kernel:
        """Return the kernel."""
        self._kernel = self._kernel or LinuxKernel()
        return self._kernel


def opens(kernel: Kernel, node: str) -> bool:
    """Return whether a device node opens; without it a driver loads no heavy module, as "auto" often asks."""
    try:
        kernel.close(kernel.open(node))
    except HcqError:
        return False
    return True


def absent(gpu: str, lists: str, count: int, hint: str) -> UsageError:
    """Return the error for a GPU that does not exist: `lists` has `count` GPUs; `hint` "": none."""
    known = {0: "no GPU", 1: "one GPU, number 0"}.get(count, f"{count} GPUs, numbers 0 to {count - 1}")
    return UsageError(f"{gpu} does not exist: {lists} lists {known}" + (hint and f"\nhint: {hint}"))


def check_queue(name: str, kind: QueueKind, index: int) -> None:
    """Raise `UsageError` if the device `name` has no queue with this number."""
    if not 0 <= index < QUEUES[kind]:
        raise UsageError(f"{name} has {QUEUES[kind]} {kind.value} queues, there is no number {index}")


def not_shared(name: str, why: str) -> UnsupportedError:
    """Return the error of a device whose memory processes cannot share."""
    return UnsupportedError(
        f"{name} shares no memory between processes: {why}\n"
        "hint: share memory of a cpu device (BufferSpec(shared=True)), and copy"
    )


def no_priority(queues: str, why: str) -> UnsupportedError:
    """Return the error of queues without priorities."""
    return UnsupportedError(f"{queues} have no priorities: {why}\nhint: leave it at 0, or split the work")


def device_info(  # noqa: PLR0917 - the facts that differ
    driver: str, index: int, name: str, arch: str, vram_bytes: int, units: int, limits: dict[str, int]
) -> DeviceInfo:
    """Return the public facts of a GPU, with the limits that all GPUs share.

    Raises `UsageError` for a limit that nothing reads.
    """
    return DeviceInfo(
        driver=driver,
        index=index,
        name=name,
        arch=arch,
        vram_bytes=vram_bytes,
        compute_queues=QUEUES[QueueKind.COMPUTE],
        copy_queues=QUEUES[QueueKind.COPY],
        compute_units=units,
        word_bits=32,
        limits={"max_threads": 1024, "max_groups_y": (1 << 16) - 1, "max_groups_z": (1 << 16) - 1} | limits,
    )
