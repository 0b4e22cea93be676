"""Bugs on the wire: changes of what a driver emits, between it and the emulated kernel.

A `WireBug` is stated in terms of layouts (a field of an ioctl, of a packet or of a descriptor; a call, a
packet or a fence left out), so that it can be written without reading the driver. `Interposed` makes its
changes while the real driver runs. A change that met no place is reported: such a run proves nothing.

Not here: changes of streams (a vendor's folder: `tests.mutants.nv.planted.stream`), the bugs (its `wire`).
Next: `wired`, which runs one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from drivers.kernel import PROT_READ, PROT_WRITE, address_of
from tests.mutants import sites
from tests.mutants.interpose import Interposer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drivers import kernel as system
    from drivers.kernel import Mmio
    from hcq.device import Device
    from tests.mutants.emulated import Call, Machine, Store, Submission
    from tests.mutants.planted.words import Words

Value: TypeAlias = "int | Callable[[int], int]"
"""The new value of a field, or the function that gives it for the old one."""
_BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Ioctl:
    """An ioctl of the driver, and its structures."""

    call: Call
    fd: int
    request: int
    argument: bytearray
    send: Callable[[], int]
    """Makes it as it is now."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change. `at` is the number of the place among those that match, from 0; None: all of them."""

    at: int | None = None

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Make an ioctl, by `one.send`, and return its result."""
        del wire
        return one.send()

    def mapping(self, wire: Interposed, name: str, given: dict[str, int]) -> dict[str, int]:
        """Return the arguments of a mapping of a file; `name` is "mmap" or "mmio"."""
        del wire, name
        return given

    def fenced(self, wire: Interposed) -> bool:
        """Return whether a fence is forwarded."""
        del wire
        return True

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Change in memory what a doorbell submits; return the store to execute."""
        del wire, submission
        return store

    def rang(self, wire: Interposed) -> None:
        """Run after a store to a doorbell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireBug:
    """A mistake of a driver, stated on the wire."""

    name: str
    device: str
    """The emulated GPU; behind a "+" the version of its kernel driver."""
    changes: Sequence[Change]
    names: str
    """A regular expression that a report must match to identify the mistake."""
    seen: str
    """The fact that was read hastily."""
    parts: tuple[str, ...] = ()
    """The parts of the program that show it; (): all."""
    harmless: Mapping[str, str] = field(default_factory=dict)
    """Emulated GPU on which a driver with it is right by the facts -> the reason."""

    def on(self, gpu: str) -> WireBug:
        """Return the same mistake on another emulated GPU; one without a version keeps that of this one."""
        _, plus, version = self.device.partition("+")
        return replace(self, device=gpu if "+" in gpu else gpu + plus + version)

    @property
    def reason(self) -> str:
        """The reason why it is harmless on its GPU, or ""."""
        return self.harmless.get(self.device.partition("+")[0], "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """The bugs on the wire of one driver."""

    bugs: Sequence[WireBug]
    open: Callable[[str, str], Machine]
    """Opens an emulated machine: its GPU, and the version of its kernel driver or ""."""
    program: Callable[[Device, system.Kernel], Words]
    """Makes the program that runs on each bug, for a device and the kernel that emulates it."""
    parts: Sequence[str]
    """All parts of the program."""
    ring_bytes: int
    """The setting `ring_bytes` under which it runs."""


class Interposed(Interposer):
    """The interposed kernel of one run, with the changes of one bug."""

    def __init__(self, machine: Machine, changes: Sequence[Change]) -> None:
        super().__init__(machine)
        self.machine = machine
        self._changes = changes
        self._met: Counter[int] = Counter()
        self._written: dict[int, tuple[int, int]] = {}
        """Address -> (number of the driver, changed number): what is submitted again is changed once."""
        self._kept: list[bytearray] = []
        self.missed = dict(enumerate(changes))

    def now(self, change: Change) -> bool:
        """Count a place of a change; return whether it is made there."""
        number = next(i for i, one in enumerate(self._changes) if one is change)
        met = self._met[number]
        self._met[number] += 1
        made = change.at is None or change.at == met
        if made:
            self.missed.pop(number, None)
        return made

    def edited(self, change: Change, va: int, raw: int, new: Callable[[int], int]) -> int:
        """Return the number to have at an address that holds `raw`, and count the place unless it stays."""
        old, written = self._written.get(va, (raw, raw))
        if raw == written != old or new(raw) == raw or not self.now(change):
            return raw
        self._written[va] = raw, new(raw)
        return new(raw)

    def keep(self, data: bytes) -> int:
        """Return the address of a copy that stays for the run."""
        self._kept.append(bytearray(data))
        return address_of(self._kept[-1])

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        """Make an ioctl, with the changes."""
        inner = self.machine.kernel
        if not isinstance(argument, bytearray):
            return inner.ioctl(fd, request, argument)

        send: Callable[[], int] = partial(inner.ioctl, fd, request, argument)
        call = self.machine.call(request, argument)
        for change in self._changes:
            send = partial(change.ioctl, self, Ioctl(call, fd, request, argument, send))
        return send()

    def mmap(
        self,
        size: int,
        *,
        fd: int = -1,
        offset: int = 0,
        va: int = 0,
        prot: int = PROT_READ | PROT_WRITE,
        flags: int | None = None,
    ) -> system.Mapping:
        """Forward a mapping; of a file, with the changes."""
        given = {"size": size, "fd": fd, "offset": offset, "va": va, "prot": prot}
        for change in self._changes if fd >= 0 else ():
            given = change.mapping(self, "mmap", given)
        return self.machine.kernel.mmap(given.pop("size"), flags=flags, **given)

    def mmio(self, fd: int, size: int, offset: int) -> Mmio:
        """Forward a mapping of registers, with the changes, and observe its stores."""
        given = {"size": size, "fd": fd, "offset": offset}
        for change in self._changes:
            given = change.mapping(self, "mmio", given)
        return self.registers(given)

    def fence(self) -> None:
        """Forward a fence unless a change leaves it out."""
        if all(change.fenced(self) for change in self._changes):
            self.machine.kernel.fence()

    def stored(self, page: int, offset: int, value: int, bits: int) -> Store:
        """Make the changes of a submission; return the store to execute."""
        submission = self.machine.submission(page, offset, value, bits)
        if submission is None:
            return offset, value
        store: Store = submission.store
        for change in self._changes:
            store = change.submit(self, submission, store)
        return store

    def rang(self) -> None:
        """Tell the changes that a store was made."""
        for change in self._changes:
            change.rang(self)


def apply(value: Value, old: int, width: int) -> int:
    """Return a field of `width` bits after a change."""
    return (value(old) if callable(value) else value) & ((1 << width) - 1)


@dataclass(frozen=True, kw_only=True)
class Member(Change):
    """A member of an ioctl's structure, or of one that it points to, gets another value.

    The driver sees its own value again afterwards, unless the kernel wrote one.
    """

    call: str
    """A regular expression for the start of the call's name (`Call.name`)."""
    name: str
    """The member, as `perGpuAttributes[0].gpuMappingType`."""
    value: Value
    where: tuple[str, Callable[[int], bool]] | None = None
    """Another member, and what must hold of it."""

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Change the member around the call."""
        place = find(one, self.call, self.name)
        if place is None:
            return one.send()
        view, at, size = place
        old = int.from_bytes(view[at : at + size], "little")
        new = apply(self.value, old, _BYTE * size)
        if new == old or not self._holds(one) or not wire.now(self):
            return one.send()
        view[at : at + size] = new.to_bytes(size, "little")
        result = one.send()
        if int.from_bytes(view[at : at + size], "little") == new:
            view[at : at + size] = old.to_bytes(size, "little")
        return result

    def _holds(self, one: Ioctl) -> bool:
        if self.where is None:
            return True
        place = find(one, self.call, self.where[0])
        return place is not None and self.where[1](
            int.from_bytes(place[0][place[1] : place[1] + place[2]], "little")
        )


def _number(one: Ioctl, name: str) -> int:
    place = find(one, re.escape(one.call.name), name) if name else None
    return 0 if place is None else int.from_bytes(place[0][place[1] : place[1] + place[2]], "little")


def find(one: Ioctl, call: str, name: str) -> tuple[memoryview, int, int] | None:
    """Return the memory, the offset and the size of a member of a call; None if it is another call."""
    if not sites.begins(one.call.name, call):
        return None
    blocks = [*((b.layout, b.view) for b in one.call.blocks), (one.call.layout, memoryview(one.argument))]
    for layout, view in blocks:
        for label, at, size in sites.members(layout, bytes(view)) if layout is not None else ():
            if label.partition(".")[2] == name:
                return view, at, size
    return None


@dataclass(frozen=True, kw_only=True)
class NoCall(Change):
    """An ioctl is not made, nor the one that takes it back; the driver sees a success of both."""

    call: str
    undo: str = ""
    """The call that takes it back; "": none."""
    handles: tuple[str, str] = ("", "")
    """The members of the two that are equal; "": any."""
    left: list[int] = field(default_factory=list)

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Leave the call out."""
        if sites.begins(one.call.name, self.call) and wire.now(self):
            self.left.append(_number(one, self.handles[0]))
            return 0
        if self.left and self.undo and sites.begins(one.call.name, self.undo):
            return 0 if _number(one, self.handles[1]) in self.left else one.send()
        return one.send()


