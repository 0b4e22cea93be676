"""Run the kernels of Triton's tutorials through the plug-in, compare with NumPy, and print times.

    python -m tests.guests.tutorials --device nv --full
    python -m tests.guests.tutorials --device nv-emu:sm_80 --json

Needs Triton 3.6 to 3.9; neither libcuda nor ROCm. Exit status 1 if a kernel fails or differs.

Not here: the cases (`tests.guests.cases`).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import hcq
from interop import arrays
from tests.guests import cases, more_cases
from tools.arguments import command, device_name, positive, reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.device import Device


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.tutorials", __doc__)
    parser.add_argument("--device", type=device_name, default="nv-emu", help="a GPU, real or emulated")
    parser.add_argument("--full", action="store_true", help="sizes for a large GPU")
    parser.add_argument("--all", action="store_true", help="all kernels of the corpus, in small sizes")
    parser.add_argument("--only", default="", help="run the kernels whose name contains this text")
    parser.add_argument("--runs", type=positive, default=5, help="timed runs of each kernel")
    parser.add_argument(
        "--torch", action="store_true", help="time PyTorch on CUDA beside it (in this process)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(argv)
    from interop import triton_backend  # noqa: PLC0415 - Triton is needed only here

    failed = 0
    with hcq.open(options.device) as opened:
        triton_backend.use(opened)
        for case in cases.FULL if options.full else more_cases.ALL if options.all else cases.TUTORIALS:
            if options.only in case.name:
                row = run(opened, case, options.runs)
                if options.torch and "error" not in row:
                    row["torch_ms"] = _torch_ms(case)
                failed += "error" in row
                print(json.dumps(row) if options.json else text(row), flush=True)
                if opened.refusal is not None:
                    opened.recover()
    return 1 if failed else 0


def run(device: Device, case: cases.Case, runs: int) -> dict[str, Any]:
    """Return the result of one case: the largest difference and the device time, or the error."""
    case_run = case.make(np.random.default_rng(1))
    row: dict[str, Any] = {"kernel": case.name, "device": device.info.name, "arch": device.info.arch}
    try:
        values = cases.placed(case_run, lambda values, kind: arrays.array(device, values, kind))
        kernel = cases.kernel_of(case)
        given = {name: one for name, one in values.items() if name in kernel.arg_names}
        options = {**case.constants, "num_warps": 8 if case.full else case.warps, "num_stages": case.stages}
        begin = time.monotonic()
        made = kernel[case_run.grid](**given, **options)
        seen = {name: values[name].numpy() for name in case_run.expected}
        row |= compare(case_run.expected, seen, case_run.tolerance)
        row["first_s"] = round(time.monotonic() - begin, 3)
        row["registers"], row["spills"], row["shared"] = made.n_regs, made.n_spills, made.metadata.shared
        row["ms"] = _median_ms(device, lambda: kernel[case_run.grid](**given, **options), runs)
    except (hcq.HcqError, RuntimeError, AttributeError) as error:
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def compare(
    expected: Mapping[str, cases.Array], seen: Mapping[str, cases.Array], tolerance: float
) -> dict[str, Any]:
    """Return the largest relative difference of all results, with an error where it is too large."""
    worst = 0.0
    for name, wanted in expected.items():
        scale = float(np.abs(wanted).max()) or 1.0
        gap = np.abs(seen[name].astype(np.float64) - wanted) / scale
        worst = max(worst, float(gap.max()) if np.isfinite(gap).all() else float("inf"))
    row: dict[str, Any] = {"difference": worst, "tolerance": tolerance}
    return row | ({"error": f"differs by {worst:.3g}"} if worst > tolerance else {})


def _median_ms(device: Device, call: Any, runs: int) -> float:
    from interop.triton_backend.timing import Event  # noqa: PLC0415 - beside the plug-in

    times = []
    for _ in range(runs):
        begin, end = Event(device), Event(device)
        begin.record()
        call()
        end.record()
        times.append(begin.elapsed_time(end))
    return round(statistics.median(times), 4)


def _torch_ms(case: cases.Case) -> float | None:
    """Return the milliseconds of PyTorch's own operation on CUDA; None where there is none."""
    import torch  # noqa: PLC0415 - only on request

    if not torch.cuda.is_available():
        return None
    values = case.make(np.random.default_rng(1)).values
    data = {
        name: torch.tensor(one.values, device="cuda").to(getattr(torch, one.dtype or str(one.values.dtype)))
        for name, one in values.items()
        if isinstance(one, cases.Data)
    }
    functional = torch.nn.functional
    calls = {
        "vector_add": lambda: data["x"] + data["y"],
        "softmax": lambda: torch.softmax(data["x"], 1),
        "matmul": lambda: data["a"] @ data["b"],
        "persistent_matmul": lambda: data["a"] @ data["b"].T,
        "layer_norm": lambda: functional.layer_norm(
            data["x"], data["x"].shape[1:], data["weight"], data["bias"]
        ),
        "attention": lambda: functional.scaled_dot_product_attention(
            data["q"][None], data["k"][None], data["v"][None], is_causal=bool(case.constants.get("CAUSAL"))
        ),
    }
    call = calls.get(case.kernel)
    if call is None:
        return None
    call()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return float(round(statistics.median(times), 4))


def text(row: dict[str, Any]) -> str:
    """Return one line for a result."""
    if "error" in row:
        return f"{row['kernel']:28} FAILED  {row['error'][:400]}"
    beside = f"  torch {row['torch_ms']} ms" if row.get("torch_ms") else ""
    return (
        f"{row['kernel']:28} {row['ms']:10.4f} ms  difference {row['difference']:.2e}  "
        f"{row['registers']} registers {row['spills']} spills  {row['shared']} shared  "
        f"first {row['first_s']} s{beside}"
    )


if __name__ == "__main__":
    sys.exit(reported(main))
