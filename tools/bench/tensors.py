"""Benchmarks of the host time of tensors: eager, jit and start.

Not here: queues without tensors (`queues`), throughput (`compiled`). Next: `rows`, how a figure is
measured.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from frontend import Device, Tensor, TinyJit

if TYPE_CHECKING:
    from tools.bench.rows import Bench


def eager(bench: Bench) -> None:
    """Measure building and realizing small graphs of a known structure, up to the submission.

    One row also reads the result back.
    """
    name = _name(bench)
    a, b = (
        Tensor(range(16), device=name).float().realize(),
        Tensor.ones(16, device=name).contiguous().realize(),
    )

    def sync() -> None:
        Device[name].hcq.sync()

    def eager_add() -> Tensor:
        return (a + b).realize()

    def read_add() -> object:
        return (a + b).tolist()

    def ten() -> Tensor:
        y = a
        for _ in range(5):
            y = (y + b) * 0.5
        return y.realize()

    bench.burst("(a + b).realize() on 16 floats", eager_add, before=sync)
    bench.burst("ten operations, one realize", ten, before=sync)
    bench.burst("(a + b).tolist()", read_add, before=sync)


def jit(bench: Bench) -> None:
    """Measure calls of a captured function of one kernel, and of a chain of a hundred kernels."""
    name = _name(bench)
    a, b = (
        Tensor(range(16), device=name).float().realize(),
        Tensor.ones(16, device=name).contiguous().realize(),
    )
    one = TinyJit(lambda p, q: (p + q).realize())

    def chain(x: Tensor) -> Tensor:
        for _ in range(100):
            x = (x + 1.0).clone()
        return x.realize()

    hundred = TinyJit(chain)
    for _ in range(3):
        one(a, b)
        hundred(a)

    def sync() -> None:
        Device[name].hcq.sync()

    bench.burst("one kernel, two inputs", partial(one, a, b), before=sync)
    bench.burst("a hundred dependent kernels", partial(hundred, a), before=sync)


def start(bench: Bench) -> None:
    """Measure two processes: one imports `frontend`, one computes 2 + 3 with a filled cache.

    The time of an empty interpreter is subtracted.
    """
    empty = _median("pass", bench)
    for case, code in (
        ("import frontend", "import frontend"),
        (
            "Tensor([2]) + Tensor([3]), read back",
            "from frontend import Tensor; print((Tensor([2]) + Tensor([3])).tolist())",
        ),
    ):
        _seconds(code)
        taken = [_seconds(code) - empty for _ in range(2 if bench.quick else 15)]
        bench.add(
            case, [1e3 * s for s in taken], unit="ms", note=f"an empty interpreter takes {1e3 * empty:.0f} ms"
        )


def _name(bench: Bench) -> str:
    return f"{bench.device.info.driver}:{bench.device.info.index}"


def _median(code: str, bench: Bench) -> float:
    taken = sorted(_seconds(code) for _ in range(3 if bench.quick else 15))
    return taken[len(taken) // 2]


def _seconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


CASES = {"eager": eager, "jit": jit, "start": start}
