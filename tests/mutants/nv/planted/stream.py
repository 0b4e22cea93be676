"""Changes of what a channel is sent: ring entries, methods, launch descriptors, constant banks, doorbells.

Not here: changes of calls (`tests.mutants.planted.wire`), the bugs (`wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts import uvm
from drivers.nv.layouts.gpfifo import HOST_METHODS_END, GpfifoEntry, SecOp
from drivers.nv.layouts.host import HostMethod
from drivers.nv.layouts.qmd import QMDS
from tests.mutants import sites
from tests.mutants.nv.contents import WHAT, launches
from tests.mutants.nv.doorbells import ChannelSubmission, put_of, set_put
from tests.mutants.nv.packets import layout_of, methods, packets
from tests.mutants.planted.wire import Change, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from emulator.nv.engines.channel import ChannelRun
    from hcq.layout import BitStruct, Field
    from tests.mutants.emulated import Store, Submission
    from tests.mutants.planted.wire import Interposed, Ioctl, Value

ENGINES: Final = {"host": -1, "compute": 1, "copy": 4}
"""Owner of a method -> its subchannel; host methods lie on any."""


@dataclass(frozen=True, kw_only=True)
class _Stream(Change):
    """A change of memory that a submission references."""

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Make it."""
        assert isinstance(submission, ChannelSubmission), "a machine of NVIDIA's"
        self.change(wire, submission)
        submission.run.combining.overlook()  # the driver's fence comes before the doorbell
        return store

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it in memory."""
        raise NotImplementedError

    def edit(self, wire: Interposed, run: ChannelRun, va: int, size: int, new: Callable[[int], int]) -> None:
        """Change the number of `size` bytes at an address."""
        raw = int.from_bytes(run.space.read(va, size, WHAT), "little")
        changed = wire.edited(self, va, raw, new)
        if changed != raw:
            run.space.write(va, changed.to_bytes(size, "little"), WHAT)


@dataclass(frozen=True, kw_only=True)
class Entry(_Stream):
    """A field of ring entries."""

    name: str
    value: Value

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        one = GpfifoEntry.FIELDS[self.name]
        for slot, _, _ in submission.entries():
            self.edit(wire, submission.run, slot, 8, lambda raw: _field(one, self.value, raw))


@dataclass(frozen=True, kw_only=True)
class Method(_Stream):
    """A method's data, or a field of it; `where` are fields that the data has."""

    engine: str
    method: str
    name: str = ""
    value: Value
    where: Mapping[str, int] | None = None

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        for va, layout, _ in _places(submission, self.engine, self.method):
            self.edit(wire, submission.run, va, 4, partial(self._new, layout))

    def _new(self, layout: type[BitStruct] | None, raw: int) -> int:
        if layout is None or not self.name:
            return apply(self.value, raw, 32)
        if any(layout.FIELDS[name].extract(raw) != value for name, value in (self.where or {}).items()):
            return raw
        return _field(layout.FIELDS[self.name], self.value, raw)


@dataclass(frozen=True, kw_only=True)
class NoMethod(_Stream):
    """The packets whose first method is this one become NOPs of the same length."""

    engine: str
    method: str

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        subchannel = ENGINES[self.engine]
        for _, entry, words in submission.entries():
            for at, _, head in packets(words):
                layout = layout_of(head.SUBCHANNEL, head.ADDRESS)
                if (
                    layout is None
                    or layout.name != self.method
                    or not _owned(subchannel, head.SUBCHANNEL, head.ADDRESS)
                ):
                    continue
                nop = head.replace(ADDRESS=HostMethod.NOP)
                if head.OPCODE is not SecOp.IMMEDIATE:
                    nop = nop.replace(OPCODE=SecOp.NON_INCREMENTING)
                self.edit(wire, submission.run, entry.ADDRESS + 4 * at, 4, partial(_constant, int(nop)))


@dataclass(frozen=True, kw_only=True)
class Swapped(_Stream):
    """The data of two methods, the second behind the first, change places."""

    engine: str
    first: str
    second: str

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        firsts = list(_places(submission, self.engine, self.first))
        for (one, _, low), (other, _, high) in zip(
            firsts, _places(submission, self.engine, self.second), strict=True
        ):
            self.edit(wire, submission.run, one, 4, partial(_constant, high))
            self.edit(wire, submission.run, other, 4, partial(_constant, low))


