"""A device of host memory around AMD encoders: its rings keep the words, and run what they store.

It knows what packets mean only as far as tests look: stores, copies, fills, clocks and calls happen at once;
waits must be met already; kernels are noted with their registers. Not an emulator: nothing is checked but
that streams decode.
"""

from __future__ import annotations

import functools
import mmap
import time
from array import array
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from compiler.llvm import Machine, emit_object
from drivers.amd import code, decode, encode_aql
from drivers.amd.context import NO_SCRATCH, Geometry, InterruptEvent, QueueContext, backing
from drivers.amd.encode import Pm4Encoder
from drivers.amd.encode_aql import AqlEncoder
from drivers.amd.encode_sdma import SdmaEncoder
from drivers.amd.layouts import aql, pm4, registers, sdma
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.program import AmdProgram
from drivers.amd.quirks import DEFAULT, AmdQuirks
from drivers.kernel import PAGE, address_of, view_at
from hcq.device import Device
from hcq.driver import Allocation, DeviceInfo, QueueKind
from hcq.errors import UnsupportedError
from hcq.profile import Clock
from hcq.program import ArgKind, ArgSlot, KernelImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hcq.driver import BufferSpec, DriverDevice
    from hcq.pushbuffer import PushBuffer

GEOMETRY = {
    "gfx1100": Geometry(compute_units=96, engines=6),
    "gfx1201": Geometry(compute_units=64, engines=4),
    "gfx942": Geometry(compute_units=38, engines=4, xccs=8),
}
TIME = 0x1122_3344_5566
"""What clocks of the device store."""
EVENT = 7

_IR = """
@lds = internal addrspace(3) global [300 x i32] poison, align 4
!llvm.module.flags = !{{!0}}
!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {version}}}
declare i32 @llvm.amdgcn.workgroup.id.x()
{hidden}
define amdgpu_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, i32 %n) #0 {{
  %i = call i32 @llvm.amdgcn.workgroup.id.x()
  %a = getelementptr [300 x i32], ptr addrspace(3) @lds, i32 0, i32 %i
  store volatile i32 %n, ptr addrspace(3) %a
  {body}
  ret void
}}
attributes #0 = {{ "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-workitem-id-x"
  "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-no-workgroup-id-y"
  "amdgpu-no-workgroup-id-z" "amdgpu-no-hostcall-ptr" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-heap-ptr"
  "amdgpu-no-default-queue" "amdgpu-no-completion-action" "amdgpu-no-lds-kernel-id"
  "amdgpu-no-flat-scratch-init" {more} }}
"""
_SCRATCH = """%s = alloca [65 x i32], addrspace(5)
  %e = getelementptr [65 x i32], ptr addrspace(5) %s, i32 0, i32 %i
  store volatile i32 %n, ptr addrspace(5) %e"""
_COUNT = """%h = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %c = load volatile i32, ptr addrspace(4) %h"""
_PACKET = """%h = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %c = load volatile i32, ptr addrspace(4) %h"""
_CASES = {
    "plain": ("", "", ("dispatch-ptr", "implicitarg-ptr")),
    "scratch": ("", _SCRATCH, ("dispatch-ptr", "implicitarg-ptr")),
    "hidden": ("declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()", _COUNT, ("dispatch-ptr",)),
    "packet": ("declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()", _PACKET, ("implicitarg-ptr",)),
}
_SLOTS = (
    ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),
    ArgSlot("x", ArgKind.POINTER, 8, 8, "r"),
    ArgSlot("n", ArgKind.INT, 16, 4),
)


@functools.cache
def compiled(arch: str, case: str = "plain", *, version: int = 500) -> bytes:
    """Return the code object of a kernel "k" of (out, x, n) with 1200 bytes of LDS."""
    hidden, body, without = _CASES[case]
    more = " ".join(f'"amdgpu-no-{name}"' for name in without)
    text = _IR.format(version=version, hidden=hidden, body=body, more=more)
    return emit_object(text, Machine("amdgcn-amd-amdhsa", arch))


def image(arch: str, case: str = "plain", **changes: Any) -> KernelImage:
    """Return the image of a compiled kernel."""
    fields = {"name": "k", "arch": arch, "args": _SLOTS, "kernarg_size": 24, "shared_bytes": 1200}
    given = changes.pop("code", None) or compiled(arch, case)
    return KernelImage(**fields | {"code": given} | changes)


class Launch(NamedTuple):
    """A kernel that a ring came to."""

    grid: tuple[int, int, int]
    kernarg: int
    values: dict[str, int]
    """Registers (PM4), or fields of the packet (AQL)."""


