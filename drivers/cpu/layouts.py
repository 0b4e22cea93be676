"""The layouts of memory that the host and the command processor share: packets, queues, the pool.

The translator of native code, the encoder, dumps and the host use these definitions. A packet is one cache
line of 8 u64 words, so no packet wraps in a ring whose size is a power of two; undeclared bits are zero.
`Queue`, `Pool` and the smaller records consist of u64 fields that both sides access in place. There is no
hardware document: this file defines the `cpu` device.

Not here: where the records lie (`control`). Next: `encode`, which writes packets; `processor`, which executes
them.
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
"""The number of counters of sleeping waiters; the address of a signal selects its counter."""


class Op(enum.IntEnum):
    """The operation of a packet, in its first word."""

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
    """The reason why the processor refused a packet."""

    NONE = 0
    UNKNOWN_OP = 1
    NESTED_INDIRECT = 2
    BAD_WIDTH = 3


class Runner(enum.IntEnum):
    """The thread that executes the packets of a queue at present."""

    CLOSED = 0
    """No thread may: the processor has not started, or has returned."""
    FREE = 1
    """None; a thread may become the runner."""
    PROCESSOR = 2
    HOST = 3
    """A host thread that waits for the queue."""


class Packet(BitStruct, words=PACKET_WORDS, word_bits=64):
    """A packet of any kind: its op and first three operands."""

    op: int = bits(63, 0, doc="an `Op`; other values are unknown ops")
    first: int = optional(63, 0, word=1)
    second: int = optional(63, 0, word=2)
    third: int = optional(63, 0, word=3)


class Nop(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Does nothing."""

    _op = const(63, 0, Op.NOP)


