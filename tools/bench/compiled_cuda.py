"""The work of `compiled` in PyTorch on CUDA or HIP, for comparison on a GPU, with the same names of cases.

This is the case "cuda-kernels": `hcq bench cuda-kernels --device cpu`. It needs a GPU, and a
PyTorch for CUDA or ROCm; `--all` does not include it.

Not here: launches and copies in PyTorch (`cuda`). Next: `compiled`, the same work by this project.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from tools.bench.compiled import LEAST_NS, MOST_LAUNCHES, SAMPLES, WARM_S, works
from tools.bench.cuda import milliseconds, pytorch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.bench.rows import Bench


def theirs(torch: Any) -> dict[str, Callable[..., Any]]:
    """Return, for each name of a work in `compiled`, the function of PyTorch that computes it."""
    return {
        "add": torch.add,
        "chain": lambda x, y: torch.relu(x * y + x),
        "sum": torch.sum,
        "row sums": lambda x: x.sum(1),
        "column sums": lambda x: x.sum(0),
        "softmax": lambda x: torch.softmax(x, -1),
        "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        "transpose": lambda x: x.t().contiguous(),
        "matmul": torch.matmul,
    }


def kernels(bench: Bench) -> None:
    """Measure each work by GPU events. Raises `UnsupportedError` without PyTorch or without a GPU."""
    torch = pytorch()
    device = f"cuda:0 {torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    functions = theirs(torch)
    for work in works(small=bench.quick):
        kind = getattr(torch, work.dtype)
        operands = [torch.from_numpy(a).cuda().to(kind) for a in work.arrays()]

        def run(
            launches: int,
            function: Callable[..., Any] = functions[work.name],
            operands: list[Any] = operands,
        ) -> float:
            def many() -> None:
                for _ in range(launches):
                    function(*operands)

            function(*operands)  # the device is busy while the host submits what is timed
            return 1e6 * milliseconds(torch, many) / launches

        run(1)
        launches = max(1, min(MOST_LAUNCHES, math.ceil(LEAST_NS / run(1))))
        begun = time.perf_counter()
        while not bench.quick and time.perf_counter() - begun < WARM_S:
            run(launches)
        taken = [work.amount / run(launches) for _ in range(2 if bench.quick else SAMPLES)]
        bench.add(work.case, taken, unit=work.unit, device=device)


CASES = {"cuda-kernels": kernels}