class Ring:
    """Runs submissions at once, and keeps them."""

    def __init__(self, rig: Rig, kind: QueueKind) -> None:
        self.rig, self.kind = rig, kind
        self.words = 1 << 18
        self.submissions = 1 << 10
        self.stalled: Callable[[int], None] = lambda _: None
        self.taken = 0
        self.streams: list[tuple[list[int], list[tuple[int, int]]]] = []
        """Words and calls of each submission."""
        self.launches: list[Launch] = []
        self.waits: list[tuple[int, int]] = []
        self.interrupts: list[int] = []
        self.finished = True
        """Whether submissions run; else they only count."""
        self._registers: dict[str, int] = {}

    def unread(self, ending_words: int) -> int:
        return min(ending_words, 1)

    def submit(self, pushbuffer: PushBuffer) -> None:
        """Take and run a submission."""
        self.taken += 1
        if not self.finished:
            array("I", pushbuffer.words)  # as a ring must
            return
        words = list(pushbuffer.words)
        self.rig.log.append((self, len(self.streams)))
        self.streams.append((words, list(pushbuffer.calls)))
        if self.kind is QueueKind.COPY:
            self._sdma(words)
        elif self.rig.aql:
            self._aql(words, pushbuffer.calls)
        else:
            self._pm4(words)

    def stuck(self) -> str:
        """Never."""
        return ""

    def close(self) -> None:
        """Nothing to give back."""

    def text(self, index: int = -1) -> list[str]:
        """Return a submission, and what it calls, as lines."""
        words, calls = self.streams[index]
        rig = self.rig
        if self.kind is QueueKind.COPY:
            lines = decode.sdma_text(words, rig.target.sdma, rig.name_of)
            bodies = [
                (p.value.BASE_LO | p.value.BASE_HI << 32, p.value.IB_SIZE) for p in self._calls_sdma(words)
            ]
            for va, count in bodies:
                lines += ["body:", *_indent(decode.sdma_text(read(va, count), rig.target.sdma, rig.name_of))]
            return lines
        generation = int(rig.target.generation)
        if not rig.aql:
            lines = decode.pm4_text(words, generation, rig.name_of)
            for packet in decode.pm4_packets(words, generation):
                if isinstance(packet.value, pm4.IndirectBuffer):
                    va = packet.value.ADDRESS_LO | packet.value.ADDRESS_HI << 32
                    body = decode.pm4_text(read(va, packet.value.IB_SIZE), generation, rig.name_of)
                    lines += ["body:", *_indent(body)]
            return lines
        lines, start = [], 0
        for position, entry in calls:
            va, count = encode_aql.call_of(entry)
            lines += decode.aql_text(words[start:position], generation, rig.name_of)
            lines.append(f"{count} prebuilt packets at {rig.name_of(va)}:")
            lines += _indent(decode.aql_text(read(va, 16 * count), generation, rig.name_of))
            start = position
        return lines + decode.aql_text(words[start:], generation, rig.name_of)

    def _calls_sdma(self, words: Sequence[int]) -> list[decode.Packet]:
        return [p for p in decode.sdma_packets(words, self.rig.target.sdma) if p.name == "INDIRECT"]

    def _pm4(self, words: Sequence[int]) -> None:
        generation = int(self.rig.target.generation)
        for packet in decode.pm4_packets(words, generation):
            value: Any = packet.value
            if packet.name == "SET_SH_REG":
                names = registers.register_names(generation)
                for i, word in enumerate(packet.data, value.REG_OFFSET):
                    self._registers[names[i].removeprefix("COMPUTE_")] = word
            elif packet.name == "DISPATCH_DIRECT":
                low, high = self._registers["USER_DATA_0"], self._registers["USER_DATA_1"]
                grid = (value.DIM_X, value.DIM_Y, value.DIM_Z)
                self.launches.append(Launch(grid, low | high << 32, dict(self._registers)))
            elif packet.name == "RELEASE_MEM":
                stored = (
                    TIME if value.DATA_SEL == pm4.DataSel.GPU_CLOCK else value.DATA_LO | value.DATA_HI << 32
                )
                store(value.ADDRESS_LO | value.ADDRESS_HI << 32, stored, 8)
                if value.INT_SEL == pm4.IntSel.INTERRUPT_AFTER_WRITE:
                    self.interrupts.append(value.INT_CTXID)
            elif packet.name == "WAIT_REG_MEM":
                self.waits.append((value.ADDRESS_LO | value.ADDRESS_HI << 32, value.REFERENCE))
            elif packet.name == "WRITE_DATA":
                for i, word in enumerate(packet.data):
                    store((value.ADDRESS_LO | value.ADDRESS_HI << 32) + 4 * i, word, 4)
            elif packet.name == "DMA_DATA":
                source = value.SRC_LO | value.SRC_HI << 32
                to, size = value.DST_LO | value.DST_HI << 32, value.BYTE_COUNT
                fill = value.SRC_SEL == pm4.DmaSrc.DATA
                data = (
                    value.SRC_LO.to_bytes(4, "little") * (size // 4) if fill else bytes(view_at(source, size))
                )
                view_at(to, size)[:] = data
            elif packet.name == "INDIRECT_BUFFER":
                self._pm4(read(value.ADDRESS_LO | value.ADDRESS_HI << 32, value.IB_SIZE))

    def _aql(self, words: Sequence[int], calls: Sequence[tuple[int, int]]) -> None:
        at, left = 0, list(calls)
        while at < len(words) or left:
            while left and left[0][0] == at:
                va, count = encode_aql.call_of(left.pop(0)[1])
                self._aql(read(va, 16 * count), ())
            if at >= len(words):
                break
            value: Any = decode.aql_packet(words, at)
            inline = encode_aql.inline_words(words, at)
            at += aql.PACKET_WORDS
            if isinstance(value, aql.Pm4Ib):
                va = value.IB_ADDRESS_LO | value.IB_ADDRESS_HI << 32
                self._pm4(words[at : at + inline] if inline else read(va, value.IB_SIZE))
                at += encode_aql.units(inline)
            elif isinstance(value, aql.KernelDispatch):
                grid = (value.GRID_SIZE_X, value.GRID_SIZE_Y, value.GRID_SIZE_Z)
                fields = {name: int(getattr(value, name)) for name in type(value).FIELDS}
                self.launches.append(Launch(grid, value.KERNARG_ADDRESS, fields))

    def _sdma(self, words: Sequence[int]) -> None:
        for packet in decode.sdma_packets(words, self.rig.target.sdma):
            value: Any = packet.value
            if packet.name == "FENCE":
                store(value.ADDRESS_LO | value.ADDRESS_HI << 32, value.DATA, 4)
            elif packet.name == "POLL_REGMEM":
                self.waits.append((value.ADDRESS_LO | value.ADDRESS_HI << 32, value.REFERENCE))
            elif packet.name == "COPY":
                size = value.COUNT_MINUS_ONE + 1
                data = bytes(view_at(value.SRC_LO | value.SRC_HI << 32, size))
                view_at(value.DST_LO | value.DST_HI << 32, size)[:] = data
            elif packet.name == "CONST_FILL":
                size = value.COUNT + 4
                data = value.DATA.to_bytes(4, "little") * (size // 4)
                view_at(value.DST_LO | value.DST_HI << 32, size)[:] = data
            elif packet.name == "TIMESTAMP":
                store(value.ADDRESS_LO | value.ADDRESS_HI << 32, TIME, 8)
            elif packet.name == "TRAP":
                self.interrupts.append(value.INT_CONTEXT)
            elif packet.name == "INDIRECT":
                assert packet.end % sdma.ALIGN_WORDS == 0
                assert value.IB_SIZE % sdma.ALIGN_WORDS == 0
                self._sdma(read(value.BASE_LO | value.BASE_HI << 32, value.IB_SIZE))


class Rig:
    """The driver's side of a device (`hcq.driver.DriverDevice`)."""

    def __init__(self, arch: str = "gfx1100", *, choices: AmdQuirks = DEFAULT, event: bool = False) -> None:
        self.target = CHIPS[arch]
        self.choices, self.geometry = choices, GEOMETRY[arch]
        self.aql = self.geometry.xccs > 1
        self._count = 0
        self._hosts: list[tuple[int, int]] = []
        self._slots: dict[int, str] = {}
        self.launched: list[str] = []
        self.log: list[tuple[Ring, int]] = []
        """All submissions in order: the ring, and which of its streams."""
        self._names: list[tuple[int, int, str]] = []
        self._maps: dict[int, Any] = {}
        self.rings: dict[tuple[QueueKind, int], Ring] = {}
        self.mailbox = self.memory(PAGE, "event page") if event else None
        self.scratch = NO_SCRATCH
        self.info = DeviceInfo(
            driver="rig", index=0, name="rig", arch=arch, vram_bytes=1 << 30, compute_queues=1, copy_queues=1,
            limits={"max_threads": 1024, "max_groups_x": (1 << 31) - 1, "max_groups_y": 65535,
            "max_groups_z": 65535, "max_shared_bytes": 65536},
        )  # fmt: skip

    def memory(self, size: int, name: str) -> int:
        """Return the address of new memory of whole pages."""
        mapped = mmap.mmap(-1, -(-size // PAGE) * PAGE)
        va = address_of(memoryview(mapped))
        self._maps[va] = mapped
        self._names.append((va, len(mapped), name))
        return va

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        """Give a push buffer argument memory of its own (`hcq.pushbuffer.ArgumentMemory`)."""
        size = -(-size // PAGE) * PAGE
        va = self.memory(size, "arguments")
        pushbuffer.view, pushbuffer.base = view_at(va, size).cast("Q"), va
        pushbuffer.at, pushbuffer.limit = 0, size

    def name_of(self, va: int) -> str:
        """Return an address as "name + offset", alike in every process."""
        for start, size, name in self._names:
            if start <= va < start + size:
                return f"{name}+{va - start:#x}" if va > start else name
        for start, size in self._hosts:
            if start <= va < start + size:
                return self._slots.setdefault(va, f"slot{len(self._slots)}")
        return hex(va)

    def context(self) -> QueueContext:
        """Return what encoders know of a queue."""
        event = (
            None if self.mailbox is None else InterruptEvent(slot_va=self.mailbox + 8 * EVENT, number=EVENT)
        )
        return QueueContext(
            target=self.target, geometry=self.geometry, choices=self.choices, event=event,
            scratch=lambda: self.scratch, launched=self.launched.append,
        )  # fmt: skip

    def alloc(self, size: int, spec: BufferSpec) -> Allocation:
        """Allocate; names count up."""
        del spec
        self._count += 1
        va = self.memory(size, f"memory{self._count}")
        size = len(self._maps[va])
        return Allocation(va, size, view_at(va, size))

    def free(self, allocation: Allocation, *, keep_host: bool = False) -> None:
        """Keep it: tests are short."""

    def map_host(self, va: int, size: int) -> None:
        """Note the pool of signals."""
        self._hosts.append((va, size))

    def unmap_host(self, va: int, size: int) -> None:
        """Forget it."""
        self._hosts.remove((va, size))

    def map_peer(self, allocation: Allocation, owner: DriverDevice) -> None:
        """Refuse."""
        raise UnsupportedError(f"{allocation} of {owner.info.name}")

    def export(self, allocation: Allocation) -> int:
        """Refuse: no other process can use the memory."""
        raise UnsupportedError(f"{allocation} cannot be shared between processes")

    def adopt(self, fd: int) -> Allocation:
        """Refuse, as `export`."""
        raise UnsupportedError(f"descriptor {fd} cannot be imported")

    def ring(self, kind: QueueKind, index: int) -> Ring:
        """Return a ring."""
        return self.rings.setdefault((kind, index), Ring(self, kind))

    def set_priority(self, kind: QueueKind, index: int, level: int) -> None:
        """Refuse."""
        raise UnsupportedError(f"{kind} {index} has no priority {level}")

    def encoder(self, kind: QueueKind, index: int = 0) -> Pm4Encoder | AqlEncoder | SdmaEncoder:
        """Return an encoder; all queues are alike."""
        del index
        if kind is QueueKind.COPY:
            return SdmaEncoder(self.context())
        return AqlEncoder(self.context()) if self.aql else Pm4Encoder(self.context())

    def load(self, image: KernelImage) -> AmdProgram:
        """Load a code object."""
        found, kernel = code.read(image.code, image.name, self.target)
        size = found.placement.size
        va = self.memory(size, f"code of {image.name}")
        program = AmdProgram(
            image, kernel, va, size, target=self.target, choices=self.choices, aql=self.aql
        )  # fmt: skip
        view_at(va, size)[:] = found.load(va)
        if program.scratch_bytes > self.scratch.lane_bytes:
            wanted = backing(self.target, self.geometry, program.scratch_bytes)
            # Never touched here, so a page stands for it.
            self.scratch = replace(wanted, va=self.memory(PAGE, "scratch"))
        return program

    def unload(self, program: object) -> None:
        """Keep it."""

    def clock(self) -> Clock:
        """Return a clock of 100 MHz."""
        return Clock(ticks=0, host_ns=time.monotonic_ns(), hz=100_000_000)

    def wait(self, va: int, value: int, timeout_s: float) -> bool:
        """Look at a slot."""
        del timeout_s
        return view_at(va, 8).cast("Q")[0] >= value

    def signal_written(self, va: int) -> None:
        """Nobody sleeps."""

    def fault(self) -> None:
        """None."""

    def recover(self) -> None:
        """Refuse."""
        raise UnsupportedError("a rig does not fault")

    def close(self) -> None:
        """Nothing runs."""

    @property
    def compute(self) -> Ring:
        """The ring of the compute queue."""
        return self.rings[QueueKind.COMPUTE, 0]

    @property
    def copies(self) -> Ring:
        """The ring of the copy queue."""
        return self.rings[QueueKind.COPY, 0]


@contextmanager
def opened(arch: str = "gfx1100", **settings: Any) -> Iterator[tuple[Rig, Device]]:
    """Open a device around a rig."""
    rig = Rig(arch, **settings)
    device = Device(rig)
    try:
        yield rig, device
    finally:
        device.close()


def read(va: int, count: int) -> list[int]:
    """Return words of memory."""
    return list(view_at(va, 4 * count).cast("I"))


def store(va: int, value: int, size: int) -> None:
    """Store a number."""
    view_at(va, size)[:] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
