"""The tensor programs whose kernels lose a barrier, compiled for a target.

Not here: the vendors' other kernels and how they run without a barrier (`nv.kernels`, `amd.kernels`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from compiler.compile import compile_kernel
from compiler.schedule.scheduler import schedule
from frontend import Tensor
from frontend.expr import uops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from compiler.image import CompiledKernel


def compiled(target: str) -> Iterator[tuple[str, CompiledKernel, tuple[tuple[int, bool], ...]]]:
    """Yield name, kernel, and of each buffer its number of floats and whether the kernel reads it."""
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        "softmax": lambda x: x.softmax(-1),
        "sum": lambda x: x.sum(),
        "max": lambda x: x.amax(-1),
        "variance": lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1),
    }
    for name, program in programs.items():
        result = program(Tensor(np.zeros((4, 2048), "f4")))
        graph = uops([(result.expr, tuple(range(len(result.leaves))))])
        for number, item in enumerate(schedule(graph)):
            kernel = compile_kernel(item.ast, target)
            sizes = tuple(
                (int(np.prod(buffer.shape)), arg.access == "r")
                for buffer, arg in zip(item.bufs, kernel.image.args, strict=True)
            )
            yield f"{name} {number}", kernel, sizes
