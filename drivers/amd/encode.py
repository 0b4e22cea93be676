"""The PM4 encoder: neutral commands to PM4 words, for compute queues and for buffers of AQL queues.

Kernels overlap until a flush waits for them. Barriers, stores, copies and signals begin with a flush. Caches
above L2 are invalidated before each launch, or with the quirk acquire="order" only after a flush. All caches
are invalidated at the start of a submission that accesses memory, and after a wait. A signal writes L2 back,
and so does a barrier for the system. Engines compare 32 bits of a signal; values of timelines are smaller.

Values that are not known when a submission is encoded (`hcq.params`) are written as 0, with a patch that
fills them in at submission.

Not here: the words of each packet sequence (`packets`, `launch`), AQL queues (`encode_aql`), copy engines
(`encode_sdma`). Next: `packets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drivers.amd import packets
from drivers.amd.context import QueueContext
from drivers.amd.launch import PACKET_KERNARG
from drivers.amd.layouts.pm4 import MAX_DMA_BYTES, MAX_IB_WORDS, NOP_COUNT_ONE_DWORD, Header
from drivers.amd.layouts.registers import PROGRAM_SHIFT
from drivers.amd.program import BLOCK_ALIGN, AmdProgram
from hcq import commands as neutral
from hcq.commands import Command
from hcq.errors import UsageError
from hcq.params import Word
from hcq.pushbuffer import PushBuffer

_LOW: Final = 0xFFFF_FFFF


class _Accesses(dict[type[Command], bool]):
    """Class of a command -> whether it declares that it reads or writes memory, other than words it runs."""

    def __missing__(self, kind: type[Command]) -> bool:
        own = kind.touches is not Command.touches
        found = self[kind] = own or any(part.access != "x" for part in kind.memory)
        return found


class Pm4Encoder:
    """The encoder for one PM4 compute queue, or (`shared`) for the indirect buffers of an AQL queue.

    See `hcq.driver.Encoder`. `copy`, `fill` and `table` are for `encode_aql`.
    """

    def __init__(self, context: QueueContext, *, shared: bool = False) -> None:
        choices = context.choices
        self._scratch = context.scratch
        self._launched = context.launched
        self.words = words = packets.Pm4Words(context.target, choices)
        self._shared = shared
        self._launches_acquire = choices.acquire == "launch"
        """Whether a launch begins with `acquire_launch`."""
        pairs = zip(words.acquire_launch, words.acquire_system, strict=True)
        ((self._caches_at, self._all_caches),) = [
            (i, new) for i, (old, new) in enumerate(pairs) if new != old
        ]
        self._dies = shared and context.geometry.xccs > 1
        self._by_release = choices.order == "release"
        after = words.acquire_launch if choices.acquire == "order" and not shared else ()
        self._after_order: packets.Words = after
        """Words that a flush must be followed by if a launch does not invalidate caches."""
        self._after_store: packets.Words = (words.write_back if shared else ()) + after
        self._dma_bytes = MAX_DMA_BYTES[context.target.generation]
        event = context.event
        self._wake: packets.Words = () if event is None else words.interrupt(event.slot_va, event.number)
        self.table = neutral.CommandTable()
        self.table |= {
            neutral.Wait: self._wait,
            neutral.WaitMemory: self._wait,
            neutral.SetSignal: self._signal,
            neutral.Timestamp: self._timestamp,
            neutral.Barrier: self._barrier,
            neutral.Exec: self._exec,
            neutral.Copy: self._copy,
            neutral.Fill: self._fill,
            neutral.Write: self._write,
            neutral.Indirect: self._indirect,
        }
        """Command -> the method that appends its words."""
        self._accesses = _Accesses()

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands`; see `hcq.driver.Encoder`."""
        table = self.table
        # Copy engines may store past L2, and a copy that has completed is not encoded as a wait.
        first, launch = commands[0].__class__ if commands else neutral.Wait, -1
        if first is neutral.Exec and self._launches_acquire:
            launch = len(out.words)
        elif first is not neutral.Wait and any(self._accesses[command.__class__] for command in commands):
            out.words += self.words.acquire_system
        for command in commands:
            table[command.__class__](command, out)
        if launch >= 0:
            out.words[launch + self._caches_at] = self._all_caches

    def new_code(self) -> Sequence[int]:
        """Return the words that the queue must run after code was loaded, before its next kernel."""
        return self.words.acquire_code

    def _flush(self, out: PushBuffer) -> None:
        """Append a wait for all earlier kernels; nothing for AQL, where the packet's barrier bit waits."""
        if self._shared:
            return
        if not self._by_release:
            out.words += packets.FLUSH
            return
        slot = out.place((0,), align=8)
        out.words += self.words.signal(slot, 1)
        out.words += self.words.wait(slot, 1)
        out.words += packets.store(slot, (0,))

    def _once(self, words: packets.Words, out: PushBuffer) -> int:
        """Append words that only one XCC runs; return the index of the first."""
        if self._dies:
            out.words += packets.on_first_xcc(len(words))
        at = len(out.words)
        out.words += words
        return at

    def _wait(self, command: neutral.Wait | neutral.WaitMemory, out: PushBuffer) -> None:
        value = command.value
        neutral.limit(command, 32)
        if isinstance(value, int):
            out.words += self.words.wait(command.signal.va, comparable(value))
        else:
            at = len(out.words)
            out.words += self.words.wait(command.signal.va, 0)
            out.patch_word(at + packets.WAIT_VALUE, value, width=32)
        out.words += self.words.acquire_system

    def _signal(self, command: neutral.SetSignal, out: PushBuffer) -> None:
        self._flush(out)
        value = command.value
        release = self.words.signal(command.signal.va, comparable(constant(value)))
        at = self._once(release + self._wake, out)
        patch_number(out, value, at + packets.RELEASE_VALUE, 1)

    def _timestamp(self, command: neutral.Timestamp, out: PushBuffer) -> None:
        self._once(self.words.timestamp(command.stamp.ticks_va), out)

    def _barrier(self, command: neutral.Barrier, out: PushBuffer) -> None:
        self._flush(out)
        if command.scope is neutral.Scope.SYSTEM:
            out.words += self.words.write_back
        out.words += self._after_order

    def _exec(self, command: neutral.Exec, out: PushBuffer) -> None:
        program = command.program.loaded
        if not isinstance(program, AmdProgram):
            raise UsageError(f"kernel {command.program.name} was loaded by another driver")
        shape = program.shapes.get((command.groups, command.threads))
        new = shape is None
        if shape is None:
            shape = program.shape(command.groups, command.threads)
        block = shape.block[:]
        block[program.arguments] = command.args.words
        va = out.place(block, align=BLOCK_ALIGN)
        words = out.words
        at = len(words)
        words += shape.words
        kernarg = at + program.kernarg_at
        words[kernarg], words[kernarg + 1] = va & _LOW, va >> 32
        self._launched(program.image.name)
        if program.rare:
            self._rare(program, at, va, out)
        for offset, width, expr in command.args.patches:
            out.patch_memory(va + offset, expr, width=width)
        if new:
            self._patch_grid(program, command, at, va, out)

    def _rare(self, program: AmdProgram, at: int, va: int, out: PushBuffer) -> None:
        """Fill in the addresses that few kernels need: of scratch memory and of the dispatch packet."""
        words, sites = out.words, program.sites
        if sites.scratch >= 0:
            backing = self._scratch()
            assert backing.lane_bytes >= program.scratch_bytes, "the device backs what it loads"
            base = backing.va >> PROGRAM_SHIFT
            words[at + sites.scratch], words[at + sites.scratch + 1] = base & _LOW, base >> 32
            words[at + sites.tmpring] = backing.tmpring
        if sites.packet >= 0:
            packet = va + program.packet_at
            words[at + sites.packet], words[at + sites.packet + 1] = packet & _LOW, packet >> 32
            out.write(packet + PACKET_KERNARG, va)

    @staticmethod
    def _patch_grid(program: AmdProgram, command: neutral.Exec, at: int, va: int, out: PushBuffer) -> None:
        """Patch unknown numbers of workgroups: in the launch at word `at`, and in the block at `va`."""
        threads = command.threads
        for axis, word in enumerate(command.groups):
            if isinstance(word, int):
                continue
            for index, lo in program.grid_words(axis, threads):
                out.patch_word(at + index, word, lo=lo, width=32 - lo)
            for offset, lo in program.grid_bytes(axis, threads):
                out.patch_memory(va + offset, word, lo=lo, width=32 - lo)

    def _copy(self, command: neutral.Copy, out: PushBuffer) -> None:
        self.copy(neutral.address(command.dst), neutral.address(command.src), command.size, out)

    def copy(self, dst: Word, src: Word, size: Word, out: PushBuffer) -> None:
        """Append a copy, in order with kernels and stores."""
        self._flush(out)
        for start, piece, last in pieces(size, self._dma_bytes):
            to, source = add(dst, start), add(src, start)
            at = self._once(packets.copy(constant(to), constant(source), piece, last=last), out)
            patch_number(out, source, at + packets.DMA_SOURCE, 2)
            patch_number(out, to, at + packets.DMA_TARGET, 2)
            self._patch_size(out, size, at)
        out.words += self._after_store

    def _fill(self, command: neutral.Fill, out: PushBuffer) -> None:
        self.fill(neutral.address(command.dst), command.value, command.size, out)

    def fill(self, dst: Word, value: Word, size: Word, out: PushBuffer) -> None:
        """Append a fill with a u32, in order with kernels and stores."""
        self._flush(out)
        for start, piece, last in pieces(size, self._dma_bytes):
            to = add(dst, start)
            at = self._once(packets.fill(constant(to), constant(value) & _LOW, piece, last=last), out)
            patch_number(out, value, at + packets.DMA_SOURCE, 1)
            patch_number(out, to, at + packets.DMA_TARGET, 2)
            self._patch_size(out, size, at)
        out.words += self._after_store

    def _patch_size(self, out: PushBuffer, size: Word, at: int) -> None:
        if not isinstance(size, int):
            out.patch_word(at + packets.DMA_BYTES, size, width=self._dma_bytes.bit_length())

    def _write(self, command: neutral.Write, out: PushBuffer) -> None:
        dst, value = neutral.address(command.dst), command.value
        values = number_words(value, command.bits)
        self._flush(out)
        at = self._once(packets.store(constant(dst), values), out)
        patch_number(out, dst, at + packets.STORE_ADDRESS, 2)
        patch_number(out, value, at + packets.STORE_VALUE, len(values))
        out.words += self._after_store

    def _indirect(self, command: neutral.Indirect, out: PushBuffer) -> None:
        va, count = command.buffer.va, command.words
        if count <= MAX_IB_WORDS:
            out.words += packets.indirect(va, count)
            return
        for start, end in cut(command.buffer.borrow().cast("I"), count, MAX_IB_WORDS):
            out.words += packets.indirect(va + 4 * start, end - start)


