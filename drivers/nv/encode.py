"""The encoder: neutral commands to push-buffer words, for compute and copy channels.

A launch consists of a block of argument memory, with the launch descriptor and constant bank 0, and of four
words. `Barrier`, and the release that ends a submission, order launches: both wait until the engine is idle.
A kernel that follows one other kernel and a barrier needs no wait and no words of its own: the descriptor of
the first kernel names that of the second, which the scheduler starts when the first grid has ended
(`_follow`). The descriptor makes a kernel's stores visible at the end of its grid, and invalidates caches at
the start.

Values that are not known when a submission is encoded (`hcq.params`) are written as 0, with a patch that
fills them in at submission.

Not here: the words of each packet sequence (`push`), the descriptor (`qmd`), rings (`ring`). Next: `push`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from drivers.nv import push
from drivers.nv.layouts.dma import MAX_COPY_BYTES
from drivers.nv.layouts.gpfifo import MAX_SEGMENT_WORDS, GpfifoEntry, Subchannel
from drivers.nv.layouts.host import SEM_ADDRESS_BITS, SIGNAL_BITS
from drivers.nv.layouts.qmd import ALIGNMENT
from drivers.nv.program import NvProgram
from drivers.nv.qmd import Descriptor
from drivers.nv.quirks import NvQuirks
from hcq import commands as neutral
from hcq.commands import Command
from hcq.driver import QueueKind
from hcq.errors import UnsupportedError, UsageError
from hcq.params import Expr, Param, Word
from hcq.pushbuffer import PushBuffer

_LOW = 0xFFFF_FFFF


class Launched(NamedTuple):
    """A kernel whose descriptor can still be changed; the memory belongs to the push buffer."""

    view: memoryview[int]
    """The window of argument memory as u64 elements, which may be slow to read."""
    at: int
    """Index of the descriptor's first element."""
    block: array[int]
    """The elements as they were placed."""
    descriptor: Descriptor


