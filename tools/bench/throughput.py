"""Throughput of tensor operations, compared with NumPy in the same run: matmul, conv and elementwise.

Each sample is a captured call from submission to completion, with inputs on the device. The result is
compared with NumPy's. NumPy runs on the host. Emulated devices run small sizes.

Not here: host overhead (`queues`, `tensors`), kernels by the device's clock (`compiled`). Next: `rows`, how
a figure is measured.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from frontend import Device, Tensor, TinyJit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tools.bench.rows import Bench

    Array = NDArray[np.float32]

_T = TypeVar("_T")
SAMPLES = 30
"""Samples of a figure, unless the bench is quick."""
WARM_UP = 3
"""Calls before a captured function replays."""


def matmul(bench: Bench) -> None:
    """Measure products of square float32 matrices in GFLOP/s."""
    for size in _small(bench, [64], [256, 512, 1024]):
        a, b = _random(size, size), _random(size, size)
        _compare(
            bench, f"{size} x {size} x {size}", (a, b), work=2e-9 * size**3, unit="GFLOP/s",
            run=lambda x, y: (x @ y).realize(), reference=np.matmul,
        )  # fmt: skip


def conv(bench: Bench) -> None:
    """Measure float32 convolutions with 3 x 3 filters and padding 1 in GFLOP/s."""
    real = [(8, 32, 64, 56), (8, 128, 128, 14)]
    for images, channels, filters, side in _small(bench, [(1, 4, 4, 8)], real):
        x, w = _random(images, channels, side, side), _random(filters, channels, 3, 3)
        work = 2e-9 * images * side * side * filters * channels * 9
        _compare(
            bench, f"{images} x {channels} x {side} x {side}, {filters} filters 3 x 3", (x, w), work=work,
            unit="GFLOP/s", run=lambda a, b: a.conv2d(b, padding=1).realize(), reference=_numpy_conv,
        )  # fmt: skip


def elementwise(bench: Bench) -> None:
    """Measure relu(x * y + x), one fused kernel, in GB/s of two reads and one write."""
    for count in _small(bench, [1 << 12], [1 << 16, 1 << 20, 1 << 24]):
        x, y = _random(count), _random(count)
        _compare(
            bench, f"relu(x * y + x), {count:,} floats", (x, y), work=12e-9 * count, unit="GB/s",
            run=lambda a, b: (a * b + a).relu().realize(), reference=_numpy_elementwise,
        )  # fmt: skip


def _small(bench: Bench, emulated: list[_T], real: list[_T]) -> list[_T]:
    """Return the cases for this device; for a quick bench only the first."""
    if bench.device.info.driver.endswith("-emu"):
        return emulated
    return real[:1] if bench.quick else real


def _compare(
    bench: Bench,
    case: str,
    inputs: tuple[Array, Array],
    *,
    work: float,
    unit: str,
    run: Callable[[Tensor, Tensor], Tensor],
    reference: Callable[[Array, Array], Array],
) -> None:
    """Add a row of the device and one of NumPy.

    `work` is the amount of one call; divided by the seconds of the call it is a rate in `unit`. Raises
    `AssertionError` if the result differs from NumPy's.
    """
    name = f"{bench.device.info.driver}:{bench.device.info.index}"
    queues = Device[name].hcq
    tensors = [Tensor(array, device=name).realize() for array in inputs]
    captured = TinyJit(run)

    def step() -> Tensor:
        out = captured(*tensors)
        queues.sync()
        return out

    for _ in range(WARM_UP):
        out = step()
    np.testing.assert_allclose(out.numpy(), reference(*inputs), rtol=1e-3, atol=1e-3)
    bench.add(case, _rates(bench, step, work), unit=unit)
    bench.add(
        case, _rates(bench, partial(reference, *inputs), work), unit=unit, device=f"NumPy {np.__version__}"
    )


def _rates(bench: Bench, run: Callable[[], object], work: float) -> list[float]:
    """Return the work per second of each call, after one that is not timed."""
    run()
    taken = []
    for _ in range(2 if bench.quick else SAMPLES):
        start = time.perf_counter()
        run()
        taken.append(work / (time.perf_counter() - start))
    return taken


def _random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _numpy_conv(x: Array, w: Array) -> Array:
    """Return the convolution as a matrix product over sliding windows."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    out: Array = np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3)))
    return out.transpose(0, 3, 1, 2)


def _numpy_elementwise(x: Array, y: Array) -> Array:
    out: Array = np.multiply(x, y)
    np.add(out, x, out=out)
    return np.maximum(out, np.float32(0), out=out)


CASES = {"matmul": matmul, "conv": conv, "elementwise": elementwise}