def comparable(value: int) -> int:
    """Return the value of a signal, which engines compare as u32. Raises `UsageError` for a larger value."""
    if value >> 32:
        raise UsageError(f"this GPU's queues compare 32 bits of a signal, {value:#x} does not fit")
    return value


def number_words(value: Word, bits: int) -> packets.Words:
    """Return the dwords of a number of `bits` bits, low first; zeros for one that is not known.

    Raises `UsageError` if the number does not fit, as a signed or an unsigned number.
    """
    if not isinstance(value, int):
        return (0,) * (bits // 32)
    if not -(1 << bits - 1) <= value < 1 << bits:
        raise UsageError(f"{value:#x} does not fit the {bits} bits of a write")
    return tuple(value >> shift & _LOW for shift in range(0, bits, 32))


def pieces(size: Word, most: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, bytes, whether it is the last) of pieces of at most `most` bytes.

    A size that is not known is one piece of 0 bytes; of 0 bytes there is no piece.
    """
    if not isinstance(size, int):
        yield 0, 0, True
        return
    for start in range(0, size, most):
        yield start, min(size - start, most), start + most >= size


def cut(words: memoryview, count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end), in dwords, of runs of whole PM4 packets; a run has at most `most` dwords."""
    start = at = 0
    while at < count:
        payload = Header.from_int(words[at]).COUNT
        step = 1 if payload == NOP_COUNT_ONE_DWORD else payload + 2
        if at + step - start > most:
            yield start, at
            start = at
        at += step
    yield start, at


def constant(word: Word) -> int:
    """Return a number, or 0 for one that is not known."""
    return word if isinstance(word, int) else 0


def add(word: Word, k: int) -> Word:
    """Return a number, known or not, plus `k`."""
    return word + k if k else word


def patch_number(out: PushBuffer, word: Word, at: int, count: int) -> None:
    """Patch `count` dwords from index `at`, low dword first, with a `word` that is not known.

    For a number do nothing: the caller has written it.
    """
    if not isinstance(word, int):
        for i in range(count):
            out.patch_word(at + i, word >> 32 * i if i else word, width=32)
