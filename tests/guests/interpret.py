"""Time the Triton kernels of the corpus by the plug-in, beside Triton's interpreter (TRITON_INTERPRET=1).

    python -m tests.guests.interpret --device nv-emu:sm_80
    python -m tests.guests.interpret --device amd-emu:gfx942 --only matmul --json

`--workloads` takes inputs with grids of 128 to 256 workgroups, for the kernels whose grid grows with them.
Both run the same launches on the same inputs, and both results are compared with NumPy. A time is the least
of `--runs` launches after a first one, and of up to 50 while the processors took less than 50 ms for them, in
milliseconds: of the clock, and of the processors for all threads, which counts on a loaded machine. Compiling
is not in it.
The interpreter runs in a process of its own, on arrays in host memory without copies. Grid and elements of
all arrays are printed; the last line says on how many kernels the plug-in is faster, with the sums of both
times. Exit status 1 if a kernel fails, differs, or is slower by the plug-in.

Not here: the cases (`tests.guests.cases`), times of sizes for real GPUs (`tests.guests.tutorials`).
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import hcq
from interop import arrays, elements
from tests.guests import cases, more_cases
from tests.guests.tutorials import compare
from tools.arguments import command, device_name, positive, reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INTERPRETED = "--interpreted"
_WHILE_MS, _MOST_RUNS = 50.0, 50


class HostArray:
    """An array in host memory with the methods of a PyTorch tensor that Triton's interpreter calls."""

    def __init__(self, values: np.ndarray[Any, Any], dtype: Any) -> None:
        kind = elements.resolve(dtype)
        self.dtype = kind
        self.values = np.ascontiguousarray(elements.encode(values, kind))

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.values.ctypes.data)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the elements; narrow types become float32."""
        return elements.decode(self.values, self.dtype)

    def untyped_storage(self) -> HostArray:
        """Return the memory: this array itself."""
        return self

    def cpu(self) -> HostArray:
        """Return the same memory, which is the host's."""
        return self

    def new_empty(self, _size: int, device: str) -> HostArray:
        """Return what `set_` fills."""
        del device
        return self

    def set_(self, *_: object) -> None:
        """Keep the memory, of which the interpreter wants a view."""

    def storage_offset(self) -> int:
        """Return where the elements begin."""
        return 0

    def size(self) -> tuple[int, ...]:
        """Return the lengths of the axes."""
        return tuple(self.values.shape)

    def stride(self) -> tuple[int, ...]:
        """Return the distances along the axes in elements."""
        return tuple(step // self.values.itemsize for step in self.values.strides)

    def copy_(self, _source: HostArray) -> None:
        """Do nothing: the memory is the same."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.interpret", __doc__)
    parser.add_argument(
        "--device", type=device_name, default="nv-emu:sm_80", help="the emulated GPU; default: %(default)s"
    )
    parser.add_argument("--tutorials", action="store_true", help="the kernels of the tutorials only")
    parser.add_argument("--workloads", action="store_true", help="larger inputs, see above")
    parser.add_argument("--only", default="", help="run the kernels whose name contains this text")
    parser.add_argument("--runs", type=positive, default=3, help="timed runs of each kernel")
    parser.add_argument("--json", action="store_true", help="one JSON object a kernel")
    parser.add_argument(_INTERPRETED, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    known = more_cases.workloads() if options.workloads else more_cases.ALL
    named = {one.name for one in cases.TUTORIALS} if options.tutorials else {one.name for one in known}
    chosen = [one for one in known if one.name in named and options.only in one.name]
    if options.interpreted:
        for case in chosen:
            print(json.dumps(_row(case, HostArray, lambda: None, options.runs)), flush=True)
        return 0
    beside = _interpreted(sys.argv[1:] if argv is None else argv)
    from interop import triton_backend  # noqa: PLC0415 - Triton is needed only here

    rows = []
    with hcq.open(options.device) as opened:
        triton_backend.use(opened)
        for case in chosen:
            row = _row(
                case, lambda values, kind: arrays.array(opened, values, kind), opened.sync, options.runs
            )
            rows.append(_joined(row, beside[case.name]))
            print(json.dumps(rows[-1]) if options.json else text(rows[-1]), flush=True)
    print(summary(rows), file=sys.stderr if options.json else sys.stdout)
    failed = any("error" in row for row in rows)
    return 1 if failed or any(row.get("times", 2) <= 1 for row in rows) else 0


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return one line for all kernels: on how many the plug-in is faster, and the times of the processors."""
    done = sorted((row for row in rows if "times" in row), key=operator.itemgetter("times"))
    if not done:
        return f"none of {len(rows)} kernels was timed by both"
    times = [row["times"] for row in done]
    own, other = (sum(row[key] for row in done) for key in ("cpu_ms", "interpreter_cpu_ms"))
    slower = [row["kernel"] for row in done if row["times"] <= 1]
    return (
        f"faster on {len(done) - len(slower)} of {len(rows)}: {statistics.median(times):.1f} times in the "
        f"median, {times[0]:.1f} at least ({done[0]['kernel']}); processors {own:.1f} ms for all, "
        f"interpreter {other:.1f} ms" + (f"; slower: {', '.join(slower)}" if slower else "")
    )


def _interpreted(argv: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Run the kernels by the interpreter in a process of its own; return the rows by name."""
    command = [sys.executable, "-m", "tests.guests.interpret", *argv, _INTERPRETED]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return {row["kernel"]: row for row in map(json.loads, done.stdout.splitlines())}


def _row(
    case: cases.Case, place: Callable[[Any, Any], Any], finish: Callable[[], None], runs: int
) -> dict[str, Any]:
    """Return the difference from NumPy and the times of one case, or its error."""
    run = case.make(np.random.default_rng(1))
    elements = sum(one.values.size for one in run.values.values() if isinstance(one, cases.Data))
    row: dict[str, Any] = {"kernel": case.name, "grid": run.grid, "elements": elements}
    values = cases.placed(run, place)
    kernel = cases.kernel_of(case)
    given = {name: one for name, one in values.items() if name in kernel.arg_names}
    options = {**case.constants, "num_warps": case.warps, "num_stages": case.stages}

    def launch() -> None:
        kernel[run.grid](**given, **options)
        finish()

    try:
        launch()
        seen = {name: values[name].numpy() for name in run.expected}
        row |= compare(run.expected, seen, run.tolerance)
        took = [_timed(launch) for _ in range(runs)]
        while sum(one[1] for one in took) < _WHILE_MS and len(took) < _MOST_RUNS:
            took.append(_timed(launch))
    except Exception as error:  # noqa: BLE001 - the interpreter's errors have no common class
        return row | {"error": f"{type(error).__name__}: {error}"[:300]}
    row["ms"], row["cpu_ms"] = min(one[0] for one in took), min(one[1] for one in took)
    return row


def _timed(call: Callable[[], None]) -> tuple[float, float]:
    """Return the milliseconds of a call: of the clock, and of the processors."""
    clock, processors = time.perf_counter(), time.process_time()
    call()
    return (time.perf_counter() - clock) * 1e3, (time.process_time() - processors) * 1e3


def _joined(row: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    """Return one row of both; an error of the interpreter is named and no error of the kernel."""
    if "cpu_ms" not in row or "cpu_ms" not in beside:
        return row | {"interpreter_error": beside.get("error", "")}
    more = {"interpreter_ms": beside["ms"], "interpreter_cpu_ms": beside["cpu_ms"]}
    return row | more | {"times": beside["cpu_ms"] / max(row["cpu_ms"], 1e-3)}


def text(row: dict[str, Any]) -> str:
    """Return one line for a kernel."""
    if "error" in row:
        return f"{row['kernel']:28} FAILED  {row['error']}"
    if "times" not in row:
        return f"{row['kernel']:28} {row['cpu_ms']:9.2f} ms  interpreter: {row['interpreter_error']}"
    grid = " x ".join(str(one) for one in row["grid"] if one > 1) or "1"
    return (
        f"{row['kernel']:26} {grid:>8} groups {row['elements']:9,} elements "
        f"{row['cpu_ms']:9.2f} ms of processors, "
        f"interpreter {row['interpreter_cpu_ms']:10.2f} ms, "
        f"{row['times']:8.1f} times; clock {row['ms']:.2f} and {row['interpreter_ms']:.2f} ms"
    )


if __name__ == "__main__":
    sys.exit(reported(main))
