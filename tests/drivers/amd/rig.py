"""An emulated AMD GPU whose queues keep what they were sent, and kernels of each kind of arguments.

Addresses are shown as the memory that they lie in, so that texts are alike in every process.

Not here: machines of other kernels and GPUs (`opened`), which streams are golden (`golden`).
"""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compiler.llvm import Machine, emit_object
from drivers.amd import decode, encode_aql
from drivers.amd.layouts import pm4
from drivers.amd.quirks import DEFAULT, AmdQuirks
from drivers.kernel import PAGE, address_of
from hcq.device import Device
from hcq.driver import QueueKind
from hcq.program import ArgKind, ArgSlot, KernelImage
from hcq.pushbuffer import PushBuffer
from tests.drivers.amd.opened import driver_of, emulated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers.amd.device import AmdDevice
    from hcq.commands import Command

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
  %c = load volatile <32 x i32>, ptr addrspace(4) %h
  store <32 x i32> %c, ptr addrspace(1) %out"""
_PACKET = """%h = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %c = load volatile <16 x i32>, ptr addrspace(4) %h
  store <16 x i32> %c, ptr addrspace(1) %out"""
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


class Rig:
    """The streams of the device's first compute queue and copy queue."""

    def __init__(self, device: AmdDevice, machine: Any) -> None:
        self.device, self.target, self.machine = device, device.target, machine
        self.aql = device.geometry.xccs > 1
        self.log: list[tuple[QueueKind, list[int], list[tuple[int, int]]]] = []
        """Kind of the queue, words and calls of each submission, in order."""
        self._seen: dict[int, str] = {}
        for kind in (QueueKind.COMPUTE, QueueKind.COPY):
            self._keep(kind, device.ring(kind, 0))

    def _keep(self, kind: QueueKind, ring: Any) -> None:
        send = ring.submit

        def submit(pushbuffer: PushBuffer) -> None:
            self.log.append((kind, list(pushbuffer.words), list(pushbuffer.calls)))
            send(pushbuffer)

        ring.submit = submit

    def streams(self, kind: QueueKind = QueueKind.COMPUTE) -> list[list[int]]:
        """Return the words of each submission to a queue."""
        return [words for of, words, _ in self.log if of is kind]

    def encoder(self, kind: QueueKind = QueueKind.COMPUTE) -> Any:
        """Return the encoder of a queue."""
        return self.device.encoder(kind, 0)

    def read(self, va: int, count: int) -> list[int]:
        """Return words of the GPU's memory."""
        data = self.machine.gpus[0].space.map.read(va, 4 * count)
        return list(memoryview(data).cast("I"))

    def name_of(self, va: int) -> str:
        """Return an address as its memory's label, or "slot", with a number in order of appearance."""
        for memory in self.device.memories.map.live():
            if memory.va <= va < memory.va + memory.size:
                name = self._numbered(memory.va, re.sub(r"\d+ bytes of ", "", memory.label))
                return f"{name}+{va - memory.va:#x}" if va > memory.va else name
        return self._numbered(va, "slot") if va >> 32 else hex(va)

    def _numbered(self, va: int, label: str) -> str:
        number = sum(name.startswith(label) for name in self._seen.values())
        return self._seen.setdefault(va, f"{label} {number}")

    def text(self, index: int = -1) -> list[str]:
        """Return a submission, and what it calls, as lines."""
        kind, words, calls = self.log[index]
        if kind is QueueKind.COPY or not self.aql:
            lines = self._lines(kind, words)
            for va, count in bodies(self, kind, words):
                lines += ["body:", *_indent(self._lines(kind, self.read(va, count)))]
            return lines
        lines, start = [], 0
        generation = int(self.target.generation)
        for position, entry in calls:
            va, count = encode_aql.call_of(entry)
            lines += decode.aql_text(words[start:position], generation, self.name_of)
            lines.append(f"{count} prebuilt packets at {self.name_of(va)}:")
            lines += _indent(decode.aql_text(self.read(va, 16 * count), generation, self.name_of))
            start = position
        return lines + decode.aql_text(words[start:], generation, self.name_of)

    def _lines(self, kind: QueueKind, words: Sequence[int]) -> list[str]:
        if kind is QueueKind.COPY:
            return decode.sdma_text(words, self.target.sdma, self.name_of)
        return decode.pm4_text(words, int(self.target.generation), self.name_of)


def packets(rig: Rig, kind: QueueKind, words: Sequence[int]) -> list[Any]:
    """Return the packets of a stream of PM4 or SDMA words."""
    if kind is QueueKind.COPY:
        return list(decode.sdma_packets(words, rig.target.sdma))
    return list(decode.pm4_packets(words, int(rig.target.generation)))


class _Memory:
    """Memory of the host for what encoders store beside their words."""

    def room(self, pushbuffer: PushBuffer, size: int) -> None:
        pushbuffer.view = memoryview(bytearray(-(-size // PAGE) * PAGE)).cast("Q")
        pushbuffer.base, pushbuffer.at = address_of(pushbuffer.view), 0
        pushbuffer.limit = pushbuffer.view.nbytes


def encoded(encoder: Any, *commands: Command) -> PushBuffer:
    """Return what an encoder makes of commands; nothing of it may run."""
    out = PushBuffer(32, _Memory())
    encoder.encode(commands, out)
    return out


def bodies(rig: Rig, kind: QueueKind, words: Sequence[int]) -> list[tuple[int, int]]:
    """Return (address, words) of each indirect buffer that a stream runs."""
    found = []
    for packet in packets(rig, kind, words):
        if packet.name == "INDIRECT":
            found.append((packet.value.BASE_LO | packet.value.BASE_HI << 32, packet.value.IB_SIZE))
        elif isinstance(packet.value, pm4.IndirectBuffer):
            found.append((packet.value.ADDRESS_LO | packet.value.ADDRESS_HI << 32, packet.value.IB_SIZE))
    return found


@contextmanager
def opened(arch: str = "gfx1100", *, choices: AmdQuirks = DEFAULT) -> Iterator[tuple[Rig, Device]]:
    """Open an emulated GPU as `hcq` does."""
    kernel = emulated(arch)
    made = driver_of(kernel).open(0, None, choices=choices)
    rig = Rig(made, kernel.machine)
    with Device(made, emulated=True) as device:
        yield rig, device


def _indent(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
