"""The cases of `queues` through CUDA or HIP, by PyTorch, for comparison on a GPU.

This is the case "cuda", run in its own process: `hcq bench cuda --device cpu`. It needs a GPU,
and a PyTorch for CUDA, or for ROCm, which PyTorch also names "cuda"; `--all` does not include it. An
operation on one element replaces the empty kernel. Its cost on the host includes PyTorch's dispatch; the
replay of a graph has no dispatch.

Not here: kernels that do work (`compiled_cuda`). Next: `queues`, the same cases by this project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hcq.errors import UnsupportedError
from tools.bench.queues import COPY_SIZES, KERNELS, size_label

if TYPE_CHECKING:
    from tools.bench.rows import Bench


def pytorch() -> Any:  # PyTorch is not a dependency, so its types are unknown
    """Return PyTorch. Raises `UnsupportedError` if it is not installed or finds no GPU."""
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise UnsupportedError(
            f"the case cuda needs PyTorch: {error}\nhint: run it with a Python that has torch"
        ) from error
    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"PyTorch {torch.__version__} finds no CUDA or HIP device\n"
            "hint: see nvidia-smi and torch.version.cuda, or rocminfo and torch.version.hip"
        )
    return torch


def cuda(bench: Bench) -> None:
    """Measure launch, replay, the time of dependent kernels, and copies.

    Raises `UnsupportedError` as `pytorch` does.
    """
    torch = pytorch()
    device = f"cuda:0 {torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    one = torch.zeros(1, device="cuda")
    sync = torch.cuda.synchronize

    def launch() -> None:
        one.add_(1)

    def awaited() -> None:
        one.add_(1)
        sync()

    def burst() -> None:
        for _ in range(20):
            launch()

    bench.measure("one operation, host", burst, per=20, before=sync, device=device)
    bench.measure("one operation, then wait", awaited, samples=2000, device=device)
    graph = _captured(torch, launch)
    bench.measure(
        f"{KERNELS} kernels replayed, nothing changed", graph.replay, before=sync, samples=500, device=device
    )
    spans = [1e6 * milliseconds(torch, graph.replay) / KERNELS for _ in range(_count(bench, 100))]
    bench.add("a dependent small kernel, replayed", spans, unit="ns", device=device)
    for size in COPY_SIZES:
        _copies(bench, torch, size, device)


def _captured(torch: Any, launch: Any) -> Any:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch()  # the first launch loads the kernel, which is not allowed in a capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(KERNELS):
            launch()
    return graph


def milliseconds(torch: Any, run: Any) -> float:
    """Call `run`; return its milliseconds, by GPU events before and after it."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def _copies(bench: Bench, torch: Any, size: int, device: str) -> None:
    src, dst = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    repeats = max(1, (4 << 20) // size)

    def copies() -> None:
        for _ in range(repeats):
            dst.copy_(src)

    copies()
    rates = [2 * size * repeats / milliseconds(torch, copies) / 1e6 for _ in range(_count(bench, 50))]
    label = f"copy {size_label(size)}, by the device's clock"
    bench.add(label, rates, unit="GB/s", note="read + write", device=device)


def _count(bench: Bench, samples: int) -> int:
    return 2 if bench.quick else samples


CASES = {"cuda": cuda}
