"""Changes of what an AMD queue is sent: packets, registers, the AQL queue structure, doorbells.

Not here: changes of calls (`tests.mutants.planted.wire`), the bugs (`wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from drivers.amd.decode import aql_packet, pm4_packets, sdma_packets
from drivers.amd.layouts import aql, kfd, pm4, registers
from drivers.kernel import view_at
from tests.mutants import sites
from tests.mutants.amd.doorbells import QueueSubmission
from tests.mutants.amd.packets import Aql, Pm4, Sdma
from tests.mutants.planted.wire import Change, apply, find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drivers.amd.layouts.kfd import QueueType
    from hcq.layout import BitStruct, Struct
    from tests.mutants.amd.doorbells import Part
    from tests.mutants.emulated import Store, Submission
    from tests.mutants.planted.wire import Interposed, Ioctl, Value

_WORD: Final = 32


@dataclass(frozen=True, kw_only=True)
class _Stream(Change):
    """A change of memory that a submission references."""

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Make it."""
        assert isinstance(submission, QueueSubmission), "a machine of AMD's"
        self.change(wire, submission)
        return store

    def change(self, wire: Interposed, submission: QueueSubmission) -> None:
        """Make it in memory."""
        raise NotImplementedError

    def edit(
        self, wire: Interposed, submission: QueueSubmission, part: Part, at: int, new: Callable[[int], int]
    ) -> None:
        """Change a word of a part."""
        va, raw = part.places[at], part.words[at]
        changed = wire.edited(self, va, raw, new)
        if changed != raw:
            submission.store_at(va, 4, changed)


