"""`python -m tools.bench CASE ... [--device NAME] [--json FILE] [--plot FILE.png] [--quick]`."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from importlib import import_module
from math import floor, log10
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import hcq
from tools.bench.rows import Bench, Report, Row, commit

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = {
    **dict.fromkeys(("submit", "replay", "gap", "signal", "copy"), "tools.bench.queues"),
    **dict.fromkeys(("eager", "jit", "start"), "tools.bench.tensors"),
    "emu": "tools.bench.emu",
    "nv": "tools.bench.nv",
    "cuda": "tools.bench.cuda",
}
"""Case -> module that holds it in its `CASES`; imported only when asked for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases: a readable line a figure to stderr, and a JSON row to stdout unless it is a terminal."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="Queue-level microbenchmarks.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--all", action="store_true", help="every case but cuda, which needs PyTorch")
    parser.add_argument("--device", default="auto", help="as hcq.open takes it (default: auto)")
    parser.add_argument("--json", type=Path, help="write each row to this file, too, as it comes")
    parser.add_argument("--plot", type=Path, help="draw the medians to this PNG (needs the [plot] extra)")
    parser.add_argument(
        "--quick", action="store_true", help="two samples a case: shows that it runs, not how fast"
    )
    options = parser.parse_args(argv)
    names = [name for name in CASES if name != "cuda"] if options.all else options.cases
    unknown = [name for name in names if name not in CASES]
    if unknown or not names:
        parser.error(
            f"no case called {', '.join(unknown)}; there are: {', '.join(CASES)}"
            if unknown
            else "name a case, or --all"
        )
    rows: list[Row] = []
    label = commit()
    with ExitStack() as undo:
        file = undo.enter_context(options.json.open("w")) if options.json else None
        report = Report(sys.stdout, sys.stderr, file)
        device = undo.enter_context(hcq.open(options.device, validate=False))
        for name in names:
            bench = Bench(device, quick=options.quick, name=name, commit=label, report=report)
            import_module(CASES[name]).CASES[name](bench)
            rows += bench.rows
    if options.plot:
        plot(rows, options.plot)
    return 0


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw one bar a row, a panel a unit, quartiles as whiskers.

    Bars begin a decade below the smallest figure of their panel.
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
    sys.exit(main())
