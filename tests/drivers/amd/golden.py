"""The streams whose decoded text is kept in tests/golden.

`python -m tests.drivers.amd.golden` writes them anew: read the difference before you commit it. The streams
are those of emulated GPUs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from drivers.amd import decode
from hcq.driver import BufferSpec, Place
from hcq.graph import Graph
from tests.drivers.amd.rig import image, opened
from tests.limits import HANG_S
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from hcq.device import Device
    from tests.drivers.amd.rig import Rig

FOLDER = Path(__file__).parents[2] / "golden"
_HOST = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)


def _start(rig: Rig, device: Device) -> list[str]:
    """Return what a compute queue runs after kernels were loaded, and an empty submission."""
    words = rig.encoder().new_code()
    text = decode.aql_text if rig.aql else decode.pm4_text
    device.compute.submit(device.compute.record()).wait(timeout_s=HANG_S)
    return [
        "new code:",
        *text(words, int(rig.target.generation)),
        "an empty submission:",
        *rig.text(),
    ]


def _launch(rig: Rig, device: Device) -> list[str]:
    """Two kernels, a barrier, a third one that needs scratch memory, and the time before and after."""
    plain, deep = device.load(image(rig.target.name)), device.load(image(rig.target.name, "scratch"))
    out, x = device.alloc(4096), device.alloc(4096)
    before, after = device.stamp(), device.stamp()
    commands = device.compute.record().timestamp(before)
    commands.exec(plain, plain.args(out, x, 7), groups=(4, 2, 1), threads=(64, 1, 1))
    commands.exec(plain, plain.args(x, out, 8), groups=(1, 1, 1), threads=(32, 2, 1)).barrier()
    commands.exec(deep, deep.args(out, x, 9), groups=(3, 1, 1), threads=(64, 1, 1)).timestamp(after)
    device.compute.submit(commands).wait(timeout_s=HANG_S)
    return rig.text()


def _copy(rig: Rig, device: Device) -> list[str]:
    """A copy, a fill, a number and a time on a copy queue, then the first three on a compute queue."""
    out, x = device.alloc(4096), device.alloc(4096, _HOST)
    lines = []
    for queue in (device.copies[0], device.compute):
        commands = queue.record().copy(out, x, 4096).fill(x, 0xABCD, 1024).write(out, 1 << 40 | 5, bits=64)
        queue.submit(commands.timestamp(device.stamp())).wait(timeout_s=HANG_S)
        lines += [f"{queue.kind.value} queue:", *rig.text()]
    return lines


def _cross_queue(rig: Rig, device: Device) -> list[str]:
    """A copy, a kernel that waits for it, and a copy that waits for the kernel."""
    program = device.load(image(rig.target.name))
    out, x = device.alloc(4096), device.alloc(4096, _HOST)
    compute, copies = device.compute, device.copies[0]
    gate = device.signal(host_set=True)
    first = copies.submit(copies.record().wait(gate, 1).copy(out, x))
    commands = compute.record().wait(first.signal, 1)
    commands.exec(program, program.args(x, out, 1), groups=(8, 1, 1), threads=(64, 1, 1))
    second = compute.submit(commands)
    last = copies.submit(copies.record().wait(second.signal, 1).copy(out, x))
    gate.value = 1
    last.wait(timeout_s=HANG_S)
    return ["upload:", *rig.text(0), "kernel:", *rig.text(1), "download:", *rig.text()]


def _graph(rig: Rig, device: Device) -> list[str]:
    """A graph of two queues with an open buffer, an open number and an open grid, replayed twice."""
    program = device.load(image(rig.target.name))
    compute, copies = device.compute, device.copies[0]
    graph = Graph()
    target, groups, number = (
        graph.param("target"),
        graph.param("groups", bits=32),
        graph.param("number", bits=32),
    )
    x = device.alloc(4096)
    upload = graph.add(copies, copies.record().copy(x, target, 1024))
    commands = compute.record()
    for i in range(2):
        commands.exec(program, program.args(target, x, number), groups=(groups, 2 + i, 1), threads=(64, 1, 1))
        commands.barrier()
    graph.add(compute, commands, after=[upload])
    executable = graph.compile(copies=1)
    buffer = device.alloc(4096)
    lines = []
    for count, value in ((5, 7), (6, 8)):
        seen = len(rig.log)
        executable.submit({target: buffer, groups: count, number: value}).wait(timeout_s=HANG_S)
        lines.append(f"replay with groups = {count}, number = {value}:")
        for index in range(seen, len(rig.log)):
            lines += [f" {rig.log[index][0].value} queue:", *(f"  {line}" for line in rig.text(index))]
    return lines


def _stream(arch: str, run: Callable[[Rig, Device], list[str]]) -> list[str]:
    with opened(arch) as (rig, device):
        return run(rig, device)


_CASES = {"start": _start, "launch": _launch, "copy": _copy, "cross_queue": _cross_queue, "graph": _graph}
GOLDEN: dict[str, tuple[str, Callable[[Rig, Device], list[str]]]] = {
    f"amd_{name}_{arch}": (arch, run)
    for name, run in _CASES.items()
    for arch in ("gfx1100", "gfx1201", "gfx942")
}
"""Name of the file -> target and stream."""


def text(name: str) -> str:
    """Return the text of one file."""
    arch, run = GOLDEN[name]
    return "\n".join([*_stream(arch, run), ""])


def main(argv: list[str] | None = None) -> int:
    """Write all files; return 0."""
    command("tests.drivers.amd.golden", __doc__).parse_args(argv)
    for name in GOLDEN:
        (FOLDER / f"{name}.txt").write_text(text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
