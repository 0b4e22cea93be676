"""A kernel between driver and emulated machine: it records every possible mutant, or applies one.

Not here: generating mutants (`calls`, a vendor's `Submission`), the program (`planted.wired`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from drivers.kernel import PAGE, PROT_READ, PROT_WRITE, view_at
from tests.mutants import sites
from tests.mutants.calls import Calls, shared

if TYPE_CHECKING:
    from drivers.kernel import Mapping, Mmio
    from tests.mutants.emulated import Machine, Store
    from tests.mutants.sites import Event, Mutant


class Interposer:
    """A `drivers.kernel.Kernel` over that of an emulated machine.

    Without a mutant nothing is changed, and `found` collects all possible ones.
    """

    def __init__(self, machine: Machine, mutant: Mutant | None = None) -> None:
        self._machine = machine
        self._inner = machine.kernel
        self._mutant = mutant
        self._calls = Calls(machine)
        self._made = False
        """Whether the mutant was made: there is one a run, so that what follows is only forwarded."""
        self.missed: dict[int, object] = {} if mutant is None else {0: mutant}
        """The changes that met no place so far."""
        self._numbers: dict[Event, int] = {"ioctl": -1, "map": -1, "fence": -1, "doorbell": -1}
        self.found: list[Mutant] = []

    def _next(self, event: Event) -> tuple[int, Mutant | None]:
        """Count an event; return its number and the mutant to make, or None."""
        self._numbers[event] += 1
        place = event, self._numbers[event]
        if self._made or self._mutant is None or self._mutant.place != place:
            return place[1], None
        self._made = True
        self.missed.clear()
        return place[1], self._mutant

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Forward an ioctl, with the chosen mutant."""
        if self._made:
            return self._inner.ioctl(fd, request, argument)
        if isinstance(argument, bytearray) and self._machine.call(request, argument).timed:
            return self._inner.ioctl(fd, request, argument)
        index, mutant = self._next("ioctl")
        if not isinstance(argument, bytearray):
            return self._inner.ioctl(fd, request, argument)
        if self._mutant is None:
            self.found += self._calls.of_ioctl(index, fd, request, argument)
        if mutant is not None:
            return self._calls.ioctl(mutant, fd, request, argument)
        return self._inner.ioctl(fd, request, argument)

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> Mapping:
        """Forward a mapping; of a file, with the chosen mutant."""
        if fd < 0:
            return self._inner.mmap(size, fd=fd, offset=offset, va=va, prot=prot, flags=flags)
        given = {"size": size, "fd": fd, "offset": offset, "va": va, "prot": prot, "flags": shared(flags)}
        index, mutant = self._next("map")
        if self._mutant is None:
            self.found += self._calls.of_mapping(index, "mmap", given)
        if mutant is not None:
            given = self._calls.mapping(mutant, given)
        mapping = self._inner.mmap(given.pop("size"), **given)
        if -(-mapping.size // PAGE) == -(-size // PAGE):  # mmap(2) maps whole pages, and gives an address
            return replace(mapping, size=size, view=view_at(mapping.va, size))
        return mapping

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Forward a mapping of registers, with the chosen mutant, and observe its stores."""
        given = {"size": size, "fd": fd, "offset": offset}
        index, mutant = self._next("map")
        if self._mutant is None:
            self.found += self._calls.of_mapping(index, "mmio", given)
        if mutant is not None:
            given = self._calls.mapping(mutant, given)
        return self.registers(given)

    def registers(self, given: dict[str, int]) -> Mmio:
        """Map registers; their stores are observed."""
        return _Registers(self._inner.mmio(**given), given["offset"], self)

    def fence(self) -> None:
        """Forward a fence, or omit it."""
        index, mutant = self._next("fence")
        if self._mutant is None:
            self.found.append(sites.Mutant("fence", index, 0, 0, (), sites.DELETE, "fence"))
        if mutant is None:
            self._inner.fence()

    def stored(self, page: int, offset: int, value: int, bits: int) -> Store:
        """Observe a store to registers before the machine receives it; return the store to execute."""
        if self._made:
            return offset, value
        submission = self._machine.submission(page, offset, value, bits)
        if submission is None:
            return offset, value
        index, mutant = self._next("doorbell")
        if self._mutant is None:
            self.found += submission.mutants(index)
        return submission.store if mutant is None else submission.make(mutant)

    def rang(self) -> None:
        """Observe that a store to registers was made."""

    def __getattr__(self, name: str) -> Any:
        """Forward what no mutant changes."""
        return getattr(self._inner, name)


class _Registers:
    """Registers whose stores are observed; `page` is the file offset of their mapping."""

    def __init__(self, inner: Mmio, page: int, interposer: Interposer) -> None:
        self._inner, self._page, self._interposer = inner, page, interposer
        self.read32, self.read64 = inner.read32, inner.read64
        self.close = inner.close

    def write32(self, offset: int, value: int) -> None:
        store = self._interposer.stored(self._page, offset, value, 32)
        if store is not None:
            self._inner.write32(*store)
        self._interposer.rang()

    def write64(self, offset: int, value: int) -> None:
        store = self._interposer.stored(self._page, offset, value, 64)
        if store is not None:
            self._inner.write64(*store)
        self._interposer.rang()