@dataclass(frozen=True, kw_only=True)
class LateCall(Change):
    """An ioctl without results is made only behind a later one."""

    call: str
    behind: str
    """The call behind which it is made."""
    held: list[Callable[[], int]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Hold the call back, or make it before the call that follows the other."""
        if sites.begins(one.call.name, self.call) and wire.now(self):
            copy = bytearray(one.argument)
            self.held.append(lambda: wire.machine.kernel.ioctl(one.fd, one.request, copy))
            return 0
        if self.behind in self.passed:
            while self.held:
                self.held.pop(0)()
        if sites.begins(one.call.name, self.behind):
            self.passed.append(self.behind)
        return one.send()


@dataclass(frozen=True, kw_only=True)
class Mapped(Change):
    """An argument of a mapping of a file gets another value; `call` is "mmap" or "mmio"."""

    call: str
    name: str
    value: Value
    where: Callable[[dict[str, int]], bool] = lambda _: True

    def mapping(self, wire: Interposed, name: str, given: dict[str, int]) -> dict[str, int]:
        """Change the argument."""
        if name != self.call or not self.where(given) or not wire.now(self):
            return given
        old = given[self.name]
        return given | {self.name: self.value(old) if callable(self.value) else self.value}


@dataclass(frozen=True, kw_only=True)
class NoFence(Change):
    """Fences are left out."""

    def fenced(self, wire: Interposed) -> bool:
        """Leave a fence out."""
        return not wire.now(self)
