"""Time the cases with one implementation, in a process of its own: `python worker.py IMPLEMENTATION`.

Each line of stdin is the name of a case. The answer is the seconds of one call, or `none` if the
implementation lacks the case. `frontend` is imported only for this project's cases, so that the worker also
runs in PyTorch's environment. With OMP_NUM_THREADS=1 the seconds are CPU time, which other programs disturb
less.

Not here: the order of the calls and the page (`tools.performance.__main__`). Next:
`tools.performance.products`, more cases.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.performance import products

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "matmul 512": ((512, 512), (512, 512)),
    "matmul 1024": ((1024, 1024), (1024, 1024)),
    "conv2d 32x64x56x56, 3x3": ((32, 64, 56, 56), (64, 64, 3, 3)),
    "softmax 4096x1024": ((4096, 1024),),
    "softmax 4096x4096": ((4096, 4096),),
    "layer norm 4096x1024": ((4096, 1024),),
    "layer norm 4096x4096": ((4096, 4096),),
    "layer norm 512x768, gradient": ((512, 768), (512, 768)),
    "sum 16M": ((1 << 24,),),
    "running sum 8x32x3249": ((8, 32, 3249),),
    "transpose 4096x4096": ((4096, 4096),),
    "fused chain 16M": ((1 << 24,), (1 << 24,)),
}
"""The shapes of the inputs of each case."""
LEAST_S: Final = 0.02
"""A sample repeats the operation until it takes about this long, or `MOST_CALLS` times."""
MOST_CALLS: Final = 200
"""The most calls of one sample."""
THREADS: Final = int(os.environ.get("OMP_NUM_THREADS", "2"))
CLOCK: Final = time.process_time if THREADS == 1 else time.perf_counter


def inputs(case: str) -> list[Any]:
    """Return the inputs of a case, the same in every process."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in SHAPES[case]]


def _normed(x: Any) -> Any:
    """Return the layer norm of the rows, without weights."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))


def _softmax(x: Any) -> Any:
    """Return the softmax of the rows."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def with_numpy(case: str) -> Callable[[], Any] | None:
    """Return a function that computes a case in NumPy; None for convolutions, gradients and attention.

    It is also None for products of types other than float32.
    """
    if case in products.CASES:
        return products.with_numpy(products.CASES[case])
    a, b = (*inputs(case), None)[:2]
    rows: dict[str, Callable[[], Any]] = {
        "matmul": lambda: a @ b,
        "softmax": lambda: _softmax(a),
        "layer": lambda: _normed(a),
        "sum": a.sum,
        "running": lambda: a.cumsum(-1),
        "transpose": lambda: np.ascontiguousarray(a.T),
        "fused": lambda: np.maximum(a * b + 1, 0) * a - b,
    }
    return None if case.startswith("conv2d") or "gradient" in case else rows[case.split(maxsplit=1)[0]]


def with_torch(case: str) -> Callable[[], Any] | None:
    """Return a function that computes a case in PyTorch, on `THREADS` threads; None if PyTorch cannot."""
    import torch  # noqa: PLC0415 - in its own environment only

    torch.set_num_threads(THREADS)
    if case in products.CASES:
        return products.with_torch(products.CASES[case])
    a, b = (*[torch.from_numpy(x) for x in inputs(case)], None)[:2]
    if "gradient" in case:
        a.requires_grad_()

        def gradient() -> Any:
            return torch.autograd.grad(torch.nn.functional.layer_norm(a, a.shape[-1:]), a, b)

        return gradient
    rows: dict[str, Callable[[], Any]] = {
        "matmul": lambda: a @ b,
        "conv2d": lambda: torch.nn.functional.conv2d(a, b, padding=1),
        "softmax": lambda: a.softmax(-1),
        "layer": lambda: torch.nn.functional.layer_norm(a, a.shape[-1:]),
        "sum": a.sum,
        "running": lambda: a.cumsum(-1),
        "transpose": a.T.contiguous,
        "fused": lambda: (a * b + 1).relu() * a - b,
    }
    return rows[case.split(maxsplit=1)[0]]


def with_hcq(case: str) -> Callable[[], Any]:
    """Return a function that computes a case in this project, and waits until the result is complete."""
    if case in products.CASES:
        return products.with_hcq(products.CASES[case])
    from frontend import Device, Tensor  # noqa: PLC0415 - PyTorch's environment lacks it

    a: Any
    b: Any
    a, b = (*[Tensor(x).realize() for x in inputs(case)], None)[:2]
    rows: dict[str, Callable[[], Any]] = {
        "matmul": lambda: a @ b,
        "conv2d": lambda: a.conv2d(b, padding=1),
        "softmax": lambda: a.softmax(-1),
        "layer": lambda: a.layernorm(-1),
        "sum": a.sum,
        "running": lambda: a.cumsum(-1),
        "transpose": lambda: a.transpose(0, 1).contiguous(),
        "fused": lambda: (a * b + 1).relu() * a - b,
    }

    def run() -> None:
        if "gradient" in case:
            (a.layernorm(-1) * b).sum().gradient(a)[0].realize()
        else:
            rows[case.split(maxsplit=1)[0]]().realize()
        Device[a.device].synchronize()

    return run


IMPLEMENTATIONS: Final[dict[str, Callable[[str], Callable[[], Any] | None]]] = {
    "hcq": with_hcq, "NumPy": with_numpy, "PyTorch": with_torch,
}  # fmt: skip


def timed(run: Callable[[], Any]) -> float:
    """Return the seconds of one call: the mean of the calls of a sample, by `CLOCK`."""
    start, calls = CLOCK(), 0
    while calls < MOST_CALLS:
        run()
        calls += 1
        if CLOCK() - start > LEAST_S:
            break
    return (CLOCK() - start) / calls


def main() -> None:
    """Answer requests until stdin ends. The first request of a case also makes two untimed calls."""
    make = IMPLEMENTATIONS[sys.argv[1]]
    known: dict[str, Callable[[], Any] | None] = {}
    for line in sys.stdin:
        case = line.rstrip("\n")
        if case not in known:
            known.clear()  # memory of one case at a time
            known[case] = run = make(case)
            if run is not None:
                run()
                run()
        run = known[case]
        sys.stdout.write("none\n" if run is None else f"{timed(run)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
