"""The protocols between a channel and the engine objects that are bound to its subchannels.

An engine runs methods of its class; it sees its channel as a `Run` and the emulated GPU as a `Gpu`.

Not here: fetching and host methods (`channel`, `host`). Next: `compute` and `copy`, the two engines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from drivers.emu.backing import Backing
    from drivers.emu.operation import Operation
    from drivers.emu.releases import SemaphoreStore
    from drivers.emu.simt.slices import SlicedLaunch
    from drivers.emu.stores import UnflushedStores
    from drivers.emu.turnlock import TurnLock
    from drivers.emu.vaspace import VaSpace
    from drivers.nv.emu.engines.grid import Grids
    from drivers.nv.emu.engines.images import Images
    from drivers.nv.emu.engines.pushbuffer import MethodCall
    from drivers.nv.emu.engines.semaphore import Acquire
    from drivers.nv.emu.machine.caches import Caches
    from drivers.nv.emu.machine.profiles import Profile
    from drivers.nv.emu.machine.reports import ChannelError


class Engine(Protocol):
    """What is bound to a subchannel."""

    @property
    def cls(self) -> int:
        """Its class."""
        ...

    def method(self, call: MethodCall) -> None:
        """Run one method of the class."""
        ...

    def left_over(self) -> ChannelError | None:
        """Return the error of settings made for a launch that never came."""
        ...


class Backed(Protocol):
    """An object with pages behind it, a `drivers.nv.emu.rm.objects.Memory`."""

    @property
    def backing(self) -> Backing:
        """The pages."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What a channel was made with."""

    cls: int
    ring_va: int
    entries: int
    userd: tuple[Backed, int]
    notifier: Backed | None
    engine: int
    subcontext: int
    space: VaSpace


class Gpu(Protocol):
    """The emulated GPU as engines see it: a `drivers.nv.emu.machine.machine.Machine`."""

    @property
    def profile(self) -> Profile:
        """Which GPU it is."""
        ...

    @property
    def lock(self) -> TurnLock:
        """Held by whoever changes its state."""
        ...

    @property
    def images(self) -> Images:
        """Kernels by the address that they were uploaded to."""
        ...

    @property
    def grids(self) -> Grids:
        """What runs grids."""
        ...

    @property
    def caches(self) -> Caches | None:
        """The model of caches; None where missing maintenance is not checked."""
        ...

    @property
    def descriptors(self) -> dict[tuple[int, int], bytes]:
        """(address space, address) -> the launch descriptor that the scheduler hardware holds."""
        ...

    @property
    def notes(self) -> bool:
        """Whether accesses of engine work are recorded."""
        ...

    @property
    def tracks(self) -> bool:
        """Whether uninitialised reads are reported."""
        ...

    def time_ns(self) -> int:
        """Return the GPU's clock."""
        ...

    def launched(self, kernel: str) -> None:
        """Count a grid."""
        ...

    def lint(self, message: str) -> None:
        """Report once what works, and is a sign of a mistake all the same."""
        ...

    def doubt(self, message: str, error: Callable[[str], ChannelError]) -> None:
        """Check what works here and need not elsewhere."""
        ...

    def notify_work(self, run: Run, /) -> None:
        """Wake those who wait for finished work."""
        ...


class Run(Protocol):
    """A channel as its engines see it: a `drivers.nv.emu.engines.channel.ChannelRun`."""

    waiting: Acquire | None
    """The semaphore that it waits for."""
    yielded: bool

    @property
    def machine(self) -> Gpu:
        """The GPU."""
        ...

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def setup(self) -> Setup:
        """What it was made with."""
        ...

    @property
    def space(self) -> VaSpace:
        """Its address space."""
        ...

    @property
    def bound(self) -> Mapping[int, Engine]:
        """Subchannel -> what is bound to it."""
        ...

    @property
    def at(self) -> str:
        """Where in its ring it is."""
        ...

    @property
    def acting(self) -> Operation | None:
        """The operation at hand, if it is an engine's."""
        ...

    @property
    def unflushed(self) -> UnflushedStores:
        """Stores of its engines that need not be visible yet."""
        ...

    @property
    def rng(self) -> random.Random:
        """Of its own."""
        ...

    @property
    def host_put(self) -> int:
        """GPPut in the user area now."""
        ...

    def slot(self, number: int) -> int:
        """Return what a slot of the ring holds now."""
        ...

    def stale(self, slot: int) -> int:
        """Return what a slot of the ring held when the doorbell last covered it; 0 if it never did."""
        ...

    def launch(
        self, run: Callable[[], Iterator[SlicedLaunch] | None], engine: str, what: str, *, ordered: bool
    ) -> None:
        """Put engine work in flight."""
        ...

    def when_idle(self, then: Callable[[], None], engine: str | None = None) -> None:
        """Do something once all work of an engine, or of all engines, is done."""
        ...

    def released(self, written: SemaphoreStore) -> None:
        """Take note, just before, that the work or the method at hand writes a semaphore."""
        ...

    def touches(self, va: int, size: int, *, write: bool) -> None:
        """Take note of an access by the operation at hand."""
        ...

    def wrote(self, engine: str, what: str, va: int, size: int) -> None:
        """Take note of work that the method at hand has done itself: a write."""
        ...
