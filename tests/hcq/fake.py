"""A device in Python for tests of the model: real words, patches and addresses, run only when asked.

Packets are 8 u64 (or 16 u32) words. Nothing runs inside `submit`: `run` plays the rings forward, and a wait
of the host does, unless `hold` is set. Every access is checked against the memory that is allocated just now.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hcq.commands import (
    Barrier,
    Command,
    CommandTable,
    Copy,
    Exec,
    Fill,
    Indirect,
    SetSignal,
    Timestamp,
    Wait,
    Write,
    address,
)
from hcq.driver import Allocation, BufferSpec, DeviceInfo, QueueKind
from hcq.errors import FaultKind, FaultReport, OutOfMemoryError, UnsupportedError, UsageError
from hcq.params import Expr, Param
from hcq.profile import Clock
from hcq.program import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.counters import Counters
    from hcq.params import Word
    from hcq.pushbuffer import PushBuffer

NOP, EXEC, COPY, FILL, WAIT, SET, STAMP, WRITE, INDIRECT, OWN = range(10)
WORDS = 8


class WildAccessError(Exception):
    """An access outside what is allocated."""

    def __init__(self, va: int) -> None:
        super().__init__(hex(va))
        self.va = va


@dataclass
class FakeProgram:
    image: KernelImage
    number: int


@dataclass
class OwnCommand:
    """The encoding and execution of a command that a test declares."""

    words: Callable[[Any], Sequence[Word]]
    run: Callable[[FakeDevice, Sequence[int]], None]


class FakeEncoder:
    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.table = CommandTable()

    def encode(self, commands: Sequence[Command], out: PushBuffer) -> None:
        for command in commands:
            self._one(command, out)

    def _one(self, command: Command, out: PushBuffer) -> None:
        self.device.encoded.append(type(command).__name__)
        if self.device.interrupt_encoder == self.device.encoded[-1]:
            self.device.interrupt_encoder = ""
            raise KeyboardInterrupt
        match command:
            case Wait(signal, value):
                self._emit(out, WAIT, signal.va, value)
            case SetSignal(signal, value):
                self._emit(out, SET, signal.va, value)
            case Timestamp(stamp):
                self._emit(out, STAMP, stamp.ticks_va)
            case Barrier():
                self._emit(out, NOP)
            case Exec(program, args, groups, _):
                if self.device.refuse == program.name:
                    raise UsageError(f"the fake refuses {program.name}")
                va = out.place(args.words)
                for offset, width, expr in args.patches:
                    out.patch_memory(va + offset, expr, width=width)
                self._emit(out, EXEC, program.loaded.number, va, *groups)
            case Copy(dst, src, size):
                self._emit(out, COPY, address(dst), address(src), size)
            case Fill(dst, value, size):
                self._emit(out, FILL, address(dst), value, size)
            case Write(dst, value, bits):
                self._emit(out, WRITE, address(dst), value, bits)
            case Indirect(buffer, words):
                if self.device.calls:
                    out.calls.append((len(out.words), buffer.va << 32 | words))
                else:
                    self._emit(out, INDIRECT, buffer.va, words)
            case _:
                if type(command) not in self.device.own:
                    CommandTable()[type(command)]
                number = list(self.device.own).index(type(command))
                self._emit(out, OWN + number, *self.device.own[type(command)].words(command))

    def _emit(self, out: PushBuffer, *words: Word) -> None:
        for word in (*words, *(0,) * (WORDS - len(words))):
            opened = isinstance(word, (Param, Expr))
            if out.word_bits == 64:
                out.words.append(0 if opened else word)
                if opened:
                    out.patch_word(len(out.words) - 1, word)
                continue
            out.words += [0, 0] if opened else [word & 0xFFFF_FFFF, word >> 32]
            if opened:
                out.patch_word(len(out.words) - 2, word)
                out.patch_word(len(out.words) - 1, word >> 32)


@dataclass
class FakeRing:
    device: FakeDevice
    kind: QueueKind
    index: int
    packets: deque[tuple[int, ...]] = field(default_factory=deque)
    submits: int = 0
    closed: bool = False
    stalled: Callable[[int], None] = lambda _until: None
    taken: int = 0
    submissions: int = 1 << 20

    @property
    def words(self) -> int:
        return self.device.ring_words

    def unread(self, ending_words: int) -> int:
        return ending_words + 1

    def submit(self, pushbuffer: PushBuffer) -> None:
        if self.device.interrupt:
            self.device.interrupt = False
            raise KeyboardInterrupt
        while self.device.full:
            self.stalled(self.taken + len(pushbuffer.words) - self.device.ring_words)
            time.sleep(0.0001)
        if len(pushbuffer.words) > self.device.ring_words:
            raise UsageError(f"{len(pushbuffer.words)} words do not fit a ring of {self.device.ring_words}")
        at = 0
        for position, entry in [*pushbuffer.calls, (len(pushbuffer.words), 0)]:
            self.packets += self._cut(pushbuffer.words[at:position])
            at = position
            if entry:
                self.packets.append((INDIRECT, entry >> 32, entry & 0xFFFF_FFFF, 0, 0, 0, 0, 0))
        self.submits += 1
        self.taken += len(pushbuffer.words)

    def _cut(self, words: Sequence[int]) -> list[tuple[int, ...]]:
        if self.device.info.word_bits == 32:
            words = [words[i] | words[i + 1] << 32 for i in range(0, len(words), 2)]
        return [tuple(words[i : i + WORDS]) for i in range(0, len(words), WORDS)]

    def step(self) -> bool:
        if not self.packets:
            return False
        op, *words = self.packets[0]
        if op == WAIT and self.device.read(words[0], "Q") < words[1]:
            return False
        self.packets.popleft()
        if op == INDIRECT:
            size = self.device.info.word_bits // 8
            data = self.device.view(words[0], words[1] * size)
            self.packets.extendleft(reversed(self._cut(data.cast({4: "I", 8: "Q"}[size]).tolist())))
        else:
            self.device.execute(op, words)
        return True

    def stuck(self) -> str:
        if not self.packets:
            return ""
        op, *words = self.packets[0]
        return f"packet {op} with {words[0]:#x}"

    def close(self) -> None:
        self.closed = True


class FakeDevice:
    """A `DriverDevice` whose lists and flags tests read and set."""

    def __init__(self, *, word_bits: int = 64, calls: bool = False, index: int = 0, **limits: int) -> None:
        self.info = DeviceInfo(
            driver="fake", index=index, name="a fake", arch="fake1", vram_bytes=1 << 30, compute_queues=2,
            copy_queues=1, word_bits=word_bits, host_addressable=True, limits=limits,
        )  # fmt: skip
        self.calls = calls
        self.hold = False
        """The host's waits run nothing."""
        self.ring_words = 1 << 20
        self.room = 1 << 40
        """Bytes that may be allocated."""
        self.refuse = ""
        """A kernel that the encoder refuses."""
        self.interrupt = False
        """The next submit is interrupted."""
        self.full = False
        """No ring has room."""
        self.interrupt_encoder = ""
        """The next command of this class interrupts the encoder."""
        self.own: dict[type[Command], OwnCommand] = {}
        """Commands that a test declares."""
        self.encoded: list[str] = []
        self.launched: list[str] = []
        self.memory: dict[int, tuple[int, memoryview]] = {}
        self.hosts: dict[int, int] = {}
        self.peers: list[tuple[int, FakeDevice]] = []
        self.rings: list[FakeRing] = []
        self.kernels: list[Callable[[FakeDevice, bytes, tuple[int, int, int]], None]] = []
        self.unloaded: list[str] = []
        self.closes = 0
        self.report: FaultReport | None = None
        self.recovery: Exception | None = None
        """Why it cannot recover."""
        self.ticks = 1000

    def alloc(self, size: int, _spec: BufferSpec) -> Allocation:
        size = (size + 4095) & ~4095
        if sum(size for size, _ in self.memory.values()) + size > self.room:
            raise OutOfMemoryError("alloc", 12, "ENOMEM", arguments=f"size={size}")
        pages = mmap.mmap(-1, size)
        va = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self.memory[va] = (size, memoryview(pages))
        return Allocation(va, size, self.memory[va][1], pages)

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        if keep_host:
            del self.memory[allocation.va]
            return
        size, view = self.memory.pop(allocation.va)
        view[:] = b"\xdd" * size

    def map_host(self, va: int, size: int) -> None:
        self.hosts[va] = size

    def unmap_host(self, va: int, size: int) -> None:
        assert self.hosts.pop(va) == size

    def map_peer(self, allocation: Allocation, owner: FakeDevice) -> None:
        self.peers.append((allocation.va, owner))

    def export(self, allocation: Allocation) -> int:
        raise UnsupportedError(f"{allocation} cannot be shared")

    def adopt(self, fd: int) -> Allocation:
        raise UnsupportedError(f"{fd} cannot be imported")

    def ring(self, kind: QueueKind, index: int) -> FakeRing:
        self.rings.append(FakeRing(self, kind, index))
        return self.rings[-1]

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        raise UnsupportedError(f"{kind} {index} has no priority {level}")

    def encoder(self, _kind: QueueKind, _index: int) -> FakeEncoder:
        return FakeEncoder(self)

    def load(self, image: KernelImage) -> FakeProgram:
        self.kernels.append(KERNELS[image.code.decode()])
        return FakeProgram(image, len(self.kernels) - 1)

    def unload(self, program: FakeProgram) -> None:
        self.unloaded.append(program.image.name)

    def clock(self) -> Clock:
        return Clock(ticks=0, host_ns=5_000, hz=1_000_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        if not self.hold:
            self.run()
        if self.read(va, "Q") >= value:
            return True
        time.sleep(min(timeout_s, 0.001))
        return False

    def signal_written(self, va: int) -> None:
        pass

    def fault(self) -> FaultReport | None:
        return self.report

    def count(self, into: Counters | None) -> Counters | None:
        raise UnsupportedError(f"{self.info.name} counts nothing, {into}")

    def recover(self) -> None:
        if self.recovery is not None:
            raise self.recovery
        self.report = None
        for ring in self.rings:
            ring.packets.clear()

    def close(self) -> None:
        self.closes += 1

    def run(self) -> None:
        """Play all rings forward until none moves."""
        while self.report is None and sum([ring.step() for ring in self.rings]):
            pass

    def execute(self, op: int, words: Sequence[int]) -> None:
        self.ticks += 10
        try:
            if op == SET:
                self.view(words[0], 8)[:] = struct.pack("<Q", words[1])
            elif op == STAMP:
                self.view(words[0], 8)[:] = struct.pack("<Q", self.ticks)
            elif op == EXEC:
                kernel = self.kernels[words[0]]
                self.launched.append(kernel.__name__)
                kernel(self, words[1], tuple(words[2:5]))
            elif op == COPY:
                self.view(words[0], words[2])[:] = self.view(words[1], words[2])
            elif op == FILL:
                self.view(words[0], words[2])[:] = struct.pack("<I", words[1]) * (words[2] // 4)
            elif op == WRITE:
                code = {32: "<I", 64: "<Q"}[words[2]]
                self.view(words[0], words[2] // 8)[:] = struct.pack(code, words[1])
            elif op >= OWN:
                list(self.own.values())[op - OWN].run(self, words)
        except WildAccessError as error:
            self.report = FaultReport(
                device="fake:0", kind=FaultKind.PAGE_FAULT, message="no such page", va=error.va, access="read"
            )

    def view(self, va: int, size: int) -> memoryview:
        """Return allocated memory, of this device or of a peer's that is mapped here.

        Other threads may allocate meanwhile, and the pools of host memory may grow.
        """
        owners = [self, *(owner for _, owner in self.peers)]
        for owner in owners:
            for start, (length, view) in tuple(owner.memory.items()):
                if start <= va and va + size <= start + length:
                    return view[va - start : va - start + size]
        if any(start <= va and va + size <= start + length for start, length in tuple(self.hosts.items())):
            return memoryview((ctypes.c_char * size).from_address(va)).cast("B")
        raise WildAccessError(va)

    def read(self, va: int, code: str) -> int:
        return struct.unpack(f"<{code}", self.view(va, struct.calcsize(code)))[0]


def add(device: FakeDevice, args: int, groups: tuple[int, int, int]) -> None:
    """out[i] = a[i] + b[i] for the bytes of the groups along x."""
    out, a, b = (device.read(args + 8 * i, "Q") for i in range(3))
    x, y = device.view(a, groups[0]), device.view(b, groups[0])
    device.view(out, groups[0])[:] = bytes((p + q) & 255 for p, q in zip(x, y, strict=True))


def store(device: FakeDevice, args: int, groups: tuple[int, int, int]) -> None:
    """out = (an u32, a float, a u64) as they lie in the argument block."""
    device.view(device.read(args, "Q"), 16)[:] = device.view(args + 8, 16)


def wild(device: FakeDevice, args: int, groups: tuple[int, int, int]) -> None:
    """Read 64 bytes past the pointer's page."""
    device.view(device.read(args, "Q") + (1 << 40), 64)


KERNELS = {kernel.__name__: kernel for kernel in (add, store, wild)}


def pointer(name: str, place: int, access: str) -> ArgSlot:
    return ArgSlot(name, ArgKind.POINTER, 8 * place, 8, access)


ADD = KernelImage(
    name="add", arch="fake1", code=b"add", kernarg_size=24,
    args=(pointer("out", 0, "w"), pointer("a", 1, "r"), pointer("b", 2, "r")),
)  # fmt: skip
STORE = KernelImage(
    name="store", arch="fake1", code=b"store", kernarg_size=24,
    args=(pointer("out", 0, "w"), ArgSlot("n", ArgKind.INT, 8, 4), ArgSlot("x", ArgKind.FLOAT, 12, 4),
          ArgSlot("k", ArgKind.INT, 16, 8)),
)  # fmt: skip
WILD = KernelImage(name="wild", arch="fake1", code=b"wild", kernarg_size=8, args=(pointer("p", 0, "r"),))

ONE = (1, 1, 1)
