"""The interface of a driver: everything that a vendor implements, and nothing of the model above it.

A vendor is a `Driver` that enumerates and opens; a `DriverDevice` that owns memory, rings and programs; an
`Encoder` that turns neutral commands into the words of one kind of queue; a `Ring` that makes words visible
to the device and writes the doorbell. Every method is required: a driver that does not support one raises
`UnsupportedError` with the reason. Nothing here is thread-safe by itself: the queue above holds its lock
around `encode` and `submit`. Threads that a driver starts have names that begin with "hcq ": the validation
layer takes every other thread of the process for one that may submit.

Not here: the values that pass through it (`hardware`), registration by entry point (`registry`). Next:
docs/writing-a-driver.md; `drivers.cpu`, the driver to read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hcq.hardware import Allocation, BufferSpec, DeviceInfo, Place, QueueKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.commands import Command
    from hcq.errors import FaultReport
    from hcq.profile import Clock
    from hcq.program import DriverProgram, KernelImage
    from hcq.pushbuffer import PushBuffer

__all__ = [
    "Allocation",
    "BufferSpec",
    "DeviceInfo",
    "Driver",
    "DriverDevice",
    "Encoder",
    "Place",
    "QueueKind",
    "Ring",
]


class Encoder(Protocol):
    """Turns neutral commands into the words of one kind of queue."""

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands` to `out`, in order.

        Argument blocks and launch descriptors go to `out.place`; a value that is a Param or Expr leaves a
        patch. `Wait` and `SetSignal` of the submission itself come as ordinary commands, in a call of their
        own. Raises `UsageError` or `UnsupportedError` before it has appended anything of the offending
        command.
        """
        ...


class Ring(Protocol):
    """One hardware ring."""

    words: int
    """Most words that one submission may have."""
    submissions: int
    """Most submissions that can be in the ring at once."""
    stalled: Callable[[int], None]
    """Called with the number of words while `submit` waits for room, at least every few milliseconds.

    The queue sets it. What it raises ends `submit`, with nothing sent.
    """

    @property
    def taken(self) -> int:
        """A number that grows when a submission is certain to run.

        From then on it runs, at the latest with the next doorbell, also when `submit` is interrupted: after
        an interrupt the queue reads it to decide whether the submission is in flight.
        """
        ...

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible to the device, in order, and write the doorbell.

        Sleeps while the ring is full, polling `DriverDevice.fault` and calling `stalled`. A stream of more
        than `words` words is a `UsageError`; the queue above sends it from memory of its own.
        """
        ...

    def stuck(self) -> str:
        """Return the current operation of the queue as text, for errors; empty when idle.

        A signal is written "the signal at 0x..." here; the message replaces the address by its label.
        """
        ...

    def close(self) -> None:
        """Release the ring; the device is idle or stopped."""
        ...


class DriverDevice(Protocol):
    """An open device."""

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        ...

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate at least `size` bytes (page-rounded), zeroed. Raises `OutOfMemoryError`."""
        ...

    def free(self, allocation: Allocation) -> None:
        """Give an allocation back; nothing touches it any more."""
        ...

    def map_host(self, va: int, size: int) -> None:
        """Make host memory [va, va + size) visible to the device at the same address (the signal pool)."""
        ...

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`."""
        ...

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Make another device's allocation visible here at the same address, or raise `UnsupportedError`."""
        ...

    def ring(self, kind: QueueKind, index: int) -> Ring:
        """Make the ring of one queue; called once a queue."""
        ...

    def encoder(self, kind: QueueKind, index: int) -> Encoder:
        """Make an encoder for one queue, whose ring is made already."""
        ...

    def load(self, image: KernelImage) -> DriverProgram:
        """Upload an image. Raises `UnsupportedError` for another arch, `UsageError` for a broken image."""
        ...

    def unload(self, program: DriverProgram) -> None:
        """Undo `load`; no launch of it is in flight."""
        ...

    def clock(self) -> Clock:
        """Read the device's clock and the host's together."""
        ...

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot at `va` is >= `value`, something else happened, or `timeout_s` is over.

        Returns whether the value was reached. Keeps no lock and lets other Python threads run; may return
        early.
        """
        ...

    def signal_written(self, va: int) -> None:
        """Wake whatever of this device sleeps on the signal slot at `va`: the host stored to it."""
        ...

    def fault(self) -> FaultReport | None:
        """Return the sticky fault of this device, if any. Cheap: polled every few milliseconds."""
        ...

    def recover(self) -> None:
        """Stop all running work, restart every ring, empty, and clear the fault.

        Memory, mappings and programs stay. Nothing that was submitted before touches memory or signals once
        this returns. Raises `UnsupportedError`, having touched nothing, where that cannot be done; after any
        other error the device is still faulted, and this may be tried again.
        """
        ...

    def close(self) -> None:
        """Stop the queues and release everything; idempotent."""
        ...


class Driver(Protocol):
    """A vendor."""

    @property
    def name(self) -> str:
        """The name that devices are opened by."""
        ...

    def enumerate(self) -> list[DeviceInfo]:
        """Return the devices that could be opened now; never raises for absent hardware."""
        ...

    def open(self, index: int, variant: str | None) -> DriverDevice:
        """Open device `index`; `variant` is what follows the colon of "nv-emu:sm_80" when no number.

        `hcq.open` lets one thread at a time in, of all drivers.
        """
        ...
