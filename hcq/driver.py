"""The interface of drivers, which each vendor implements.

A `Driver` enumerates and opens devices. A `DriverDevice` owns memory, rings and programs. An `Encoder`
translates neutral commands into the words of one kind of queue. A `Ring` makes words visible to the device
and writes the doorbell. Every method is required; a driver that does not support one raises
`UnsupportedError` with the reason. Encoders and rings need not be thread-safe: the queue holds its lock
around `encode` and `submit`. The threads that a driver starts have names that begin with "hcq "; the
validation layer assumes that every other thread of the process may submit.

Not here: the values that pass through it (`hardware`), registration by entry point (`registry`). Next:
docs/writing-a-driver.md; `drivers.cpu`, the simplest driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from hcq.commands import Command, CommandTable
from hcq.errors import FaultReport
from hcq.hardware import Allocation, BufferSpec, DeviceInfo, Place, QueueKind
from hcq.profile import Clock
from hcq.program import DriverProgram, KernelImage
from hcq.pushbuffer import PushBuffer

if TYPE_CHECKING:
    from hcq.counters import Counters

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
    """Translates neutral commands into the words of one kind of queue."""

    table: CommandTable
    """Its method for each class of command; the queue gives it its label."""

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands` to `out`, in order.

        Argument blocks and launch descriptors are stored with `out.place`. A value that is a Param or Expr is
        recorded as a patch. The `Wait` and `SetSignal` of the submission itself are ordinary commands, passed
        in a separate call. Points already reached at submit are not encoded as `Wait`; the encoder must
        still acquire the memory that other queues have completed. Raises `UsageError` or `UnsupportedError`
        before any word of the offending command is appended. Must not wait, and must not access the device.
        """


class Ring(Protocol):
    """The ring of one queue."""

    words: int
    """The most words of one submission; the ring may have space for several of that size."""
    submissions: int
    """The most submissions that the ring ever holds at one time."""
    stalled: Callable[[int], None]
    """The callback while `submit` waits for space, called every few milliseconds.

    Its argument counts as `taken` does: once the queue has read so many units, there is space. The queue sets
    it. If it raises, `submit` raises the same, and has sent nothing.
    """

    @property
    def taken(self) -> int:
        """Number of units ever written; a unit is an entry or a word, as the ring chooses.

        `submit` raises it at the moment from which the submission certainly runs, at the latest with the next
        doorbell, even if `submit` is interrupted. After an interrupt the queue reads it to decide whether the
        submission is in flight.
        """

    def unread(self, ending_words: int) -> int:
        """Return a lower bound of the units of a submission that are unread while the queue waits inside it.

        `ending_words`: number of words at the end of the submission, which raise its point.
        """

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Make the words of `pushbuffer` visible to the device, in order, and write the doorbell.

        Sleeps while the ring is full; meanwhile it polls `DriverDevice.fault` and calls `stalled`. Raises
        `UsageError` for more than `words` words (the queue moves these to a buffer first), and what `stalled`
        raises; nothing is sent then.
        """

    def stuck(self) -> str:
        """Return the current operation of the queue as text, for errors; empty when it is idle.

        A signal appears as "the signal at 0x..."; the caller replaces that by the label of the signal.
        """

    def close(self) -> None:
        """Release the ring. The device is idle or stopped."""


class DriverDevice(Protocol):
    """An open device."""

    @property
    def info(self) -> DeviceInfo:
        """The properties of the device."""

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate at least `size` bytes, rounded up to pages; their contents are undefined.

        Raises `OutOfMemoryError`, and `UnsupportedError` for a kind of memory that the device does not have.
        """

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Free an allocation, which the device does not access any more.

        `keep_host`: the host still has views made from `allocation.host`, as the device closes. Their pages
        stay mapped, with their contents, as long as `allocation.host.obj` exists.
        """

    def map_host(self, va: int, size: int) -> None:
        """Map host memory [va, va + size), part of the signal pool, into the device at the same address."""

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`."""

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Map another device's allocation into this one at the same address, or raise `UnsupportedError`."""

    def export(self, allocation: Allocation) -> int:
        """Return a new descriptor of an allocation of `BufferSpec.shared`, or raise `UnsupportedError`."""

    def adopt(self, fd: int) -> Allocation:
        """Map the memory of a descriptor that `export` of another process returned; `free` undoes it.

        Raises `UsageError` for another descriptor, `UnsupportedError`, `OutOfMemoryError`.
        """

    def ring(self, kind: QueueKind, index: int) -> Ring:
        """Make the ring of queue `index` of a kind. Called once for each queue."""

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Set the priority of a queue, -3 to 3, kept by `recover`, or raise `UnsupportedError`."""

    def encoder(self, kind: QueueKind, index: int) -> Encoder:
        """Make an encoder for a queue, whose ring exists already."""

    def load(self, image: KernelImage) -> DriverProgram:
        """Upload an image.

        Raises `UnsupportedError` for another architecture, `UsageError` for a malformed image,
        `OutOfMemoryError`.
        """

    def unload(self, program: DriverProgram) -> None:
        """Undo `load`. No launch of the program is in flight."""

    def clock(self) -> Clock:
        """Read the device clock and the host's CLOCK_MONOTONIC together."""

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Sleep until the slot at `va` is >= `value`, at most `timeout_s` seconds; return whether it is.

        May return early. Holds no lock, and lets other Python threads run.
        """

    def signal_written(self, va: int) -> None:
        """Wake this device's waiters for the signal slot at `va`, which the host wrote."""

    def fault(self) -> FaultReport | None:
        """Return the fault of this device, or None. Must be cheap: waits poll it every few milliseconds."""

    def recover(self) -> None:
        """Stop all running work, restart every ring empty, and clear the fault.

        Memory, mappings and programs stay. After the return no earlier submission accesses memory or signals.
        Raises `UnsupportedError`, with the device unchanged, if that is impossible. After any other error the
        device is still faulted, and the call may be repeated.
        """

    def count(self, into: Counters | None) -> Counters | None:
        """Count what kernels execute from now on; None ends that.

        Returns the former `into`. Raises `UnsupportedError` for a device that is not emulated.
        """

    def close(self) -> None:
        """Stop the queues and release all resources. Idempotent."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program or library that builds kernels for a driver. Devices open without it."""

    name: str
    module: str
    attribute: str
    """A function of the module that returns the installed version, or an empty text."""
    cure: str
    """The command that installs it."""

    def version(self) -> str:
        """Return the version as text; empty when the tool, or the module that queries it, is absent."""
        try:
            query: Callable[[], str] = getattr(import_module(self.module), self.attribute)
        except ImportError:
            return ""
        return query()


class Driver(Protocol):
    """Enumerates and opens the devices of one type."""

    @property
    def name(self) -> str:
        """The name that opens its devices."""

    @property
    def emulated(self) -> bool:
        """Whether Python threads of this process do the work of its devices."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that build kernels for its devices."""

    def enumerate(self) -> list[DeviceInfo]:
        """Return the devices that can be opened now; absent hardware raises nothing."""

    def open(self, index: int, variant: str | None) -> DriverDevice:
        """Open device `index`; `variant` is the text after the colon, "sm_80" of "nv-emu:sm_80", or None.

        `hcq.open` calls it from one thread at a time, for all drivers together. Raises `UsageError` for an
        unknown variant, `UnsupportedError` with the cure when hardware or kernel driver are missing,
        `DriverError` when the kernel driver refuses a call.
        """
