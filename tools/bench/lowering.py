"""The time from a kernel's AST to LLVM IR: `hcq bench lowering --device cpu`.

The row of a model has the median of its different kernels, in milliseconds of this thread's CPU time. Its
note has the 90th percentile, the slowest kernel and the share of each pass. Kernels are lowered in the order
of a first call. Before each round the table of nodes is emptied; the fastest round of each kernel counts.
Rows "with LLVM" add the time to machine code. Products are lowered for GPUs, too.

Not here: the models (`models`), the time of kernels (`compiled`). Next: `compiler.pipeline`, the passes.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compiler import collector
from compiler.compile import OPT_LEVEL
from compiler.emit import linear
from compiler.ir.naming import kernel_name
from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.ir.uop import trim_table
from compiler.nest import nest_check
from compiler.pipeline import arguments, planned, written
from compiler.targets import arch_for, target_of
from frontend import Device, Tensor
from frontend.evaluation.plan import scheduled
from frontend.evaluation.realize import keys_of
from hcq.config import config
from tools.bench.models import MODELS, products

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.targets.shared.target import Target
    from tools.bench.rows import Bench

GPUS: Final = ("sm_80", "sm_90a", "gfx942", "gfx1100", "gfx1201")
ROUNDS: Final = 5
"""How often a bench that is not quick lowers all kernels."""
QUICK: Final = 8
"""A quick bench lowers each n-th kernel of a model, once."""


@dataclass(slots=True)
class Lowered:
    """The times of one kernel, in nanoseconds of CPU time."""

    name: str
    passes: dict[str, int]
    """Pass -> its time."""
    llvm: int = 0
    """From IR to machine code; 0 if it was not measured."""

    @property
    def total(self) -> int:
        """The time from AST to IR."""
        return sum(self.passes.values())


def lowering(bench: Bench) -> None:
    """Measure the lowering of the kernels of models for the host, and of products for the host and GPUs.

    Raises `UnsupportedError` for a device without a target.
    """
    device = f"{bench.device.info.driver}:{bench.device.info.index}"
    arch = arch_for(bench.device.info)
    default, Device.DEFAULT = Device.DEFAULT, device
    try:
        works = {name: kernels_of([model()], arch) for name, model in MODELS.items()}
        targets = {arch: "", **{gpu: f", {gpu}" for gpu in GPUS}}
        for dtype in ("float32", "float16"):
            made = products(dtype)
            for one, label in targets.items():
                works[f"{dtype} products{label}"] = kernels_of(made, one)
    finally:
        Device.DEFAULT = default
    for name, texts in works.items():
        gpu = name.rpartition(", ")[2]
        target = target_of(gpu if gpu in GPUS else arch)
        _rows(bench, name, texts[::QUICK] if bench.quick else texts, target)


def kernels_of(launches: Sequence[Sequence[Tensor]], arch: str) -> list[str]:
    """Return the texts of the different kernels that launches of pending tensors need. None is run."""
    texts: dict[str, None] = {}
    for tensors in launches:
        for key in keys_of(tensors).values():
            parts = [(key[i], key[i + 1]) for i in range(0, len(key), 3)]
            _, items = scheduled(parts, key[2::3], arch, config())
            texts.update(dict.fromkeys([kernel_key(item.ast) for item in items]))
    return list(texts)


@collector.paused()
def lowered(texts: Sequence[str], target: Target, rounds: int, *, llvm: bool) -> list[Lowered]:
    """Lower kernels in order, in each round with an empty table of nodes; return the fastest round of each.

    With `llvm` the first round also compiles the IR to machine code.
    """
    found = [_once(text, target, llvm=llvm) for text in texts]
    for _ in range(rounds - 1):
        trim_table(0)
        again = [_once(text, target, llvm=False) for text in texts]
        for one, other in zip(found, again, strict=True):
            one.passes = min(one.passes, other.passes, key=lambda passes: sum(passes.values()))
    return found


def _once(text: str, target: Target, *, llvm: bool) -> Lowered:
    """Lower one kernel by the passes of `compiler.pipeline.steps`."""
    ast = parse_kernel(text)
    clock = time.thread_time_ns
    times = [clock()]
    args, name = arguments(ast), kernel_name(ast, text)
    times.append(clock())
    ast, plan = planned(ast, target)
    times.append(clock())
    lines = written(ast, plan, args)
    times.append(clock())
    if plan.threads > 1:
        nest_check.verify(plan, target)
    if plan.phases:
        nest_check.verify_parts(ast, plan)
    linear.verify(lines)
    times.append(clock())
    groups, (threads, _, _) = plan.launch()
    counts = len(args.access), len(args.variables)
    ir = target.render(lines, name, counts, target, groups, threads)
    times.append(clock())
    names = ("name", "plan", "linearize", "verify", "render")
    passes = {one: end - start for one, start, end in zip(names, times[:-1], times[1:], strict=True)}
    made = Lowered(name, passes)
    if llvm:
        start = clock()
        target.emit(ir, target.machine(), OPT_LEVEL)
        made.llvm = clock() - start
    return made


def _rows(bench: Bench, name: str, texts: Sequence[str], target: Target) -> None:
    """Add the rows of the kernels of one work."""
    host = target.threads == 1
    found = lowered(texts, target, 1 if bench.quick else ROUNDS, llvm=host)
    times = sorted([one.total for one in found])
    slowest = max(found, key=lambda one: one.total)
    most = times[min(len(times) - 1, math.ceil(0.9 * len(times)) - 1)]
    shares = {
        one: 100 * sum([k.passes[one] for k in found]) / sum(times) for one in found[0].passes
    }  # fmt: skip
    note = f"p90 {most / 1e6:.2f}, worst {slowest.total / 1e6:.2f} {slowest.name}; "
    note += ", ".join([f"{one} {share:.0f} %" for one, share in shares.items()])
    bench.add(name, [one / 1e6 for one in times], unit="ms", note=note)
    if host:
        whole = [one.total + one.llvm for one in found]
        last = found[whole.index(max(whole))]
        note = f"worst {max(whole) / 1e6:.2f} {last.name}"
        bench.add(f"{name}, with LLVM", [one / 1e6 for one in whole], unit="ms", note=note)


CASES = {"lowering": lowering}
