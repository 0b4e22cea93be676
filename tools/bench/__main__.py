"""Benchmarks: median, quartiles, count, device and commit of each case, as a table or as JSON lines.

    hcq bench                                    the default cases, on the device of "auto"
    hcq bench submit replay copy --device cpu    queues only, without compiler and tensors

    hcq bench submit --against /tmp/old          ratios to an older checkout, in interleaved pairs

    submit, replay, gap, signal, copy,  queues; signals, futures and awaits; memory between processes
    share
    eager, jit, start                   host time of tensors
    kernels                             throughput of compiled kernels, by the clock of a GPU
    lowering                            time from a kernel's AST to LLVM IR
    check                               price of HCQ_CHECK=1: first runs of models
    emu, emu-amd                        speed of the emulators
    all-reduce, overlap                 over two devices and two processes, beside gloo and mpi4py; a captured
                                        step whose exchanges run beside its kernels, and after them
    cuda, cuda-kernels                  the same work in PyTorch, which needs PyTorch and a GPU

Not here: the cases (`queues`, `tensors`, `compiled`, `lowering`, `check`, `collectives`, `emu`,
`emu_amd`, `cuda`, `compiled_cuda`), the pairs of `--against` (`against`). Next: `rows`, how a figure is
measured.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING

import hcq
from tools.arguments import command, device_name, output, positive, reported
from tools.bench.against import checkout, compare
from tools.bench.rows import Bench, Report, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = {
    **dict.fromkeys(("submit", "replay", "gap", "signal", "copy", "share"), "tools.bench.queues"),
    **dict.fromkeys(("eager", "jit", "start"), "tools.bench.tensors"),
    "emu": "tools.bench.emu",
    "emu-amd": "tools.bench.emu_amd",
    "kernels": "tools.bench.compiled",
    "lowering": "tools.bench.lowering",
    "check": "tools.bench.check",
    **dict.fromkeys(("all-reduce", "overlap"), "tools.bench.collectives"),
    "cuda": "tools.bench.cuda",
    "cuda-kernels": "tools.bench.compiled_cuda",
}
"""Case -> the module whose `CASES` has it; imported on demand."""
PEERS = ("cuda", "cuda-kernels")
"""The cases that need PyTorch and a GPU."""
DEFAULT = ("submit", "replay", "copy", "eager", "jit")
"""The cases that run if none is named."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases and return 0.

    stdout gets a table, or JSON lines with --json or if it is no terminal; stderr gets the progress. An error
    of a case ends the run. Raises `HcqError` if the device does not open.
    """
    parser = command("tools.bench", __doc__)
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help=f"of: {', '.join(CASES)} (default: {' '.join(DEFAULT)})",
    )
    parser.add_argument("--all", action="store_true", help="every case but those that need PyTorch")
    parser.add_argument(
        "--device", type=device_name, default="auto", help="a name for hcq.open (default: auto)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines, also in a terminal")
    parser.add_argument("--output", type=output, help="write the JSON lines to this file, too")
    parser.add_argument(
        "--quick", action="store_true", help="two samples per case: tests that it runs, not its speed"
    )
    parser.add_argument(
        "--against", type=checkout, metavar="CHECKOUT", help="print ratios to this older checkout"
    )
    parser.add_argument("--pairs", type=positive, default=9, help="runs in each checkout (default: 9)")
    options = parser.parse_args(argv)
    names = [name for name in CASES if name not in PEERS] if options.all else options.cases or list(DEFAULT)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no case called {', '.join(unknown)}; there are: {', '.join(CASES)}")
    label = commit()
    with ExitStack() as undo:
        file = undo.enter_context(options.output.open("w")) if options.output else None
        lines = options.json or not sys.stdout.isatty()
        report = Report(sys.stdout, sys.stderr, file, lines=lines)
        opened = undo.enter_context(hcq.open(options.device, validate=False))
        if options.against:
            words = [*names, "--device", options.device, *["--quick"] * options.quick]
            bench = Bench(opened, quick=options.quick, name="", commit=label, report=report)
            for line in compare(bench, words, options.against, pairs=options.pairs):
                report.progress(line)
            names = []
        for number, name in enumerate(names, 1):
            report.progress(f"[{number}/{len(names)}] {name}")
            bench = Bench(opened, quick=options.quick, name=name, commit=label, report=report)
            import_module(CASES[name]).CASES[name](bench)
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