class Exec(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Runs a grid of workgroups; the next packet starts when all of them are done.

    The product of `x`, `y` and `z` is below 2^63 for all values that fit the fields, also patched ones.
    """

    _op = const(63, 0, Op.EXEC)
    function: int = bits(63, 0, word=1, doc="address of `void kernel(u64 args, u64 x, u64 y, u64 z)`")
    args: int = bits(63, 0, word=2, doc="address of the argument block")
    x: int = bits(30, 0, word=3, doc="workgroups")
    y: int = bits(15, 0, word=4, doc="workgroups")
    z: int = bits(15, 0, word=5, doc="workgroups")
    group_ns: int = optional(63, 0, word=6, doc="estimated nanoseconds of a workgroup; 0: not known")


class Copy(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Copies bytes between ranges that do not overlap."""

    _op = const(63, 0, Op.COPY)
    dst: int = bits(63, 0, word=1)
    src: int = bits(63, 0, word=2)
    size: int = bits(63, 0, word=3, doc="bytes")


class Fill(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Fills memory with a repeated u32; the last copy is cut if `size` is not a multiple of 4."""

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
    foreign: int = optional(63, 0, word=3, doc="1: others than cpu devices and the host may set it: poll")


class SetSignal(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Stores a value to a signal slot and wakes the signal's waiters."""

    _op = const(63, 0, Op.SIGNAL)
    signal: int = bits(63, 0, word=1)
    value: int = bits(63, 0, word=2)


class Timestamp(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Stores the time, in nanoseconds of CLOCK_MONOTONIC, as a u64."""

    _op = const(63, 0, Op.TIMESTAMP)
    at: int = bits(63, 0, word=1, doc="address of the u64")


class Barrier(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Does nothing, because packets execute in order. It shows a `hcq.commands.Barrier` in dumps."""

    _op = const(63, 0, Op.BARRIER)


class Indirect(BitStruct, words=PACKET_WORDS, word_bits=64):
    """Executes packets in memory outside the ring; none of them may be an INDIRECT."""

    _op = const(63, 0, Op.INDIRECT)
    packets: int = bits(63, 0, word=1, doc="address of the first packet")
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
    """Return the packets in a sequence of words; one with an unknown op becomes a `Packet`."""
    out: list[BitStruct] = []
    for at in range(0, len(words), PACKET_WORDS):
        kind = LAYOUTS.get(words[at], Packet) if words[at] <= max(Op) else Packet  # type: ignore[call-overload]  # an int equals its IntEnum
        out.append(kind.from_words(words[at : at + PACKET_WORDS]))
    return out


class Line:
    """The annotation of a name in a record that is no field: the next field starts a new cache line."""


class Record:
    """Named u64 fields at increasing offsets, accessed in place at host address `va`.

    A subclass declares its fields as annotations; an annotation `Line` starts a new cache line. The caller
    owns the memory and keeps it mapped.
    """

    OFFSETS: ClassVar[dict[str, int]] = {}
    """Field -> offset in bytes."""
    SIZE: ClassVar[int] = 0
    """Size in bytes, a multiple of a cache line for records with a `Line`, else of 8."""

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
    """The position of a field: byte offset of its u64, lowest bit in it, width in bits."""

    offset: int
    lo: int
    width: int


def place_of(kind: type[Record | BitStruct], name: str) -> Field | None:
    """Return the position of a field of a record or packet.

    None if there is no such field, or if it crosses a word.
    """
    if issubclass(kind, Record):
        return Field(kind.OFFSETS[name], 0, 64) if name in kind.OFFSETS else None
    if name not in kind.FIELDS or kind.WORD_BITS != 64 or len(kind.sites(name)) != 1:
        return None
    (site,) = kind.sites(name)
    return Field(8 * site.word, site.lo, site.width)


class Pair(Record):
    """One entry of a patch plan."""

    destination: u64
    """Address of the u64 that is stored."""
    slot: u64
    """Index in the table of values."""


class Slot(Record):
    """A signal slot, or any other u64 in memory."""

    value: u64


class Timespec(Record):
    """The struct timespec of clock_gettime and futex."""

    seconds: u64
    ns: u64


class Pool(Record):
    """The state that all threads of a device share, with the words on which idle threads sleep."""

    syscall: u64
    """Address of a libc function, as the next three fields. In memory, so that the code needs no
    relocation."""
    clock_gettime: u64
    memcpy: u64
    sched_getcpu: u64
    workers: u64
    """The number of worker threads."""
    spins: u64
    """PAUSE instructions before a thread sleeps."""
    grain_ns: u64
    """A dispatch with less estimated work is not shared with workers."""
    waiters: u64
    """Address of the counters of sleeping waiters."""
    _line_queues: Line
    queues: u64
    """Address of the first `Queue` record."""
    queues_end: u64
    """Address after the last `Queue` record."""
    copy_group: u64
    """Address of the processor's function `copy_group`."""
    peek: u64
    """Address of a timespec: the polling interval of a wait for a foreign signal."""
    long_spins: u64
    """PAUSE instructions before a processor sleeps, while doorbells are frequent or workers run its dispatch;
    and before a host thread sleeps, while its sleeps are brief."""
    often_ns: u64
    """A doorbell is frequent if it comes within this time after the queue became empty. A shorter sleep of a
    host thread is brief."""
    cores: u64
    """Address of the set of cores that this process may use, as sched_setaffinity takes it."""
    cores_bytes: u64
    """Size of the set of cores in bytes; 0: there is only one core, and threads are not moved."""
    move_ns: u64
    """Minimum interval between two moves of a processor away from the host's core."""
    threads: u64
    """Address of an array of the ids of the worker threads, for sched_setaffinity; 0: not started yet."""
    assist: u64
    """Address of the function `assist`."""
    stack_top: u64
    """Address after the end of the stack on which a host thread helps."""
    help_ns: u64
    """The most estimated time of the workgroups that a waiting host thread takes at once."""
    wake_ns: u64
    """A dispatch with less estimated work wakes no sleeping worker."""
    _line_halt: Line
    halt: u64
    """Not 0: the queues must not start another packet, because of a stop or a fault."""
    stop: u64
    """1: the threads must return."""
    left: u64
    """The number of threads that have returned."""
    fault: u64
    """The first `Fault`, 0 for none; the next fields have the addresses of its queue and packet, and the
    op."""
    fault_queue: u64
    fault_packet: u64
    fault_op: u64
    _line_epoch: Line
    epoch: u64
    """Incremented when a dispatch is published; workers sleep on its low half."""
    shared: u64
    """The number of dispatches that are shared with the workers at present."""
    _line_sleepers: Line
    sleepers: u64
    """The number of sleeping workers."""
    _line_helping: Line
    helping: u64
    """Address of the queue that a waiting host thread helps; 0: none. `Control.clear` does not reset it,
    because the host thread may still help when the device starts again."""
    help_until: u64
    """The time at which the host thread stops helping, in nanoseconds of CLOCK_MONOTONIC."""
    turn_ns: u64
    """The longest time in nanoseconds for which a host thread helps before it checks for faults and Unix
    signals."""
    help_spins: u64
    """PAUSE instructions without work after which the host thread stops helping."""
    float_mode: u64
    """The floating-point control of the device's threads (`primitives.float_mode`)."""
    _line_host: Line
    host_cpu: u64
    """The core on which the host last wrote a doorbell or waited."""
    brief: u64
    """1: the last sleep of a host thread was brief, so the next wait spins for longer."""
    _line_device: Line
    device_cpu: u64
    """The core on which a processor last started to execute."""
    apart: u64
    """The core off which the workers are kept: that of the last shared dispatch; `NO_CORE`: none yet."""
    joined: u64
    """The number of worker threads that have started."""
    fence: u64
    """Incremented by the host between its store to a signal and its check for sleepers, as a full fence."""


class Queue(Record):
    """The state of a ring, and the dispatch slot of its processor."""

    write: u64
    """Total bytes written to the ring."""
    bell: u64
    """Incremented by every doorbell, and when a host thread leaves packets to the processor. The processor
    sleeps on its low half."""
    wanted: u64
    """The value of `read` at which a host thread that waits for space is woken; 0: none waits."""
    freed: u64
    """Incremented when `read` has reached `wanted`; the host thread sleeps on its low half."""
    _line_read: Line
    read: u64
    """Total bytes consumed from the ring."""
    stuck: u64
    """Address of the signal of a WAIT in execution; 0: none."""
    op: u64
    """The op of the packet in execution, also within an INDIRECT; 0: none. Its operands follow."""
    first: u64
    second: u64
    runner: u64
    """Which thread executes the packets, a `Runner`."""
    resume: u64
    """Address of the next packet of an unfinished INDIRECT; 0: its first packet."""
    _line_ring: Line
    pool: u64
    ring: u64
    mask: u64
    asleep: u64
    """1 while the processor sleeps; in a rarely written cache line, because every doorbell reads it."""
    moved: u64
    """The time at which the processor last moved away from the host's core, in nanoseconds."""
    thread: u64
    """Id of the processor's thread, for sched_setaffinity; 0: not started yet."""
    avoided: u64
    """Number of the core off which the processor is kept, plus 1: the core of the host thread that last woke
    it. 0: none yet."""
    copy_dst: u64
    """The destination of the running shared copy; source, size and the address of memcpy follow."""
    copy_src: u64
    copy_size: u64
    copy_memcpy: u64
    _line_dispatch: Line
    function: u64
    """The function of the running dispatch; its arguments and size follow."""
    args: u64
    x: u64
    y: u64
    total: u64
    group_ns: u64
    """Estimated nanoseconds of a workgroup; 0: not known."""
    reserve: u64
    """1: a thread that is no worker is expected to take workgroups, so one worker is not woken."""
    helped: u64
    """1: a host thread took workgroups of the last dispatch that it was allowed to take."""
    _line_ticket: Line
    ticket: u64
    """Number of the dispatch << 32 | workgroups that no thread has taken yet."""
    _line_done: Line
    done: u64
    """The number of finished workgroups; the processor sleeps on its low half."""
    waiting: u64
    """1 while the processor sleeps on `done`."""
