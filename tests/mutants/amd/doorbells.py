"""Mutants of one doorbell of an AMD queue: of its store, packets, kernel arguments and kernel descriptors.

A submission consists of the words written to the ring since the queue's previous doorbell (entry 0), and of
the indirect buffers that these words reference, in order (entries 1 and up).

Not here: the mutants of packet fields (`packets`), the changes of a number (`tests.mutants.sites`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd.decode import aql_packet, pm4_packets, sdma_packets
from drivers.amd.layouts import aql, pm4, sdma
from drivers.amd.layouts.code import Descriptor
from drivers.amd.layouts.kfd import DOORBELL_BYTES, QueueType
from drivers.amd.layouts.registers import PROGRAM_SHIFT, ShRegister
from tests.mutants import sites
from tests.mutants.amd.packets import Aql, Pm4, Sdma, change

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emulator.amd.kfd.gpu import GpuSpace
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.machine import AmdMachine
    from tests.mutants.amd.packets import Stream
    from tests.mutants.emulated import Store
    from tests.mutants.sites import Mutant, Runs

_WHAT: Final = "mutant"
_LONG: Final[Runs] = ((0, 64),)
_WORD: Final[Runs] = ((0, 32),)
_VALUE, _OFFSET, _WPTR = range(3)
_ARGUMENTS, _DESCRIPTOR = 0, 1
_ARGUMENT_WORDS: Final = 4
"""Words of kernel arguments that are mutated: the size of the largest arguments in the scenario."""
_DEPTH: Final = 3
"""The deepest nesting of PM4 indirect buffers that is followed."""


@dataclass(frozen=True, slots=True)
class Part:
    """The words of the ring, or of one indirect buffer, in a submission."""

    stream: Stream
    words: list[int]
    places: list[int]
    """Address of each word."""


class Doorbells:
    """The doorbell stores of one machine, in order. Remembers where each queue's last submission ended."""

    def __init__(self, machine: AmdMachine) -> None:
        self._machine = machine
        self._taken: dict[int, int] = {}
        """Number of the queue -> bytes that its doorbells covered."""
        self._descriptors: set[int] = set()

    def submission(self, offset: int, value: int) -> QueueSubmission | None:
        """Return the submission of a 64-bit store; None if the offset, in bytes, is no queue's doorbell."""
        gpu = self._machine.gpus[0]
        queue = self._machine.queue_of(gpu, offset // DOORBELL_BYTES)
        if queue is None:
            return None
        assert gpu.space is not None
        end = {QueueType.COMPUTE: 4 * value, QueueType.COMPUTE_AQL: 64 * (value + 1)}.get(queue.kind, value)
        first = self._taken.get(queue.number, 0)
        self._taken[queue.number] = end
        places = [queue.ring_va + at % queue.ring_bytes for at in range(first, end, 4)]
        slots = self._machine.process.slots(gpu)
        return QueueSubmission(offset, value, queue, gpu.space, places, self._descriptors, slots)


class QueueSubmission:
    """The submission of a pending doorbell store; see `tests.mutants.emulated.Submission`."""

    def __init__(  # noqa: PLR0917 - what a doorbell consists of
        self,
        offset: int,
        value: int,
        queue: QueueObject,
        space: GpuSpace,
        places: list[int],
        descriptors: set[int],
        slots: range,
    ) -> None:
        self._offset, self._value, self._queue, self._space = offset, value, queue, space
        self._descriptors, self._slots = descriptors, slots
        self._parts = list(self._find(places))

    @property
    def store(self) -> Store:
        """The unchanged store of the driver."""
        return self._offset, self._value

    @property
    def queue(self) -> QueueObject:
        """The queue."""
        return self._queue

    @property
    def parts(self) -> Sequence[Part]:
        """The ring's words, and those of each indirect buffer."""
        return self._parts

    def load(self, va: int, size: int) -> int:
        """Return the number of `size` bytes at an address."""
        return self._load(va, size)

    def store_at(self, va: int, size: int, value: int) -> None:
        """Write a number of `size` bytes."""
        self._space.write(va, value.to_bytes(size, "little"), _WHAT)

    def mutants(self, index: int) -> Iterator[Mutant]:
        """Yield the mutants of the store and of the submitted work; `index` is the number of the doorbell."""
        yield sites.Mutant("doorbell", index, 0, 0, (), sites.DELETE, f"doorbell of {self._queue.name}")
        for at, raw, runs, label in (
            (_VALUE, self._value, _LONG, "value"),
            (_OFFSET, self._offset, _WORD, "offset"),
            (_WPTR, self._load(self._queue.wptr_va, 8), _LONG, "write pointer"),
        ):
            yield from sites.variants("store", index, 0, at, runs, raw, f"doorbell {label}")
        for entry, part in enumerate(self._parts):
            yield from part.stream.mutants(part.words, index, entry)
            for number, (arguments, descriptor) in enumerate(self._launches(part)):
                for word in range(_ARGUMENT_WORDS):
                    raw = self._load(arguments + 4 * word, 4)
                    label = f"argument word {word} of launch {number}"
                    yield from sites.variants(
                        "memory", index, entry, number, ((32 * word, 32),), raw << 32 * word, label,
                        part=_ARGUMENTS,
                    )  # fmt: skip
                if descriptor and descriptor not in self._descriptors:
                    self._descriptors.add(descriptor)
                    data = self._space.read(descriptor, Descriptor.SIZE, _WHAT)
                    for label, at, size in sites.members(Descriptor, data):
                        raw = int.from_bytes(data[at : at + size], "little")
                        yield from sites.variants(
                            "descriptor", index, entry, number, ((8 * at, 8 * size),), raw << 8 * at, label,
                            part=_DESCRIPTOR,
                        )  # fmt: skip

    def make(self, mutant: Mutant) -> Store:
        """Apply a mutant to the GPU memory of the submission; return the store to execute."""
        if mutant.space == "doorbell":
            return None
        offset, value = self._offset, self._value
        if mutant.space == "store":
            if mutant.at == _VALUE:
                value = sites.changed(value, mutant.runs, mutant.operation)
            elif mutant.at == _OFFSET:
                offset = sites.changed(offset, mutant.runs, mutant.operation)
            else:
                self._change(self._queue.wptr_va, mutant, 64)
            return offset, value
        part = self._parts[mutant.entry]
        if mutant.space in {"memory", "descriptor"}:
            place = list(self._launches(part))[mutant.at][mutant.part]
            self._change(place, mutant, Descriptor.SIZE * 8 if mutant.part == _DESCRIPTOR else 128)
        else:
            new = change(part.stream, part.words, mutant)
            for va, word, old in zip(part.places, new, part.words, strict=True):
                if word != old:
                    self._space.write(va, word.to_bytes(4, "little"), _WHAT)
        return offset, value

    def _change(self, va: int, mutant: Mutant, bits: int) -> None:
        raw = sites.changed(self._load(va, bits // 8), mutant.runs, mutant.operation)
        self._space.write(va, raw.to_bytes(bits // 8, "little"), _WHAT)

    def _load(self, va: int, size: int) -> int:
        return int.from_bytes(self._space.read(va, size, _WHAT), "little")

    def _find(self, places: list[int]) -> Iterator[Part]:
        """Yield the words of the ring, then those of the indirect buffers that they reference."""
        words = [self._load(va, 4) for va in places]
        target = self._queue.gpu.profile.target
        generation = int(target.generation)
        if self._queue.kind is QueueType.COMPUTE:
            yield from self._pm4(words, places, Pm4(generation, self._slots))
        elif self._queue.kind is QueueType.COMPUTE_AQL:
            yield Part(Aql(), words, places)
            for at in range(0, len(words), aql.PACKET_WORDS):
                packet = aql_packet(words, at)
                if isinstance(packet, aql.Pm4Ib):
                    ib = pm4.IndirectBuffer.from_words(words[at + 1 : at + 1 + pm4.IndirectBuffer.WORDS])
                    inner = self._buffer(ib.ADDRESS_LO, ib.ADDRESS_HI, ib.IB_SIZE)
                    stream = Pm4(generation, self._slots, acquired=_acquires(words[at:]))
                    yield from self._pm4(*inner, stream)
        else:
            yield Part(Sdma(target.sdma, self._slots), words, places)
            for one in sdma_packets(words, target.sdma):
                if isinstance(one.value, sdma.Indirect):
                    ibs = self._buffer(one.value.BASE_LO, one.value.BASE_HI, one.value.IB_SIZE)
                    yield Part(Sdma(target.sdma, self._slots), *ibs)

    def _pm4(self, words: list[int], places: list[int], stream: Pm4, depth: int = 0) -> Iterator[Part]:
        yield Part(stream, words, places)
        for one in pm4_packets(words, stream.generation):
            if isinstance(one.value, pm4.IndirectBuffer) and depth < _DEPTH:
                ib = self._buffer(one.value.ADDRESS_LO, one.value.ADDRESS_HI, one.value.IB_SIZE)
                yield from self._pm4(*ib, stream, depth + 1)

    def _buffer(self, low: int, high: int, count: int) -> tuple[list[int], list[int]]:
        places = [(high << 32 | low) + 4 * at for at in range(count)]
        return [self._load(va, 4) for va in places], places

    def _launches(self, part: Part) -> Iterator[tuple[int, int]]:
        """Yield the addresses of the arguments and of the descriptor of each launch; PM4 has none: 0."""
        if isinstance(part.stream, Aql):
            for at in range(0, len(part.words), aql.PACKET_WORDS):
                packet = aql_packet(part.words, at)
                if isinstance(packet, aql.KernelDispatch):
                    yield packet.KERNARG_ADDRESS, packet.KERNEL_OBJECT
        elif isinstance(part.stream, Pm4):
            registers: dict[int, int] = {}
            for one in pm4_packets(part.words, part.stream.generation):
                if isinstance(one.value, pm4.SetShReg):
                    registers |= dict(enumerate(one.data, one.value.REG_OFFSET))
                elif isinstance(one.value, pm4.DispatchDirect):
                    low = registers.get(ShRegister.COMPUTE_USER_DATA_0, 0)
                    high = registers.get(ShRegister.COMPUTE_USER_DATA_0 + 1, 0)
                    assert registers.get(ShRegister.COMPUTE_PGM_LO, 0) << PROGRAM_SHIFT
                    yield high << 32 | low, 0


def _acquires(words: list[int]) -> bool:
    """Return whether the first dispatch in the words of an AQL ring acquires."""
    for at in range(0, len(words), aql.PACKET_WORDS):
        packet = aql_packet(words, at)
        if isinstance(packet, aql.KernelDispatch):
            return packet.ACQUIRE_SCOPE is not aql.FenceScope.NONE
    return False
