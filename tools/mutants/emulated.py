"""What a vendor gives so that its driver's words and calls can be changed.

`Emulated` is an entry of `tools.mutants.devices`; it opens a `Machine` for every run. A machine finds and
makes the changes of what its driver submits (`Submission`); ioctls are described by `Call`, and changed by
`tools.mutants.calls`.

Not here: the changes of a number (`sites`). Next: `tools.mutants.nv.emulated`, an implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drivers import kernel as system
    from drivers.emu.machine_report import Report
    from hcq.driver import Driver
    from hcq.layout import Struct
    from hcq.program import KernelImage
    from tools.mutants.sites import Mutant

Store: TypeAlias = "tuple[int, int] | None"
"""Offset and value that go to a mapping of registers; None omits the store."""


@dataclass(frozen=True, slots=True)
class Block:
    """A structure that an ioctl's argument points to."""

    layout: type[Struct] | None
    """None: its members are unknown, and none is changed."""
    view: memoryview


@dataclass(frozen=True, slots=True)
class Call:
    """An ioctl in terms of the layouts."""

    name: str
    """Of the request, and of what its argument selects; begins the labels of all its mutants."""
    layout: type[Struct] | None
    """Of the argument; None: its members are unknown, and none is changed."""
    blocks: Sequence[Block] = ()
    encoded: bool = True
    """Whether the request has the parts of Linux's _IOC; else it is one number."""


class Submission(Protocol):
    """What a store to a mapping of registers makes the device execute."""

    @property
    def store(self) -> Store:
        """The store as the driver makes it."""
        ...

    def mutants(self, index: int) -> Iterator[Mutant]:
        """Yield the mutants of the store and of all that it submits, as the doorbell with this number."""
        ...

    def make(self, mutant: Mutant) -> Store:
        """Make one of `mutants` in memory; return the store that is then to be made."""
        ...


class Machine(Protocol):
    """An emulated machine for one run of the scenario."""

    @property
    def kernel(self) -> system.Kernel:
        """The operating system that the driver uses."""
        ...

    @property
    def fatal(self) -> Sequence[Report]:
        """The reports that a driver must see as faults, the oldest first."""
        ...

    def driver(self, kernel: system.Kernel) -> Driver:
        """Return the driver, on `kernel` instead of the machine's own."""
        ...

    def call(self, request: int, argument: bytearray) -> Call:
        """Return what an ioctl is. The blocks are views of the driver's memory."""
        ...

    def rung(self, page: int, offset: int, value: int, bits: int) -> Submission | None:
        """Return what a store submits, before the machine sees it; None when it is no doorbell.

        `page` is the mapping's file offset, `offset` counts from there, `bits` is the width of the store.
        Called once a store, in order: what is new in a ring is what came since the last call.
        """
        ...

    @property
    def busy(self) -> bool:
        """Whether any queue still executes: a wait that times out then is no verdict on the driver."""
        ...

    def stand_still(self) -> None:
        """End all threads of the machine, until `resume`, so that the process can be forked."""
        ...

    def resume(self) -> None:
        """Continue after `stand_still`, in the parent or in a child."""
        ...

    def close(self) -> None:
        """End the machine."""
        ...


class Kernel(Protocol):
    """A kernel of the corpus, whole or without one of its barriers."""

    @property
    def name(self) -> str:
        """What the report calls it."""
        ...

    def without_one(self) -> Iterator[tuple[str, Kernel]]:
        """Yield (what was left out, the kernel without it) for every barrier, fence and wait."""
        ...

    def run(self, seed: int) -> tuple[str, bytes]:
        """Launch it under one order; return what was reported, if anything, and the bytes of its buffers."""
        ...


class Emulated(Protocol):
    """The emulated machines of one vendor."""

    @property
    def profiles(self) -> Sequence[str]:
        """The GPUs that can be emulated; the first is the default."""
        ...

    @property
    def drivers(self) -> Sequence[str]:
        """The versions of the kernel's driver; the first is the default."""
        ...

    def kernels(self, profile: str) -> Mapping[str, KernelImage]:
        """Return the kernels of the scenario: grid, count and shared of the bring-up ladder."""
        ...

    def open(self, profile: str, driver: str, seed: int) -> Machine:
        """Return a fresh machine with all sanitizers on; `seed` decides what hardware leaves open."""
        ...
