"""The program that runs on a driver with a planted bug.

It uses each part of the driver: memory, code, arguments, launches with shared and scratch memory, dependent
kernels, copies and fills of video memory, waits between queues, a graph of kernels and one of copies, rings
that wrap, teardown.

Not here: starting it with a planted bug (`tests.mutants.planted.run`). Next: `tests.mutants.planted.wired`,
which does so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hcq
from compiler.llvm import Machine, emit_object
from emulator.amd.machine.kernel import AmdKernel
from hcq.program import ArgKind, ArgSlot
from tests.mutants.planted.words import ONE, Words
from tools.bringup.amd.kernels import TOKEN, UNUSED, image

if TYPE_CHECKING:
    from drivers.kernel import Kernel
    from hcq.device import Device

VRAM: Final = hcq.BufferSpec(place=hcq.Place.VRAM)
RING_BYTES: Final = 16384
"""The configuration under which it runs: rings that wrap."""
_LAPS: Final = 150
"""Submissions: more than a small ring has room for."""
_LDS: Final = 4096
_PACKET: Final = """
define amdgpu_kernel void @packet(ptr addrspace(1) %out) #0 {{
  %packet = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %at = getelementptr i8, ptr addrspace(4) %packet, i64 12
  %size = load i32, ptr addrspace(4) %at
  %thread = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %both = or i32 %thread, %group
  %first = icmp eq i32 %both, 0
  br i1 %first, label %store, label %end
store:
  store i32 %size, ptr addrspace(1) %out
  br label %end
end:
  ret void
}}
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = {{ {unused} }}
"""


class Program(Words):
    """One run on one device."""

    def __init__(self, device: Device, kernel: Kernel) -> None:
        """`kernel` is the one that the device is emulated by."""
        super().__init__(device)
        self._kernel = kernel
        arch = self.device.info.arch
        self.programs = {n: self.device.load(image(n, arch)) for n in ("store", "grid", "count", "local")}
        self.programs["shared"] = self.device.load(image("shared", arch, shared_bytes=_LDS))

    def launches(self) -> None:
        """Launch one thread, a grid, and kernels with shared and scratch memory."""
        self.kernels(TOKEN)

    def advice(self) -> tuple[str, ...]:
        """Return the reports of the emulated kernel."""
        assert isinstance(self._kernel, AmdKernel), "it is an emulated one"
        return tuple(report.message for report in self._kernel.reports)

    def pointers(self) -> None:
        """Launch a kernel with two pointers in registers: its arguments, and the dispatch packet."""
        text = _PACKET.format(
            unused=" ".join(f'"amdgpu-no-{name}"' for name in UNUSED if name != "dispatch-ptr")
        )
        arch, queue, out = self.device.info.arch, self.device.compute, self.words(4)
        code = emit_object(text, Machine("amdgcn-amd-amdhsa", arch))
        slots = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),)
        program = self.device.load(
            hcq.KernelImage(name="packet", arch=arch, code=code, args=slots, kernarg_size=8)
        )
        commands = queue.record().exec(program, program.args(out), groups=(3, 1, 1), threads=(64, 1, 1))
        self.wait(queue.submit(commands))
        self.expect("the size of the grid in the dispatch packet", out, [192])

    def dependent(self) -> None:
        """Launch dependent kernels, in one submission and in several."""
        self.chain(2)

    def private(self) -> None:
        """Count in video memory that copies fill and read, and fill some on the compute queue."""
        device, count = self.device, self.programs["count"]
        source, back, again = self.words(1024, 7), self.words(1024), self.words(1024)
        first, middle, filled = (device.alloc(4096, VRAM) for _ in range(3))
        copies, compute = device.copies[0], device.compute
        begun = copies.submit(copies.record().copy(first, source, 4096).fill(middle, 1, 4096))
        commands = compute.record().exec(count, count.args(middle, first), groups=ONE, threads=ONE)
        counted = compute.submit(commands.fill(filled, 3, 4096), after=[begun])
        commands = copies.record().copy(back, middle, 4096).copy(again, filled, 4096)
        self.wait(copies.submit(commands, after=[counted]))
        self.expect("a kernel between copies", back, [8, 1])
        self.expect("a fill of the compute queue, copied", again, [3, 3])

    def graphs(self) -> None:
        """Replay a chain of kernels with three inputs in turn, and copies."""
        self.replays(2, 1)
        device = self.device
        source, target = self.words(1024, 3), self.words(1024)
        moved = hcq.Graph()
        moved.add(device.copies[0], device.copies[0].record().copy(target, source, 4096))
        copying = moved.compile()
        for _ in range(2):
            self.wait(copying.submit())
        self.expect("a replayed copy", target, [3])
        copying.close()

    def laps(self) -> None:
        """Submit more often than the rings have room for."""
        device = self.device
        for queue in (device.copies[0], device.compute):
            cell = self.words(4)
            for lap in range(_LAPS):
                point = queue.submit(queue.record().fill(cell, lap, 16))
            self.wait(point)
            self.expect("the last of many fills", cell, [_LAPS - 1])


PARTS: Final = ("launches", "pointers", "dependent", "private", "between_queues", "graphs", "laps")
"""All parts, in the order in which they run."""
