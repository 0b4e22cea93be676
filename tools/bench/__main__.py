"""Benchmarks: median, quartiles, count, device and commit of each case, as a table or as JSON lines.

    python -m tools.bench                                    the default cases, on the device of "auto"
    python -m tools.bench submit replay copy --device cpu    queues only, without compiler and tensors

    python -m tools.bench submit --against /tmp/old          ratios to an older checkout, in interleaved pairs

    submit, replay, gap, signal, copy,  queues; signals, futures and awaits; memory between processes
    share
    eager, jit, start                   host time of tensors
    kernels                             throughput of compiled kernels, by the clock of a GPU
    lowering                            time from a kernel's AST to LLVM IR
    check                               price of HCQ_CHECK=1: first runs of models
    emu, emu-amd                        speed of the emulators
    all-reduce                          over two devices and two processes, beside gloo and mpi4py
    cuda, cuda-kernels                  the same work in PyTorch, which needs PyTorch and a GPU

Not here: the cases (`queues`, `tensors`, `compiled`, `lowering`, `check`, `collectives`, `emu`,
`emu_amd`, `cuda`, `compiled_cuda`), the pairs of `--against` (`against`). Next: `rows`, how a figure is
measured.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib import import_module
from math import floor, log10
from textwrap import wrap
from typing import TYPE_CHECKING

import hcq
from tools.arguments import command, device_name, library, output, positive, reported
from tools.bench.against import checkout, compare
from tools.bench.rows import Bench, Report, Row, commit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASES = {
    **dict.fromkeys(("submit", "replay", "gap", "signal", "copy", "share"), "tools.bench.queues"),
    **dict.fromkeys(("eager", "jit", "start"), "tools.bench.tensors"),
    "emu": "tools.bench.emu",
    "emu-amd": "tools.bench.emu_amd",
    "kernels": "tools.bench.compiled",
    "lowering": "tools.bench.lowering",
    "check": "tools.bench.check",
    "all-reduce": "tools.bench.collectives",
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
    parser.add_argument("--plot", type=output, help="draw the medians to this PNG (needs the [plot] extra)")
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
    if options.plot:
        library("matplotlib", cure="pip install 'matplotlib>=3.9'")  # before anything is measured
    rows: list[Row] = []
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
            rows, names = bench.rows, []
        for number, name in enumerate(names, 1):
            report.progress(f"[{number}/{len(names)}] {name}")
            bench = Bench(opened, quick=options.quick, name=name, commit=label, report=report)
            import_module(CASES[name]).CASES[name](bench)
            rows += bench.rows
    if options.plot:
        plot(rows, options.plot)
    return 0


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw a bar for each row, with quartiles as whiskers, in a panel for each unit, and save it as PNG.

    The logarithmic axis of a panel starts a decade below its smallest figure.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    units = list(dict.fromkeys(row.unit for row in rows))
    heights = [max(2, sum(row.unit == unit for row in rows)) for unit in units]
    figure, axes = plt.subplots(
        len(units),
        1,
        figsize=(10, 0.35 * sum(heights) + len(units)),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for axis, unit in zip(axes[:, 0], units, strict=True):
        shown = [row for row in rows if row.unit == unit][::-1]
        low = [row.median - row.p25 for row in shown]
        high = [row.p75 - row.median for row in shown]
        axis.barh(
            [f"{row.bench}: {row.case}" for row in shown],
            [row.median for row in shown],
            xerr=[low, high],
            color="#5b8db8",
        )
        axis.set_xscale("log")
        axis.set_xlim(left=10 ** (floor(log10(min(row.median for row in shown))) - 1))
        axis.set_xlabel(unit)
    figure.suptitle("\n".join(wrap(f"{rows[0].device}, {rows[0].commit}", 90)), fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    sys.exit(reported(main))