class NvEncoder:
    """The encoder for one kind of channel; see `hcq.driver.Encoder`."""

    def __init__(
        self,
        kind: QueueKind,
        choices: NvQuirks,
        *,
        semaphore_va: Callable[[int], int],
        launched: deque[str],
        graphics_copy_refusal: str = "",
    ) -> None:
        self._launched = launched.append
        """Records the kernels that were encoded last, for fault reports without a program counter."""
        self._semaphore_va = semaphore_va
        """Returns the address of a signal slot for the host engine, which before Hopper addresses 40 bits
        only."""
        self.kind = kind
        self._subchannel = Subchannel.COMPUTE if kind is QueueKind.COMPUTE else Subchannel.COPY
        self._copy_refusal = graphics_copy_refusal
        self._level = int(choices.gp_level == "subroutine")
        self._pcas_a, _, self._pcas_b, self._action = push.launch(0, choices.pcas)
        self._follows = choices.dependent_launch != "off"
        self._last: Launched | None = None
        """The one kernel of this call that may still run; None if none or several may."""
        self._running = False
        """Whether a kernel of this call may still run."""
        self._held = False
        """Whether a barrier after `_last` is still to be encoded."""
        self._owed = False
        """Whether a descriptor replaced a barrier: the next launch by words must then wait for idle first."""
        self.table = neutral.CommandTable()
        self.table |= {
            neutral.Wait: self._wait,
            neutral.WaitMemory: self._wait,
            neutral.SetSignal: self._signal if kind is QueueKind.COMPUTE else self._copy_signal,
            neutral.Timestamp: self._timestamp,
            neutral.Barrier: self._barrier,
            neutral.Exec: self._exec,
            neutral.Copy: self._copy,
            neutral.Fill: self._fill,
            neutral.Write: self._write,
            neutral.Indirect: self._indirect,
        }

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        """Append the words of `commands`; see `hcq.driver.Encoder`."""
        table = self.table
        self._idle()
        for command, after in zip_longest(commands, commands[1:]):
            kind = command.__class__
            if kind is not neutral.Barrier:
                if self._held and (kind is not neutral.Exec or after.__class__ is neutral.Exec):
                    self._wait_for_idle(out)  # a descriptor starts one kernel, not several or a copy
                if kind is not neutral.Exec:
                    self._last = None  # a later kernel must not start before this command
            table[kind](command, out)
        if self._held:
            self._wait_for_idle(out)
        self._last = None  # its memory belongs to `out`

    def _semaphore(self, out: PushBuffer, va: int, value: Word, execute: int, bits: int = 64) -> None:
        if va >> SEM_ADDRESS_BITS:
            va = self._semaphore_va(va)
        if isinstance(value, int):
            if value >> bits:
                raise UsageError(f"queues of this GPU compare {bits} bits, {value:#x} does not fit")
            out.words += (
                push.SEM_HEADERS[self._subchannel],
                va & _LOW,
                va >> 32,
                value & _LOW,
                value >> 32,
                execute,
            )
            return
        at = len(out.words)
        out.words += push.semaphore(self._subchannel, va, 0, execute)
        out.patch_word(at + 3, value, width=32)
        if execute not in push.HALF_WIDTH:
            out.patch_word(at + 4, value >> 32, width=bits - 32)

    def _wait(self, command: neutral.Wait | neutral.WaitMemory, out: PushBuffer) -> None:
        neutral.limit(command, SIGNAL_BITS)
        self._semaphore(out, command.signal.va, command.value, push.ACQUIRE, SIGNAL_BITS)

    def _signal(self, command: neutral.SetSignal, out: PushBuffer) -> None:
        self._semaphore(out, command.signal.va, command.value, push.RELEASE_WFI, SIGNAL_BITS)

    @staticmethod
    def _copy_signal(command: neutral.SetSignal, out: PushBuffer) -> None:
        va, value = command.signal.va, command.value
        if isinstance(value, int):
            if value >> 32:
                raise UsageError(f"copy engines store 32 bits, {value:#x} does not fit")
            out.words += push.copy_signal(va, value)
            return
        at = len(out.words)
        out.words += push.copy_signal(va, 0)
        out.patch_word(at + push.COPY_SIGNAL_VALUE, value, width=32)

    def _timestamp(self, command: neutral.Timestamp, out: PushBuffer) -> None:
        va = command.stamp.va
        if self.kind is QueueKind.COPY:
            out.words += push.copy_signal(va, 0, push.LAUNCH_TIME)
        else:
            self._semaphore(out, va, 0, push.RELEASE_WFI_TIME)

    def _barrier(self, _command: neutral.Barrier, out: PushBuffer) -> None:
        # This serves every scope: grids end with a barrier of system scope.
        if self._held:
            return
        if self._last is not None and self._follows:
            self._held = True
        elif self.kind is QueueKind.COMPUTE:
            self._wait_for_idle(out)
        # Copies of one channel run in order, each after the previous one is done.

    def _wait_for_idle(self, out: PushBuffer) -> None:
        out.words.append(push.WAIT_FOR_IDLE)
        self._idle()

    def _idle(self) -> None:
        """Record that no kernel of this call runs."""
        self._last, self._running, self._held, self._owed = None, False, False, False

    def _follow(self, va: int) -> None:
        """Start the descriptor at `va` at the end of the last grid, which replaces a barrier and a launch."""
        last = self._last
        assert last is not None, "a barrier is held after a kernel only"
        for index, bits in last.descriptor.links(va):
            last.view[last.at + index] = last.block[index] | bits
        self._held, self._owed = False, True

    def _exec(self, command: neutral.Exec, out: PushBuffer) -> None:
        program = command.program.loaded
        if not isinstance(program, NvProgram):
            raise UsageError(f"kernel {command.program.name} was loaded by another driver")
        groups, threads, cluster = command.groups, command.threads, command.cluster
        shape = program.shapes.get((groups, threads) if cluster is None else (groups, threads, cluster))
        unknown: Sequence[tuple[int, Param | Expr]] = ()
        if shape is None:
            shape = program.shape(groups, threads, cluster)
            unknown = [(axis, word) for axis, word in enumerate(groups) if not isinstance(word, int)]
        block = shape.block[:]
        block[program.arguments] = command.args.words
        va = out.place(block, align=ALIGNMENT)
        bank = va + program.bank_at
        out.write(va + program.bank_word_at, shape.bank_word | bank >> program.bank_shift)
        self._launched(program.image.name)
        if self._held:
            self._follow(va)
            alone = True
        else:
            if self._owed:
                self._wait_for_idle(out)
            out.words += (self._pcas_a, va >> 8, self._pcas_b, self._action)
            alone = not self._running
        self._running = True
        self._last = Launched(out.view, va - out.base >> 3, block, program.descriptor) if alone else None
        for offset, width, expr in command.args.patches:
            out.patch_memory(bank + program.head_bytes + offset, expr, width=width)
        for axis, word in unknown:
            at, lo, width = program.descriptor.grid_site(axis)
            out.patch_memory(va + at, word, lo=lo, width=width)
            for place in program.group_counts[axis]:
                out.patch_memory(bank + place, word, width=32)

    def _copy(self, command: neutral.Copy, out: PushBuffer) -> None:
        self._before_copies(out)
        dst, src, size = neutral.address(command.dst), neutral.address(command.src), command.size
        if isinstance(size, int):
            for start in range(0, size, MAX_COPY_BYTES):
                piece = min(size - start, MAX_COPY_BYTES)
                self._piece(out, _add(dst, start), _add(src, start), piece)
        else:
            self._piece(out, dst, src, size)
        self._after_copies(out)

    def _piece(self, out: PushBuffer, dst: Word, src: Word, size: Word) -> None:
        at = len(out.words)
        out.words += push.copy(_constant(dst), _constant(src), size if isinstance(size, int) else 1)
        for word, (upper, lower) in ((src, push.COPY_SITES_SRC), (dst, push.COPY_SITES_DST)):
            _patch_address(out, word, at + upper, at + lower)
        if not isinstance(size, int):
            out.words[at + push.COPY_SITE_SIZE] = 0
            out.patch_word(at + push.COPY_SITE_SIZE, size, width=32)

    def _fill(self, command: neutral.Fill, out: PushBuffer) -> None:
        self._before_copies(out)
        dst, value, size = neutral.address(command.dst), command.value, command.size
        sizes = range(0, size, MAX_COPY_BYTES) if isinstance(size, int) else range(1)
        for start in sizes:
            at = len(out.words)
            piece = min(size - start, MAX_COPY_BYTES) if isinstance(size, int) else 4
            place = _add(dst, start)
            out.words += push.fill(_constant(place), value & _LOW if isinstance(value, int) else 0, piece)
            upper, lower = push.FILL_SITES_DST
            _patch_address(out, place, at + upper, at + lower)
            if not isinstance(value, int):
                out.patch_word(at + push.FILL_SITE_VALUE, value, width=32)
            if not isinstance(size, int):
                out.words[at + push.FILL_SITE_SIZE] = 0
                out.patch_word(at + push.FILL_SITE_SIZE, size >> 2, width=32)
        self._after_copies(out)

    def _before_copies(self, out: PushBuffer) -> None:
        if self.kind is not QueueKind.COMPUTE:
            return
        if self._copy_refusal:
            raise UnsupportedError(
                "copies on a compute queue need a copy engine object on its channel, which was refused: "
                f"{self._copy_refusal}\n"
                "hint: record the copy for a copy queue"
            )
        # The copy engine is not ordered with running kernels.
        out.words.append(push.HOST_WFI)

    def _after_copies(self, out: PushBuffer) -> None:
        if self.kind is QueueKind.COMPUTE:
            out.words += push.graphics_copy_end(out.place((0,), align=8))

    def _write(self, command: neutral.Write, out: PushBuffer) -> None:
        dst, value = neutral.address(command.dst), command.value
        wide = command.bits == 64
        if isinstance(value, int) and not -(1 << command.bits - 1) <= value < 1 << command.bits:
            raise UsageError(f"{value:#x} does not fit the {command.bits} bits of a write")
        if self.kind is QueueKind.COMPUTE:
            at = len(out.words)
            execute = push.RELEASE_WFI if wide else push.RELEASE_WFI_32
            mask = (1 << command.bits) - 1
            self._semaphore(out, _constant(dst), value & mask if isinstance(value, int) else value, execute)
            _patch_address(out, dst, at + 2, at + 1)
            return
        first = len(out.words)
        shifts = (0, 32) if wide else (0,)
        for shift in shifts:
            low = value >> shift & _LOW if isinstance(value, int) else 0
            out.words += push.copy_signal(_constant(dst) + shift // 8, low)
        step = (len(out.words) - first) // len(shifts)
        if not isinstance(value, int):
            for piece, shift in enumerate(shifts):
                out.patch_word(first + piece * step + push.COPY_SIGNAL_VALUE, value >> shift, width=32)
        for piece, shift in enumerate(shifts):
            at = first + piece * step
            _patch_address(out, _add(dst, shift // 8), at + 1, at + 2)

    def _indirect(self, command: neutral.Indirect, out: PushBuffer) -> None:
        # Prebuilt words are called by ring entries, not by packets.
        at, va, end = len(out.words), command.buffer.va, command.words
        for start in range(0, end, MAX_SEGMENT_WORDS):
            length = min(end - start, MAX_SEGMENT_WORDS)
            (entry,) = GpfifoEntry.pack(ADDRESS=va + 4 * start, LENGTH=length, LEVEL=self._level)
            out.calls.append((at, entry))


def _constant(word: Word) -> int:
    return word if isinstance(word, int) else 0


def _add(word: Word, k: int) -> Word:
    return word + k if k else word


def _patch_address(out: PushBuffer, word: Word, upper: int, lower: int) -> None:
    if not isinstance(word, int):
        # The low half first, then at once the high half: the replay then treats both as one 64-bit number.
        out.patch_word(lower, word, width=32)
        out.patch_word(upper, word >> 32, width=32)
