"""Mutants of a submission: its doorbell store, ring entries, packets, words, launch descriptors and memory.

Not here: the memory that a submission references (`contents`), the changes of a number
(`tests.mutants.sites`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.gpfifo import (
    GpfifoControl,
    GpfifoEntry,
    GpfifoOpcode,
    HopperAControlGPFifo,
    UsermodeRegister,
)
from drivers.nv.layouts.qmd import QMDS
from tests.mutants import sites
from tests.mutants.nv import contents, packets
from tests.mutants.nv.contents import WHAT, Contents, launches, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.machine.machine import NvMachine
    from tests.mutants.emulated import Store
    from tests.mutants.sites import Mutant, Runs

_PUT: Final = HopperAControlGPFifo.offset_of("GPPut")
_NOP: Final = int(GpfifoControl(OPCODE=GpfifoOpcode.NOP))
_WORD: Final[Runs] = ((0, 32),)
_REGISTER: Final = int(UsermodeRegister.NOTIFY_CHANNEL_PENDING)
_TOKEN, _OFFSET, _GPPUT = range(3)


class Doorbells:
    """Finds the submissions of one machine's doorbell stores, in order."""

    def __init__(self, machine: NvMachine) -> None:
        self._machine = machine
        self._puts: dict[int, int] = {}
        self._contents = Contents()

    def submission(self, offset: int, value: int) -> ChannelSubmission | None:
        """Return the submission of a 32-bit store to the doorbell page.

        None if it is not a channel's doorbell.
        """
        if offset != _REGISTER or value not in self._machine.gpus[0].tokens:
            return None
        run = self._machine.gpus[0].tokens[value].run
        put = put_of(run)
        slots = []
        at = self._puts.get(value, 0)
        while at != put:
            slots.append(run.setup.ring_va + at * GpfifoEntry.SIZE)
            at = (at + 1) % run.setup.entries
        self._puts[value] = put
        return ChannelSubmission(value, run, slots, self._contents)


class ChannelSubmission:
    """The new ring entries of a channel and its doorbell store; a `tests.mutants.emulated.Submission`."""

    def __init__(self, token: int, run: ChannelRun, slots: Sequence[int], memory: Contents) -> None:
        self._token, self._run, self._slots = token, run, slots
        self._contents = memory
        self._profile = run.gpu.profile
        self._layout = QMDS[self._profile.generation.qmd]

    @property
    def store(self) -> Store:
        """The store of the unchanged driver."""
        return _REGISTER, self._token

    @property
    def run(self) -> ChannelRun:
        """The channel."""
        return self._run

    def entries(self) -> Iterator[tuple[int, GpfifoEntry, list[int]]]:
        """Yield the address of each ring entry, the entry, and the words of its segment."""
        for slot in self._slots:
            entry = GpfifoEntry.from_int(self._run.space.word(slot, 64, WHAT))
            yield slot, entry, _words(self._run, entry)

    def mutants(self, index: int) -> Iterator[Mutant]:
        """Yield the mutants of the doorbell store and of the submitted work."""
        run = self._run
        yield sites.Mutant("doorbell", index, 0, 0, (), sites.DELETE, f"doorbell of {run.name}")
        for at, raw, label in (
            (_TOKEN, self._token, "token"),
            (_OFFSET, _REGISTER, "offset"),
            (_GPPUT, put_of(run), "GPPut"),
        ):
            yield from sites.variants("store", index, 0, at, _WORD, raw, f"doorbell {label}")
        for entry, slot in enumerate(self._slots):
            raw = run.space.word(slot, 64, WHAT)
            yield from packets.ring_entry(raw, index, entry)
            words = _words(run, GpfifoEntry.from_int(raw))
            yield from packets.segment(words, index, entry, wide=self._profile.wide)
            layout = self._layout
            for at, one in launches(run, words):
                number = int.from_bytes(run.space.read(one.va, layout.SIZE, WHAT), "little")
                name = named(at) + layout.__name__
                yield from sites.fields(layout, "descriptor", index, entry, at, number, name)
            yield from self._contents.find(run, words, index, entry)

    def make(self, mutant: Mutant) -> Store:
        """Make a mutant; return the store to execute, or None to omit it."""
        token, offset, run = self._token, _REGISTER, self._run
        if mutant.space == "doorbell":
            return None
        if mutant.space == "store":
            if mutant.at == _TOKEN:
                token = sites.changed(token, mutant.runs, mutant.operation)
            elif mutant.at == _OFFSET:
                offset = sites.changed(offset, mutant.runs, mutant.operation)
            else:
                set_put(run, sites.changed(put_of(run), mutant.runs, mutant.operation))
        else:
            self._submission(mutant, run, self._slots[mutant.entry])
        return offset, token

    def _submission(self, mutant: Mutant, run: ChannelRun, slot: int) -> None:
        raw = run.space.word(slot, 64, WHAT)
        entry = GpfifoEntry.from_int(raw)
        words = _words(run, entry)
        if mutant.space == "entry":
            deleted = mutant.operation == sites.DELETE
            new = _NOP if deleted else sites.changed(raw, mutant.runs, mutant.operation)
            run.space.write(slot, new.to_bytes(8, "little"), WHAT)
        elif mutant.space == "packet":
            rest = [*words[: mutant.at], *words[mutant.at + mutant.runs[0][1] // 32 :]]
            _write_words(run, entry.ADDRESS, rest)
            short = int(entry.replace(LENGTH=len(rest))) if rest else _NOP
            run.space.write(slot, short.to_bytes(8, "little"), WHAT)
        elif mutant.space == "word":
            word = sites.changed(words[mutant.at], mutant.runs, mutant.operation)
            _write_words(run, entry.ADDRESS + 4 * mutant.at, [word])
        elif mutant.space == "descriptor":
            va = dict(launches(run, words))[mutant.at].va
            size = self._layout.SIZE
            number = int.from_bytes(run.space.read(va, size, WHAT), "little")
            number = sites.changed(number, mutant.runs, mutant.operation)
            run.space.write(va, number.to_bytes(size, "little"), WHAT)
        else:
            contents.change(run, words, mutant)
        run.combining.overlook()  # the driver's fence comes before the doorbell, where this is called


def put_of(run: ChannelRun) -> int:
    """Return GPPut of a channel."""
    memory, offset = run.setup.userd
    return int.from_bytes(memory.backing.view[offset + _PUT : offset + _PUT + 4], "little")


def set_put(run: ChannelRun, value: int) -> None:
    """Store GPPut of a channel."""
    memory, offset = run.setup.userd
    memory.backing.view[offset + _PUT : offset + _PUT + 4] = value.to_bytes(4, "little")


def _words(run: ChannelRun, entry: GpfifoEntry) -> list[int]:
    data = run.space.read(entry.ADDRESS, 4 * entry.LENGTH, WHAT)
    return list(memoryview(data).cast("I"))


def _write_words(run: ChannelRun, va: int, words: Sequence[int]) -> None:
    run.space.write(va, b"".join(word.to_bytes(4, "little") for word in words), WHAT)
