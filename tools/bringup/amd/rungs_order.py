"""Rungs 26 to 28 of the AMD bring-up ladder: order of kernels, the host's stores to video memory, full rings.

They use the complete driver. Not here: the first kernels (`rungs_compute`). Next: `table`, the order of all.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from hcq.commands import Scope
from hcq.driver import BufferSpec
from tools.bringup.launches import HOST

if TYPE_CHECKING:
    from tools.bringup.amd.bench import Bench
    from tools.bringup.checks import Facts

_ONE: Final = (1, 1, 1)
_CHAIN: Final = 20
"""Kernels of one submission, with a barrier after each."""
_RING_BYTES: Final = 4096
_TIMES: Final = 3
"""How often the ring of `wraps` is filled."""


def kernels(bench: Bench) -> Facts:
    """26: of kernels with barriers between them each reads what the last one stored; two kernels without."""
    device = bench.device()
    first, second, out = device.alloc(4096), device.alloc(4096), device.alloc(4096, HOST)
    program, queue = bench.load(device, "count"), device.compute
    chained = 4 if bench.dry else _CHAIN

    def chain(number: int) -> None:
        commands = queue.record().fill(first, number).fill(second, 0).barrier()
        for i in range(chained):
            source, target = (second, first) if i % 2 else (first, second)
            commands.exec(program, program.args(target, source), groups=_ONE, threads=_ONE)
            commands.barrier(Scope.DEVICE)
        last = second if chained % 2 else first
        bench.wait(queue.submit(commands.copy(out, last, 4)))
        seen, want = int.from_bytes(out.host()[:4], "little"), number + chained
        bench.check(seen == want, f"{chained} kernels behind barriers counted from {number} to {seen}")

    repeats = bench.repeat("kernels behind barriers", chain)
    commands = queue.record().fill(second, 0).barrier()
    for target in (first, out):
        commands.exec(program, program.args(target, second), groups=_ONE, threads=_ONE)
    bench.wait(queue.submit(commands.barrier().copy(second, first, 4)))
    seen = int.from_bytes(out.host()[:4], "little")
    bench.check(seen == 1, f"the second of two kernels without a barrier stored {seen}, not 1")
    return {"kernels": chained, "repeats": repeats}


def host_stores(bench: Bench) -> Facts:
    """27: a copy reads what the host stored to video memory through the PCI window before the doorbell."""
    if not bench.gpu.visible_bytes and not bench.apu:
        return {"visible": "none: the PCI window is smaller than the memory"}
    device = bench.device()
    shown, out = device.alloc(4096, BufferSpec(host_visible=True)), device.alloc(4096, HOST)
    queue = device.copies[0]

    def again(_number: int) -> None:
        data = os.urandom(4096)
        shown.host()[:4096] = data
        bench.wait(queue.submit(queue.record().copy(out, shown, 4096)))
        wrong = sum(a != b for a, b in zip(data, bytes(out.host()[:4096]), strict=True))
        bench.demand(
            not wrong, f"of 4096 bytes that the host stored to video memory {wrong} were read as before"
        )

    return {"repeats": bench.repeat("stores of the host", again)}


def wraps(bench: Bench) -> Facts:
    """28: copies and kernels fill small rings several times, so that read pointers and packets wrap."""
    if bench.choices.ring_bytes == "large":
        return {"rings": "of 16 MiB, by choice: too many rounds to fill them"}
    rounds = 8 if bench.dry else _TIMES * _RING_BYTES // 64
    bench.count_rounds(bench.device(ring_bytes=_RING_BYTES), rounds)
    return {"ring bytes": _RING_BYTES, "rounds": rounds}
