"""Compiled kernels by the device's own clock: GB/s of kernels bound by memory, TFLOP/s of matrix products.

This is the case "kernels". Launches run one after another between two time stamps of their queue. A rate
counts the bytes, or operations, that the work needs at least. The whole result of each work is compared with
NumPy's in float64; products with more than `EXACT` rows are compared in float32. Emulated devices run small
sizes. Their results are checked, and they are not timed: their rows count kernels.

Not here: the same work in PyTorch (`compiled_cuda`). Next: `tools.gpu_kernels`, registers and spills.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

import hcq
from compiler.compile import compile_uncached
from compiler.plan.choice import StagedChoice, brief
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Device, Tensor
from frontend.evaluation.expr import uops
from frontend.evaluation.plan import build
from hcq.config import config
from hcq.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from numpy.typing import NDArray

    from frontend.evaluation.launch import KernelLaunch
    from tools.bench.rows import Bench

    Array = NDArray[np.float64]

EXACT = 1024
"""The most rows of a product that NumPy computes in float64; larger products would take minutes."""
LEAST_NS = 2_000_000
"""The least time of one sample; a sample of `MOST_LAUNCHES` launches may be shorter."""
MOST_LAUNCHES = 64
SAMPLES = 10
"""Samples of a figure, unless the bench is quick."""
WARM_S = 0.3
"""Seconds of work before the first sample: a GPU that was idle needs some to raise its clocks."""
TOLERANCE = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
"""The largest error that is allowed, divided by the largest result."""
TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Work:
    """One work of the benchmark: its operands, and what is computed from them."""

    name: str
    """What is computed: a key of `OURS`, `REFERENCE` and `compiled_cuda.theirs`."""
    shape: tuple[int, ...]
    """The shape of each operand."""
    dtype: str = "float32"
    count: int = 1
    """The number of operands."""
    choice: StagedChoice | None = None
    """The plan of a product; None for the plan that the compiler estimates to be the fastest."""

    @property
    def case(self) -> str:
        """The name in rows."""
        size = " x ".join(map(str, self.shape))
        short = next(key for key, name in TYPES.items() if name == self.dtype)
        plan = "" if self.choice is None else f", {brief(self.choice)}"
        return f"{self.name} {short} {size}{plan}"

    @property
    def unit(self) -> str:
        """The unit of its rate."""
        return "TFLOP/s" if self.name == "matmul" else "GB/s"

    @property
    def amount(self) -> float:
        """The least bytes or operations, in the unit in which amount / nanoseconds is the rate in `unit`."""
        if self.name == "matmul":
            return 2e-3 * self.shape[0] ** 3
        results = {"sum": 0, "row sums": self.shape[0], "column sums": self.shape[-1]}
        elements = math.prod(self.shape)
        return BYTES[self.dtype] * (self.count * elements + results.get(self.name, elements))

    def arrays(self) -> list[NDArray[np.float32]]:
        """Return random operands that do not repeat: a tile at a wrong offset has another result."""
        rng = np.random.default_rng(0)
        return [rng.standard_normal(self.shape, np.float32) for _ in range(self.count)]


OURS: dict[str, Callable[..., Tensor]] = {
    "add": lambda x, y: x + y,
    "chain": lambda x, y: (x * y + x).relu(),
    "sum": lambda x: x.sum(),
    "row sums": lambda x: x.sum(1),
    "column sums": lambda x: x.sum(0),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: x.layernorm(),
    "transpose": lambda x: x.transpose(0, 1).contiguous(),
    "matmul": lambda x, y: x @ y,
}


def _softmax(x: Array) -> Array:
    wide = np.exp(x - x.max(-1, keepdims=True))
    out: Array = wide / wide.sum(-1, keepdims=True)
    return out


def _layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    out: Array = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return out


REFERENCE: dict[str, Callable[..., Array]] = {
    "add": lambda x, y: x + y,
    "chain": lambda x, y: np.maximum(x * y + x, 0),
    "sum": lambda x: x.sum(),
    "row sums": lambda x: x.sum(1),
    "column sums": lambda x: x.sum(0),
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "transpose": lambda x: x.T,
    "matmul": lambda x, y: x @ y,
}


def works(*, small: bool, most: int = 8192) -> Iterator[Work]:
    """Yield all works: with `small` in small sizes, else of up to `most` rows and up to 256 MiB."""
    long, wide, rows = (5000, 96, (24, 200)) if small else (most * most, most, (most, most // 2))
    for name in ("add", "chain"):
        yield Work(name, (long,), count=2)
    if not small:
        yield Work("add", (long // 4,), count=2)
        yield Work("add", (long,), "float16", 2)
    yield Work("sum", (long,))
    yield Work("row sums", (wide, wide))
    yield Work("column sums", (wide, wide))
    for name in ("softmax", "layer norm"):
        yield Work(name, rows)
    yield Work("transpose", (wide, wide))
    if not small:
        yield Work("softmax", rows, "float16")
        yield Work("transpose", (wide, wide), "float16")
    for dtype in TYPES.values():
        for size in (80,) if small else [n for n in (1024, 2048, 4096, 8192) if n <= most]:
            yield Work("matmul", (size, size), dtype, 2)


def alternatives() -> Iterator[Work]:
    """Yield products of 4096 x 4096 matrices under twelve plans, of warps and of warpgroups."""
    for rows, columns, high, wide, words, depth in (
        (2, 2, 4, 8, 16, 4), (2, 4, 4, 8, 16, 4), (2, 2, 4, 8, 16, 2), (2, 4, 2, 8, 16, 4),
        (2, 2, 4, 8, 32, 4), (2, 1, 4, 32, 32, 4), (2, 1, 4, 32, 32, 2), (2, 1, 4, 16, 32, 4),
        (2, 1, 4, 16, 32, 2), (1, 2, 4, 16, 32, 4), (1, 1, 4, 32, 32, 4), (1, 1, 4, 16, 32, 4),
    ):  # fmt: skip
        choice = StagedChoice(
            matrix=True, rows=rows, columns=columns, high=high, wide=wide, words=words, depth=depth
        )
        yield Work("matmul", (4096, 4096), "float16", 2, choice)


def kernels(bench: Bench) -> None:
    """Measure each work; on an emulated device run it in a small size and count its kernels.

    Raises `UnsupportedError` for a device without a target, and at the end `CompileError` with the text of
    every result that was wrong.
    """
    info = bench.device.info
    name = f"{info.driver}:{info.index}"
    most = 8192 if target_of(info.arch).threads > 1 else 1024
    wrong: list[str] = []
    every = [*works(small=bench.emulated or bench.quick, most=most)]
    if not bench.emulated and not bench.quick and any(op.rows for op in target_of(info.arch).matrix):
        every += alternatives()
    for work in every:
        try:
            runner = Measured(name, work)
        except CompileError as error:  # the others are measured, too
            wrong.append(str(error))
            continue
        with runner:
            if bench.emulated:
                runner.nanoseconds(1)
                bench.add(work.case, [float(runner.kernels)], unit="kernels", note="emulated, not timed")
            else:
                taken = runner.rates(2 if bench.quick else SAMPLES)
                bench.add(
                    work.case, taken, unit=work.unit, note=f"{runner.kernels} kernel(s), result checked"
                )
    if wrong:
        raise CompileError("\n".join(wrong))


class Measured:
    """The kernels of one work with their memory, on a device of the frontend.

    `compute` replaces the function of `OURS`. The constructor runs the work once, and raises `CompileError`
    if its result differs from NumPy's by more than `TOLERANCE`. Leaving the context frees the memory.
    """

    def __init__(self, device: str, work: Work, compute: Callable[..., Tensor] | None = None) -> None:
        self.work = work
        self._device = Device[device]
        arrays = work.arrays()
        operands = [Tensor(a, device=device).cast(work.dtype).realize() for a in arrays]
        self._out = out = (compute or OURS[work.name])(*operands)
        plan = build([(out.expr, tuple(range(len(out.leaves))))], [-1], self._device, config())
        self._kernels = plan.kernels if work.choice is None else self._chosen(out, plan.kernels)
        self._memory: dict[Hashable, hcq.Buffer] = {
            ("in", i): leaf.buffer for i, leaf in enumerate(out.leaves)
        }
        self._owned: list[hcq.Buffer] = []
        for kernel in plan.kernels:
            for key, size in zip(kernel.memory, kernel.sizes, strict=True):
                if key not in self._memory:
                    self._owned.append(self._device.hcq.alloc(size))
                    self._memory[key] = self._owned[-1]
        self._check(operands, out)

    def _chosen(self, out: Tensor, kernels: tuple[KernelLaunch, ...]) -> tuple[KernelLaunch, ...]:
        """Return the only kernel of the work, compiled under the work's plan."""
        (item,) = schedule(uops([(out.expr, tuple(range(len(out.leaves))))]))
        (kernel,) = kernels
        made = compile_uncached(item.ast, self._device.arch, self.work.choice)
        program = self._device.hcq.load(made.image)
        return (replace(kernel, program=program, groups=made.groups, threads=made.threads),)

    @property
    def kernels(self) -> int:
        """The number of kernels."""
        return len(self._kernels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._owned:
            buffer.close()

    def rates(self, samples: int) -> list[float]:
        """Return the rate of each sample, in the unit of the work."""
        one = self.nanoseconds(1)
        launches = max(1, min(MOST_LAUNCHES, math.ceil(LEAST_NS / max(one, 1))))
        begun = time.perf_counter()
        while samples > 2 and time.perf_counter() - begun < WARM_S:
            self.nanoseconds(launches)
        return [self.work.amount / self.nanoseconds(launches) for _ in range(samples)]

    def nanoseconds(self, launches: int) -> float:
        """Launch all kernels `launches` times in a row; return the device's nanoseconds of one time."""
        queue = self._device.queue
        start, end = self._device.hcq.stamp(), self._device.hcq.stamp()
        commands = queue.record(label=self.work.case)
        self._add(commands, 1)  # the clock starts with the caches and the processors awake
        commands.timestamp(start)
        self._add(commands, launches)
        queue.submit(commands.timestamp(end)).wait()
        clock = self._device.hcq.clock()
        return (clock.to_ns(end.ticks) - clock.to_ns(start.ticks)) / launches

    def _add(self, commands: hcq.CommandBuffer, launches: int) -> None:
        for kernel in self._kernels * launches:
            self._launch(commands, kernel)
            commands.barrier(hcq.Scope.DEVICE)

    def _launch(self, commands: hcq.CommandBuffer, kernel: KernelLaunch) -> None:
        memory = [self._memory[key] for key in kernel.memory]
        if kernel.program is None:
            commands.copy(memory[0], memory[1], kernel.sizes[0])
        else:
            args = kernel.program.args(*memory)
            commands.exec(kernel.program, args, groups=kernel.groups, threads=kernel.threads)

    def _check(self, operands: list[Tensor], out: Tensor) -> None:
        """Raise `CompileError` if the result differs from NumPy's by more than `TOLERANCE`."""
        wide = np.float32 if self.work.name == "matmul" and self.work.shape[0] > EXACT else np.float64
        exact = [t.cast("float32").numpy().astype(wide) for t in operands]
        wanted = np.asarray(REFERENCE[self.work.name](*exact))
        seen = self._result(out)
        error = float(np.abs(seen - wanted).max() / np.abs(wanted).max())
        if not error <= TOLERANCE[self.work.dtype]:
            raise CompileError(
                f"{self.work.case}: wanted an error of at most {TOLERANCE[self.work.dtype]} of the largest "
                f"result, saw {error:.3g}; try `python -m tools.gpu_kernels --check`"
            )

    def _result(self, out: Tensor) -> Array:
        """Return the result of the kernels that are timed."""
        if self.work.choice is None:
            return out.cast("float32").numpy().astype(np.float64)
        self.nanoseconds(1)
        (key,) = [k.memory[at] for k in self._kernels for at in k.stores]
        data = bytes(self._device.read(self._memory[key], 2 * math.prod(out.shape)))
        return np.frombuffer(data, np.float16).astype(np.float64).reshape(out.shape)


CASES = {"kernels": kernels}