@dataclass(frozen=True, kw_only=True)
class Qmd(_Stream):
    """A field of launch descriptors. Several names make one number, the low part first."""

    names: tuple[str, ...]
    value: Value
    index: int = 0

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        run = submission.run
        layout = QMDS[run.gpu.profile.generation.qmd]
        fields = [layout.FIELDS[name] for name in self.names]

        def new(raw: int) -> int:
            parts = [tuple((lo + self.index * one.stride, w) for lo, w in one.runs) for one in fields]
            return _insert(raw, sum(parts, ()), self.value)

        for _, _, words in submission.entries():
            for _, one in launches(run, words):
                self.edit(wire, run, one.va, layout.SIZE, new)


@dataclass(frozen=True, kw_only=True)
class Bank(_Stream):
    """A driver's word in constant bank 0 of launches."""

    name: str
    value: Value

    def change(self, wire: Interposed, submission: ChannelSubmission) -> None:
        """Make it."""
        run = submission.run
        member = run.gpu.profile.chip.bank0.FIELDS[self.name]
        for _, _, words in submission.entries():
            for _, one in launches(run, words):
                if 0 in one.banks:
                    va = one.banks[0].va + member.offset
                    self.edit(wire, run, va, member.size, lambda raw: apply(self.value, raw, 8 * member.size))


@dataclass(frozen=True, kw_only=True)
class Bell(Change):
    """The token, the register's offset or GPPut of a submission; `value` may also take the channel's run."""

    what: str
    """"token", "offset" or "GPPut"."""
    value: Callable[[int, ChannelRun], int]
    channel: str = ""
    """Only channels whose name has this text."""

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Make it."""
        assert isinstance(submission, ChannelSubmission), "a machine of NVIDIA's"
        if store is None or self.channel not in submission.run.name:
            return store
        offset, token = store
        old = {"token": token, "offset": offset, "GPPut": put_of(submission.run)}[self.what]
        new = self.value(old, submission.run)
        if new == old or not wire.now(self):
            return store
        if self.what == "GPPut":
            set_put(submission.run, new)
            return store
        return (offset, new) if self.what == "token" else (new, token)


def _constant(value: int, _: int) -> int:
    return value


def _field(one: Field, value: Value, raw: int) -> int:
    return _insert(raw, one.runs, value)


def _insert(raw: int, runs: tuple[tuple[int, int], ...], value: Value) -> int:
    width = sum(width for _, width in runs)
    return sites.insert(raw, runs, apply(value, sites.extract(raw, runs), width))


def _owned(subchannel: int, seen: int, address: int) -> bool:
    host = HostMethod.SET_OBJECT < address < HOST_METHODS_END
    return host if subchannel < 0 else seen == subchannel and not host


def _places(
    submission: ChannelSubmission, engine: str, method: str
) -> Iterator[tuple[int, type[BitStruct] | None, int]]:
    """Yield the address, the layout and the value of the data of a method."""
    for _, entry, words in submission.entries():
        for at, subchannel, address, raw in methods(words):
            one = layout_of(subchannel, address, wide=submission.run.gpu.profile.wide)
            if one is not None and one.name == method and _owned(ENGINES[engine], subchannel, address):
                yield entry.ADDRESS + 4 * at, one.data, raw


@dataclass(frozen=True, kw_only=True)
class Freed(Change):
    """The external range that was mapped last is freed while a launch is submitted that may use it."""

    last: list[tuple[int, bytes]] = field(default_factory=list)

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Remember the range."""
        del wire
        if one.call.name == uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS.__name__:
            self.last[:] = [(one.fd, bytes(one.argument))]
        return one.send()

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Free it."""
        assert isinstance(submission, ChannelSubmission), "a machine of NVIDIA's"
        launched = any(next(launches(submission.run, words), None) for _, _, words in submission.entries())
        if launched and wire.now(self):
            ((fd, data),) = self.last
            made = uvm.UVM_CREATE_EXTERNAL_RANGE_PARAMS.from_bytes(data)
            free = uvm.UVM_FREE_PARAMS.pack(base=made.base, length=made.length)
            wire.machine.kernel.ioctl(fd, uvm.UvmCommand.UVM_FREE, bytearray(free))
        return store
