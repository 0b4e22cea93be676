"""Memory that the host and the command processor share: packets, queues, the pool.

One definition serves the processor's translator, the encoder, the dumper and the host. Packets are one cache
line of 8 u64 words each, so none wraps in a ring that is a power of two; undeclared bits are zero.
`Queue`, `Pool` and the small ones are records of u64 fields that both sides read and write in place.
There is no hardware behind it: this file is the definition of the `cpu` device.

Next: `encode`, which writes packets; `processor`, which executes them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from drivers.kernel import view_at
from hcq.layout import BitStruct, bits, const, optional

if TYPE_CHECKING:
    from collections.abc import Sequence

u64 = int
LINE = 64
"""Bytes of a cache line."""
PACKET = 64
"""Bytes of a packet."""
PACKET_WORDS = PACKET // 8
WAITERS = 64
"""Counters of sleeping waiters; a signal's is found by its address."""


class Op(enum.IntEnum):
    """What a packet does; the first word of each."""

    NOP = 0
    EXEC = 1
    COPY = 2
    FILL = 3
    WRITE = 4
    WAIT = 5
    SIGNAL = 6
    TIMESTAMP = 7
    BARRIER = 8
    INDIRECT = 9
    PATCH = 10


class Fault(enum.IntEnum):
    """Why the processor stopped."""

    NONE = 0
    UNKNOWN_OP = 1
    NESTED_INDIRECT = 2
    BAD_WIDTH = 3


