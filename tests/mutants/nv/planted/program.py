"""The program that runs on a driver with a planted bug.

It uses each part of the driver: memory, code, arguments, launches of all shapes, local and shared memory,
copies, fills, waits between queues, timestamps, a graph, a ring that wraps, teardown.

Not here: starting it with a planted bug (`tests.mutants.planted.run`). Next: `tests.mutants.planted.wired`,
which does so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import hcq
from compiler.targets.nvptx.assembler import assemble
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.mutants.planted.words import ONE, SHARED, Words
from tools.bringup.nv.kernels import TOKEN, image

if TYPE_CHECKING:
    from hcq.device import Device

VRAM: Final = hcq.BufferSpec(place=hcq.Place.VRAM)
_UNMAPPED: Final = 0xDEAD_0000_0000
RING_BYTES: Final = 65536
"""The configuration under which it runs: rings that wrap."""
_LAPS: Final = 400
"""Submissions: more than a ring has entries."""

_AXES: Final = """.version {version}
.target {arch}
.address_size 64
.visible .entry axes(.param .u64 out) {{
 .reg .b64 %rd<4>;
 .reg .b32 %r<12>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %ctaid.x;
 mov.u32 %r2, %ctaid.y;
 mov.u32 %r3, %ctaid.z;
 mov.u32 %r4, %nctaid.x;
 mov.u32 %r5, %nctaid.y;
 mad.lo.u32 %r6, %r3, %r5, %r2;
 mad.lo.u32 %r6, %r6, %r4, %r1;
 mul.wide.u32 %rd2, %r6, 4;
 add.u64 %rd2, %rd1, %rd2;
 shl.b32 %r7, %r3, 16;
 shl.b32 %r8, %r2, 8;
 or.b32 %r7, %r7, %r8;
 or.b32 %r7, %r7, %r1;
 st.global.u32 [%rd2], %r7;
 ret;
}}
"""
_GENERIC: Final = """.version {version}
.target {arch}
.address_size 64
.visible .entry generic(.param .u64 out) {{
 .shared .align 4 .b8 room[128];
 .local .align 4 .b8 own[64];
 .reg .b64 %rd<8>;
 .reg .b32 %r<8>;
 .reg .pred %p<2>;
 ld.param.u64 %rd1, [out];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd2, %r1, 4;
 mov.u64 %rd3, room;
 cvta.shared.u64 %rd3, %rd3;
 mov.u64 %rd4, own;
 cvta.local.u64 %rd4, %rd4;
 add.u64 %rd5, %rd3, %rd2;
 setp.lt.u32 %p1, %r1, 16;
 selp.b64 %rd6, %rd5, %rd4, %p1;
 st.u32 [%rd6], %r1;
 bar.sync 0;
 ld.u32 %r2, [%rd6];
 add.u64 %rd7, %rd1, %rd2;
 st.global.u32 [%rd7], %r2;
 ret;
}}
"""


def _image(name: str, text: str, arch: str) -> KernelImage:
    slots = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),)
    version = "8.8" if arch.startswith(("sm_10", "sm_12")) else "8.0"
    code = assemble(text.format(arch=arch, version=version), arch)
    return KernelImage(name=name, arch=arch, code=code, args=slots, kernarg_size=8)


class Program(Words):
    """One run on one device."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self.arch = {"sm_90": "sm_90a", "sm_120": "sm_120a"}.get(self.device.info.arch, self.device.info.arch)
        self.programs = {
            n: self.device.load(image(n, self.arch)) for n in ("store", "grid", "count", "local")
        }
        self.programs["shared"] = self.device.load(image("shared", self.arch, shared_bytes=4096))

    def launches(self) -> None:
        """Launch one thread, three dimensions, and kernels with shared, local and generic addresses."""
        self.kernels(TOKEN, 2048)
        queue = self.device.compute
        for text, name, shape, threads, wanted in (
            (
                _AXES,
                "axes",
                (2, 3, 4),
                1,
                [z << 16 | y << 8 | x for z in range(4) for y in range(3) for x in range(2)],
            ),
            (_GENERIC, "generic", ONE, 32, list(range(32))),
        ):
            out = self.words(64)
            program = self.device.load(_image(name, text, self.arch))
            commands = queue.record().exec(program, program.args(out), groups=shape, threads=(threads, 1, 1))
            self.wait(queue.submit(commands))
            self.expect(name, out, wanted)

    def reloads(self) -> None:
        """Load programs at the addresses of closed ones."""
        queue = self.device.compute
        for name in ("store", "count", "store", "count"):
            program = self.device.load(image(name, self.arch))
            out, seen = self.words(4), self.words(4, 41)
            args = program.args(out) if name == "store" else program.args(out, seen)
            self.wait(queue.submit(queue.record().exec(program, args, groups=ONE, threads=ONE)))
            self.expect(f"{name}, loaded again", out, [TOKEN if name == "store" else 42])
            program.close()

    def dependent(self) -> None:
        """Launch dependent kernels, in one submission and in several."""
        queue, count, cells = self.device.compute, self.programs["count"], self.chain(4)
        first, second, third = (self.words(4) for _ in range(3))
        commands = queue.record()
        commands.exec(count, count.args(first, cells[-1]), groups=ONE, threads=ONE)
        commands.exec(count, count.args(second, cells[0]), groups=ONE, threads=ONE).barrier()
        commands.exec(count, count.args(third, first), groups=ONE, threads=ONE)
        self.wait(queue.submit(commands))
        self.expect("a kernel behind two others", third, [10])

    def copies(self) -> None:
        """Fill video memory and copy it to the host, on copy queues and on the compute queue."""
        device = self.device
        for queue in (device.copies[0], device.copies[-1], device.compute):
            size = 3 << 20
            there, back = device.alloc(size, VRAM), device.alloc(size, SHARED)
            commands = queue.record().fill(there, 0x11223344, size).barrier().copy(back, there, size)
            self.wait(queue.submit(commands))
            if bytes(back.host()) != b"\x44\x33\x22\x11" * (size // 4):
                self.wrong.append(f"a copy on {queue}")
            if queue is device.compute:
                out = self.words(4)
                commands = queue.record().copy(back, there, size).barrier()
                commands.exec(
                    self.programs["count"], self.programs["count"].args(out, back), groups=ONE, threads=ONE
                )
                self.wait(queue.submit(commands))
                self.expect("a kernel after a copy on its queue", out, [0x11223345])
            fresh = device.alloc(1 << 16, VRAM)
            self.wait(queue.submit(queue.record().copy(back, fresh, 1 << 16)))
            if any(back.host()[: 1 << 16]):
                self.wrong.append("new memory is not zero")

    def stamps(self) -> None:
        """Write timestamps before and after the work of a compute and a copy queue, and compare them."""
        device, count = self.device, self.programs["count"]
        target, source = self.words(4), self.words(4, 1)
        for queue in (device.compute, device.copies[0]):
            before, after = device.stamp(), device.stamp()
            commands = queue.record().timestamp(before)
            if queue is device.compute:
                commands.exec(count, count.args(target, source), groups=ONE, threads=ONE).barrier()
            self.wait(queue.submit(commands.timestamp(after)))
            if not 0 < before.ticks <= after.ticks:
                self.wrong.append(f"timestamps {before.ticks} and {after.ticks} on {queue}")
        local, out = self.programs["local"], self.words(64 * 256)
        commands = self.device.compute.record().exec(
            local, local.args(out, 5), groups=(64, 1, 1), threads=(256, 1, 1)
        )
        self.wait(self.device.compute.submit(commands.timestamp(device.stamp())))

    def grids(self) -> None:
        """Replay a kernel behind a barrier with grids of several sizes; each group counts in its own word."""
        queue, grid, out = self.device.compute, self.programs["grid"], self.words(1024)
        graph = hcq.Graph()
        groups = graph.param("groups")
        commands = queue.record().exec(grid, grid.args(out, 1), groups=ONE, threads=ONE).barrier()
        commands.exec(grid, grid.args(out, 2), groups=(groups, 1, 1), threads=ONE)
        graph.add(queue, commands)
        executable = graph.compile(copies=1)
        for count in (3, 7, 2, 5):
            out.host()[:] = bytes(out.size)
            self.wait(executable.replay([count]))
            stored = sum(map(bool, out.host().cast("I")))
            if stored != count:
                self.wrong.append(f"{stored} of {count} workgroups of a replayed grid stored")
        executable.close()

    def recovery(self) -> None:
        """Store to an address that is not mapped, recover, and count on the same queue."""
        queue, count = self.device.compute, self.programs["count"]
        wild, cells = self.device.load(image("wild", self.arch)), [self.words(4) for _ in range(3)]
        for source, target in pairwise(cells):
            point = queue.submit(
                queue.record().exec(count, count.args(target, source), groups=ONE, threads=ONE)
            )
        self.wait(point)
        commands = queue.record().exec(wild, wild.args(cells[0], _UNMAPPED), groups=ONE, threads=ONE)
        try:
            self.wait(queue.submit(commands))
        except hcq.DeviceFault:
            self.device.recover()
        else:
            self.wrong.append("a store to an address that is not mapped succeeded")
        self.wait(
            queue.submit(queue.record().exec(count, count.args(cells[0], cells[2]), groups=ONE, threads=ONE))
        )
        self.expect("a kernel after the recovery", cells[0], [3])

    def graph(self) -> None:
        """Replay a chain of kernels with three inputs in turn."""
        self.replays(4, 4)

    def laps(self) -> None:
        """Submit more often than the ring has entries; the first submissions wait for a gate."""
        device = self.device
        copies, cell = device.copies[0], self.words(4)
        gate = device.signal(host_set=True)
        point = copies.submit(copies.record().wait(gate, 1).fill(cell, 1, 4))
        for lap in range(64):
            point = copies.submit(copies.record().fill(cell, lap, 4))
        gate.value = 1
        for lap in range(_LAPS):
            point = copies.submit(copies.record().fill(cell, lap, 4))
        self.wait(point)
        self.expect("the last of many fills", cell, [_LAPS - 1])


PARTS: Final = (
    "launches", "reloads", "dependent", "copies", "between_queues", "stamps", "graph", "grids", "laps",
    "recovery",
)  # fmt: skip
"""All parts, in the order in which they run."""
