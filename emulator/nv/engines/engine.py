"""The protocols between a channel and the engine objects that are bound to its subchannels.

An engine runs methods of its class. It uses its channel through `EngineChannel`, its GPU through `EngineGpu`,
and what the GPUs of a machine share through `EngineSystem`.

Not here: the execution of a channel (`channel`), host methods (`host`). Next: `compute` and `copy`, the
engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from emulator.nv.engines.caches import Caches
    from emulator.nv.engines.grid import Grids
    from emulator.nv.engines.images import Images, LoadedImage
    from emulator.nv.engines.inflight import InFlight
    from emulator.nv.engines.pushbuffer import MethodCall
    from emulator.nv.engines.semaphore import Acquire
    from emulator.nv.profiles import Profile
    from emulator.nv.reports import ChannelError
    from emulator.shared.accuracy import AccuracyLedger
    from emulator.shared.backing import Backing
    from emulator.shared.caches import UnflushedStores
    from emulator.shared.scheduler import EngineOperation, TurnLock
    from emulator.shared.surprises import Rejections
    from emulator.shared.vaspace import VaSpace
    from emulator.shared.waits import SemaphoreStore
    from emulator.simt.slices import SlicedLaunch
    from hcq.counters import Counters


class SubchannelEngine(Protocol):
    """An engine object that is bound to a subchannel."""

    @property
    def cls(self) -> int:
        """The number of its class."""

    def method(self, call: MethodCall) -> bool:
        """Run one method of the class; return whether it did more than set a register."""

    def left_over(self) -> ChannelError | None:
        """Return the error for registers that were set for a launch which never came.

        None if there are none.
        """


class Backed(Protocol):
    """A memory object with backing pages, such as an `emulator.nv.rm.objects.RmMemory`."""

    @property
    def backing(self) -> Backing:
        """The pages."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The parameters with which a channel was created."""

    cls: int
    """The number of the channel's class."""
    ring_va: int
    """Device address of the ring."""
    entries: int
    """The number of slots of the ring."""
    userd: tuple[Backed, int]
    """The memory of the user area, and its byte offset there."""
    notifier: Backed | None
    """The memory of the error notifier, or None."""
    engine: int
    """A `drivers.nv.layouts.rm_classes.EngineType`."""
    subcontext: int
    """Its number; 0 without a context share."""
    space: VaSpace


class EngineGpu(Protocol):
    """The emulated GPU as engines use it: an `emulator.nv.machine.gpu.EmulatedGpu`."""

    profile: Profile
    """The profile of the GPU."""
    caches: Caches | None
    """The model of caches; None if cache maintenance is not checked."""
    counters: Counters | None
    """The sum of the grids' counters; None while grids are not counted."""
    descriptors: dict[tuple[int, int], bytes]
    """(address space, address) -> the launch descriptor that the scheduler hardware holds."""
    code: dict[tuple[int, int], LoadedImage]
    """(address space, program) -> the kernel that the instruction caches hold."""
    constants: dict[tuple[int, int], bytes]
    """(address space, address) -> the bank that the constant caches hold."""

    def invalidate(self, *, instructions: bool, constants: bool, data: bool) -> None:
        """Invalidate the instruction, constant and L1 data caches whose argument is true."""


class EngineSystem(Protocol):
    """What the GPUs of a machine share: an `emulator.nv.machine.machine.NvMachine`."""

    rejections: Rejections
    """The values of quirks that the GPUs reject."""
    lock: TurnLock
    """The lock of the machine's state."""
    images: Images
    """The kernel images that were found in device memory."""
    grids: Grids
    """The runner of grids."""
    ledger: AccuracyLedger | None
    """The ledger of inexact instructions; None without a report file."""

    @property
    def notes(self) -> bool:
        """Whether accesses of engine work are recorded, for the checks of races and caches."""

    tracks: bool
    """Whether uninitialised reads are reported."""

    def time_ns(self) -> int:
        """Return the GPU's clock in nanoseconds."""

    def launched(self, kernel: str) -> None:
        """Count a grid of the kernel named `kernel` that has ended."""

    def lint(self, message: str) -> None:
        """Report, once for each message, a use that works but is probably a mistake."""

    def report_unverified(self, message: str, error: Callable[[str], ChannelError]) -> None:
        """Report a use that works here but may fail on hardware.

        Raise `error(message)` if the GPU is strict.
        """

    def notify_work(self, run: EngineChannel, /) -> None:
        """Wake the host threads that wait for an interrupt of finished work."""


class EngineChannel(Protocol):
    """A channel as its engines use it: an `emulator.nv.engines.channel.ChannelRun`."""

    waiting: Acquire | None
    """The semaphore that it waits for, or None."""
    yielded: bool
    """Whether the last step requested that another channel run next."""

    @property
    def machine(self) -> EngineSystem:
        """What its GPU shares with others."""

    @property
    def gpu(self) -> EngineGpu:
        """The GPU."""

    name: str
    """Its name in reports."""
    setup: Setup
    """The parameters with which it was created."""

    @property
    def space(self) -> VaSpace:
        """Its address space."""

    @property
    def bound(self) -> Mapping[int, SubchannelEngine]:
        """Subchannel -> the engine object bound to it."""

    @property
    def at(self) -> str:
        """Its position in the ring, for reports."""

    acting: EngineOperation | None
    """The engine operation that is running, or None."""
    inflight: InFlight
    """Its engine work in flight."""
    unflushed: UnflushedStores
    """Stores of its engines that may not be visible yet."""
    rng: random.Random
    """Its own random generator."""

    @property
    def host_put(self) -> int:
        """GPPut in the user area."""

    def slot(self, number: int) -> int:
        """Return the contents of a slot of the ring. Raises `ChannelError` if it is not mapped."""

    def stale(self, slot: int) -> int:
        """Return the contents of a slot when a doorbell last covered it; 0 if none did."""

    def launch(
        self, run: Callable[[], Iterator[SlicedLaunch] | None], engine: str, what: str, *, ordered: bool
    ) -> None:
        """Put engine work in flight (`emulator.shared.scheduler.EngineOperation` has the arguments)."""

    def when_idle(self, then: Callable[[], None], engine: str | None = None) -> None:
        """Block the ring until all work of an engine (None: of all engines) is done, then call `then`."""

    def released(self, written: SemaphoreStore) -> None:
        """Record that the running operation or method is about to write a semaphore."""

    def touches(self, va: int, size: int, *, write: bool) -> None:
        """Record an access of the running operation."""

    def wrote(self, engine: str, what: str, va: int, size: int) -> None:
        """Record a write that the current method has made at once, as work `what` of an engine."""