class Packet(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Any packet: its op and first operands, before the op is known."""

    op: int = bits(63, 0, doc="an `Op`, or nothing known")
    first: int = optional(63, 0, word=1)
    second: int = optional(63, 0, word=2)
    third: int = optional(63, 0, word=3)


class Nop(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Does nothing."""

    _op = const(63, 0, Op.NOP)


class Exec(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Runs a grid of workgroups; the next packet begins when all are done.

    The limits of `y` and `z` keep the product of all three below 2^63, whatever is patched into them.
    """

    _op = const(63, 0, Op.EXEC)
    function: int = bits(63, 0, word=1, doc="address of `void kernel(u64 args, u64 x, u64 y, u64 z)`")
    args: int = bits(63, 0, word=2, doc="address of the argument block")
    x: int = bits(30, 0, word=3, doc="workgroups")
    y: int = bits(15, 0, word=4, doc="workgroups")
    z: int = bits(15, 0, word=5, doc="workgroups")
    group_ns: int = optional(63, 0, word=6, doc="estimated nanoseconds a workgroup takes; 0 is unknown")


class Copy(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Copies bytes between ranges that do not overlap."""

    _op = const(63, 0, Op.COPY)
    dst: int = bits(63, 0, word=1)
    src: int = bits(63, 0, word=2)
    size: int = bits(63, 0, word=3, doc="bytes")


class Fill(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Repeats a u32; only a part of the last one where `size` is no multiple of 4."""

    _op = const(63, 0, Op.FILL)
    dst: int = bits(63, 0, word=1)
    pattern: int = bits(31, 0, word=2)
    size: int = bits(63, 0, word=3, doc="bytes")


class Write(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Stores one number."""

    _op = const(63, 0, Op.WRITE)
    dst: int = bits(63, 0, word=1)
    value: int = bits(63, 0, word=2)
    width: int = bits(63, 0, word=3, doc="bytes: 4 or 8")


class Wait(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Sleeps until the u64 at `signal` is at least `value`."""

    _op = const(63, 0, Op.WAIT)
    signal: int = bits(63, 0, word=1)
    value: int = bits(63, 0, word=2)
    foreign: int = optional(
        63, 0, word=3, doc="1 when something else than a cpu device or the host may raise it: look often"
    )


class SetSignal(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Stores a value to a signal slot and wakes who waits for it."""

    _op = const(63, 0, Op.SIGNAL)
    signal: int = bits(63, 0, word=1)
    value: int = bits(63, 0, word=2)


class Timestamp(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Stores the time, in nanoseconds of CLOCK_MONOTONIC, as a u64."""

    _op = const(63, 0, Op.TIMESTAMP)
    at: int = bits(63, 0, word=1, doc="address of the u64")


class Barrier(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Does nothing: packets are executed in order. It marks where the encoder may not reorder."""

    _op = const(63, 0, Op.BARRIER)


class Indirect(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Executes packets where they lie; none of them may be an INDIRECT."""

    _op = const(63, 0, Op.INDIRECT)
    packets: int = bits(63, 0, word=1, doc="address of the first")
    count: int = bits(63, 0, word=2)


class Patch(BitStruct, words=PACKET_WORDS, word_bits=64):
    """For each `Pair` of a plan, stores `values[slot]` to the pair's destination."""

    _op = const(63, 0, Op.PATCH)
    values: int = bits(63, 0, word=1, doc="address of a table of u64")
    plan: int = bits(63, 0, word=2, doc="address of the first pair")
    count: int = bits(63, 0, word=3, doc="pairs")


LAYOUTS: dict[Op, type[BitStruct]] = {
    Op.NOP: Nop, Op.EXEC: Exec, Op.COPY: Copy, Op.FILL: Fill, Op.WRITE: Write, Op.WAIT: Wait,
    Op.SIGNAL: SetSignal, Op.TIMESTAMP: Timestamp, Op.BARRIER: Barrier, Op.INDIRECT: Indirect,
    Op.PATCH: Patch,
}  # fmt: skip


def decode(words: Sequence[int]) -> list[BitStruct]:
    """Return the packets that words hold; a packet with an unknown op is returned as a bare `Packet`."""
    out: list[BitStruct] = []
    for at in range(0, len(words), PACKET_WORDS):
        kind = LAYOUTS.get(words[at], Packet) if words[at] <= max(Op) else Packet  # type: ignore[call-overload]  # an int finds its IntEnum
        out.append(kind.from_words(words[at : at + PACKET_WORDS]))
    return out


class Line:
    """Annotates a name in a record that stands for the begin of a new cache line."""


class Record:
    """Named u64 fields at increasing offsets, seen in place at an address.

    Fields are declared by annotation; one annotated `Line` starts a new cache line and is no field.
    """

    OFFSETS: ClassVar[dict[str, int]] = {}
    SIZE: ClassVar[int] = 0
    """Bytes, a multiple of a cache line for records that have lines, else of 8."""

    def __init__(self, va: int) -> None:
        self.va = va
        self._words = view_at(va, self.SIZE).cast("Q")

    def __init_subclass__(cls) -> None:
        cls.OFFSETS, at, lined = {}, 0, False
        for name, kind in cls.__annotations__.items():
            if kind == "Line":
                at, lined = (at + LINE - 1) & ~(LINE - 1), True
            else:
                cls.OFFSETS[name] = at
                setattr(cls, name, _word(at // 8))
                at += 8
        cls.SIZE = (at + LINE - 1) & ~(LINE - 1) if lined else at


def _word(index: int) -> property:
    def get(self: Record) -> int:
        return self._words[index]

    def put(self: Record, value: int) -> None:
        self._words[index] = value

    return property(get, put)


@dataclass(frozen=True, slots=True)
class Field:
    """Where a field lies: the byte offset of its u64, its lowest bit there and its width."""

    offset: int
    lo: int
    width: int


def place_of(kind: type[Record | BitStruct], name: str) -> Field | None:
    """Return where a field of a record or packet lies, or None where it lies in no single word."""
    if issubclass(kind, Record):
        return Field(kind.OFFSETS[name], 0, 64) if name in kind.OFFSETS else None
    if name not in kind.FIELDS or kind.WORD_BITS != 64 or len(kind.sites(name)) != 1:
        return None
    (site,) = kind.sites(name)
    return Field(8 * site.word, site.lo, site.width)


class Pair(Record):
    """One entry of a patch plan."""

    destination: u64
    slot: u64


class Slot(Record):
    """A signal slot, or any other u64."""

    value: u64


class Timespec(Record):
    """What clock_gettime writes."""

    seconds: u64
    ns: u64


class Pool(Record):
    """What every thread of a device reads, and where idle ones sleep."""

    syscall: u64
    """Addresses of libc's functions: with them in memory the code needs no relocation."""
    clock_gettime: u64
    memcpy: u64
    sched_getcpu: u64
    workers: u64
    """Threads that help the queues."""
    spins: u64
    """Pauses before a sleep."""
    grain_ns: u64
    """A dispatch of less work than this is not shared."""
    waiters: u64
    """Address of the counters of sleeping waiters."""
    _line_queues: Line
    queues: u64
    queues_end: u64
    copy_group: u64
    """Address of that function of the processor."""
    peek: u64
    """Address of a timespec: how long a wait for a foreign signal sleeps between looks."""
    long_spins: u64
    """Pauses before a processor sleeps while the host rings often."""
    often_ns: u64
    """A ring so soon after the queue ran empty is often."""
    cores: u64
    """Address of the set of cores that this process may use, as sched_setaffinity takes it."""
    cores_bytes: u64
    """Its size, or 0 when there is only one: then processors never move."""
    move_ns: u64
    """A processor moves away from the host's core at most so often."""
    _line_halt: Line
    halt: u64
    """Not 0 when the queues must not begin another packet: `HALT_STOP` or `HALT_FAULT`."""
    stop: u64
    """1 when the threads must return."""
    left: u64
    """Threads that returned."""
    fault: u64
    """A `Fault`, then where: the first one stays."""
    fault_queue: u64
    fault_packet: u64
    fault_op: u64
    _line_epoch: Line
    epoch: u64
    """Bumped when a dispatch is published; workers sleep on its low half."""
    _line_sleepers: Line
    sleepers: u64
    _line_host: Line
    host_cpu: u64
    """Core that last rang or waited for the host."""
    _line_device: Line
    device_cpu: u64
    """Core on which a processor last began to execute."""
    fence: u64
    """Bumped by the host between its store to a signal and its look for sleepers."""


class Queue(Record):
    """A ring and the dispatch slot of its processor."""

    write: u64
    """Bytes ever written: the doorbell. The processor sleeps on its low half."""
    wanted: u64
    """What `read` must reach before a host thread that waits for space is woken; 0 when none waits."""
    freed: u64
    """Bumped when `read` reached `wanted`; that host thread sleeps on its low half."""
    _line_read: Line
    read: u64
    """Bytes ever consumed."""
    stuck: u64
    """The signal that a WAIT waits for, or 0."""
    op: u64
    """The packet in execution, an inner one of an INDIRECT, too: its op (0 is none) and operands."""
    first: u64
    second: u64
    _line_ring: Line
    pool: u64
    ring: u64
    mask: u64
    asleep: u64
    """1 while the processor sleeps; in a line that is seldom written, since every ring reads it."""
    moved: u64
    """When the processor last moved away from the host's core."""
    other_cores: u64
    """Address of room for a set of cores."""
    copy_dst: u64
    """The running shared copy; its groups find it here."""
    copy_src: u64
    copy_size: u64
    copy_memcpy: u64
    _line_dispatch: Line
    function: u64
    """The running dispatch."""
    args: u64
    x: u64
    y: u64
    total: u64
    _line_ticket: Line
    ticket: u64
    """Dispatch number << 32 | workgroups not yet taken."""
    _line_done: Line
    done: u64
    """Workgroups finished; the processor sleeps on its low half."""
    waiting: u64
