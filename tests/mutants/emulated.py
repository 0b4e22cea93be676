"""The interface of a vendor for mutants of its driver's packets and calls.

A run opens a `Machine`, which generates and makes the mutants of submissions (`Submission`). It describes
ioctls by `Call`; `tests.mutants.calls` generates their mutants.

Not here: the changes of a number (`sites`). Next: `tests.mutants.nv.emulated`, an implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers import kernel as system
    from hcq.driver import Driver
    from hcq.layout import Struct
    from tests.mutants.sites import Mutant

Store: TypeAlias = "tuple[int, int] | None"
"""Offset and value of a store to a register mapping; None omits the store."""


@dataclass(frozen=True, slots=True)
class Block:
    """A structure that an ioctl's argument points to."""

    layout: type[Struct] | None
    """None for unknown members, which are not changed."""
    view: memoryview


@dataclass(frozen=True, slots=True)
class Call:
    """An ioctl and the layouts of its structures."""

    name: str
    """The name of the request and of what its argument selects; the prefix of its mutants' labels."""
    layout: type[Struct] | None
    """The layout of the argument; None for unknown members, which are not changed."""
    blocks: Sequence[Block] = ()
    timed: bool = False
    """Whether it is repeated as time goes, as waits are: it is neither counted nor changed."""
    encoded: bool = True
    """Whether the request is encoded by Linux's _IOC; else it is a plain number."""


class Submission(Protocol):
    """The work that a store to a doorbell submits."""

    @property
    def store(self) -> Store:
        """The store of the unchanged driver."""
        ...

    def mutants(self, index: int) -> Iterator[Mutant]:
        """Yield the mutants of the store and of the submitted work; `index` is the number of the doorbell."""
        ...

    def make(self, mutant: Mutant) -> Store:
        """Make one of `mutants` in memory; return the store to execute."""
        ...


class Machine(Protocol):
    """An emulated machine for one run of the program."""

    @property
    def kernel(self) -> system.Kernel:
        """The operating system that the driver uses."""
        ...

    def driver(self, kernel: system.Kernel) -> Driver:
        """Return the driver on `kernel`, which replaces the machine's own."""
        ...

    def call(self, request: int, argument: bytearray) -> Call:
        """Describe an ioctl. The blocks are views of the driver's memory."""
        ...

    def submission(self, page: int, offset: int, value: int, bits: int) -> Submission | None:
        """Return the work that a store submits, before the machine receives it; None if it is not a doorbell.

        `page` is the file offset of the mapping, `offset` the byte offset in it, `bits` the width of the
        store. It is called once for each store, in order: new ring entries are those since the last call.
        """
        ...

    def close(self) -> None:
        """End the machine."""
        ...