@dataclass(frozen=True, kw_only=True)
class Packet(_Stream):
    """A field of packets of a layout; `where` are values that other fields have."""

    layout: type[BitStruct]
    name: str
    value: Value
    where: Mapping[str, int] | None = None
    nested: type[BitStruct] | None = None
    """The layout of the word of the packet that has the field, if it is not the packet's own."""
    word: int = 0
    """That word."""
    behind: str = ""
    """The name of the packet before."""
    events: bool | None = None
    """Whether the packet stores to a slot of an event; None: any."""

    def change(self, wire: Interposed, submission: QueueSubmission) -> None:
        """Make it."""
        for part in submission.parts:
            before = ""
            for at, value, name in _packets(part):
                if isinstance(value, self.layout) and (not self.behind or before == self.behind):
                    self._one(wire, submission, part, at, value)
                before = name

    def _one(
        self, wire: Interposed, submission: QueueSubmission, part: Part, at: int, value: BitStruct
    ) -> None:
        if any(getattr(value, name) != wanted for name, wanted in (self.where or {}).items()):
            return
        if self.events is not None and self.events != _to_event(part, value):
            return
        layout = self.nested or type(value)
        one = layout.FIELDS.get(self.name) or layout.FIXED[self.name]
        width = sum(width for _, width in one.runs)
        (lowest, _), *_ = one.runs
        first = at + self.word + lowest // _WORD
        runs = tuple((lo - lowest // _WORD * _WORD, width) for lo, width in one.runs)
        count = -(-max(lo + width for lo, width in runs) // _WORD)
        raw = sum(part.words[first + i] << _WORD * i for i in range(count))
        new = sites.insert(raw, runs, apply(self.value, sites.extract(raw, runs), width))
        if new == raw or not wire.now(self):
            return
        for i in range(count):
            submission.store_at(part.places[first + i], 4, new >> _WORD * i & 0xFFFF_FFFF)


@dataclass(frozen=True, kw_only=True)
class Register(_Stream):
    """A register that SET_SH_REG writes, or a field of it."""

    register: str
    name: str = ""
    value: Value

    def change(self, wire: Interposed, submission: QueueSubmission) -> None:
        """Make it."""
        for part in submission.parts:
            if not isinstance(part.stream, Pm4):
                continue
            generation = part.stream.generation
            names = registers.register_names(generation)
            for one in pm4_packets(part.words, generation):
                if not isinstance(one.value, pm4.SetShReg):
                    continue
                for i in range(len(one.data)):
                    if names.get(one.value.REG_OFFSET + i) == self.register:
                        at = one.at + one.value.WORDS + i
                        self.edit(wire, submission, part, at, partial(self._new, generation))

    def _new(self, generation: int, raw: int) -> int:
        if not self.name:
            return apply(self.value, raw, _WORD)
        one = registers.FIELDS[self.register][generation].FIELDS[self.name]
        width = sum(width for _, width in one.runs)
        return sites.insert(raw, one.runs, apply(self.value, sites.extract(raw, one.runs), width))


@dataclass(frozen=True, kw_only=True)
class NoPacket(_Stream):
    """Packets of a layout become NOPs of the same length."""

    layout: type[BitStruct]
    where: Mapping[str, int] | None = None
    events: bool | None = None
    before: str = ""
    """The name of the packet behind."""

    def change(self, wire: Interposed, submission: QueueSubmission) -> None:
        """Make it."""
        for part in submission.parts:
            found = [*_packets(part), (len(part.words), None, "")]
            for (at, value, _), (end, _, after) in pairwise(found):
                if not isinstance(value, self.layout) or (self.before and after != self.before):
                    continue
                if any(getattr(value, name) != wanted for name, wanted in (self.where or {}).items()):
                    continue
                if self.events is not None and self.events != _to_event(part, value):
                    continue
                if wire.now(self):
                    for i, word in enumerate(part.stream.nops(end - at)):
                        submission.store_at(part.places[at + i], 4, word)


@dataclass(frozen=True, kw_only=True)
class Exchanged(_Stream):
    """Two packets that follow each other change places."""

    first: type[BitStruct]
    second: type[BitStruct]

    def change(self, wire: Interposed, submission: QueueSubmission) -> None:
        """Make it."""
        for part in submission.parts:
            found = [*_packets(part), (len(part.words), None, ""), (len(part.words), None, "")]
            for (at, one, _), (middle, other, _), (end, _, _) in zip(
                found, found[1:], found[2:], strict=False
            ):
                if isinstance(one, self.first) and isinstance(other, self.second) and wire.now(self):
                    for i, word in enumerate([*part.words[middle:end], *part.words[at:middle]]):
                        submission.store_at(part.places[at + i], 4, word)


@dataclass(frozen=True, kw_only=True)
class Prepared(Change):
    """A member of a structure that CREATE_QUEUE points to: the queue's or the context-save header's."""

    layout: type[Struct]
    """`aql.Queue`, or `cwsr.kfd_context_save_area_header`."""
    name: str
    value: Value

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Change it before the call."""
        aqls = self.layout is aql.Queue
        pointer = "write_pointer_address" if aqls else "ctx_save_restore_address"
        call = "CREATE_QUEUE of COMPUTE_AQL" if aqls else "CREATE_QUEUE of COMPUTE(_AQL)?"
        place = find(one, call, pointer)
        if place is not None and wire.now(self):
            view, at, size = place
            base = int.from_bytes(view[at : at + size], "little")
            base -= aql.Queue.offset_of("write_dispatch_id") if aqls else 0
            member = self.layout.FIELDS[self.name]
            memory = view_at(base + member.offset, member.size)
            old = int.from_bytes(memory, "little")
            memory[:] = apply(self.value, old, 8 * member.size).to_bytes(member.size, "little")
        return one.send()


@dataclass(frozen=True, kw_only=True)
class Bell(Change):
    """The value or the offset of a doorbell, or the write pointer in memory."""

    what: str
    """"value", "offset" or "pointer"."""
    value: Callable[[int], int]
    kinds: tuple[QueueType, ...]

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Make it."""
        assert isinstance(submission, QueueSubmission), "a machine of AMD's"
        if store is None or submission.queue.kind not in self.kinds or not wire.now(self):
            return store
        offset, value = store
        if self.what == "pointer":
            va = submission.queue.wptr_va
            submission.store_at(va, 8, self.value(submission.load(va, 8)))
            return store
        return (offset, self.value(value)) if self.what == "value" else (self.value(offset), value)


@dataclass(frozen=True, kw_only=True)
class LateHeader(Change):
    """The headers of AQL packets are INVALID until the doorbell was rung."""

    held: list[Callable[[], None]] = field(default_factory=list)

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Hold the headers back."""
        assert isinstance(submission, QueueSubmission), "a machine of AMD's"
        part = submission.parts[0]
        if isinstance(part.stream, Aql):
            for at in range(0, len(part.words), aql.PACKET_WORDS):
                if wire.now(self):
                    va, word = part.places[at], part.words[at]
                    submission.store_at(va, 4, word & ~0xFFFF | aql.Type.INVALID)
                    self.held.append(partial(submission.store_at, va, 4, word))
        return store

    def rang(self, wire: Interposed) -> None:
        """Store them."""
        del wire
        while self.held:
            self.held.pop(0)()


@dataclass(frozen=True, kw_only=True)
class Unmapped(Change):
    """The memory that was mapped last is unmapped while a launch is submitted that may use it."""

    last: list[tuple[int, bytes]] = field(default_factory=list)

    def ioctl(self, wire: Interposed, one: Ioctl) -> int:
        """Remember the memory; its array of GPUs is copied."""
        if one.call.name == kfd.Call.MAP_MEMORY_TO_GPU.name:
            made = kfd.kfd_ioctl_map_memory_to_gpu_args.from_bytes(one.argument)
            gpus = wire.keep(b"".join(bytes(block.view) for block in one.call.blocks))
            again = made.replace(device_ids_array_ptr=gpus, n_success=0)
            self.last[:] = [(one.fd, again.to_bytes())]
        return one.send()

    def submit(self, wire: Interposed, submission: Submission, store: Store) -> Store:
        """Unmap it."""
        assert isinstance(submission, QueueSubmission), "a machine of AMD's"
        found = (value for part in submission.parts for _, value, _ in _packets(part))
        launched = any(isinstance(one, pm4.DispatchDirect | aql.KernelDispatch) for one in found)
        if launched and wire.now(self):
            ((fd, data),) = self.last
            request = kfd.request(kfd.Call.UNMAP_MEMORY_FROM_GPU, len(data))
            wire.machine.kernel.ioctl(fd, request, bytearray(data))
        return store


def _packets(part: Part) -> Iterator[tuple[int, Any, str]]:
    """Yield the place, the value and the name of each packet."""
    if isinstance(part.stream, Aql):
        for at in range(0, len(part.words), aql.PACKET_WORDS):
            packet = aql_packet(part.words, at)
            yield at, packet, type(packet).__name__
    elif isinstance(part.stream, Sdma):
        for one in sdma_packets(part.words, part.stream.version):
            yield one.at, one.value, one.name
    else:
        assert isinstance(part.stream, Pm4)
        for one in pm4_packets(part.words, part.stream.generation):
            yield one.at, one.value, one.name


def _to_event(part: Part, value: Any) -> bool:
    slots = getattr(part.stream, "slots", range(0))
    return (value.ADDRESS_HI << 32 | value.ADDRESS_LO) in slots
